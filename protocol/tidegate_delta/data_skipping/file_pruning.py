"""Data skipping: the files of a table that may hold a row which matches a predicate.

Over very many files a fast pass with Arrow columns comes first. Arrow parses only the statistics of
the predicate's columns, for all files at once. The pass is coarse: bounds that need interpretation
(truncated, rounded, or of another type than their column) keep a file, which is then checked
individually. Integers and dates need no interpretation.

Spec: "Per-file Statistics"
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import reduce
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from tidegate_delta.data_skipping import column_bounds
from tidegate_delta.data_skipping.column_bounds import PREFIX_UNITS
from tidegate_delta.data_skipping.file_predicates import FileTest, FileTests
from tidegate_delta.data_skipping.predicate_tree import (
    COMPARISONS,
    NEGATED,
    NamedColumn,
    Predicate,
    kind_of,
    literal,
    path_of,
    paths_of,
)
from tidegate_delta.log.actions import Metadata
from tidegate_delta.schema.field_paths import FieldPath
from tidegate_delta.schema.types import DATE, STRING, DataType, PrimitiveType
from tidegate_delta.snapshots.chunked_arrays import missing
from tidegate_delta.snapshots.raw_stats import PARSED, texts

ROWS_MIN: Final = 4_096
"""Fewer files than this are checked individually.

Spec: "Per-file Statistics"
"""

StatsColumns = Mapping[FieldPath, tuple[FieldPath, DataType]]
"""The predicate's columns: path in the predicate -> path in the log, and type."""


@dataclass(frozen=True)
class _StatsBounds:
    """The bounds of a column in each file; null where the statistics have none."""

    lower: pa.ChunkedArray
    upper: pa.ChunkedArray
    holds_value: pa.ChunkedArray


_Bounds = Mapping[FieldPath, _StatsBounds]


@dataclass(frozen=True)
class _Test:
    """A test of all files, and whether its result is final or a closer check may skip more."""

    ask: Callable[[_Bounds], pa.ChunkedArray]
    is_final: bool


_BLOCK_BYTES: Final = 1 << 18
"""Bytes of statistics that one core reads at a time: small enough to keep all cores busy."""

_PREFIX: Final = PREFIX_UNITS // 2 - 1
"""The length of a string bound's prefix that no writer truncates."""

_REPLACEMENT: Final = "\ufffd"
_WHOLE: Final = frozenset({"byte", "short", "integer", "long"})


def left_in(predicate: Predicate, files: pa.Table, columns: StatsColumns) -> pa.Array | None:
    """Return which files may hold a matching row; None where this pass can't tell.

    Law: a file that holds a matching row is never left out
    Shape: `files` has ADD_SCHEMA, perhaps with `stats_parsed`.
    """
    if files.num_rows < ROWS_MIN:
        return None
    plain = _plain(columns)
    test = _test(predicate, plain, negated=False)
    if test is None:
        return None
    try:
        return pc.fill_null(test.ask(_read(files, plain)), True)
    except pa.ArrowException:
        # A single malformed text fails the whole read, so all files are checked individually.
        return None


def is_exact_bound(predicate: Predicate, columns: StatsColumns) -> bool:
    """Return whether the result of `left_in`, if it has one, is final.

    Law: for such a predicate, every check of a file by its statistics has the same result
    """
    test = _test(predicate, _plain(columns), negated=False)
    return test is not None and test.is_final


def _plain(columns: StatsColumns) -> StatsColumns:
    return {path: column for path, column in columns.items() if _arrow_type(column[1]) is not None}


def _test(node: Predicate, columns: StatsColumns, *, negated: bool) -> _Test | None:
    match node["op"]:
        case "not":
            return _test(node["arg"], columns, negated=not negated)
        case "and" | "or":
            parts = [_test(arg, columns, negated=negated) for arg in node["args"]]
            return _and_test(parts) if (node["op"] == "and") != negated else _or_test(parts)
        case "in" if not negated:
            values = [value for value in node["values"] if value is not None]
            return _or_test([_leaf(node, value, "=", columns) for value in values])
        case op if op in COMPARISONS and op != "<=>":
            return _leaf(node, node["value"], NEGATED[op] if negated else op, columns)
        case _:
            return None


def _and_test(parts: Sequence[_Test | None]) -> _Test | None:
    tests = [part for part in parts if part is not None]
    if not tests:
        return None
    is_final = len(tests) == len(parts) and all(part.is_final for part in tests)
    return _Test(lambda bounds: reduce(pc.and_, (part.ask(bounds) for part in tests)), is_final)


def _or_test(parts: Sequence[_Test | None]) -> _Test | None:
    tests = [part for part in parts if part is not None]
    if not tests or len(tests) < len(parts):
        return None
    is_final = all(part.is_final for part in tests)
    return _Test(lambda bounds: reduce(pc.or_, (part.ask(bounds) for part in tests)), is_final)


def _leaf(node: Predicate, plain: Any, op: str, columns: StatsColumns) -> _Test | None:
    path, kind = path_of(node), kind_of(node)
    if path not in columns or op == "!=":
        return None
    value = literal(plain, kind)
    arrow = _arrow_type(columns[path][1])
    if arrow is None or not _is_a(value, arrow):
        return None

    def ask(bounds: _Bounds) -> pa.ChunkedArray:
        column_bounds = bounds[path]
        is_within_bounds = pc.fill_null(
            _in_reach(column_bounds.lower, column_bounds.upper, value, op), True
        )
        return pc.and_(is_within_bounds, column_bounds.holds_value)

    return _Test(ask, is_final=not isinstance(value, str))


def _is_a(value: Any, kind: pa.DataType) -> bool:
    """Return whether a literal has exactly this type; one that needs conversion is not compared."""
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
        # The maximum may be truncated, and then covers every string that begins with it.
        reaches_prefix = pc.greater_equal(
            pc.utf8_slice_codeunits(upper, 0, _PREFIX), value[:_PREFIX]
        )
        reaches = pc.or_(reaches_prefix, pc.ends_with(upper, _REPLACEMENT))
    else:
        reaches = above(upper, value)
    if op != "=":
        return reaches
    return pc.and_(pc.fill_null(below(lower, value), True), pc.fill_null(reaches, True))


def _arrow_type(kind: DataType) -> pa.DataType | None:
    """Return the Arrow type for comparing a type's bounds, None if they need interpretation."""
    if kind == DATE:
        return pa.date32()
    if kind == STRING:
        return pa.string()
    return pa.int64() if isinstance(kind, PrimitiveType) and kind.name in _WHOLE else None


def _read(files: pa.Table, columns: StatsColumns) -> _Bounds:
    """Return the bounds of each column in each file, and whether the file has values in it."""
    stats = files["stats"]
    if PARSED in files.schema.names and stats.null_count == len(stats):
        read = files[PARSED]
    else:
        # One chunk at a time: combining the chunks first costs more than it gains.
        shape = _shape(columns.values())
        read = pa.concat_tables([read_texts(chunk, shape) for chunk in stats.chunks if len(chunk)])[
            "stats"
        ]
    rows = _count(read, ["numRecords"])
    return {
        path: _StatsBounds(
            _side(read, ["minValues", *name], kind),
            _side(read, ["maxValues", *name], kind),
            _may_differ(_count(read, ["nullCount", *name]), rows),
        )
        for path, (name, kind) in columns.items()
    }


def _may_differ(nulls: pa.ChunkedArray, rows: pa.ChunkedArray) -> pa.ChunkedArray:
    is_known = pc.and_(pc.greater_equal(rows, 0), pc.greater_equal(nulls, 0))
    return pc.fill_null(pc.invert(pc.and_(is_known, pc.equal(nulls, rows))), True)


def _count(read: pa.ChunkedArray, path: Sequence[str]) -> pa.ChunkedArray:
    """Return a count, or null in every file if any file has an invalid one or none has one."""
    kind = read.type
    for name in path:
        index = kind.get_field_index(name) if pa.types.is_struct(kind) else -1
        if index < 0:
            return missing(len(read), pa.int64())
        kind = kind.field(index).type
    counts = pc.struct_field(read, path)
    return counts if pa.types.is_integer(kind) else missing(len(read), pa.int64())


def _side(read: pa.ChunkedArray, path: Sequence[str], kind: DataType) -> pa.ChunkedArray:
    """Return all lower or all upper bounds. Raises: pa.ArrowInvalid for those of another type."""
    values, target = pc.struct_field(read, path), _arrow_type(kind)
    is_whole = pa.types.is_integer(values.type) and target == pa.int64()
    is_text_of_date = pa.types.is_string(values.type) and target == pa.date32()
    if values.type != target and not is_whole and not is_text_of_date:
        raise pa.ArrowInvalid(f"bounds of {values.type} for a column of {kind}")
    return values.cast(target)


def _shape(columns: Iterable[tuple[FieldPath, DataType]]) -> pa.Schema:
    """Return the schema for parsing the statistics of the given columns, with dates as text."""
    bounds: dict[str, Any] = {}
    counts: dict[str, Any] = {}
    for path, kind in columns:
        _put(bounds, path, pa.int64() if kind not in (STRING, DATE) else pa.string())
        _put(counts, path, pa.int64())
    sides = {"minValues": bounds, "maxValues": bounds, "nullCount": counts}
    return pa.schema([pa.field("stats", _struct({"numRecords": pa.int64(), **sides}))])


def _put(tree: dict[str, Any], path: FieldPath, kind: pa.DataType) -> None:
    reduce(lambda below, name: below.setdefault(name, {}), path[:-1], tree)[path[-1]] = kind


def _struct(tree: Any) -> pa.DataType:
    if isinstance(tree, pa.DataType):
        return tree
    return pa.struct([pa.field(name, _struct(below)) for name, below in tree.items()])


def read_texts(stats: pa.StringArray, shape: pa.Schema) -> pa.Table:
    """Return JSON statistics as columns of a shape, a schema with the one struct `stats`.

    Raises: pa.ArrowInvalid for a text that is no object, or a value of another type.
    """
    # Wrapped in an object, each text is one value or an error: it can't become no row, or two.
    lines = pc.binary_join_element_wise('{"stats":', pc.fill_null(stats, "{}"), "}\n", "")
    read = pa_json.read_json(
        pa.BufferReader(lines.buffers()[2]),
        pa_json.ReadOptions(use_threads=True, block_size=_BLOCK_BYTES),
        pa_json.ParseOptions(explicit_schema=shape, unexpected_field_behavior="ignore"),
    )
    if read.num_rows != len(stats):
        raise pa.ArrowInvalid("statistics that are not one object a file")
    return read


ROWS_MAX: Final = 65_536
"""Files tested at a time, which limits the memory for their statistics."""

_Columns = dict[tuple[str, ...], NamedColumn]
"""The columns that a predicate names, by their paths in it."""


class _File(NamedTuple):
    partition_values: Mapping[str, str | None]
    stats: str | None


def prune(predicate: Predicate, files: pa.Table, metadata: Metadata) -> pa.Table:
    """Return the files that may hold a row for which the predicate is true, in their order.

    Law: a file that holds a matching row is never left out
    Shape: `files` has ADD_SCHEMA; column names match in any case.
    """
    tests = FileTests(metadata)
    test = tests.of(predicate)
    of_partitions: _Columns = {}
    of_data: _Columns = {}
    for path in paths_of(predicate):
        column = tests.column(path)
        if column is not None:
            (of_partitions if tests.is_of_partition(path) else of_data)[path] = column
    if not (of_partitions or of_data):
        return files if test(_File({}, None)) else files.slice(0, 0)
    if of_partitions:
        kept = [_by_partitions(test, chunk, of_partitions) for chunk in _chunks(files)]
        files = pa.concat_tables(kept) if kept else files
    if of_data:
        left = _undecided_part(predicate, of_partitions)
        kept = [
            _by_statistics(test, left, chunk, of_partitions, of_data) for chunk in _chunks(files)
        ]
        files = pa.concat_tables(kept) if kept else files
    return files


def _chunks(files: pa.Table) -> Iterator[pa.Table]:
    yield from (files.slice(start, ROWS_MAX) for start in range(0, files.num_rows, ROWS_MAX))


def _by_partitions(test: FileTest, files: pa.Table, columns: _Columns) -> pa.Table:
    """Return the files that may match, testing each combination of partition values once."""
    names = [column.path[0] for column in columns.values()]
    codes, distinct = _combinations([column_bounds.partition_texts(files, name) for name in names])
    marks = [
        test(_File(dict(zip(names, values, strict=True)), None))
        for values in zip(*distinct, strict=True)
    ]
    return _kept(files, pa.array(marks, pa.bool_()).take(codes))


def _combinations(texts: Sequence[pa.DictionaryArray]) -> tuple[pa.Array, list[list[Any]]]:
    """Return the index of each file's combination of values, and the values of each combination."""
    codes = texts[0].indices.cast(pa.int64())
    for text in texts[1:]:
        width = pa.scalar(len(text.dictionary), pa.int64())
        codes = pc.add(pc.multiply(codes, width), text.indices.cast(pa.int64()))
        # Renumbered at each step, the codes never exceed the number of files.
        codes = codes.dictionary_encode().indices.cast(pa.int64())
    encoded = codes.dictionary_encode()
    first = pc.index_in(encoded.dictionary, value_set=codes)
    return encoded.indices, [text.take(first).to_pylist() for text in texts]


def _by_statistics(
    test: FileTest,
    still_open: Predicate,
    files: pa.Table,
    of_partitions: _Columns,
    of_data: _Columns,
) -> pa.Table:
    """Return the files that may match by their statistics, and their partition values with them.

    `still_open` is the part of the predicate that partition values alone have not decided.
    """
    named = {path: (column.path, column.kind) for path, column in of_data.items()}
    likely = left_in(still_open, files, named)
    if likely is not None:
        files = _kept(files, likely)
        if is_exact_bound(still_open, named):
            return files
    marks = [test(file) for file in _described(files, of_partitions)]
    return _kept(files, pa.array(marks, pa.bool_()))


def _described(files: pa.Table, of_partitions: _Columns) -> Iterator[_File]:
    statistics = texts(files).to_pylist()
    names = [column.path[0] for column in of_partitions.values()]
    if not names:
        return (_File({}, text) for text in statistics)
    values = (column_bounds.partition_texts(files, name).to_pylist() for name in names)
    return (
        _File(dict(zip(names, row, strict=True)), text)
        for *row, text in zip(*values, statistics, strict=True)
    )


def _kept(files: pa.Table, mask: pa.BooleanArray | pa.ChunkedArray) -> pa.Table:
    """Return the files that a mask keeps, without a copy where it keeps all."""
    return files if pc.all(mask, skip_nulls=False).as_py() else files.filter(mask)


def _undecided_part(predicate: Predicate, of_partitions: _Columns) -> Predicate:
    """Return the part of a predicate that partition values have not decided yet."""
    parts = predicate["args"] if predicate["op"] == "and" else [predicate]
    named = [frozenset(paths_of(part)) for part in parts]
    left = [
        part
        for part, paths in zip(parts, named, strict=True)
        if not paths or not paths <= of_partitions.keys()
    ]
    return {"op": "and", "args": left}
