"""Replay: reconcile the actions of the log's files, newest first, as Arrow columns.

The key of a file is its canonical path, with its deletion vector's id where it has one. Keys are
compared in Arrow's hash tables, so a live file costs a string in a column, never an object.

Many `add` lines of JSON are read straight into Arrow columns, without an object for each. Commits
with many adds are written by programs whose lines look alike. Arrow reads such lines on all cores.
All others are left to the line-by-line reader, which allows everything the protocol allows.

Spec: "Action Reconciliation"
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from io import BytesIO
from itertools import accumulate, pairwise
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.actions import (
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    Txn,
    check_single,
    read_row,
)
from tidegate_delta.log.file_paths import canonical_paths
from tidegate_delta.log.json_lines import OBJECTS, Bodies, read_bodies
from tidegate_delta.snapshots.chunked_arrays import cut, first_seen, flat, joined, missing, stacked
from tidegate_delta.snapshots.file_action_columns import ADD_SCHEMA, REMOVE_SCHEMA, to_columns

START: Final = b'{"add":{'
"""How writers begin an `add` line; a line with spaces in it is read as any other line.

Spec: "Add File and Remove File"
"""

BYTES_MIN: Final = 1 << 16
"""The number of bytes from which Arrow's reader is faster.

Spec: "Add File and Remove File"
"""

_SHARED_ROWS: Final = 4_096
_BLOCK_BYTES: Final = 1 << 21
"""Bytes of lines that one core reads at a time; shorter input uses one core."""


def split_add_runs(content: bytes) -> tuple[bytes, bytes]:
    """Return the lines around the `add` lines, and those from the first to the last `add` line.

    Spec: "Delta Log Entries"
    """
    first = 0 if content.startswith(START) else content.find(b"\n" + START) + 1
    if not first and not content.startswith(START):
        return content, b""
    last = max(content.rfind(b"\n" + START) + 1, first)
    end = content.find(b"\n", last)
    return (content, b"") if end < 0 else (content[:first] + content[end + 1 :], content[first:end])


def read_runs(runs: Sequence[bytes], files: pa.Schema = ADD_SCHEMA) -> list[pa.Table] | None:
    """Return the adds of each run of lines, in the columns of `files`; None where lines differ.

    The lines must each add a file, have no unknown field, and have the same partition columns and
    tags, none of them null.
    Spec: "Add File and Remove File"
    """
    if sum(map(len, runs)) < BYTES_MIN:
        return None
    # Iterating over the lines is faster than `bytes.count`.
    counts = [sum(1 for _ in BytesIO(run)) for run in runs]
    lines = b"\n".join(run for run in runs if run)
    try:
        sample = orjson.loads(lines[: lines.find(b"\n")])["add"]
        read = _parse(
            lines, [_declared_field(field, sample[field.name]) for field in _sample_fields(sample)]
        )
        tables = [_columns(batch) for batch in read.to_batches()]
    except (ValueError, TypeError, pa.ArrowException):
        return None
    if sum(counts) != read.num_rows or any(table is None for table in tables):
        return None
    all_adds = pa.concat_tables([table for table in tables if table is not None]).select(
        files.names
    )
    ends = accumulate(counts, initial=0)
    return [all_adds.slice(start, end - start) for start, end in pairwise(ends)]


def _sample_fields(sample: Mapping[str, Any]) -> list[pa.Field]:
    return [field for field in ADD_SCHEMA if sample.get(field.name) is not None]


def _declared_field(field: pa.Field, value: Any) -> pa.Field:
    """Return a field as the JSON reader expects it: a map is a struct with the sample's keys."""
    if not pa.types.is_map(field.type):
        return field
    return pa.field(field.name, pa.struct([pa.field(key, pa.string()) for key in value]))


def _parse(lines: bytes, fields: Sequence[pa.Field]) -> pa.Table:
    """Return the lines as a column `add`; an unexpected field is an error."""
    read = pa_json.read_json(
        pa.BufferReader(lines),
        pa_json.ReadOptions(use_threads=True, block_size=_BLOCK_BYTES),
        pa_json.ParseOptions(
            explicit_schema=pa.schema([pa.field("add", pa.struct(fields))]),
            unexpected_field_behavior="error",
        ),
    )
    # JSON must be UTF-8, but the parser accepts any bytes between quotes.
    read.validate(full=True)
    return read


def _columns(batch: pa.RecordBatch) -> pa.Table | None:
    read: Any = batch.column(0)
    columns_by_name = dict(zip((field.name for field in read.type), read.flatten(), strict=True))
    if read.null_count or "path" not in columns_by_name or columns_by_name["path"].null_count:
        return None
    columns: list[Any] = []
    for column_field in ADD_SCHEMA:
        column = columns_by_name.get(column_field.name)
        if column is None:
            columns.append(missing(len(read), column_field.type))
        elif pa.types.is_map(column_field.type):
            columns.append(_mapping(column))
        else:
            columns.append(column)
    if any(column is None for column in columns):
        return None
    return pa.Table.from_arrays(columns, schema=ADD_SCHEMA)


def _mapping(read: Any) -> pa.Array | None:
    """Return structs with the same keys as maps; None where a struct or a value is null."""
    keys = [field.name for field in read.type]
    values = read.flatten()
    if read.null_count or any(value.null_count for value in values):
        return None
    size, width = len(read), len(keys)
    offsets = _steps(width).slice(0, size + 1)
    if len(offsets) <= size:
        offsets = pa.array([index * width for index in range(size + 1)], pa.int32())
    if not width:
        return pa.MapArray.from_arrays(offsets, *[pa.array([], pa.string())] * 2)
    if width == 1:
        return pa.MapArray.from_arrays(offsets, pa.repeat(keys[0], size), values[0])
    order = pa.array(index * size + row for row in range(size) for index in range(width))
    key_column = pa.array(keys * size, pa.string())
    return pa.MapArray.from_arrays(offsets, key_column, pa.concat_arrays(values).take(order))


@lru_cache(maxsize=8)
def _steps(width: int) -> pa.Array:
    return pa.array([index * width for index in range(_SHARED_ROWS + 1)], pa.int32())


SLICES_MAX: Final = 32
"""Up to so many removed rows are cut out by slicing; more are filtered, which copies all columns.
"""

_SINGLE: Final = ("protocol", "metaData")


@dataclass(frozen=True)
class LogPart:
    """The content of one log file: a commit, a log compaction or a checkpoint.

    `name` is the file's name; for a checkpoint, that of its file which holds the table's metadata.
    Shape: `files` has ADD_SCHEMA, perhaps with `stats_parsed`, or else KEY_SCHEMA; `tombstones`
    has REMOVE_SCHEMA.
    Spec: "Actions"
    """

    files: pa.Table = field(default_factory=ADD_SCHEMA.empty_table)
    tombstones: pa.Table = field(default_factory=REMOVE_SCHEMA.empty_table)
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    txns: tuple[Txn, ...] = ()
    domains: tuple[DomainMetadata, ...] = ()
    info: CommitInfo | None = None
    name: str = ""


@dataclass(frozen=True)
class Replayed:
    """The state after replaying parts, and the files that its protocol and metadata come from."""

    files: pa.Table
    tombstones: pa.Table
    file_keys: pa.ChunkedArray
    protocol: Protocol
    metadata: Metadata
    app_transactions: Mapping[str, Txn]
    domains: Mapping[str, DomainMetadata]
    defined_in: tuple[str, ...] = ()


def parse_log_file(name: str, content: bytes, file_schema: pa.Schema = ADD_SCHEMA) -> LogPart:
    """Return the content of a commit or a log compaction; live files have the columns of
    `file_schema`.

    Raises: BrokenLog (`CorruptCommit`) for a line that is no JSON object or a malformed action.
    Spec: "Delta Log Entries"
    """
    return part_of(name, read_bodies(name, content), file_schema)


def parse_log_files(
    named: Sequence[tuple[str, bytes]], file_schema: pa.Schema = ADD_SCHEMA
) -> list[LogPart]:
    """Return one part for each commit or log compaction; a joint call is faster than single ones.

    Raises: BrokenLog (`CorruptCommit`), as `parse_log_file`.
    Spec: "Delta Log Entries"
    """
    split = [split_add_runs(content) for _, content in named]
    runs = read_runs([run for _, run in split], file_schema)
    if runs is not None:
        named = [(name, around) for (name, _), (around, _) in zip(named, split, strict=True)]
    parts = _read_together(named, file_schema)
    if runs is None:
        return parts
    return [
        replace(part, files=stacked([run, part.files]))
        for part, run in zip(parts, runs, strict=True)
    ]


def _read_together(named: Sequence[tuple[str, bytes]], files: pa.Schema) -> list[LogPart]:
    read = [(name, read_bodies(name, content)) for name, content in named]
    try:
        adds = to_columns([body for _, bodies in read for body in bodies["add"]], files, "")
        removes = to_columns(
            [body for _, bodies in read for body in bodies["remove"]], REMOVE_SCHEMA, ""
        )
    except BrokenLog:
        # One of them is malformed: reading them one by one names the file.
        return [part_of(name, bodies, files) for name, bodies in read]
    parts, added, removed = [], 0, 0
    for name, bodies in read:
        rest = part_of(name, {**bodies, "add": [], "remove": []}, files)
        count, removed_count = len(bodies["add"]), len(bodies["remove"])
        parts.append(
            replace(
                rest,
                files=adds.slice(added, count),
                tombstones=removes.slice(removed, removed_count),
            )
        )
        added, removed = added + count, removed + removed_count
    return parts


def part_of(name: str, bodies: Bodies, files: pa.Schema = ADD_SCHEMA) -> LogPart:
    """Return the part that decoded rows make up; live files have the columns of `files`.

    Raises: BrokenLog (`CorruptCommit`) for a malformed action.
    Spec: "Actions"
    """
    objects: dict[str, list[Any]] = {
        kind: [read_row(name, {kind: body}) for body in bodies[kind]] for kind in OBJECTS
    }
    for kind in _SINGLE:
        check_single(name, objects[kind])
    return LogPart(
        files=to_columns(bodies["add"], files, name),
        tombstones=to_columns(bodies["remove"], REMOVE_SCHEMA, name),
        protocol=_last(objects["protocol"]),
        metadata=_last(objects["metaData"]),
        txns=tuple(objects["txn"]),
        domains=tuple(objects["domainMetadata"]),
        info=next(iter(objects["commitInfo"]), None),
        name=name,
    )


def is_reconciled(part: LogPart) -> bool:
    """Return whether a part has no live path and no key twice, as a log compaction must not.

    Spec: "Log Compaction Files"
    """
    paths = canonical_paths(part.files["path"])
    every_key = joined([keys(part.files), keys(part.tombstones)])
    return all(pc.count_distinct(values).as_py() == len(values) for values in (paths, every_key))


def replay(parts: Sequence[LogPart], checkpoint: LogPart | None) -> Replayed:
    """Return the state after a checkpoint (None: no state) and the parts that follow, oldest first.

    Raises: BrokenLog (`MissingProtocol`, `MissingMetadata`).
    """
    every = [*([checkpoint] if checkpoint else []), *parts]
    protocol = _last([part.protocol for part in every if part.protocol])
    metadata = _last([part.metadata for part in every if part.metadata])
    if protocol is None or metadata is None:
        missing = "protocol" if protocol is None else "metaData"
        span = " to ".join(dict.fromkeys(part.name for part in (*every[:1], *every[-1:])))
        raise BrokenLog(
            f"the log holds no {missing} action up to the version asked for ({span}): it was "
            "written by hand or files of it are lost; restore them from a backup",
            error_class="MissingProtocol" if protocol is None else "MissingMetadata",
        )
    below = checkpoint or LogPart(files=every[0].files.slice(0, 0))
    files, file_keys, tombstones = advance(below.files, keys(below.files), below.tombstones, parts)
    return Replayed(
        files=files,
        tombstones=tombstones,
        file_keys=file_keys,
        protocol=protocol,
        metadata=metadata,
        app_transactions=advance_txns({}, (txn for part in every for txn in part.txns)),
        domains=advance_domains({}, (domain for part in every for domain in part.domains)),
        defined_in=defining(every),
    )


def defining(parts: Sequence[LogPart]) -> tuple[str, ...]:
    """Return the files with the newest protocol and the newest metadata among the parts."""
    protocols = [part.name for part in parts if part.protocol]
    metadata = [part.name for part in parts if part.metadata]
    return tuple(dict.fromkeys([*protocols[-1:], *metadata[-1:]]))


def advance(
    files: pa.Table, file_keys: pa.ChunkedArray, tombstones: pa.Table, parts: Sequence[LogPart]
) -> tuple[pa.Table, pa.ChunkedArray, pa.Table]:
    """Return live files, their keys and the tombstones after more parts, oldest first."""
    tail = _newest(parts)
    kept, kept_keys = _without_keys(files, file_keys, tail.every_key)
    dead, _ = _without_keys(tombstones, keys(tombstones), tail.every_key)
    return (
        stacked([tail.files, kept]),
        joined([tail.file_keys, kept_keys]),
        stacked([tail.tombstones, dead]),
    )


def advance_txns(known: Mapping[str, Txn], newer: Iterable[Txn]) -> Mapping[str, Txn]:
    """Return the app transactions after newer ones, oldest first.

    The newest action wins, even if its version is not the greatest.
    Spec: "Transaction Identifiers"
    """
    return {**known, **{txn.app_id: txn for txn in newer}}


def advance_domains(
    known: Mapping[str, DomainMetadata], newer: Iterable[DomainMetadata]
) -> Mapping[str, DomainMetadata]:
    """Return the domains after newer ones, oldest first, without removed domains.

    Spec: "Domain Metadata"
    """
    latest = {**known, **{domain.domain: domain for domain in newer}}
    return {name: domain for name, domain in latest.items() if not domain.removed}


def keys(actions: pa.Table) -> pa.ChunkedArray:
    """Return the key of each file action: its canonical path, and its vector's id where it
    has one.
    """
    paths = canonical_paths(actions["path"])
    vectors = actions["deletionVector"]
    if vectors.null_count == len(vectors):
        return paths
    ids = pc.binary_join_element_wise(
        pc.struct_field(vectors, "storageType"),
        pc.struct_field(vectors, "pathOrInlineDv"),
        "",
    )
    offsets = pc.cast(pc.struct_field(vectors, "offset"), pa.string())
    tails = pc.coalesce(pc.binary_join_element_wise("@", offsets, ""), "")
    with_vector = pc.binary_join_element_wise(
        paths, pc.binary_join_element_wise(ids, tails, ""), "\0"
    )
    return pc.coalesce(with_vector, paths)


@dataclass(frozen=True)
class _Tail:
    files: pa.Table
    tombstones: pa.Table
    file_keys: pa.ChunkedArray
    every_key: pa.ChunkedArray


def _newest(parts: Sequence[LogPart]) -> _Tail:
    """Return the newest action of each key in the parts; within one part an add wins."""
    newest_first = list(reversed(parts))
    files = stacked([part.files for part in newest_first] or [LogPart().files])
    tombstones = stacked([part.tombstones for part in newest_first] or [LogPart().tombstones])
    file_keys, dead_keys = keys(files), keys(tombstones)
    counts = [(part.files.num_rows, part.tombstones.num_rows) for part in newest_first]
    in_order = [
        piece
        for alive, dead in zip(
            cut(file_keys, [count for count, _ in counts]),
            cut(dead_keys, [count for _, count in counts]),
            strict=True,
        )
        for piece in (alive, dead)
    ]
    every_key = joined(in_order)
    first = first_seen(every_key)
    if first is not None:
        pieces = cut(first, [count for pair in counts for count in pair])
        alive = joined(pieces[::2], pa.bool_())
        files, file_keys = files.filter(alive), file_keys.filter(alive)
        tombstones = tombstones.filter(joined(pieces[1::2], pa.bool_()))
    return _Tail(files, tombstones, file_keys, every_key)


def _without_keys(
    table: pa.Table, table_keys: pa.ChunkedArray, removed_keys: pa.ChunkedArray
) -> tuple[pa.Table, pa.ChunkedArray]:
    """Return a table without the rows of `removed_keys`; removing few rows copies nothing."""
    if not (table.num_rows and len(removed_keys)):
        return table, table_keys
    doomed = pc.is_in(table_keys, value_set=flat(removed_keys))
    count = pc.sum(doomed).as_py()
    if not count:
        return table, table_keys
    if count > SLICES_MAX:
        kept = pc.invert(doomed)
        return table.filter(kept), table_keys.filter(kept)
    edges = [-1, *pc.indices_nonzero(doomed).to_pylist(), table.num_rows]
    spans = [(left + 1, right - left - 1) for left, right in pairwise(edges)]
    tables = [table.slice(start, length) for start, length in spans if length]
    parts = [table_keys.slice(start, length) for start, length in spans if length]
    return stacked(tables or [table.slice(0, 0)]), joined(parts)


def _last(values: Sequence[Any]) -> Any:
    return values[-1] if values else None
