"""Cases by a seed: tables that are hard to get right, and verbs in random order.

What is dangerous in combination comes often: column mapping, partitions, nested nulls and merges.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from tests.judge.cases import (
    AddFeature,
    Alter,
    Append,
    Case,
    Clause,
    Clone,
    Column,
    Delete,
    Frame,
    Merge,
    Optimize,
    Origin,
    Overwrite,
    Restore,
    StreamRead,
    Update,
    Vacuum,
    Verb,
    dotted,
    quoted,
)
from tests.judge.values import (
    CHARS,
    COMMON,
    SCALARS,
    VARIANT,
    WIDER,
    Array,
    Kind,
    Map,
    Scalar,
    Struct,
    all_leaves,
    literal,
    null,
    value,
)

KEY: Final = "k"
KEY_KIND: Final = Scalar("bigint")
IDENTITY: Final = "n"
PLAIN_NAMES: Final = ("a", "b", "v", "w", "p", "q", "name", "at")
ODD_NAMES: Final = (
    "a.b",
    "s.a",
    "V w",
    "desc",
    "comment",
    "order",
    "values",
    "table",
    "select",
    "default",
    "key",
    "Größe",
    "z\u200dj",
    "\ufeffbom",
    "_metadata",
    "_change_type",
    "__op",
    "__deleted",
    "tick`s",
    "s",
    "t",
    "source",
    "target",
    "value",
    "element",
    "path",
    "file",
    "position",
    "_row",
    "col-x",
    "1st",
    "true",
    "null",
    "a%20b",
    "x/y",
    "it's",
    'say "so"',
    "UPPER",
    "timestamp",
    "interval",
)
FORBIDDEN_UNMAPPED: Final = frozenset(" ,;{}()\n\t=")
MAPPED: Final = "delta.columnMapping.mode"
FEATURES: Final = {
    "delta.enableDeletionVectors": "true",
    "delta.enableChangeDataFeed": "true",
    "delta.enableRowTracking": "true",
    "delta.enableTypeWidening": "true",
    "delta.enableInCommitTimestamps": "true",
    "delta.appendOnly": "true",
    "delta.feature.allowColumnDefaults": "supported",
    "delta.dataSkippingNumIndexedCols": "1",
    "mine": "1",
}
FEATURE_WEIGHTS: Final = (6, 6, 2, 4, 2, 1, 3, 1, 1)


@dataclass
class Model:
    """What the generator believes the table to be, after the verbs so far."""

    dice: random.Random
    columns: list[tuple[str, Kind]]
    by: list[str]
    properties: dict[str, str]
    first: dict[str, Kind] = field(default_factory=dict)
    """The columns with which the table is made, whatever it takes later."""
    required: set[str] = field(default_factory=set)
    computed: set[str] = field(default_factory=set)
    """Generated and identity columns: rows lack them."""
    needs_table: bool = False
    """Whether ours must append by `Table.append`."""
    next_key: int = 0
    made: int = 0
    verbs: int = 0
    constraints: list[str] = field(default_factory=list)

    @property
    def is_mapped(self) -> bool:
        return MAPPED in self.properties

    @property
    def settled(self) -> list[tuple[str, Kind]]:
        """The columns whose values do not depend on the order in which an engine numbers rows."""
        return [item for item in self.columns if item[0] != IDENTITY]

    @property
    def given(self) -> list[tuple[str, Kind]]:
        """The columns that rows have."""
        return [item for item in self.columns if item[0] not in self.computed]

    def names(self) -> list[str]:
        return [name for name, _ in self.columns]

    def has_key(self) -> bool:
        return KEY in self.names()


def case(seed: int) -> Case:
    """Return the case of a seed."""
    dice = random.Random(seed)
    model = _model(dice)
    _give_a_variant(model, random.Random(f"variant {seed}"))
    columns = [_column(model, name, kind) for name, kind in model.columns]
    origin: Origin = dice.choices(("each", "delta-spark", "delta-rs"), (7, 2, 2))[0]
    if origin == "delta-rs" and any("variant" in kind.sql() for _, kind in model.columns):
        origin = "delta-spark"
    columns += _computed_columns(model)
    model.first = dict(model.columns)
    clustered = _clustered(model)
    rows = Frame(*_header(model.given), tuple(_row(model) for _ in range(dice.randrange(1, 6))))
    wanted = dice.randrange(2, 7)
    first = Case(
        tuple(columns),
        rows,
        (),
        tuple(model.by),
        dict(model.properties),
        clustered,
        origin if not model.computed else "each",
        in_other_case=bool(model.by) and not dice.randrange(20),
    )
    verbs: list[Verb] = []
    if origin == "delta-rs" and model.by and dice.randrange(2):
        verbs.append(_same_partitions(model, rows))
        model.verbs = 1
    while len(verbs) < wanted:
        verb = _verb(model)
        if verb is None:
            continue
        if isinstance(verb, StreamRead):
            verbs += _beside_a_stream(model)
        else:
            verbs.append(verb)
        model.verbs = len(verbs)
    return replace(first, verbs=tuple(verbs))


def _same_partitions(model: Model, rows: Frame) -> Overwrite:
    """Return a dynamic overwrite of partitions that are there, as another engine spelt them."""
    dice = model.dice
    places = [rows.names.index(name) for name in model.by]
    news = []
    for _ in range(dice.randrange(1, 3)):
        row, there = list(_row(model)), dice.choice(rows.rows)
        for place in places:
            row[place] = there[place]
        news.append(tuple(row))
    return Overwrite(replace(rows, rows=tuple(news)), {"partitionOverwriteMode": "dynamic"})


def _beside_a_stream(model: Model) -> list[Verb]:
    """Return verbs between two reads of one stream, with one checkpoint."""
    between = [verb for verb in (_append(model), *_dropped_and_added(model)) if verb is not None]
    chosen = model.dice.choice((_append, _alternately, _delete))
    more = chosen(model)
    return [StreamRead(), *between, *([] if more is None else [more]), StreamRead()]


def _alternately(model: Model) -> Verb | None:
    return model.dice.choice((_add_column, _rename_column, _widen, _merge, _update))(model)


def _dropped_and_added(model: Model) -> list[Verb]:
    """Return how a mapped column goes and another of its name and type comes, now and then."""
    choices = [leaf for leaf in _movable(model) if len(leaf[0]) == 1 and leaf[1] not in CHARS]
    if not choices or not model.is_mapped or model.dice.randrange(2):
        return []
    path, kind = model.dice.choice(choices)
    left = _with(model.columns, path, None)
    model.columns[:] = [*left, (path[0], kind)]
    return [
        Alter(f"DROP COLUMN {dotted(path)}", "drop_column", (dotted(path),)),
        Alter(
            f"ADD COLUMN {dotted(path)} {kind.sql()}", "add_column", (dotted(path), kind.sql()), {}
        ),
    ]


def _model(dice: random.Random) -> Model:
    properties: dict[str, str] = {}
    mode = dice.choices(("", "name", "id"), (5, 5, 1))[0]
    if mode:
        properties[MAPPED] = mode
    for _ in range(dice.choices((0, 1, 2, 3), (4, 4, 4, 1))[0]):
        name = dice.choices(list(FEATURES), FEATURE_WEIGHTS)[0]
        properties[name] = FEATURES[name]
    model = Model(dice, [], [], properties)
    count = dice.randrange(1, 5)
    kinds = [_kind(dice, 0) for _ in range(count)]
    partitions = [_partition_kind(dice) for _ in range(dice.choices((0, 1, 2), (4, 5, 2))[0])]
    for kind in kinds:
        model.columns.append((_name(model), kind))
    structs = [(name, kind) for name, kind in model.columns if isinstance(kind, Struct)]
    if structs and not dice.randrange(8):
        name, struct = dice.choice(structs)
        # It is spelt like a field of the struct.
        model.columns.append((f"{name}.{struct.fields[0][0]}", dice.choice(COMMON)))
    for kind in partitions:
        name = _name(model)
        model.columns.insert(dice.randrange(len(model.columns) + 1), (name, kind))
        model.by.append(name)
    if dice.randrange(12):
        model.columns.insert(
            0 if dice.randrange(3) else dice.randrange(len(model.columns) + 1), (KEY, KEY_KIND)
        )
    return model


def _give_a_variant(model: Model, dice: random.Random) -> None:
    """Give one table of twelve a variant: a column, or within one. delta-rs writes none."""
    if dice.randrange(12):
        return
    places = [at for at, (name, _) in enumerate(model.columns) if name not in (*model.by, KEY)]
    at = dice.choice(places)
    name, kind = model.columns[at]
    model.columns[at] = (name, VARIANT if dice.randrange(2) else _with_a_variant(dice, kind))


def _with_a_variant(dice: random.Random, kind: Kind) -> Kind:
    """Return a type with a variant somewhere within, where it has parts."""
    if isinstance(kind, Struct):
        fields = list(kind.fields)
        at = dice.randrange(len(fields))
        fields[at] = (fields[at][0], _with_a_variant(dice, fields[at][1]))
        return Struct(tuple(fields))
    if isinstance(kind, Array):
        return Array(_with_a_variant(dice, kind.element))
    if isinstance(kind, Map):
        return Map(kind.key, _with_a_variant(dice, kind.value))
    return VARIANT


def _column(model: Model, name: str, kind: Kind) -> Column:
    dice = model.dice
    required = name == KEY and not dice.randrange(6)
    if required:
        model.required.add(name)
    written = kind.sql()
    if isinstance(kind, Struct) and not dice.randrange(10):
        written = kind.sql(required=dice.choice(kind.fields)[0])
    return Column(
        name,
        written,
        nullable=not required,
        comment=dice.choice(("why", 'it\'s "so"')) if not dice.randrange(8) else None,
    )


def _computed_columns(model: Model) -> list[Column]:
    dice = model.dice
    result = []
    if not dice.randrange(12) and model.has_key():
        result.append(Column("g", "bigint", generated=f"{KEY} + 1"))
        model.columns.append(("g", Scalar("bigint")))
        model.computed.add("g")
        if not dice.randrange(4) and len(model.by) < 2:
            model.by.append("g")
    if not dice.randrange(16):
        result.append(Column(IDENTITY, "bigint", identity=dice.choice(((1, 1), (10, -3)))))
        model.columns.append((IDENTITY, Scalar("bigint")))
        model.computed.add(IDENTITY)
    model.needs_table = bool(result) or dice.randrange(6) > 0
    return result


def _clustered(model: Model) -> tuple[str, ...]:
    if not model.by and model.has_key() and not model.dice.randrange(12):
        return (KEY,)
    return ()


def _name(model: Model, taken: Sequence[str] = ()) -> str:
    """Return a name that no column has; an odd one now and then."""
    dice = model.dice
    used = {name.lower() for name in (*model.names(), *taken)}
    while True:
        name = dice.choice(ODD_NAMES if dice.randrange(3) == 0 else PLAIN_NAMES)
        if not model.is_mapped and FORBIDDEN_UNMAPPED & set(name):
            continue
        if name.lower() in used or name == KEY:
            model.made += 1
            name = f"{dice.choice(PLAIN_NAMES)}{model.made}"
        if name.lower() not in used:
            return name


def _kind(dice: random.Random, depth: int) -> Kind:
    """Return a type: structs, arrays and maps to a depth of three."""
    roll = dice.randrange(10)
    if depth < 3 and roll < (5 if depth == 0 else 3):
        parts = dice.randrange(1, 4)
        names = dice.sample(("a", "b", "c", "a.b", "desc", "D e", "k", "zip"), parts)
        names = [name.replace(" ", "_") for name in names]
        return Struct(tuple((name, _kind(dice, depth + 1)) for name in names))
    if depth < 3 and roll == 5:
        return Array(_kind(dice, depth + 1))
    if depth < 3 and roll == 6:
        return Map(dice.choice((Scalar("string"), Scalar("int"))), _kind(dice, depth + 1))
    if depth == 0 and dice.randrange(20) == 0:
        return dice.choice(CHARS)
    return dice.choice(COMMON if dice.randrange(2) else SCALARS)


def _partition_kind(dice: random.Random) -> Scalar:
    """Return a type of a partition column: often text, or one that engines spell otherwise."""
    spelt_otherwise = ("timestamp", "timestamp_ntz", "decimal(8,2)", "double")
    roll = dice.randrange(3)
    if roll == 0:
        return Scalar("string")
    return Scalar(dice.choice(spelt_otherwise)) if roll == 1 else dice.choice(SCALARS)


def _header(columns: Sequence[tuple[str, Kind]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return names and types for a frame; what is char or varchar there is text here."""
    return tuple(name for name, _ in columns), tuple(_written(kind) for _, kind in columns)


def _written(kind: Kind) -> str:
    return "string" if kind in CHARS else kind.sql()


def _row(model: Model, columns: Sequence[tuple[str, Kind]] | None = None) -> tuple[str, ...]:
    dice = model.dice
    cells = []
    for name, kind in model.given if columns is None else columns:
        if name == KEY and kind == KEY_KIND:
            cells.append(_key(model))
        elif name in model.by and dice.randrange(4):
            cells.append(_of_few(model, kind))
        else:
            cells.append(value(dice, kind, may_be_null=name not in model.required))
    return tuple(cells)


def _key(model: Model) -> str:
    roll = model.dice.randrange(20)
    if roll == 0 and KEY not in model.required:
        return null(KEY_KIND)
    if roll < 6 and model.next_key:
        return f"{model.dice.randrange(model.next_key)}L"
    model.next_key += 1
    return f"{model.next_key - 1}L"


def _of_few(model: Model, kind: Kind) -> str:
    """Return one of few values, so that partitions hold several rows."""
    few = random.Random(f"{kind.sql()} {model.dice.randrange(3)}")
    return value(few, kind)


def _verb(model: Model) -> Verb | None:
    chosen = model.dice.choices(list(VERBS), list(VERBS.values()))[0]
    return chosen(model)


def _frame_columns(model: Model) -> list[tuple[str, Kind]]:
    """Return columns for new rows: all of them or fewer, in the table's order or another."""
    dice = model.dice
    columns = list(model.given)
    if dice.randrange(5) == 0 and len(columns) > 1:
        gone = dice.choice([item for item in columns if item[0] not in model.required] or columns)
        columns.remove(gone)
    if dice.randrange(4) == 0:
        dice.shuffle(columns)
    if dice.randrange(12) == 0:
        columns = [(name.swapcase(), kind) for name, kind in columns]
    return columns


def _evolved(model: Model, kind: Kind, depth: int = 0) -> Kind:
    """Return a type of a source: with a field more or less somewhere, or a wider one."""
    dice = model.dice
    if isinstance(kind, Struct) and (depth == 0 or dice.randrange(2)):
        fields = list(kind.fields)
        roll = dice.randrange(-1, 5)
        if roll < 1 and len(fields) > 1:
            fields.pop(dice.randrange(len(fields)))
        elif roll == 1:
            names = {name.lower() for name, _ in fields}
            new = next(name for name in ("e", "f1", "f2", "f3", "f4", "f5") if name not in names)
            fields.insert(dice.randrange(len(fields) + 1), (new, dice.choice(COMMON)))
        elif roll == 2:
            dice.shuffle(fields)
        else:
            at = dice.randrange(len(fields))
            fields[at] = (fields[at][0], _evolved(model, fields[at][1], depth + 1))
        return Struct(tuple(fields))
    if isinstance(kind, Array):
        return Array(_evolved(model, kind.element, depth + 1))
    if isinstance(kind, Map):
        return Map(kind.key, _evolved(model, kind.value, depth + 1))
    if isinstance(kind, Scalar) and kind.name in WIDER and dice.randrange(3) == 0:
        return Scalar(dice.choice(WIDER[kind.name]))
    return kind


def _evolving_columns(model: Model) -> list[tuple[str, Kind]]:
    """Return columns for rows that change the table's columns, perhaps."""
    dice = model.dice
    columns = _frame_columns(model)
    for _ in range(dice.randrange(1, 3)):
        roll = dice.randrange(3)
        if roll == 0:
            columns.insert(
                dice.randrange(len(columns) + 1),
                (_name(model, [name for name, _ in columns]), _kind(dice, 1)),
            )
        else:
            nested = [at for at, (_, kind) in enumerate(columns) if isinstance(kind, Struct)]
            nested = nested or [
                at for at, (_, kind) in enumerate(columns) if not isinstance(kind, Scalar)
            ]
            at = dice.choice(nested) if nested else dice.randrange(len(columns))
            name, kind = columns[at]
            if name != KEY:
                columns[at] = (name, _evolved(model, kind))
    return columns


def _learn(model: Model, columns: Sequence[tuple[str, Kind]]) -> None:
    """Note the columns that a write with evolution adds."""
    for name, kind in columns:
        at = next((i for i, n in enumerate(model.names()) if n.lower() == name.lower()), None)
        if at is None:
            model.columns.append((name, kind))
        else:
            old, known = model.columns[at]
            model.columns[at] = (old, _merged(known, kind))


def _merged(old: Kind, new: Kind) -> Kind:
    if isinstance(old, Struct) and isinstance(new, Struct):
        fields = dict(new.fields)
        kept = [(name, _merged(kind, fields.get(name, kind))) for name, kind in old.fields]
        names = {name.lower() for name, _ in old.fields}
        return Struct((*kept, *(item for item in new.fields if item[0].lower() not in names)))
    if isinstance(old, Array) and isinstance(new, Array):
        return Array(_merged(old.element, new.element))
    if isinstance(old, Map) and isinstance(new, Map):
        return Map(old.key, _merged(old.value, new.value))
    return old


def _frame(model: Model, columns: Sequence[tuple[str, Kind]], count: int) -> Frame:
    return Frame(*_header(columns), tuple(_row(model, columns) for _ in range(count)))


def _append(model: Model) -> Verb:
    dice = model.dice
    count = dice.choices((0, 1, 2, 4), (1, 4, 4, 2))[0]
    if dice.randrange(3) == 0:
        columns = _evolving_columns(model)
        frame = _frame(model, columns, count)
        _learn(model, columns)
        return Append(frame, {"mergeSchema": "true"}, model.needs_table)
    frame = _frame(model, _frame_columns(model), count)
    return Append(frame, {}, model.needs_table)


def _overwrite(model: Model, kind: str = "") -> Verb:
    dice = model.dice
    kind = kind or dice.choices(("static", "dynamic", "where", "schema"), (1, 4, 3, 1))[0]
    count = dice.choices((0, 1, 2, 4), (1, 4, 4, 2))[0]
    if kind == "schema":
        columns = [*_evolving_columns(model)]
        frame = _frame(model, columns, count)
        by = tuple(model.by) if dice.randrange(3) else ()
        model.columns[:] = columns
        model.by[:] = list(by)
        model.computed.clear()
        return Overwrite(frame, {"overwriteSchema": "true"}, by)
    options = {}
    columns = _frame_columns(model)
    if dice.randrange(5) == 0:
        columns = _evolving_columns(model)
        options["mergeSchema"] = "true"
    frame = _frame(model, columns, count)
    condition = None
    if kind == "dynamic":
        options["partitionOverwriteMode"] = "dynamic"
    if kind == "where":
        condition = _matching_condition(model, frame)
    if "mergeSchema" in options:
        if condition is not None:
            del options["mergeSchema"]
        else:
            _learn(model, columns)
    by_table = condition is None or model.needs_table or dice.randrange(2) == 0
    return Overwrite(frame, options, (), condition, by_table)


def _matching_condition(model: Model, frame: Frame) -> str:
    """Return a condition that all rows of a frame meet, mostly."""
    dice = model.dice
    if dice.randrange(8) == 0 or not frame.rows:
        return _condition(model)
    at = dice.randrange(len(frame.names))
    candidates = [i for i, name in enumerate(frame.names) if name in model.by]
    if candidates and dice.randrange(4):
        at = dice.choice(candidates)
    name, kind = quoted(frame.names[at]), frame.types[at]
    if kind.startswith("map"):
        return _condition(model)
    return " OR ".join(dict.fromkeys(f"{name} <=> {row[at]}" for row in frame.rows))


def _condition(model: Model, alias: str = "") -> str:
    """Return a condition that some rows meet."""
    dice = model.dice
    pre = f"{alias}." if alias else ""
    roll = dice.randrange(10)
    if model.has_key() and roll < 3:
        return f"{pre}{KEY} {dice.choice(('=', '>', '<=', '<>'))} {dice.randrange(6)}"
    if model.has_key() and roll == 3:
        return f"{pre}{KEY} % 2 = {dice.randrange(2)}"
    if roll == 4:
        return dice.choice(("true", f"NOT ({_condition(model, alias)})"))
    if roll == 5:
        connective = dice.choice(("AND", "OR"))
        return f"{_condition(model, alias)} {connective} {_condition(model, alias)}"
    path, kind = dice.choice(all_leaves(model.settled))
    partitions = [(item, of) for item, of in all_leaves(model.settled) if item[0] in model.by]
    if partitions and dice.randrange(2):
        path, kind = dice.choice(partitions)
    name = f"{pre}{dotted(path)}"
    if isinstance(kind, Map) or _has_map(kind) or dice.randrange(4) == 0:
        return f"{name} IS {dice.choice(('NULL', 'NOT NULL'))}"
    chosen = _of_few(model, kind) if path[0] in model.by else value(dice, kind)
    if not isinstance(kind, Scalar):
        return f"{name} <=> {chosen}"
    return f"{name} {dice.choice(('=', '<=>', '<', '>=', '<>'))} {chosen}"


def _has_map(kind: Kind) -> bool:
    if isinstance(kind, Map):
        return True
    if isinstance(kind, Array):
        return _has_map(kind.element)
    return isinstance(kind, Struct) and any(_has_map(part) for _, part in kind.fields)


def _delete(model: Model) -> Verb:
    return Delete(None if model.dice.randrange(12) == 0 else _condition(model))


def _targets(model: Model) -> list[tuple[tuple[str, ...], Kind]]:
    """Return columns and fields of which none lies in another."""
    dice = model.dice
    choices = [leaf for leaf in all_leaves(model.columns) if leaf[0][0] not in model.computed]
    nested = [leaf for leaf in choices if len(leaf[0]) > 1]
    chosen: list[tuple[tuple[str, ...], Kind]] = []
    for _ in range(dice.choice((1, 1, 2, 3))):
        path, kind = dice.choice(nested if nested and dice.randrange(2) else choices)
        overlaps = any(path[: len(p)] == p or p[: len(path)] == path for p, _ in chosen)
        if not overlaps:
            chosen.append((path, kind))
    return chosen


def _update(model: Model) -> Verb | None:
    dice = model.dice
    targets = _targets(model)
    assigned = tuple((dotted(path), _value(model, path, kind)) for path, kind in targets)
    condition = None if dice.randrange(4) == 0 else _condition(model)
    if any(kind in CHARS for _, kind in model.columns):
        # delta-spark fills each CHAR with spaces where an update has no condition, and not else.
        if not model.has_key():
            return None
        condition = f"({condition or 'true'}) AND ({KEY} IS NULL OR {KEY} > -100)"
    return Update(assigned, condition)


def _value(model: Model, path: tuple[str, ...], kind: Kind, alias: str = "") -> str:
    """Return an expression for a column or field.

    Spark takes the fields of an assigned struct by their places, we by their names. So one is given
    only where the order is known: both engines may have refused what changed the column.
    """
    text = _any_value(model, path, kind, alias)
    is_as_made = model.first.get(path[0]) == dict(model.columns)[path[0]]
    return text if is_as_made or "named_struct(" not in text else "NULL"


def _any_value(model: Model, path: tuple[str, ...], kind: Kind, alias: str) -> str:
    dice = model.dice
    pre = f"{alias}." if alias else ""
    roll = dice.randrange(8)
    if roll == 0:
        return "NULL"
    if roll == 1:
        same = [item for item, of in all_leaves(model.settled) if of == kind]
        return f"{pre}{dotted(dice.choice(same))}" if same else f"{pre}{dotted(path)}"
    if roll == 2 and isinstance(kind, Scalar) and kind.name in ("int", "bigint", "double"):
        return (
            f"{pre}{dotted(path)} + 1"
            if dice.randrange(4)
            else f"CAST(floor(rand()) AS {kind.name})"
        )
    if roll == 3 and isinstance(kind, Struct):
        return value(dice, _in_order(kind, _evolved(model, kind)))
    return value(dice, kind)


def _in_order(of: Kind, kind: Kind) -> Kind:
    """Return a type whose structs have their fields in the order of another type's."""
    if isinstance(kind, Struct) and isinstance(of, Struct):
        known = dict(of.fields)
        places = {name: at for at, name in enumerate(known)}
        fields = sorted(kind.fields, key=lambda field: places.get(field[0], len(places)))
        return Struct(tuple((name, _in_order(known.get(name, one), one)) for name, one in fields))
    if isinstance(kind, Array) and isinstance(of, Array):
        return Array(_in_order(of.element, kind.element))
    if isinstance(kind, Map) and isinstance(of, Map):
        return Map(kind.key, _in_order(of.value, kind.value))
    return kind


def _merge(model: Model) -> Verb | None:
    dice = model.dice
    if not model.has_key():
        return None
    evolves = dice.randrange(2) == 0
    if dice.randrange(10) == 0:
        shift = dice.choice(("", " + 1"))
        # delta-spark 4.4.0 loses a row where several rows of the table match one that is deleted.
        clauses = tuple(c for c in _clauses(model, model.columns) if c.does != "delete")
        if not clauses:
            return None
        return Merge(f"t.{KEY} = s.{KEY}{shift}", clauses, None, evolves)
    columns = _evolving_columns(model) if evolves else _frame_columns(model)
    columns = [(KEY if name == KEY.upper() else name, kind) for name, kind in columns]
    if KEY not in [name for name, _ in columns]:
        columns.append((KEY, KEY_KIND))
    before = model.next_key
    frame = _frame(model, columns, dice.choice((0, 1, 2, 2, 3)))
    keys = [f"{dice.randrange(max(before, 1) + 2)}L" for _ in frame.rows]
    if dice.randrange(4):
        keys = [f"{key}L" for key in dice.sample(range(before + 3), len(frame.rows))]
    if keys and dice.randrange(10) == 0:
        keys[0] = null(KEY_KIND)
    at = frame.names.index(KEY)
    rows = tuple(
        (*row[:at], key, *row[at + 1 :]) for row, key in zip(frame.rows, keys, strict=True)
    )
    frame = replace(frame, rows=rows)
    condition = f"t.{KEY} {dice.choice(('=', '=', '=', '<=>'))} s.{KEY}"
    partitions = [name for name in model.by if name in frame.names]
    if partitions and dice.randrange(4) == 0:
        name = quoted(dice.choice(partitions))
        condition += f" AND t.{name} {dice.choice(('=', '<=>'))} s.{name}"
    clauses = _clauses(model, columns)
    if evolves and any(clause.assigned is None and clause.does != "delete" for clause in clauses):
        _learn(model, columns)
    return Merge(condition, clauses, frame, evolves)


def _clauses(model: Model, source: Sequence[tuple[str, Kind]]) -> tuple[Clause, ...]:
    dice = model.dice
    result: list[Clause] = []
    if dice.randrange(6):
        if dice.randrange(4) == 0:
            does: Literal["update", "delete"] = dice.choice(("delete", "update"))
            assigned = _merge_values(model, source) if does == "update" else None
            result.append(Clause("matched", does, assigned, _condition(model, "t")))
        does = dice.choices(("update", "delete"), (5, 1))[0]
        star = does == "delete" or dice.randrange(2) == 0
        result.append(Clause("matched", does, None if star else _merge_values(model, source)))
    if dice.randrange(3) or not result:
        star = dice.randrange(5) > 1
        values = tuple(
            (quoted(name), _of_source(dice, name))
            for name, _ in source
            if name not in model.computed and (name == KEY or dice.randrange(5))
        )
        guard = f"s.{KEY} > 1" if dice.randrange(6) == 0 else None
        result.append(Clause("not matched", "insert", None if star else values, guard))
    if dice.randrange(4) == 0:
        if dice.randrange(2):
            assigned = tuple(
                (dotted(path), _value(model, path, kind, "t")) for path, kind in _targets(model)
            )
            result.append(
                Clause("not matched by source", "update", assigned, _condition(model, "t"))
            )
        else:
            result.append(Clause("not matched by source", "delete", None, _condition(model, "t")))
    return tuple(result)


def _of_source(dice: random.Random, name: str) -> str:
    """Return how an insert names a column of its source: often without the source's alias."""
    if dice.randrange(2):
        return f"s.{quoted(name)}"
    is_word = name.isascii() and name.isidentifier() and name.lower() not in ("true", "null")
    return name if is_word else quoted(name)


def _merge_values(model: Model, source: Sequence[tuple[str, Kind]]) -> tuple[tuple[str, str], ...]:
    dice = model.dice
    known = all_leaves(source)
    assigned = []
    for path, kind in _targets(model):
        same = [item for item, of in known if of == kind]
        if same and dice.randrange(2):
            chosen = path if path in same else dice.choice(same)
            assigned.append((dotted(path), f"s.{dotted(chosen)}"))
        else:
            assigned.append((dotted(path), _value(model, path, kind, "t")))
    return tuple(assigned)


def _optimize(model: Model) -> Verb:
    dice = model.dice
    where = None
    if model.by and dice.randrange(3) == 0:
        name = dice.choice(model.by)
        kind = dict(model.columns).get(name)
        if kind is not None:
            where = f"{quoted(name)} = {_of_few(model, kind)}"
    order: tuple[str, ...] = ()
    if dice.randrange(3) == 0:
        order = (quoted(dice.choice(model.names())),)
    return Optimize(where, order)


def _restore(model: Model) -> Verb | None:
    if not model.verbs or not model.dice.randrange(2):
        return None
    return Restore(model.dice.randrange(-1, model.verbs))


def _clone(model: Model) -> Verb:
    return Clone()


def _vacuum(model: Model) -> Verb:
    return Vacuum()


def _stream(model: Model) -> Verb:
    return StreamRead()


def _add_column(model: Model) -> Verb:
    dice = model.dice
    structs = [(path, kind) for path, kind in all_leaves(model.columns) if isinstance(kind, Struct)]
    kind = _kind(dice, 2)
    parent: tuple[str, ...] = ()
    if structs and dice.randrange(2):
        parent, struct = dice.choice(structs)
        assert isinstance(struct, Struct)
        siblings = [name for name, _ in struct.fields]
    else:
        siblings = model.names()
    name = _name(model, siblings)
    place: dict[str, object] = {}
    words = ""
    roll = dice.randrange(4)
    if roll == 0:
        place, words = {"first": True}, " FIRST"
    elif roll == 1:
        after = dice.choice(siblings)
        place, words = {"after": after}, f" AFTER {quoted(after)}"
    path = (*parent, name)
    _insert(model, path, kind)
    sql = f"ADD COLUMN {dotted(path)} {kind.sql()}{words}"
    return Alter(sql, "add_column", (dotted(path), kind.sql()), place)


def _insert(model: Model, path: tuple[str, ...], kind: Kind) -> None:
    model.columns[:] = _with(model.columns, path, kind)


def _with(
    fields: Sequence[tuple[str, Kind]], path: tuple[str, ...], kind: Kind | None
) -> list[tuple[str, Kind]]:
    """Return fields with another type at a path, a new one, or (None) without it."""
    [name, *rest] = path
    result = []
    found = False
    for known, old in fields:
        if known != name:
            result.append((known, old))
            continue
        found = True
        if rest:
            assert isinstance(old, Struct)
            result.append((known, Struct(tuple(_with(old.fields, tuple(rest), kind)))))
        elif kind is not None:
            result.append((known, kind))
    if not found and not rest and kind is not None:
        result.append((name, kind))
    return result


def _movable(model: Model) -> list[tuple[tuple[str, ...], Kind]]:
    fixed = {KEY, *model.by, *model.computed}
    return [leaf for leaf in all_leaves(model.columns) if leaf[0][0] not in fixed]


def _drop_column(model: Model) -> Verb | None:
    choices = _movable(model)
    if not choices or len(model.columns) < 3:
        return None
    path, _ = model.dice.choice(choices)
    if model.is_mapped:
        left = _with(model.columns, path, None)
        if all(not isinstance(kind, Struct) or kind.fields for _, kind in all_leaves(left)):
            model.columns[:] = left
    return Alter(f"DROP COLUMN {dotted(path)}", "drop_column", (dotted(path),))


def _rename_column(model: Model) -> Verb | None:
    dice = model.dice
    choices = [
        leaf for leaf in all_leaves(model.columns) if leaf[0][0] not in {KEY, *model.computed}
    ]
    if not choices:
        return None
    path, _ = dice.choice(choices)
    new = _name(model, _siblings(model, path))
    if model.is_mapped:
        model.columns[:] = _renamed(model.columns, path, new)
        model.by[:] = [new if (name,) == path else name for name in model.by]
    return Alter(
        f"RENAME COLUMN {dotted(path)} TO {quoted(new)}",
        "rename_column",
        (dotted(path), new),
    )


def _renamed(
    fields: Sequence[tuple[str, Kind]], path: tuple[str, ...], new: str
) -> list[tuple[str, Kind]]:
    [name, *rest] = path
    result: list[tuple[str, Kind]] = []
    for known, kind in fields:
        if known != name:
            result.append((known, kind))
        elif rest:
            assert isinstance(kind, Struct)
            result.append((known, Struct(tuple(_renamed(kind.fields, tuple(rest), new)))))
        else:
            result.append((new, kind))
    return result


def _drop_and_add(model: Model) -> Verb | None:
    """Add a column again that was dropped, or drop one."""
    return _drop_column(model) if model.is_mapped else None


def _widen(model: Model) -> Verb | None:
    dice = model.dice
    choices = [
        (path, kind)
        for path, kind in all_leaves(model.columns)
        if isinstance(kind, Scalar) and kind.name in WIDER and path[0] not in model.computed
    ]
    if not choices:
        return None
    path, kind = dice.choice(choices)
    assert isinstance(kind, Scalar)
    new = dice.choice(WIDER[kind.name])
    if "delta.enableTypeWidening" in model.properties:
        model.columns[:] = _with(model.columns, path, Scalar(new))
    return Alter(f"ALTER COLUMN {dotted(path)} TYPE {new}", "change_type", (dotted(path), new))


def _move(model: Model) -> Verb | None:
    dice = model.dice
    path, _ = dice.choice(all_leaves(model.columns))
    siblings = _siblings(model, path)
    others = [name for name in siblings if name != path[-1]]
    if not others or dice.randrange(2):
        return Alter(
            f"ALTER COLUMN {dotted(path)} FIRST", "move_column", (dotted(path),), {"first": True}
        )
    after = dice.choice(others)
    return Alter(
        f"ALTER COLUMN {dotted(path)} AFTER {quoted(after)}",
        "move_column",
        (dotted(path),),
        {"after": after},
    )


def _siblings(model: Model, path: tuple[str, ...]) -> list[str]:
    fields: Sequence[tuple[str, Kind]] = model.columns
    for name in path[:-1]:
        struct = dict(fields)[name]
        assert isinstance(struct, Struct)
        fields = struct.fields
    return [name for name, _ in fields]


def _set_property(model: Model) -> Verb:
    name = model.dice.choices([*list(FEATURES), MAPPED], [*FEATURE_WEIGHTS, 3])[0]
    new = FEATURES.get(name, "name")
    if model.dice.randrange(6) == 0 and new == "true":
        new = "false"
    if new != "false":
        model.properties[name] = new
    return Alter(
        f"SET TBLPROPERTIES ('{name}' = '{new}')", "alter", (), {"properties": {name: new}}
    )


def _unset_property(model: Model) -> Verb | None:
    mine = [name for name in model.properties if name != MAPPED and "feature" not in name]
    if not mine:
        return None
    name = model.dice.choice(mine)
    del model.properties[name]
    return Alter(f"UNSET TBLPROPERTIES ('{name}')", "alter", (), {"unset": [name]})


def _comment(model: Model) -> Verb:
    path, _ = model.dice.choice(all_leaves(model.columns))
    text = model.dice.choice(("why", "it's", "ü"))
    return Alter(
        f"ALTER COLUMN {dotted(path)} COMMENT {literal(text)}",
        "alter",
        (),
        {"comments": {dotted(path): text}},
    )


def _drop_not_null(model: Model) -> Verb:
    name = KEY if model.has_key() else model.names()[0]
    model.required.discard(name)
    return Alter(f"ALTER COLUMN {quoted(name)} DROP NOT NULL", "drop_not_null", (quoted(name),))


def _set_default(model: Model) -> Verb | None:
    choices = [
        (name, kind)
        for name, kind in model.given
        if isinstance(kind, Scalar) and kind not in CHARS and name != KEY
    ]
    if not choices:
        return None
    name, kind = model.dice.choice(choices)
    column, text = quoted(name), value(model.dice, kind)
    model.needs_table = True
    return Alter(f"ALTER COLUMN {column} SET DEFAULT {text}", "set_default", (column, text))


def _add_constraint(model: Model) -> Verb:
    name = f"c{len(model.constraints)}"
    model.constraints.append(name)
    model.needs_table = True
    text = "k >= -5 OR k IS NULL" if model.has_key() else "true"
    if model.dice.randrange(3) == 0:
        text = f"({_condition(model)}) OR true"
    return Alter(f"ADD CONSTRAINT {name} CHECK ({text})", "add_constraint", (name, text))


def _drop_constraint(model: Model) -> Verb | None:
    if not model.constraints:
        return None
    name = model.constraints.pop()
    return Alter(f"DROP CONSTRAINT {name}", "drop_constraint", (name,))


def _cluster(model: Model) -> Verb | None:
    if model.by:
        return None
    names = model.dice.sample(model.names(), min(len(model.names()), model.dice.randrange(1, 3)))
    return Alter(
        f"CLUSTER BY ({', '.join(map(quoted, names))})", "cluster_by", tuple(map(quoted, names))
    )


def _feature(model: Model) -> Verb:
    features = (
        "deletionVectors",
        "appendOnly",
        "changeDataFeed",
        "typeWidening",
        "columnMapping",
        "v2Checkpoint",
        "timestampNtz",
        "domainMetadata",
        "rowTracking",
        "checkConstraints",
        "invariants",
        "vacuumProtocolCheck",
    )
    return AddFeature(model.dice.choice(features))


VERBS: Final[dict[Callable[[Model], Verb | None], int]] = {
    _append: 14,
    _overwrite: 16,
    _delete: 9,
    _update: 16,
    _merge: 24,
    _optimize: 6,
    _restore: 3,
    _clone: 2,
    _vacuum: 1,
    _stream: 2,
    _add_column: 6,
    _drop_column: 5,
    _rename_column: 6,
    _drop_and_add: 1,
    _widen: 4,
    _move: 3,
    _set_property: 4,
    _unset_property: 1,
    _comment: 1,
    _drop_not_null: 1,
    _set_default: 2,
    _add_constraint: 2,
    _drop_constraint: 1,
    _cluster: 1,
    _feature: 1,
}
