"""Data skipping: which files may hold a row that matches a predicate.

A file is skipped only where no row of it can match. Bounds are never taken as exact values:
statistics may be wide, truncated, rounded, missing, or ignore NaN.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.data_skipping import column_bounds
from tidegate_delta.data_skipping.column_bounds import Bounds
from tidegate_delta.data_skipping.columnar_pruning import NEGATED, is_exact_bound, left_in
from tidegate_delta.data_skipping.predicate_tree import (
    COMPARISONS,
    Predicate,
    family,
    kind_of,
    literal,
    order,
    path_of,
    paths_of,
)
from tidegate_delta.data_skipping.resolved_columns import NamedColumn, resolved
from tidegate_delta.log.actions import Metadata
from tidegate_delta.schema.column_mapping import mode_of
from tidegate_delta.schema.types import DOUBLE, FLOAT, DataType, DecimalType, parse_schema
from tidegate_delta.snapshots.raw_stats import texts

ROWS_MAX: Final = 65_536
"""Files tested at a time, which limits the memory for their statistics."""

FileMarks = list[bool]
"""For each file: whether a row of it may make the node true."""

_HIDES_NAN: Final = frozenset({"!=", ">", ">="})
"""Comparisons that NaN fulfils against a number: bounds of many writers ignore NaN."""


@dataclass(frozen=True)
class FilesWithBounds:
    """Files with the bounds of the columns that the predicate names.

    Spec: "Per-file Statistics"
    """

    size: int
    kinds: Mapping[tuple[str, ...], DataType]
    bounds: Mapping[tuple[str, ...], Bounds]


def prune(predicate: Predicate, files: pa.Table, metadata: Metadata) -> pa.Table:
    """Return the files that may hold a row for which the predicate is true, in their order.

    Law: a file that holds a matching row is never left out
    Shape: `files` has ADD_SCHEMA; column names match in any case.
    Spec: "Per-file Statistics"
    """
    schema, mode = parse_schema(metadata.schema_string), mode_of(metadata)
    columns = {path: resolved(schema, path, mode) for path in paths_of(predicate)}
    partitioned = {name.lower() for name in metadata.partition_columns}
    of_partitions: _Columns = {}
    of_data: _Columns = {}
    for path, column in columns.items():
        if column is not None:
            group = of_partitions if path[0].lower() in partitioned else of_data
            group[path] = column
    if not (of_partitions or of_data):
        may_match = marks_of(predicate, _files({}, 1, {}), negated=False)[0]
        return files if may_match else files.slice(0, 0)
    if of_partitions:
        kept = [_by_partitions(predicate, chunk, of_partitions) for chunk in _chunks(files)]
        files = pa.concat_tables(kept) if kept else files
    if of_data:
        kept = [
            _by_statistics(predicate, chunk, of_partitions, of_data) for chunk in _chunks(files)
        ]
        files = pa.concat_tables(kept) if kept else files
    return files


def _chunks(files: pa.Table) -> Iterator[pa.Table]:
    yield from (files.slice(start, ROWS_MAX) for start in range(0, files.num_rows, ROWS_MAX))


_Columns = dict[tuple[str, ...], NamedColumn]


def _by_partitions(predicate: Predicate, files: pa.Table, columns: _Columns) -> pa.Table:
    """Return the files that may match, testing each combination of partition values once."""
    texts = [column_bounds.partition_texts(files, column.path[0]) for column in columns.values()]
    codes, distinct = _combinations(texts)
    bounds = {
        path: column_bounds.of_partition_texts(column_texts, column.kind)
        for (path, column), column_texts in zip(columns.items(), distinct, strict=True)
    }
    marks = marks_of(predicate, _files(columns, len(distinct[0]), bounds), negated=False)
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
    predicate: Predicate, files: pa.Table, of_partitions: _Columns, of_data: _Columns
) -> pa.Table:
    named = {path: (column.path, column.kind) for path, column in of_data.items()}
    still_open = _undecided_part(predicate, of_partitions)
    likely = left_in(still_open, files, named)
    if likely is not None:
        files = _kept(files, likely)
        if is_exact_bound(still_open, named):
            return files
    exact = any(isinstance(column.kind, DecimalType) for column in of_data.values())
    parsed = column_bounds.parse_all(texts(files).to_pylist(), exact_numbers=exact)
    bounds = {
        path: column_bounds.of_partition_texts(
            column_bounds.partition_texts(files, column.path[0]).to_pylist(), column.kind
        )
        for path, column in of_partitions.items()
    }
    for path, column in of_data.items():
        known = column_bounds.of_column(parsed, column.path, column.kind)
        bounds[path] = column_bounds.of_singles(known) if column.was_float else known
    all_files = _files({**of_partitions, **of_data}, files.num_rows, bounds)
    return _kept(files, pa.array(marks_of(predicate, all_files, negated=False), pa.bool_()))


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


def _files(
    columns: _Columns, size: int, bounds: Mapping[tuple[str, ...], Bounds]
) -> FilesWithBounds:
    return FilesWithBounds(size, {path: column.kind for path, column in columns.items()}, bounds)


def marks_of(node: Predicate, files: FilesWithBounds, *, negated: bool) -> FileMarks:
    """Return for each file whether a row of it may make a node true; or false, where negated.

    Spec: "Per-file Statistics"
    """
    match node["op"]:
        case "true":
            return [not negated] * files.size
        case "not":
            return marks_of(node["arg"], files, negated=not negated)
        case "and" | "or":
            parts = [marks_of(arg, files, negated=negated) for arg in node["args"]]
            return _joined(parts, files.size, every=(node["op"] == "and") != negated)
        case "is_null" | "is_not_null":
            return _null_marks(node, files, wanted=(node["op"] == "is_null") != negated)
        case "in":
            return _in_marks(node, files, negated=negated)
        case op if op in COMPARISONS:
            return _value_marks(node, files, node["value"], operator(op, negated=negated))
        case _:
            return [True] * files.size


def _joined(parts: list[FileMarks], size: int, *, every: bool) -> FileMarks:
    if not parts:
        return [every] * size
    fold: Callable[[Sequence[bool]], bool] = all if every else any
    return [fold(marks) for marks in zip(*parts, strict=True)]


def operator(op: str, *, negated: bool) -> str:
    """Return the comparison, or its negation where negated.

    Spec: "Per-file Statistics"
    """
    if op == "<=>":
        return "not <=>" if negated else "<=>"
    return NEGATED[op] if negated else op


def _null_marks(node: Predicate, files: FilesWithBounds, *, wanted: bool) -> FileMarks:
    bounds = files.bounds.get(path_of(node))
    if bounds is None:
        return [True] * files.size
    return list(bounds.may_be_null if wanted else bounds.may_hold_value)


def _in_marks(node: Predicate, files: FilesWithBounds, *, negated: bool) -> FileMarks:
    values = node["values"]
    if not values:
        return [negated] * files.size
    if negated:
        if any(value is None for value in values):
            return [False] * files.size
        parts = [_value_marks(node, files, value, "!=") for value in values]
        return _joined(parts, files.size, every=True)
    parts = [_value_marks(node, files, value, "=") for value in values if value is not None]
    return _joined(parts, files.size, every=False)


def _value_marks(node: Predicate, files: FilesWithBounds, plain: Any, op: str) -> FileMarks:
    path = path_of(node)
    bounds = files.bounds.get(path)
    kind = kind_of(node)
    if bounds is None or family(files.kinds[path]) != family(kind):
        return [True] * files.size
    value = literal(plain, kind)
    if op in ("<=>", "not <=>"):
        return _null_safe(bounds, value, files.kinds[path], is_equal=op == "<=>")
    if value is None:
        return [False] * files.size
    is_within_bounds = _in_reach(bounds, value, files.kinds[path], op)
    return [a and b for a, b in zip(bounds.may_hold_value, is_within_bounds, strict=True)]


def _null_safe(bounds: Bounds, value: Any, kind: DataType, *, is_equal: bool) -> FileMarks:
    if value is None:
        return list(bounds.may_be_null if is_equal else bounds.may_hold_value)
    is_within_bounds = _in_reach(bounds, value, kind, "=" if is_equal else "!=")
    values = [a and b for a, b in zip(bounds.may_hold_value, is_within_bounds, strict=True)]
    if is_equal:
        return values
    return [a or b for a, b in zip(values, bounds.may_be_null, strict=True)]


def _in_reach(bounds: Bounds, value: Any, kind: DataType, op: str) -> FileMarks:
    """Return for each file whether a value within its bounds may fulfil the comparison."""
    if kind in (FLOAT, DOUBLE) and (op in _HIDES_NAN or value != value):
        return [True] * len(bounds.lower)
    pairs = zip(bounds.lower, bounds.upper, strict=True)
    match op:
        case "=":
            return [_not_above(low, value) and _not_below(high, value) for low, high in pairs]
        case "!=":
            return [not (_equals(low, value) and _equals(high, value)) for low, high in pairs]
        case "<":
            return [low is None or order(low, value) < 0 for low in bounds.lower]
        case "<=":
            return [_not_above(low, value) for low in bounds.lower]
        case ">":
            return [high is None or order(high, value) > 0 for high in bounds.upper]
        case _:
            return [_not_below(high, value) for high in bounds.upper]


def _not_above(bound: Any, value: Any) -> bool:
    return bound is None or order(bound, value) <= 0


def _not_below(bound: Any, value: Any) -> bool:
    return bound is None or order(bound, value) >= 0


def _equals(bound: Any, value: Any) -> bool:
    return bound is not None and order(bound, value) == 0
