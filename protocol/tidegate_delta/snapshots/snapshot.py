"""A snapshot: the state of a table at a version, and how a commit advances it.

The file set stays in Arrow columns; everything else is a handful of objects.

The result of checking it against its version checksum file is a value, never an error: a wrong
checksum file may be its writer's mistake, so reads go on, and the caller learns which fields are in
doubt.

Spec: "Action Reconciliation"
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from itertools import chain
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.log.actions import DomainMetadata, Metadata, Protocol, Txn
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import Version
from tidegate_delta.log.file_paths import canonical_paths
from tidegate_delta.snapshots.file_action_columns import adds_to_columns, removes_to_columns
from tidegate_delta.snapshots.replay import (
    LogPart,
    Replayed,
    advance,
    advance_domains,
    advance_txns,
    keys,
)


class Checked(Enum):
    """The outcome of comparing a version with its version checksum file.

    Spec: "State Validation"
    """

    NOT_ASKED = "not asked"
    ABSENT = "absent"
    UNREADABLE = "unreadable"
    AGREES = "agrees"
    CONTRADICTS = "contradicts"


@dataclass(frozen=True)
class ChecksumVerdict:
    """The outcome of the check, and the fields that contradict the log, as the file names them.

    Spec: "State Validation"
    """

    checked: Checked
    fields: tuple[str, ...] = ()

    @property
    def is_doubtful(self) -> bool:
        """Whether the version or its checksum file is damaged."""
        return self.checked in (Checked.UNREADABLE, Checked.CONTRADICTS)

    def __str__(self) -> str:
        verdict = self.checked.value
        return f"{verdict}: {', '.join(self.fields)}" if self.fields else verdict


NOT_ASKED: Final = ChecksumVerdict(Checked.NOT_ASKED)
ABSENT: Final = ChecksumVerdict(Checked.ABSENT)
UNREADABLE: Final = ChecksumVerdict(Checked.UNREADABLE)
AGREES: Final = ChecksumVerdict(Checked.AGREES)


class KeySet(Set[str]):
    """A set of the texts of a column, which must be distinct.

    Law: set(KeySet(column)) == set(column.to_pylist())
    """

    __slots__ = ("_hashes", "_rows", "_texts")

    def __init__(self, texts: pa.ChunkedArray) -> None:
        hashes = pa.chunked_array(
            [pa.array(map(hash, chunk.to_pylist()), pa.int64()) for chunk in texts.chunks],
            pa.int64(),
        )
        order = pc.sort_indices(hashes).cast(pa.uint32())
        self._texts = texts
        self._rows = _bytes(order).cast("I")
        self._hashes = _bytes(hashes.take(order).combine_chunks()).cast("q")

    @property
    def size_bytes(self) -> int:
        """The memory that the set takes beside its column."""
        return self._hashes.nbytes + self._rows.nbytes

    def row(self, text: object) -> int | None:
        """Return the row of a text in the column, or None."""
        text_hash = hash(text)
        index = bisect_left(self._hashes, text_hash)
        while index < len(self._hashes) and self._hashes[index] == text_hash:
            if self._texts[self._rows[index]].as_py() == text:
                return self._rows[index]
            index += 1
        return None

    def __contains__(self, text: object) -> bool:
        return self.row(text) is not None

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(chunk.to_pylist() for chunk in self._texts.chunks)

    def __len__(self) -> int:
        return len(self._texts)


def _bytes(values: pa.Array) -> memoryview:
    """Return the bytes of a fixed-width column, from which Python reads single values."""
    _, buffer = values.buffers()
    width = values.type.bit_width // 8
    data = memoryview(b"" if buffer is None else buffer).cast("B")
    return data[values.offset * width : (values.offset + len(values)) * width]


CHUNKS_MAX: Final = 128
"""Columns with more chunks are copied into one, because each chunk slows every operation."""


@dataclass(frozen=True)
class Snapshot:
    """The state of a table at `version`.

    Shape: `files` has ADD_SCHEMA, a row for each live file, perhaps with `stats_parsed` (see
    `snapshots.raw_stats`); `tombstones` has REMOVE_SCHEMA, a row for each removed file that the
    log still names (expiry is applied where there is a clock).
    `checksum` is the result of checking the version checksum file, if the caller asked for it.
    Units: `in_commit_timestamp` in ms since the Unix epoch: that of the version's own commit.
    """

    version: Version
    protocol: Protocol
    metadata: Metadata
    files: pa.Table
    tombstones: pa.Table
    app_transactions: Mapping[str, Txn] = field(default_factory=dict)
    domains: Mapping[str, DomainMetadata] = field(default_factory=dict)
    in_commit_timestamp: int | None = None
    checksum: ChecksumVerdict = NOT_ASKED

    @cached_property
    def file_keys(self) -> pa.ChunkedArray:
        """The key of each row of `files`, in its order."""
        return keys(self.files)

    def checked(self, verdict: ChecksumVerdict) -> "Snapshot":
        """Return the same state with the result of its checksum check."""
        after = replace(self, checksum=verdict)
        vars(after)["file_keys"] = self.file_keys
        return after


@dataclass(frozen=True)
class LiveKeys:
    """The part of a table's state at `version` that a commit can contradict: no statistics.

    Law: canonical == canonical_paths(files["path"])
    Shape: `files` has KEY_SCHEMA, a row for each live file.
    """

    version: Version
    protocol: Protocol
    metadata: Metadata
    files: pa.Table
    app_transactions: Mapping[str, Txn]
    domains: Mapping[str, DomainMetadata]
    in_commit_timestamp: int | None = None

    @cached_property
    def canonical(self) -> pa.ChunkedArray:
        """The canonical path of each row of `files`, in its order."""
        return canonical_paths(self.files["path"])

    @cached_property
    def paths(self) -> KeySet:
        """The canonical paths of the live files, for single look-ups."""
        return KeySet(self.canonical)

    def with_keys(self, file_keys: pa.ChunkedArray) -> "LiveKeys":
        """Return the same state, reusing the given keys as canonical paths if they are equal.

        They are equal where no file has a deletion vector.
        """
        after, vectors = replace(self), self.files["deletionVector"]
        if vectors.null_count == len(vectors):
            vars(after)["canonical"] = file_keys
        return after


def evolve(snapshot: Snapshot, commit: Commit) -> Snapshot:
    """Return the snapshot after one more commit.

    Law: folding evolve over a log's commits equals replaying the log
    """
    part = LogPart(
        files=adds_to_columns(list(commit.adds)),
        tombstones=removes_to_columns(list(commit.removes)),
        protocol=commit.protocol,
        metadata=commit.metadata,
        txns=tuple(commit.txns),
        domains=tuple(commit.domains),
        info=commit.info,
    )
    assert commit.version == snapshot.version + 1, (
        f"version {commit.version} can't follow version {snapshot.version}: a commit was left out"
    )
    return evolve_parts(snapshot, [part])


def evolve_parts(snapshot: Snapshot, parts: Sequence[LogPart]) -> Snapshot:
    """Return the snapshot after more commits, oldest first, given as columns.

    Law: the file set is scanned once, however many commits there are
    """
    files, file_keys, tombstones = advance(
        snapshot.files, snapshot.file_keys, snapshot.tombstones, parts
    )
    if file_keys.num_chunks > CHUNKS_MAX:
        files, file_keys = files.combine_chunks(), pa.chunked_array([file_keys.combine_chunks()])
    info = parts[-1].info
    after = Snapshot(
        version=Version(snapshot.version + len(parts)),
        protocol=next((p.protocol for p in reversed(parts) if p.protocol), snapshot.protocol),
        metadata=next((p.metadata for p in reversed(parts) if p.metadata), snapshot.metadata),
        files=files,
        tombstones=tombstones,
        app_transactions=advance_txns(
            snapshot.app_transactions, (txn for part in parts for txn in part.txns)
        ),
        domains=advance_domains(
            snapshot.domains, (domain for part in parts for domain in part.domains)
        ),
        in_commit_timestamp=info.in_commit_timestamp if info else None,
    )
    vars(after)["file_keys"] = file_keys
    return after


def from_replay(version: int, replayed: Replayed, in_commit_timestamp: int | None) -> Snapshot:
    """Return the snapshot of a replayed log."""
    after = Snapshot(
        version=Version(version),
        protocol=replayed.protocol,
        metadata=replayed.metadata,
        files=replayed.files,
        tombstones=replayed.tombstones,
        app_transactions=replayed.app_transactions,
        domains=replayed.domains,
        in_commit_timestamp=in_commit_timestamp,
    )
    vars(after)["file_keys"] = replayed.file_keys
    return after
