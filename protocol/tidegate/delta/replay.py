"""Replay: what each file of the log contributes, reconciled newest first, as columns.

A key is a canonical path, with the deletion vector's id where there is one. Keys are compared in
Arrow's hash tables, so a live file costs a string, never a Python object.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.delta.actions import (
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    Txn,
    from_row,
)
from tidegate.delta.errors import BrokenLog
from tidegate.delta.files.columns import ADD_SCHEMA, REMOVE_SCHEMA
from tidegate.delta.files.rows import to_columns
from tidegate.delta.paths import canonical_paths

SLICES_MAX: Final = 32
"""Up to so many removed rows are cut out of the columns; more are filtered, which copies them."""

_OBJECTS: Final = ("commitInfo", "protocol", "metaData", "txn", "domainMetadata")
_BODIES: Final = ("add", "remove", *_OBJECTS, "checkpointMetadata", "sidecar")

Bodies = dict[str, list[Mapping[str, Any]]]
"""What the rows of a file say, by the name of the action."""


@dataclass(frozen=True)
class LogPart:
    """What one file of the log says: a commit, a log compaction or a checkpoint.

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


@dataclass(frozen=True)
class Replayed:
    """The state that parts of the log add up to.

    Spec: "Action Reconciliation"
    """

    files: pa.Table
    tombstones: pa.Table
    file_keys: pa.ChunkedArray
    protocol: Protocol
    metadata: Metadata
    app_transactions: Mapping[str, Txn]
    domains: Mapping[str, DomainMetadata]


def read_part(name: str, content: bytes, files: pa.Schema = ADD_SCHEMA) -> LogPart:
    """Return what a commit or a log compaction says; of live files, the columns of `files`.

    Raises: BrokenLog (`CorruptCommit`) for a line that is no JSON object or a malformed action.
    Spec: "Delta Log Entries"
    """
    return part_of(name, read_bodies(name, content), files)


def read_bodies(name: str, content: bytes) -> Bodies:
    """Return what each row says, by the name of its action; what we don't know is left out.

    Raises: BrokenLog (`CorruptCommit`) for a line that is no JSON object.
    Spec: "Delta Log Entries"
    """
    found: Bodies = {kind: [] for kind in _BODIES}
    for line in content.split(b"\n"):
        if not line.strip():
            continue
        for kind, body in _row(name, line).items():
            if body is not None and kind in found:
                found[kind].append(_mapping(name, body))
    return found


def part_of(name: str, found: Bodies, files: pa.Schema = ADD_SCHEMA) -> LogPart:
    """Return what rows say together; of live files, the columns of `files`.

    Raises: BrokenLog (`CorruptCommit`) for a malformed action.
    Spec: "Actions"
    """
    objects: dict[str, list[Any]] = {
        kind: [from_row({kind: body}) for body in found[kind]] for kind in _OBJECTS
    }
    return LogPart(
        files=to_columns(found["add"], files, name),
        tombstones=to_columns(found["remove"], REMOVE_SCHEMA, name),
        protocol=_last(objects["protocol"]),
        metadata=_last(objects["metaData"]),
        txns=tuple(objects["txn"]),
        domains=tuple(objects["domainMetadata"]),
        info=next(iter(objects["commitInfo"]), None),
    )


def is_reconciled(part: LogPart) -> bool:
    """Return whether a part names no live path and no key twice, as a log compaction must not.

    Spec: "Log Compaction Files"
    """
    paths = canonical_paths(part.files["path"])
    every_key = _joined([keys(part.files), keys(part.tombstones)])
    return all(pc.count_distinct(found).as_py() == len(found) for found in (paths, every_key))


def replay(parts: Sequence[LogPart], checkpoint: LogPart | None) -> Replayed:
    """Return the state after a checkpoint (None: nothing) and the parts that follow, oldest first.

    Raises: BrokenLog (`MissingProtocol`, `MissingMetadata`).
    Spec: "Action Reconciliation"
    """
    every = [*([checkpoint] if checkpoint else []), *parts]
    protocol = _last([part.protocol for part in every if part.protocol])
    metadata = _last([part.metadata for part in every if part.metadata])
    if protocol is None or metadata is None:
        missing = "protocol" if protocol is None else "metaData"
        raise BrokenLog(
            f"the log holds no {missing} action up to the version asked for: it was written by "
            "hand or files of it are lost; restore them from a backup",
            error_class="MissingProtocol" if protocol is None else "MissingMetadata",
        )
    tail = _newest(parts)
    below = checkpoint or LogPart(files=tail.files.slice(0, 0))
    files, file_keys = _without(below.files, keys(below.files), tail.every_key)
    tombstones, _ = _without(below.tombstones, keys(below.tombstones), tail.every_key)
    return Replayed(
        files=stacked([tail.files, files]),
        tombstones=stacked([tail.tombstones, tombstones]),
        file_keys=_joined([tail.file_keys, file_keys]),
        protocol=protocol,
        metadata=metadata,
        app_transactions=advance_txns({}, (txn for part in every for txn in part.txns)),
        domains=advance_domains({}, (one for part in every for one in part.domains)),
    )


def advance(
    files: pa.Table, file_keys: pa.ChunkedArray, part: LogPart
) -> tuple[pa.Table, pa.ChunkedArray]:
    """Return live files and their keys after one more part.

    Spec: "Action Reconciliation"
    """
    added = keys(part.files)
    kept, kept_keys = _without(files, file_keys, _joined([added, keys(part.tombstones)]))
    return stacked([part.files, kept]), _joined([added, kept_keys])


def advance_tombstones(tombstones: pa.Table, part: LogPart) -> pa.Table:
    """Return the tombstones after one more part; what it adds again is alive.

    Spec: "Action Reconciliation"
    """
    touched = _joined([keys(part.files), keys(part.tombstones)])
    kept, _ = _without(tombstones, keys(tombstones), touched)
    return stacked([part.tombstones, kept])


def advance_txns(known: Mapping[str, Txn], newer: Iterable[Txn]) -> Mapping[str, Txn]:
    """Return the app transactions after some more, oldest first: the newest wins, not the greatest.

    Spec: "Transaction Identifiers"
    """
    return {**known, **{txn.app_id: txn for txn in newer}}


def advance_domains(
    known: Mapping[str, DomainMetadata], newer: Iterable[DomainMetadata]
) -> Mapping[str, DomainMetadata]:
    """Return the domains after some more, oldest first, without those that were removed.

    Spec: "Domain Metadata"
    """
    latest = {**known, **{one.domain: one for one in newer}}
    return {name: one for name, one in latest.items() if not one.removed}


def keys(actions: pa.Table) -> pa.ChunkedArray:
    """Return the key of each file action: its canonical path, and its vector's id where it has one.

    Spec: "Action Reconciliation"
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


def stacked(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of some tables, one after the other; a column that one lacks is null there.

    Spec: "Action Reconciliation"
    """
    filled = [table for table in tables if table.num_rows] or list(tables[:1])
    if all(table.schema.equals(filled[0].schema) for table in filled):
        return pa.concat_tables(filled)
    return pa.concat_tables(filled, promote_options="default")


@dataclass(frozen=True)
class _Tail:
    files: pa.Table
    tombstones: pa.Table
    file_keys: pa.ChunkedArray
    every_key: pa.ChunkedArray


def _newest(parts: Sequence[LogPart]) -> _Tail:
    """Keep, of all actions in the parts, the newest of each key; within a part an add wins."""
    newest_first = list(reversed(parts))
    files = stacked([part.files for part in newest_first] or [LogPart().files])
    tombstones = stacked([part.tombstones for part in newest_first] or [LogPart().tombstones])
    ages = [
        age
        for name in ("files", "tombstones")
        for position, part in enumerate(newest_first)
        for age in [2 * position + (name == "tombstones")] * getattr(part, name).num_rows
    ]
    file_keys, dead_keys = keys(files), keys(tombstones)
    every_key = _joined([file_keys, dead_keys])
    order = pa.table({"key": every_key, "age": pa.array(ages, pa.int64())})
    rows = pa.array(range(order.num_rows), pa.int64())
    ranked = order.append_column("row", rows).take(pc.sort_indices(order["age"]))
    first = ranked.group_by("key", use_threads=False).aggregate([("row", "first")])["row_first"]
    kept = pc.is_in(rows, value_set=_flat(first))
    alive, dead = kept.slice(0, files.num_rows), kept.slice(files.num_rows)
    return _Tail(files.filter(alive), tombstones.filter(dead), file_keys.filter(alive), every_key)


def _without(
    table: pa.Table, table_keys: pa.ChunkedArray, gone: pa.ChunkedArray
) -> tuple[pa.Table, pa.ChunkedArray]:
    """Return a table without the rows of some keys; where few go, nothing else is copied."""
    if not (table.num_rows and len(gone)):
        return table, table_keys
    doomed = pc.is_in(table_keys, value_set=_flat(gone))
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
    return stacked(tables or [table.slice(0, 0)]), _joined(parts)


def _joined(arrays: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    return pa.chunked_array([c for array in arrays for c in array.chunks if len(c)], pa.string())


def _flat(array: pa.ChunkedArray | pa.Array) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _last(found: Sequence[Any]) -> Any:
    return found[-1] if found else None


def _row(name: str, line: bytes) -> dict[str, Any]:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BrokenLog(
            f"{name} holds a line that is no JSON ({error}); the file is torn or was written by "
            "hand: restore it from a backup, or the table to an earlier version",
            error_class="CorruptCommit",
        ) from error
    return dict(_mapping(name, row))


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BrokenLog(
            f"{name} holds {type(value).__name__} where a JSON object is needed: restore it from a "
            "backup, or the table to an earlier version",
            error_class="CorruptCommit",
        )
    return value
