"""Data skipping: the files of a table that may hold a row which matches a predicate."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.data_skipping import column_bounds
from tidegate_delta.data_skipping.columnar_pruning import is_exact_bound, left_in
from tidegate_delta.data_skipping.file_predicates import FileTest, FileTests
from tidegate_delta.data_skipping.predicate_tree import Predicate, paths_of
from tidegate_delta.data_skipping.resolved_columns import NamedColumn
from tidegate_delta.log.actions import Metadata
from tidegate_delta.snapshots.raw_stats import texts

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
    Spec: "Per-file Statistics"
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
