"""Finds the files that may go, in the table's root or in its log, and what versions name."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.actions import Cdc, CommitInfo, DeletionVector, Metadata
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import commit_name
from tidegate_delta.schema.column_mapping import physical_partition_columns
from tidegate_delta.snapshots.file_action_columns import DELETION_VECTOR
from tidegate_delta.snapshots.replay import LogPart, parse_log_file
from tidegate_messages.proposal import ROW_INTENT, Proposal
from tidegate_producers.vacuum.vacuum_plan import FOUND_SCHEMA
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.log_reader import of_table, read_each
from tidegate_runtime.table_io.table_files import (
    data_files,
    keys_below,
    list_own_files,
    referenced,
    vector_files,
)

END: Final = "VACUUM END"
DONE_THROUGH: Final = "latestCommitVersionOutsideOfRetentionWindow"
"""The parameter of VACUUM END, named as delta-spark's, with the version that LITE goes on after."""

_CDC: Final = b'"cdc"'


def listed(store: LogStore, metadata: Metadata) -> tuple[pa.Table, tuple[str, ...]]:
    """Return the files below a table's root that are not hidden: FOUND_SCHEMA.

    Also return the folders of other tables below it, whose files are left out. Raises: Unavailable.
    """
    columns = {*metadata.partition_columns, *physical_partition_columns(metadata)}
    listing = list_own_files(store, columns)
    found = listing.files.append_column("version", pa.repeat(-1, listing.files.num_rows))
    return found.rename_columns(FOUND_SCHEMA.names).cast(FOUND_SCHEMA), listing.tables_below


def removed_in_log(store: LogStore, version: int) -> tuple[pa.Table, int]:
    """Return the files that versions up to this one removed, and change data: FOUND_SCHEMA.

    Also return the oldest version that was read. Versions that an earlier VACUUM LITE has dealt
    with are left out, and so are those of which the commit is gone.
    Raises: BrokenLog; Unavailable.
    """
    parts: list[pa.Table] = []
    first, oldest = 0, version + 1
    numbers = range(version, -1, -1)
    for number, content in zip(numbers, read_each(store, map(commit_name, numbers)), strict=True):
        if content is None or number < first:
            break
        oldest = number
        part = _part(store, number, content)
        parts += _removed(store.root, number, part, content)
        first = max(first, _done_through(part.info) + 1)
    removed = pa.concat_tables([FOUND_SCHEMA.empty_table(), *parts])
    # A file that was removed twice is told once, with its last removal.
    newest = removed.group_by("path", use_threads=False).aggregate(
        [("size_bytes", "first"), ("since_ms", "first"), ("version", "first")]
    )
    columns = ["path", "size_bytes_first", "since_ms_first", "version_first"]
    return newest.select(columns).rename_columns(FOUND_SCHEMA.names), oldest


def files_named_since(store: LogStore, version: int, head: int) -> pa.ChunkedArray:
    """Return the files that the commits of these versions name, both ends included.

    Raises: BrokenLog (`LogGap`, `CorruptCommit`); Unavailable.
    """
    chunks: list[pa.Array] = []
    numbers = range(version, head + 1)
    for number, content in zip(numbers, read_each(store, map(commit_name, numbers)), strict=True):
        if content is None:
            raise BrokenLog(
                f"{commit_name(number)} of table {store.root} is gone, so it is not known which "
                "files its readers need: give back the lease or the position that needs it",
                error_class="LogGap",
            )
        part = _part(store, number, content)
        for files in (part.files, part.tombstones):
            chunks += referenced(store.root, files).chunks
        paths = [change.path for change in _changes(number, content)]
        chunks += data_files(store.root, pa.chunked_array([paths], pa.string())).chunks
    return pa.chunked_array(chunks, pa.string())


def proposed(store: LogStore, proposal: Proposal) -> pa.ChunkedArray:
    """Return the files that a proposal would bring: data files, change data, vectors' files.

    A claim check whose file is gone brings nothing, as it is refused. Raises: Unavailable.
    """
    lines: list[Any] = [
        *proposal.actions,
        *({ROW_INTENT: vars(intent)} for intent in proposal.dv_intents),
    ]
    if proposal.claim_check is not None:
        content = store.read(proposal.claim_check.path) or b""
        lines += map(_parsed, content.splitlines())
    bodies = [body for line in lines if isinstance(line, dict) for body in _bringing(line)]
    paths = [path for body in bodies if isinstance(path := body.get("path"), str)]
    vectors = [body.get("deletionVector") or body.get("rows") for body in bodies]
    well_formed = [vector for vector in vectors if isinstance(vector, dict)]
    keys = data_files(store.root, pa.chunked_array([paths], pa.string()))
    stored = [vector_files(store.root, _vectors(vector)) for vector in well_formed]
    return pa.chunked_array([*keys.chunks, *stored], pa.string())


def _bringing(line: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for name in ("add", "cdc", ROW_INTENT):
        body = line.get(name)
        if isinstance(body, dict):
            yield body


def _parsed(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None


def _vectors(vector: Mapping[str, Any]) -> pa.ChunkedArray:
    """Return a vector as a column; of one that is malformed, none: its proposal is refused."""
    try:
        row = DeletionVector.model_validate(vector).model_dump(by_alias=True)
        return pa.chunked_array([pa.array([row], DELETION_VECTOR)])
    except (ValueError, pa.ArrowException):
        return pa.chunked_array([], DELETION_VECTOR)


def _part(store: LogStore, version: int, content: bytes) -> LogPart:
    with of_table(store.root):
        return parse_log_file(commit_name(version), content)


def _changes(version: int, content: bytes) -> list[Cdc]:
    # Most commits have no change files, and reading all actions as objects takes long.
    return list(Commit.decode(version, content).of(Cdc)) if _CDC in content else []


def _removed(root: str, version: int, part: LogPart, content: bytes) -> Iterator[pa.Table]:
    """Yield the files that a commit removed, their vectors' files, and its change data."""
    tombstones = part.tombstones
    removed_ms = pc.fill_null(tombstones["deletionTimestamp"], 0)
    sizes = pc.fill_null(tombstones["size"], 0)
    keys = keys_below(root, tombstones["path"])
    yield _as_found(keys, sizes, removed_ms, version).filter(pc.is_valid(keys))
    vectors = vector_files(root, tombstones["deletionVector"])
    newest_ms = pc.max(removed_ms).as_py() or 0
    yield _as_found(vectors, [0] * len(vectors), [newest_ms] * len(vectors), version)
    changes = _changes(version, content)
    if changes:
        stamp_ms = (part.info.timestamp if part.info else None) or 0
        paths = pa.chunked_array([[change.path for change in changes]], pa.string())
        keys = keys_below(root, paths)
        change_files = _as_found(
            keys, [change.size for change in changes], [stamp_ms] * len(changes), version
        )
        yield change_files.filter(pc.is_valid(keys))


def _as_found(keys: Any, sizes: Any, since_ms: Any, version: int) -> pa.Table:
    columns = [keys, sizes, since_ms, [version] * len(keys)]
    return pa.table(dict(zip(FOUND_SCHEMA.names, columns, strict=True)), schema=FOUND_SCHEMA)


def _done_through(info: CommitInfo | None) -> int:
    """Return the version up to which a VACUUM LITE that this commit records is done, or -1."""
    if info is None or info.operation != END:
        return -1
    parameters: Mapping[str, Any] = info.operation_parameters or {}
    done_through = str(parameters.get(DONE_THROUGH, ""))
    is_complete = parameters.get("status") == "COMPLETED"
    return (
        int(done_through)
        if is_complete and done_through.isascii() and done_through.isdigit()
        else -1
    )
