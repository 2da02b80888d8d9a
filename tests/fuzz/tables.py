"""A small in-memory table with a file of every kind, and what users do with a table."""

import io
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from tests import builders
from tests.builders import add, info, metadata, protocol, remove, to_bytes
from tests.checkpoints import Form, put_classic, put_v2
from tests.fakes.memory_store import MemoryStore
from tidegate_cdc_publisher import change_batch, record_encoding
from tidegate_cdc_publisher.commit_origin import commit_time_ms, provenance
from tidegate_cdc_publisher.row_diff import images
from tidegate_committer.store_reads import recovery
from tidegate_delta.checkpoints import log_compaction, version_checksum
from tidegate_delta.checkpoints.rows_since_checkpoint import new_state
from tidegate_delta.deletion_vectors import descriptors, roaring_bitmap
from tidegate_delta.errors import TidegateError
from tidegate_delta.log.actions import Metadata
from tidegate_delta.log.file_names import (
    LAST_CHECKPOINT,
    checkpoint_name,
    checksum_name,
    commit_name,
    compacted_name,
    in_log,
)
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_delta.value_limits import TIMESTAMP_MAX
from tidegate_producers.history.table_history import history
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.change_row_reader import read_changes
from tidegate_runtime.table_io.checkpoint_writer import move_hint_forward, write_v2
from tidegate_runtime.table_io.data_file_reader import read_table
from tidegate_runtime.table_io.open_table import (
    checksum_contradiction,
    head_version,
    open_keys,
    open_snapshot,
    read_commit,
    refresh,
    version_at,
)

Files = dict[str, bytes]

HEAD: Final = 3
DATA: Final = "p=1/a.parquet"
VECTOR_ID: Final = UUID(int=7)
VECTOR: Final = f"deletion_vector_{VECTOR_ID}.bin"
FEATURES: Final = ("deletionVectors", "v2Checkpoint")
WRITER_FEATURES: Final = (*FEATURES, "changeDataFeed", "inCommitTimestamp")

KINDS: Final = (
    "string",
    "byte",
    "short",
    "integer",
    "long",
    "float",
    "double",
    "boolean",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
    "timestamp_nanos",
    "decimal(38,2)",
)
"""The types whose partition values are text in the log."""


@cache
def template() -> Files:
    """Return the table's files: four commits, and each kind of summary of them."""
    store = MemoryStore(builders.ROOT)
    content, vectors = descriptors.in_file([roaring_bitmap.of_rows([0, 2])], VECTOR_ID)
    store.files[VECTOR] = content
    store.files[DATA] = to_parquet(pa.table({"x": [1, 2, 3, 4], "s": ["a", "b", None, "d"]}))
    vector = vectors[0].model_dump(by_alias=True)
    stats = json.dumps({"numRecords": 4, "minValues": {"x": 1}, "maxValues": {"x": 4}})
    settled = metadata(
        ["p"],
        enableDeletionVectors="true",
        enableChangeDataFeed="true",
        enableInCommitTimestamps="true",
    )
    commits = (
        (protocol(3, 7, readerFeatures=FEATURES, writerFeatures=WRITER_FEATURES), settled),
        (add(DATA, stats=stats),),
        (remove(DATA), add(DATA, stats=stats, deletionVector=vector)),
        (
            {"txn": {"appId": "app", "version": 7}},
            {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}},
        ),
    )
    for version, rows in enumerate(commits):
        result = info("WRITE", inCommitTimestamp=builders.NOW_MS + version)
        store.files[in_log(commit_name(version))] = to_bytes((result, *rows))
    return store.files


@cache
def summarised() -> Files:
    """Return the table's files with a checkpoint of each kind, a checksum and a compaction."""
    store = MemoryStore(builders.ROOT)
    store.files.update(template())
    snapshot = open_snapshot(store)
    move_hint_forward(store, put_classic(store, snapshot, builders.NOW_MS))
    store.put(in_log(checksum_name(HEAD)), version_checksum.encode(version_checksum.of(snapshot)))
    read = [read_commit(store, version) for version in range(HEAD + 1)]
    compacted = log_compaction.compact([result[0] for result in read if result is not None])
    store.put(in_log(compacted_name(0, HEAD)), compacted)
    return store.files


@cache
def with_v2(form: Form) -> tuple[Files, str]:
    """Return the table's files with only a V2 checkpoint, and the checkpoint's path."""
    store = MemoryStore(builders.ROOT)
    store.files.update(template())
    name, _ = put_v2(store, open_snapshot(store), form, builders.NOW_MS)
    return without_commits(store.files), in_log(name)


def without_commits(files: Files) -> Files:
    """Return the files of a cleaned-up log: only summaries and the newest commit."""
    old = {in_log(commit_name(version)) for version in range(HEAD)}
    return {path: content for path, content in files.items() if path not in old}


def holding(files: Files, path: str, content: bytes) -> MemoryStore:
    """Return a store with some files, one of them with the given content."""
    store = MemoryStore(builders.ROOT)
    store.files.update({**files, path: content})
    return store


def to_parquet(rows: pa.Table) -> bytes:
    """Return rows as a Parquet file."""
    buffer = io.BytesIO()
    pq.write_table(rows, buffer)
    return buffer.getvalue()


def allowed(call: Callable[..., Any], *args: Any) -> Any:
    """Return a call's result, or None if it raises one of our errors."""
    try:
        return call(*args)
    except TidegateError as error:
        return silent(error)


def silent(error: Exception) -> None:
    """Accept an error with a message; an empty message is as bad as a foreign error."""
    assert str(error).strip(), f"{type(error).__name__} says nothing"


def use(store: MemoryStore) -> None:
    """Do with a table what users and services do: read it, follow it, write to it."""
    head = allowed(open_snapshot, store)
    allowed(read_history, store)
    allowed(recovery.load, store, VECTOR_ID, 2)
    allowed(open_keys, store)
    allowed(head_version, store)
    allowed(version_at, store, builders.NOW_MS)
    changes = allowed(read_changes, store, 0)
    if changes is not None:
        encode_changes(changes)
    allowed(read_commit, store, HEAD - 1)
    first = allowed(open_snapshot, store, 0)
    if first is not None:
        allowed(refresh, store, first)
    if head is not None:
        allowed(checksum_contradiction, store, head)
        allowed(read_table, store, head)
        summarise(store, head)


def read_history(store: MemoryStore) -> None:
    """Read versions as a table's history, its change stream and its compactions do."""
    commits = [one[0] for version in range(HEAD + 1) if (one := read_commit(store, version))]
    list(history(store))
    for commit in commits:
        provenance(commit, Metadata(id="t", schema_string="{}"))
        assert abs(commit_time_ms(store, commit, 0)) <= TIMESTAMP_MAX
    if len(commits) <= HEAD:
        return  # nothing to compact: a table whose log has been cleaned up has no such range
    compacted = MemoryStore(builders.ROOT)
    compacted.files.update(store.files)
    compacted.put(in_log(compacted_name(0, HEAD)), log_compaction.compact(commits))
    open_snapshot(compacted)


def summarise(store: LogStore, head: Snapshot) -> None:
    """Write all summaries of a version, whatever its table's settings; each must be readable."""
    assert version_checksum.decode(version_checksum.encode(version_checksum.of(head)))
    properties = {"delta.checkpoint.writeStatsAsStruct": "true"}
    struct = head.metadata.with_(configuration={**head.metadata.configuration, **properties})
    typed = replace(head, metadata=struct)
    for written, hint in (
        (MemoryStore(builders.ROOT), lambda to: put_classic(to, head, builders.NOW_MS)),
        (MemoryStore(builders.ROOT), lambda to: put_classic(to, typed, builders.NOW_MS)),
        (
            MemoryStore(builders.ROOT),
            lambda to: write_v2(to, new_state(typed), builders.NOW_MS, lambda: VECTOR_ID),
        ),
    ):
        if allowed(hint, written) is not None:
            open_snapshot(written)


def encode_changes(rows: pa.Table) -> None:
    """Encode rows as the change stream does."""
    texts = allowed(images, rows, rows.schema.names[:1])
    if texts is None:
        return
    origin = change_batch.SourceBlock(VECTOR_ID, "t", "prefix", HEAD, TIMESTAMP_MAX)
    for result in record_encoding.records(
        origin, change_batch.Batch("c", 0, after=texts), 0, "with"
    ):
        json.loads(result.value or b"null")


SUMMARIES: Final = {
    "classic checkpoint": in_log(checkpoint_name(HEAD)),
    "log compaction": in_log(compacted_name(0, HEAD)),
    "version checksum": in_log(checksum_name(HEAD)),
    "hint": in_log(LAST_CHECKPOINT),
}
"""Files that only summarise the commits, by kind."""
