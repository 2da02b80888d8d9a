"""Decides what of the last checkpoint the next one keeps, and which rows are written anew.

A sidecar, or a row group of a checkpoint without sidecars, is kept while all its rows hold. The
rows of the others, and those that no checkpoint holds yet, are written into new ones; small ones
among them are joined, so that their number stays within a few more than the rows fill.

Spec: "Sidecar Files"
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.checkpoints.checkpoint_rows import unexpired
from tidegate_delta.checkpoints.rows_since_checkpoint import (
    STORED_SCHEMA,
    STORED_TOMBSTONE_SCHEMA,
    CheckpointState,
    StoredPart,
    StoredRows,
)
from tidegate_delta.snapshots.chunked_arrays import flat, stacked
from tidegate_delta.snapshots.snapshot import CHUNKS_MAX, Snapshot

JOINED_TIMES: Final = 2
"""A small part is joined to new rows if it has at most this many times as many rows as they."""

EXPIRED_SHARE: Final = 2
"""A part is written anew when 1/EXPIRED_SHARE of its tombstones have expired."""


@dataclass(frozen=True)
class RowsToWrite:
    """Rows of one kind that are written together: of checkpoint files, then some fresh ones.

    `is_tombstones` says which kind. Of the parts only the rows that hold are meant.
    """

    is_tombstones: bool
    parts: tuple[StoredPart, ...] = ()
    fresh: pa.Table | None = None

    @property
    def count(self) -> int:
        """The number of rows."""
        held = sum(self.of(part).count for part in self.parts)
        return held + (self.fresh.num_rows if self.fresh is not None else 0)

    def of(self, part: StoredPart) -> StoredRows:
        """Return the rows of this kind of a part."""
        return part.tombstones if self.is_tombstones else part.files

    def kept(self) -> pa.Table:
        """Return the kept rows in their order, where only some of a part's are kept.

        It shares memory with what is kept of the parts.
        Spec: "Action Reconciliation"
        """
        schema = STORED_TOMBSTONE_SCHEMA if self.is_tombstones else STORED_SCHEMA
        tables = [self.of(part).holding() for part in self.parts]
        if self.fresh is not None:
            tables.append(self.fresh)
        kept = stacked([table.select(schema.names) for table in tables])
        is_cut_up = kept.column(0).num_chunks > CHUNKS_MAX
        return kept.combine_chunks() if is_cut_up else kept


@dataclass(frozen=True)
class CheckpointPlan:
    """The parts that stay as they are, and the groups of rows to write.

    Law: each row that holds is in one of them, except expired tombstones
    """

    kept: tuple[StoredPart, ...]
    written: tuple[RowsToWrite, ...]


def plan_checkpoint(
    state: CheckpointState,
    may_stay: Callable[[StoredPart], bool],
    rows_max: int,
    now_ms: int,
) -> CheckpointPlan:
    """Return the plan of a checkpoint; `may_stay` says which parts may stay if all rows hold.

    Rows that are written together are of one kind, so that tombstones go when they have expired.
    Spec: "V1 Spec", "Sidecar Files"
    """
    current = _unexpired(state, now_ms)
    kept: dict[tuple[str, int | None], StoredPart] = {}
    broken: list[StoredPart] = []
    needed: list[StoredPart] = []
    for before, part in zip(state.stored, current.stored, strict=True):
        if _is_kept(before, part) and may_stay(part):
            kept[part.path, part.group] = before
            needed.append(part)
        else:
            broken.append(part)
    written: list[RowsToWrite] = []
    for is_tombstones in (False, True):
        groups, joined = _joined(current.fresh, needed, broken, is_tombstones, rows_max)
        written += groups
        for part in joined:
            del kept[part.path, part.group]
    return CheckpointPlan(tuple(kept.values()), tuple(written))


def after_writing(
    state: CheckpointState, plan: CheckpointPlan, written: Sequence[StoredPart]
) -> CheckpointState:
    """Return the state with the rows of a plan in the files that it wrote, one for each group.

    Law: the same table; no row is fresh
    Spec: "Action Reconciliation"
    """
    fresh = replace(
        state.fresh,
        files=state.fresh.files.slice(0, 0),
        tombstones=state.fresh.tombstones.slice(0, 0),
    )
    stored = (*plan.kept, *written)
    live = sum(part.files.count for part in stored)
    assert live == state.totals.files, f"{live} of {state.totals.files} files are in the checkpoint"
    return replace(state, fresh=fresh, stored=stored, based_on=int(state.version))


def _unexpired(state: CheckpointState, now_ms: int) -> CheckpointState:
    metadata = state.fresh.metadata
    tombstones = state.fresh.tombstones
    fresh = replace(
        state.fresh, tombstones=tombstones.filter(unexpired(tombstones, metadata, now_ms))
    )
    stored = [
        part
        if not part.tombstones.count
        else replace(
            part,
            tombstones=part.tombstones.without(
                flat(pc.invert(unexpired(part.tombstones.rows, metadata, now_ms)))
            ),
        )
        for part in state.stored
    ]
    return replace(state, fresh=fresh, stored=tuple(stored))


def _is_kept(before: StoredPart, after: StoredPart) -> bool:
    """Return whether a part may stay as it is, given it without its expired tombstones."""
    if not (before.files.is_intact and before.tombstones.is_intact):
        return False
    held, needed = before.tombstones.count, after.tombstones.count
    is_needed = bool(after.files.count or needed)
    return is_needed and (held - needed) * EXPIRED_SHARE <= held


def _joined(
    fresh: Snapshot,
    kept: Iterable[StoredPart],
    broken: Iterable[StoredPart],
    is_tombstones: bool,
    rows_max: int,
) -> tuple[list[RowsToWrite], list[StoredPart]]:
    """Return groups for the broken parts and fresh rows of a kind, and kept parts that join them.

    A kept part joins only if it is much smaller than a part may be, and has no other rows.
    """
    group = RowsToWrite(is_tombstones)
    large = []
    small: list[StoredPart] = []
    for part in broken:
        count = group.of(part).count
        if count * JOINED_TIMES > rows_max:
            large.append(part)
        elif count:
            small.append(part)
    rows = fresh.tombstones if is_tombstones else fresh.files
    count = rows.num_rows + sum(group.of(part).count for part in small)
    joined: list[StoredPart] = []
    candidates = [
        part
        for part in kept
        if 0 < group.of(part).count == part.files.count + part.tombstones.count
    ]
    for part in sorted(candidates, key=lambda part: group.of(part).count):
        own = group.of(part).count
        if not count or own > JOINED_TIMES * count or own + count > rows_max:
            break
        joined.append(part)
        count += own
    groups = [RowsToWrite(is_tombstones, (part,)) for part in large]
    groups += _packed(rows, [*joined, *small], is_tombstones, rows_max)
    return groups, joined


def _packed(
    rows: pa.Table, parts: Sequence[StoredPart], is_tombstones: bool, rows_max: int
) -> Iterator[RowsToWrite]:
    """Yield the rows of some parts, then fresh ones, in groups of at most `rows_max` rows.

    A part that has more rows is a group of its own.
    """
    group = RowsToWrite(is_tombstones)
    for part in parts:
        own = group.of(part).count
        if not own:
            continue
        if group.count and group.count + own > rows_max:
            yield group
            group = RowsToWrite(is_tombstones)
        group = replace(group, parts=(*group.parts, part))
    start = 0
    while start < rows.num_rows:
        taken = min(max(rows_max - group.count, 0), rows.num_rows - start)
        if taken:
            group = replace(group, fresh=rows.slice(start, taken))
        start += taken
        if start < rows.num_rows:
            yield group
            group = RowsToWrite(is_tombstones)
    if group.count:
        yield group
