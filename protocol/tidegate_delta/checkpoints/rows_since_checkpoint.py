"""A table's state between two checkpoints: what the next one needs, at the price of what changes.

The rows of a checkpoint stay in its files. Of each only the key and the size are kept, in the order
of the file. Rows that no checkpoint holds yet are kept whole.

`StoredKeys` finds the few rows of a checkpoint's file that commits name.

Spec: "Action Reconciliation"
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.checkpoints import file_totals, version_checksum
from tidegate_delta.checkpoints.file_totals import FileTotals
from tidegate_delta.checkpoints.version_checksum import VersionChecksum
from tidegate_delta.log.actions import Add, Sidecar
from tidegate_delta.log.file_names import Version
from tidegate_delta.snapshots.chunked_arrays import flat, joined
from tidegate_delta.snapshots.file_action_columns import ADD_SCHEMA, REMOVE_SCHEMA, rows_to_adds
from tidegate_delta.snapshots.replay import LogPart, keys
from tidegate_delta.snapshots.snapshot import KeySet, Snapshot, evolve_parts

SCANS_BEFORE_INDEX: Final = 64
"""An index of the keys costs about as much as so many scans.

Spec: "Action Reconciliation"
"""

ROWS_PER_KEY: Final = 256
"""For more keys than one to so many rows, a scan costs less than looking each of them up.

Spec: "Action Reconciliation"
"""


class StoredKeys:
    """The keys of some rows, and an index of them once they have been searched often.

    The index says whether a scan would find anything: mostly not.
    """

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._keys = keys(rows)
        self._scans = 0
        self._index: KeySet | None = None
        self._rows_bytes: int | None = None

    @property
    def size_bytes(self) -> int:
        """The memory that the rows and the index take, about."""
        if self._rows_bytes is None:
            # Counting visits each buffer.
            self._rows_bytes = int(self._rows.nbytes)
        return self._rows_bytes + (self._index.size_bytes if self._index else 0)

    def found(self, touched: pa.Array) -> pa.Array | None:
        """Return a mask of the rows whose keys are among some, or None if there are none.

        Law: found(touched) == is_in(keys, touched), whether there is an index or not
        """
        if len(touched) * ROWS_PER_KEY <= len(self._keys):
            if self._scans < SCANS_BEFORE_INDEX:
                self._scans += 1
            elif not any(key in self._indexed for key in touched.to_pylist()):
                return None
        mask = flat(pc.is_in(self._keys, value_set=touched))
        return mask if pc.any(mask, min_count=0).as_py() else None

    @property
    def _indexed(self) -> KeySet:
        if self._index is None:
            self._index = KeySet(self._keys)
        return self._index


STORED_SCHEMA: Final = pa.schema(
    [ADD_SCHEMA.field(name) for name in ("path", "deletionVector", "size")]
)
"""What is kept of a live file that a checkpoint holds.

Spec: "Action Reconciliation"
"""

STORED_TOMBSTONE_SCHEMA: Final = pa.schema(
    [REMOVE_SCHEMA.field(name) for name in ("path", "deletionVector", "deletionTimestamp")]
)
"""What is kept of a tombstone that a checkpoint holds.

Spec: "Action Reconciliation"
"""


WHOLE_ROWS_MAX: Final = 20_000
"""Rows of checkpoint files that are kept whole for each table. So a small table, and the newest
rows of a large one, need not be read again.

Spec: "Action Reconciliation"
"""


@dataclass(frozen=True)
class StoredRows:
    """Rows of one kind in a checkpoint's file, in its order, and which of them still hold.

    `mask` is None where all do. `rows` has the columns of STORED_SCHEMA or
    STORED_TOMBSTONE_SCHEMA, or all columns, where the rows are kept whole.
    Law: count == the number of rows that hold
    """

    rows: pa.Table
    keys: StoredKeys
    mask: pa.Array | None = None
    count: int = 0

    @classmethod
    def of(cls, rows: pa.Table) -> "StoredRows":
        """Return rows that all hold."""
        return cls(rows, StoredKeys(rows), None, rows.num_rows)

    @property
    def size_bytes(self) -> int:
        """The memory that the rows take, about."""
        return self.keys.size_bytes

    @property
    def is_intact(self) -> bool:
        """Whether all rows hold."""
        return self.count == int(self.rows.num_rows)

    @property
    def is_whole(self) -> bool:
        """Whether all columns are kept."""
        return "dataChange" in self.rows.schema.names

    def holding(self) -> pa.Table:
        """Return the rows that hold."""
        return self.rows if self.mask is None else self.rows.filter(self.mask)

    def without(self, gone: pa.Array) -> "StoredRows":
        """Return the rows without those of a mask."""
        kept = pc.invert(gone)
        mask = kept if self.mask is None else pc.and_(self.mask, kept)
        return replace(self, mask=mask, count=int(pc.sum(mask).as_py() or 0))


@dataclass(frozen=True)
class StoredPart:
    """The rows in a sidecar, or in a row group of a checkpoint file.

    `path` is relative to the table root; `group` is None for a whole file. `sidecar` is the action
    that names the file, if it is a sidecar, and `schema` the columns of the file.
    Spec: "Sidecar Files"
    """

    path: str
    group: int | None
    files: StoredRows
    tombstones: StoredRows
    schema: pa.Schema
    sidecar: Sidecar | None = None


@dataclass(frozen=True)
class CheckpointState:
    """A table at `version`: the rows that checkpoint files hold, and those that none holds.

    `fresh` is the version's definition, with the rows that are in no checkpoint file. `based_on` is
    the version of the checkpoint that the files of `stored` belong to, -1 without one. `txn_id` is
    that of the version's own commit.
    Law: the rows of `stored` that hold, and those of `fresh`, are the snapshot's
    """

    fresh: Snapshot
    stored: tuple[StoredPart, ...] = ()
    totals: FileTotals = field(default_factory=FileTotals)
    txn_id: str | None = None
    based_on: int = -1

    @property
    def version(self) -> Version:
        """The version of the table."""
        return self.fresh.version

    @cached_property
    def checksum(self) -> VersionChecksum:
        """The checksum of the version."""
        return version_checksum.of_totals(self.fresh, self.totals, self.txn_id)

    def few_files(self, files_max: int) -> Sequence[Add] | None:
        """Return the live files, or None if there are more than this or they are not in memory."""
        kept = [part.files for part in self.stored if part.files.count]
        if self.totals.files > files_max or not all(rows.is_whole for rows in kept):
            return None
        tables = [*(rows.holding() for rows in kept), self.fresh.files]
        return [add for table in tables for add in rows_to_adds(table)]

    @property
    def whole_rows(self) -> int:
        """The number of rows in checkpoint files that are kept whole."""
        return whole_rows(self.stored)

    @property
    def size_bytes(self) -> int:
        """The memory that the rows take, about."""
        stored = sum(part.files.size_bytes + part.tombstones.size_bytes for part in self.stored)
        return stored + int(self.fresh.files.nbytes + self.fresh.tombstones.nbytes)


def row_count(part: StoredPart) -> int:
    """Return the number of rows in a part of a checkpoint, whether they hold or not."""
    return int(part.files.rows.num_rows + part.tombstones.rows.num_rows)


def whole_rows(parts: Sequence[StoredPart]) -> int:
    """Return the number of rows that are kept whole."""
    every = [rows for part in parts for rows in (part.files, part.tombstones)]
    return sum(rows.rows.num_rows for rows in every if rows.is_whole)


def new_state(
    fresh: Snapshot, stored: Sequence[StoredPart] = (), based_on: int = -1
) -> CheckpointState:
    """Return the state of a table whose rows are in `stored` and `fresh`, none in both."""
    totals = [file_totals.totals_of(part.files.rows) for part in stored]
    totals.append(file_totals.totals_of(fresh.files))
    return CheckpointState(
        fresh, tuple(stored), file_totals.totals_together(totals), based_on=based_on
    )


def advanced(state: CheckpointState, parts: Sequence[LogPart]) -> CheckpointState:
    """Return the state after some more commits, oldest first.

    What checkpoints hold is searched for the keys that the commits name, and not copied.
    Law: the rows and totals are those of a replay
    """
    touched = pc.unique(flat(joined([keys(table) for part in parts for table in _tables(part)])))
    stored, lost = _hit(state.stored, touched)
    after = evolve_parts(state.fresh, parts)
    gained = file_totals.totals_of(after.files) - file_totals.totals_of(state.fresh.files)
    info = parts[-1].info
    return CheckpointState(
        after,
        stored,
        state.totals - file_totals.totals_together(map(file_totals.totals_of, lost)) + gained,
        info.txn_id if info else None,
        state.based_on,
    )


def _tables(part: LogPart) -> tuple[pa.Table, pa.Table]:
    return part.files, part.tombstones


def _hit(
    stored: Sequence[StoredPart], touched: pa.Array
) -> tuple[tuple[StoredPart, ...], list[pa.Table]]:
    """Return the parts without the rows of some keys, and the live files that these were."""
    if not len(touched):
        return tuple(stored), []
    files, lost = _dropped([part.files for part in stored], touched)
    tombstones, _ = _dropped([part.tombstones for part in stored], touched)
    return (
        tuple(
            replace(part, files=own, tombstones=dead)
            for part, own, dead in zip(stored, files, tombstones, strict=True)
        ),
        lost,
    )


def _dropped(
    every: Sequence[StoredRows], touched: pa.Array
) -> tuple[list[StoredRows], list[pa.Table]]:
    after, lost = [], []
    for stored in every:
        gone = stored.keys.found(touched)
        if gone is None:
            after.append(stored)
            continue
        if stored.mask is not None:
            gone = pc.and_(gone, stored.mask)
        lost.append(stored.rows.filter(gone))
        after.append(stored.without(gone))
    return after, lost
