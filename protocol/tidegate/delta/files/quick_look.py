"""A first look at the statistics of very many files, by columns: what is surely left out goes.

Arrow reads the bounds of the columns that a predicate names, and nothing else, out of all the
statistics at once. It is a rough look: bounds that need thought (cut, rounded, of another type than
their column) leave a file in, to be judged by itself.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from tidegate.delta.files.bounds import PREFIX_UNITS
from tidegate.delta.files.grammar import COMPARISONS, Predicate, kind_of, literal, path_of
from tidegate.delta.files.stated import PARSED
from tidegate.delta.schema.types import DATE, STRING, DataType, PrimitiveType

ROWS_MIN: Final = 4_096
"""Fewer files are judged one by one.

Spec: "Per-file Statistics"
"""

NEGATED: Final[Mapping[str, str]] = {
    "=": "!=",
    "!=": "=",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
}
"""The comparison that is true where one is false, for values that are not null.

Spec: "Per-file Statistics"
"""

Path = tuple[str, ...]
Columns = Mapping[Path, tuple[Path, DataType]]
"""Columns by the names of the predicate: how the log calls them, and their types."""

_Bounds = Mapping[Path, tuple[pa.ChunkedArray, pa.ChunkedArray]]
_Test = Callable[[_Bounds], pa.ChunkedArray]

_BLOCK_BYTES: Final = 1 << 20
_PREFIX: Final = PREFIX_UNITS // 2 - 1
"""Characters of a string bound that no writer has cut."""

_REPLACEMENT: Final = "\ufffd"
_WHOLE: Final = frozenset({"byte", "short", "integer", "long"})


def left_in(predicate: Predicate, files: pa.Table, columns: Columns) -> pa.Array | None:
    """Return which files may hold a row for which a predicate is true; None where nothing is said.

    Law: a file that holds a matching row is never left out
    Shape: `files` has ADD_SCHEMA, perhaps with `stats_parsed`.
    Spec: "Per-file Statistics"
    """
    if files.num_rows < ROWS_MIN:
        return None
    plain = {path: one for path, one in columns.items() if _arrow_type(one[1]) is not None}
    test = _test(predicate, plain, negated=False)
    if test is None:
        return None
    try:
        return pc.fill_null(test(_read(files, plain)), True)
    except pa.ArrowException:
        # One text that is not as it should be, and all of them are read one by one.
        return None


def _test(node: Predicate, columns: Columns, *, negated: bool) -> _Test | None:
    match node["op"]:
        case "not":
            return _test(node["arg"], columns, negated=not negated)
        case "and" | "or":
            parts = [_test(arg, columns, negated=negated) for arg in node["args"]]
            return _every(parts) if (node["op"] == "and") != negated else _any(parts)
        case "in" if not negated:
            values = [value for value in node["values"] if value is not None]
            return _any([_leaf(node, value, "=", columns) for value in values])
        case op if op in COMPARISONS and op != "<=>":
            return _leaf(node, node["value"], NEGATED[op] if negated else op, columns)
        case _:
            return None


def _every(parts: Sequence[_Test | None]) -> _Test | None:
    said = [part for part in parts if part is not None]
    if not said:
        return None
    return lambda bounds: reduce(pc.and_, (part(bounds) for part in said))


def _any(parts: Sequence[_Test | None]) -> _Test | None:
    said = [part for part in parts if part is not None]
    if not said or len(said) < len(parts):
        return None
    return lambda bounds: reduce(pc.or_, (part(bounds) for part in said))


def _leaf(node: Predicate, plain: Any, op: str, columns: Columns) -> _Test | None:
    path, kind = path_of(node), kind_of(node)
    if path not in columns or op == "!=":
        return None
    value = literal(plain, kind)
    arrow = _arrow_type(columns[path][1])
    if arrow is None or not _is_a(value, arrow):
        return None
    return lambda bounds: pc.fill_null(_in_reach(*bounds[path], value, op), True)


def _is_a(value: Any, kind: pa.DataType) -> bool:
    """Return whether a literal is of the kind itself: what has to be converted is not compared."""
    if pa.types.is_date(kind):
        return isinstance(value, date) and not isinstance(value, datetime)
    if pa.types.is_string(kind):
        return isinstance(value, str) and value.isprintable()
    return isinstance(value, int) and not isinstance(value, bool)


def _in_reach(lower: pa.ChunkedArray, upper: pa.ChunkedArray, value: Any, op: str) -> Any:
    below = pc.less if op == "<" else pc.less_equal
    above = pc.greater if op == ">" else pc.greater_equal
    if op in ("<", "<="):
        return below(lower, value)
    if isinstance(value, str):
        # The maximum may be cut, and then stands for all that begins with it.
        seen = pc.greater_equal(pc.utf8_slice_codeunits(upper, 0, _PREFIX), value[:_PREFIX])
        reaches = pc.or_(seen, pc.ends_with(upper, _REPLACEMENT))
    else:
        reaches = above(upper, value)
    if op != "=":
        return reaches
    return pc.and_(pc.fill_null(below(lower, value), True), pc.fill_null(reaches, True))


def _arrow_type(kind: DataType) -> pa.DataType | None:
    """Return as what the bounds of a type are compared, None for those that need thought."""
    if kind == DATE:
        return pa.date32()
    if kind == STRING:
        return pa.string()
    return pa.int64() if isinstance(kind, PrimitiveType) and kind.name in _WHOLE else None


def _read(files: pa.Table, columns: Columns) -> _Bounds:
    """Return the lowest and highest value of columns in each file, null where none is stated."""
    stats = files["stats"]
    if PARSED in files.schema.names and stats.null_count == len(stats):
        read = files[PARSED]
    else:
        # Chunk by chunk: to make one piece of them first costs more than it gains.
        shape = _shape(columns.values())
        read = pa.concat_tables([_parsed(one, shape) for one in stats.chunks if len(one)])["stats"]
    return {
        path: (_side(read, ["minValues", *name], kind), _side(read, ["maxValues", *name], kind))
        for path, (name, kind) in columns.items()
    }


def _side(read: pa.ChunkedArray, path: Sequence[str], kind: DataType) -> pa.ChunkedArray:
    """Return the bounds on one side. Raises: pa.ArrowInvalid for those of another type."""
    found, wanted = pc.struct_field(read, path), _arrow_type(kind)
    is_whole = pa.types.is_integer(found.type) and wanted == pa.int64()
    is_text_of_date = pa.types.is_string(found.type) and wanted == pa.date32()
    if found.type != wanted and not is_whole and not is_text_of_date:
        raise pa.ArrowInvalid(f"bounds of {found.type} for a column of {kind}")
    return found.cast(wanted)


def _shape(columns: Iterable[tuple[Path, DataType]]) -> pa.Schema:
    """Return what is read of the statistics: the bounds of some columns, dates as text."""
    tree: dict[str, Any] = {}
    for path, kind in columns:
        at = reduce(lambda below, name: below.setdefault(name, {}), path[:-1], tree)
        at[path[-1]] = pa.int64() if kind not in (STRING, DATE) else pa.string()
    sides = pa.struct([pa.field("minValues", _struct(tree)), pa.field("maxValues", _struct(tree))])
    return pa.schema([pa.field("stats", sides)])


def _struct(tree: Any) -> pa.DataType:
    if isinstance(tree, pa.DataType):
        return tree
    return pa.struct([pa.field(name, _struct(below)) for name, below in tree.items()])


def _parsed(stats: pa.StringArray, shape: pa.Schema) -> pa.Table:
    """Return statistics by columns, a row each. Raises: pa.ArrowInvalid for what is no object."""
    # In an object of its own, a text is one value or an error: no row can become none, or two.
    lines = pc.binary_join_element_wise('{"stats":', pc.fill_null(stats, "{}"), "}\n", "")
    read = pa_json.read_json(
        pa.BufferReader(lines.buffers()[2]),
        pa_json.ReadOptions(use_threads=True, block_size=_BLOCK_BYTES),
        pa_json.ParseOptions(explicit_schema=shape, unexpected_field_behavior="ignore"),
    )
    if read.num_rows != len(stats):
        raise pa.ArrowInvalid("statistics that are not one object a file")
    return read
