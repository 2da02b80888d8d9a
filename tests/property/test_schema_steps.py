"""Each step of a table's schema: a registry takes it and old records keep their meaning, or it is
refused by name before anything is published.

The table of docs/changes.md says which. What is taken is judged by other libraries: records of
before are read with the schema after the step, by Apache's Avro, jsonschema and Protobuf.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.backward_registry import BackwardRegistry
from tests.property.generated_tables import (
    PLAIN_NAMES,
    PROTOCOL,
    GeneratedTable,
    kinds,
    narrowed,
    rows_of,
    shown,
    structs,
)
from tests.property.test_change_topics import KEY, Reader, apply, read
from tests.unit.cdc_publisher.memory_change_topic import Topic, stream
from tests.unit.cdc_publisher.written_table import Rows
from tidegate_cdc_publisher.record_form import ADDED_FIELDS, Envelope, Format, RecordForm
from tidegate_cdc_publisher.schema_registry import INCOMPATIBLE, Registry
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Metadata
from tidegate_delta.schema.field_paths import ELEMENT, VALUE, FieldPath
from tidegate_delta.schema.types import parse_schema
from tidegate_delta.schema_evolution import alter_columns
from tidegate_delta.schema_evolution.alter_columns import FieldPosition
from tidegate_delta.schema_evolution.evolve_on_write import as_data

REGISTERED: Final[tuple[Format, ...]] = ("avro", "json_schema_registry", "protobuf")
INTEGERS: Final = ("byte", "short", "integer", "long")
WIDER: Final[Mapping[str, tuple[str, ...]]] = {
    "byte": ("short", "integer", "long", "double", "decimal(38,0)"),
    "short": ("integer", "long", "double", "decimal(38,0)"),
    "integer": ("long", "double", "decimal(38,0)"),
    "long": ("decimal(38,0)",),
    "float": ("double",),
    "date": ("timestamp_ntz",),
    "decimal(10,3)": ("decimal(14,5)",),
}
EXACT: Final = Context(prec=50)
EXAMPLES: Final = settings(
    deadline=None,
    max_examples=settings().max_examples // 20,
    suppress_health_check=[HealthCheck.too_slow],
)
Kind = Any
"""A type as a schema string has it."""


@dataclass(frozen=True)
class Step:
    """A change of the schema: where, of which type, and to what."""

    change: str
    path: FieldPath
    kind: Kind
    to: Any = None
    is_required: bool = False
    is_last: bool = False

    def applied(self, metadata: Metadata) -> Metadata:
        """Return a table's metadata after the step. Raises: InvalidRequest, where it may not be."""
        match self.change:
            case "add":
                column = {"name": self.path[-1], "type": self.kind, "nullable": True}
                fields = [{**column, "metadata": {}}]
                [new] = as_data(parse_schema(json.dumps({"type": "struct", "fields": fields})))
                return alter_columns.add_column(metadata, new, self.path[:-1], self.to)
            case "drop":
                return alter_columns.drop_column(metadata, self.path)
            case "rename":
                return alter_columns.rename_column(metadata, self.path, self.to)
            case "move":
                return alter_columns.move_column(metadata, self.path, self.to)
            case "nulls":
                return alter_columns.allow_nulls(metadata, self.path)
            case "replace":
                return metadata.with_(schema_string=json.dumps(self.to))
            case _:
                column = {"name": "x", "type": self.to, "nullable": True, "metadata": {}}
                [new] = parse_schema(json.dumps({"type": "struct", "fields": [column]}))
                return alter_columns.change_type(metadata, PROTOCOL, self.path, new.kind)

    def is_taken(self, record_format: Format, *, is_mapped: bool, moves: bool) -> bool | None:
        """Return whether the table of docs/changes.md says that a registry takes it.

        None is for a schema that replaces another, which is many steps at once.
        """
        is_scalar = isinstance(self.kind, str)
        match self.change, record_format:
            case "replace", _:
                return None
            case "add", "protobuf":
                return is_mapped or self.is_last
            case "move", "protobuf":
                return is_mapped or not moves
            case (("drop" | "rename"), "protobuf"):
                return is_scalar
            case (("drop" | "rename"), "json_schema_registry"):
                return False
            case "rename", "avro":
                # Floats may always be null.
                return not self.is_required or self.kind in ("float", "double")
            case "widen", "protobuf":
                return self.to != "double" and (is_text(self.kind) or not is_text(self.to))
            case "widen", _:
                return is_text(self.kind) or not is_text(self.to)
        return True


def is_text(kind: str) -> bool:
    """Return whether values of a type are texts."""
    return kind.startswith(("decimal", "date", "timestamp"))


def places(kind: Kind, path: FieldPath = ()) -> Iterator[tuple[FieldPath, Mapping[str, Any]]]:
    """Yield every place in a type: fields as they are, elements and values without a name."""
    inside: list[tuple[str, Mapping[str, Any]]] = []
    if isinstance(kind, str):
        return
    if kind["type"] == "struct":
        inside = [(item["name"], item) for item in kind["fields"]]
    elif kind["type"] == "array":
        inside = [(ELEMENT, {"type": kind["elementType"]})]
    else:
        inside = [(VALUE, {"type": kind["valueType"]})]
    for name, item in inside:
        yield (*path, name), item
        yield from places(item["type"], (*path, name))


@st.composite
def steps(draw: st.DrawFn, struct: Kind, key: str, is_mapped: bool) -> Step:
    """Return a step that a table of this schema may take. The key column stays, of its type."""
    found = [((), {"type": struct}), *places(struct)]
    parents = {path: item["type"]["fields"] for path, item in found if "fields" in item["type"]}
    change = draw(
        st.sampled_from(["add", "move", "nulls", "widen", *["drop", "rename"] * is_mapped])
    )
    scalars = [
        (path, item)
        for path, item in found
        if isinstance(item["type"], str) and item["type"] in WIDER and path != (key,)
    ]
    if change == "widen" and scalars:
        path, item = draw(st.sampled_from(scalars))
        return Step(change, path, item["type"], draw(st.sampled_from(WIDER[item["type"]])))
    fields = [(path, item) for path, item in found if "name" in item]
    path, item = draw(st.sampled_from(fields))
    siblings = [field["name"] for field in parents[path[:-1]]]
    unused = [name for name in PLAIN_NAMES if name.lower() not in map(str.lower, siblings)]
    step = Step(change, path, item["type"], is_required=not item["nullable"])
    neighbour = draw(st.sampled_from(["", *siblings]))
    position = FieldPosition(is_first=not neighbour, after=neighbour or None)
    match change:
        case "rename":
            return replace(step, to=draw(st.sampled_from(unused)))
        case "move":
            return replace(step, to=position)
        case "nulls":
            return step
        case "drop" if path != (key,) and len(siblings) > 1:
            return step
    kind = draw(kinds(PLAIN_NAMES, 1))
    path = (*path[:-1], draw(st.sampled_from(unused)))
    return Step("add", path, kind, position, is_last=neighbour == siblings[-1])


@st.composite
def replacements(draw: st.DrawFn, struct: Kind, key: str) -> Step:
    """Return another schema: columns are gone, new, elsewhere, and may be null or not."""
    kept = [item for item in struct["fields"] if item["name"] == key or draw(st.booleans())]
    names = [item["name"].lower() for item in struct["fields"]]
    unused = tuple(name for name in PLAIN_NAMES if name.lower() not in names)
    new = draw(structs(unused, kinds(PLAIN_NAMES, 1)))["fields"]
    fields = [{**item, "nullable": draw(st.booleans())} for item in kept]
    fields = draw(st.permutations([*fields, *new]))
    return Step("replace", (), struct, {"type": "struct", "fields": fields})


def carried(value: Any, before: Kind, after: Kind, *, by_id: bool, widens: bool = False) -> Any:
    """Return a value of one schema as a reader with another one has it.

    `widens` says that its numbers and texts are written as the new types, as `docs/changes.md`
    demands of whoever keeps rows.
    """
    inner = partial(carried, by_id=by_id, widens=widens)
    if value is None:
        return None
    if isinstance(before, str):
        return widened(value, before, after) if widens and before != after else value
    if before["type"] == "array":
        return [inner(item, before["elementType"], after["elementType"]) for item in value]
    if before["type"] == "map":
        kinds_inside = before["valueType"], after["valueType"]
        return {key: inner(item, *kinds_inside) for key, item in value.items()}
    old = {identity(item, by_id=by_id): item for item in before["fields"]}
    result = {}
    for item in after["fields"]:
        match = old.get(identity(item, by_id=by_id))
        result[item["name"]] = match and inner(value[match["name"]], match["type"], item["type"])
    return result


def widened(value: Any, before: str, after: str) -> Any:
    if after.startswith("decimal"):
        digits = int(after.rstrip(")").partition(",")[2])
        return format(Decimal(value).quantize(Decimal(1).scaleb(-digits), context=EXACT), "f")
    return f"{value}T00:00:00.000000" if before == "date" else value


def identity(item: Mapping[str, Any], *, by_id: bool) -> Any:
    return item["metadata"].get("delta.columnMapping.id", item["name"]) if by_id else item["name"]


@dataclass
class Followed:
    """A table, its change topic and the registry of its schemas."""

    table: GeneratedTable
    envelope: Envelope
    record_format: Format
    key: str = "id"
    client: BackwardRegistry = field(default_factory=BackwardRegistry)
    topic: Topic = field(default_factory=Topic)
    structs: list[Kind] = field(default_factory=list)
    read: Reader = read

    def follow(self) -> None:
        """Publish every version."""
        self.structs += [self.table.struct] * (self.table.version + 1 - len(self.structs))
        form = RecordForm(self.record_format, self.record_format, envelope=self.envelope)
        registry = Registry(self.client, "mock://")  # type: ignore[arg-type]  # a double of the client
        following = stream(self.table, self.topic, form=form, registry=registry)
        following.catch_up(self.table.version)

    def refusal(self) -> InvalidRequest | None:
        """Publish every version, and return why one is refused."""
        try:
            self.follow()
        except InvalidRequest as error:
            return error
        return None

    def check_rows(self, content: Rows) -> None:
        """Check that the topic replays to these rows."""
        rows: dict[int, Any] = {}
        versions: dict[int, int] = {}
        for record in self.topic.records:
            value = self.read(self.client, record.value, self.record_format)
            if value is not None:
                [key] = self.read(self.client, record.key, self.record_format).values()
                apply(rows, key, value, self.envelope)
                versions[key] = int(dict(record.headers)["delta_version"] or b"")
        struct = self.table.struct
        replayed = [
            narrowed(self._kept(rows[number], versions[number]), struct) for number in sorted(rows)
        ]
        assert replayed == [shown(row, struct, has_schema=True) for row in content]

    def _kept(self, row: dict[str, Any], version: int) -> Any:
        """Return a row of a version as whoever keeps rows has it now."""
        written, struct = self.structs[version], self.table.struct
        return carried(row, written, struct, by_id=self.table.mapped, widens=True)

    def check_old_records(self, before: Kind, old_key: str, newest: Mapping[str, int]) -> None:
        """Check what readers with the newest schemas have of records with those before."""
        old_keys, new_keys = (
            {"type": "struct", "fields": [item for item in kind["fields"] if item["name"] == key]}
            for kind, key in ((before, old_key), (self.table.struct, self.key))
        )
        if self.record_format not in REGISTERED:
            return
        for record in self.topic.records:
            for content, of in ((record.key, "key"), (record.value, "value")):
                subject = f"cdc.t-{of}"
                if content is None or int.from_bytes(content[1:5], "big") != newest[subject]:
                    continue
                was = self.read(self.client, content, self.record_format)
                by = self.client.last[subject]
                now = self.read(self.client, content, self.record_format, by)
                if self.record_format == "json_schema_registry":
                    assert now == was
                elif of == "key":
                    assert now == self._carried(was, old_keys, new_keys)
                else:
                    assert now == self._carried_value(was, before)

    def _carried_value(self, value: dict[str, Any], before: Kind) -> dict[str, Any]:
        struct = self.table.struct
        if self.envelope == "debezium":
            images = {
                side: self._carried(value[side], before, struct) for side in ("before", "after")
            }
            return {**value, **images}
        added = {name: value[name] for name in ADDED_FIELDS[self.envelope]}
        return {**added, **self._carried(value, before, struct)}

    def _carried(self, value: Any, before: Kind, after: Kind) -> Any:
        return carried(value, before, after, by_id=self.record_format == "protobuf")


def take(followed: Followed, step: Step, data: st.DataObject) -> bool:
    """Take a step and publish it; return whether it was taken at the default compatibility."""
    table, client, topic = followed.table, followed.client, followed.topic
    before, old_key = table.struct, followed.key
    drawn: Rows = []
    newest = dict(client.last)

    def content(struct: Kind) -> Rows:
        drawn[:] = data.draw(st.lists(rows_of(struct), max_size=3))
        for number, row in enumerate(drawn):
            row[followed.key] = number
        return drawn

    if (step.change, step.path) == ("rename", (old_key,)):
        followed.key = step.to
    with_rows = step.change == "replace" or data.draw(st.booleans())
    table.alter(step.applied, content if with_rows else None)
    records = list(topic.records)
    moves = before["fields"] != table.struct["fields"]
    refused = followed.refusal()
    is_taken = step.is_taken(followed.record_format, is_mapped=table.mapped, moves=moves)
    assert is_taken is None or is_taken is (refused is None), refused
    if refused is None:
        followed.check_old_records(before, old_key, newest)
    else:
        assert refused.error_class == INCOMPATIBLE
        assert f"version {table.version} of table t" in str(refused)
        assert all(name in str(refused) for name in step.path[-1:])
        assert topic.records == records
        client.levels = dict.fromkeys(client.versions, "NONE")
        followed.follow()
    if not with_rows:
        table.replace_rows(content(table.struct))
        followed.follow()
    followed.check_rows(drawn)
    return refused is None


def take_some(followed: Followed, data: st.DataObject) -> None:
    """Take a few steps, until one is refused."""
    table = followed.table
    for _ in range(data.draw(st.integers(1, 3))):
        if not take(followed, data.draw(steps(table.struct, followed.key, table.mapped)), data):
            break


@contextmanager
def begun(
    data: st.DataObject, envelope: Envelope, record_format: Format, read: Reader = read
) -> Iterator[Followed]:
    """Yield a generated table whose first rows are published."""
    struct = data.draw(structs(PLAIN_NAMES, kinds(PLAIN_NAMES, 2)))
    struct["fields"].insert(0, dict(KEY))
    with tempfile.TemporaryDirectory() as folder:
        mapped = data.draw(st.booleans())
        table = GeneratedTable.at(Path(folder) / "t", struct, None, mapped=mapped)
        followed = Followed(table, envelope, record_format, read=read)
        content = data.draw(st.lists(rows_of(struct), min_size=1, max_size=3))
        table.replace_rows([{**row, "id": number} for number, row in enumerate(content)])
        followed.follow()
        yield followed


@pytest.mark.parametrize("envelope", get_args(Envelope))
@pytest.mark.parametrize("record_format", REGISTERED)
@EXAMPLES
@given(data=st.data())
def test_a_step_of_the_schema_is_taken_or_refused_by_name(
    envelope: Envelope, record_format: Format, data: st.DataObject
) -> None:
    with begun(data, envelope, record_format) as followed:
        take_some(followed, data)


@pytest.mark.parametrize("envelope", get_args(Envelope))
@pytest.mark.parametrize("record_format", ["json_schema", *REGISTERED])
@EXAMPLES
@given(data=st.data())
def test_a_replaced_schema_is_taken_or_refused_by_name(
    envelope: Envelope, record_format: Format, data: st.DataObject
) -> None:
    """Old rows may lack values in columns that may not be null now."""
    with begun(data, envelope, record_format) as followed:
        take(followed, data.draw(replacements(followed.table.struct, followed.key)), data)
