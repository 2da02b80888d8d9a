"""Leases of identity values: the blocks that entries granted, and which of their values are used.

A lease has the id of the proposal that asked for it. The entry that grants it moves the high-water
mark past its values, so that writers which know no leases use other values.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from tidegate_committer.persistent_map import PersistentMap
from tidegate_delta.constraints.identity_columns import IdentityColumn, Lease
from tidegate_messages.commit_provenance import Accepted
from tidegate_messages.proposal import IdentityBlock, IdentityUsage

Ranges = tuple[tuple[int, int], ...]
"""Ascending (lowest, highest) pairs with gaps between them."""


@dataclass(frozen=True)
class LeasedBlocks:
    """The blocks of a lease, and the values of each column that have been used."""

    blocks: tuple[IdentityBlock, ...]
    used: Mapping[str, Ranges] = field(default_factory=dict)

    def block_of(self, usage: IdentityUsage) -> IdentityBlock | None:
        """Return the block that holds the used values, or None."""
        for block in self.blocks:
            held = Lease(block.column, block.column, block.first, block.step, block.count)
            if block.column == usage.column and held.holds(usage.low, usage.high):
                return block
        return None

    def after(self, usage: IdentityUsage) -> "LeasedBlocks | None":
        """Return the lease with these values marked as used, or None if one was used before."""
        block = self.block_of(usage)
        known = self.used.get(usage.column, ())
        ranges = with_range(known, (usage.low, usage.high), abs(block.step) if block else 1)
        return None if ranges is None else replace(self, used={**self.used, usage.column: ranges})


@dataclass(frozen=True)
class IdentityEffects:
    """The effects of a proposal on identity columns.

    `marks` are the farthest values of its files and leased blocks, by physical column name;
    `blocks` the blocks that it leases; `used` the values of earlier leases that its files hold, and
    `leases` those leases afterwards.
    """

    marks: Mapping[str, int]
    blocks: tuple[IdentityBlock, ...] = ()
    used: tuple[IdentityUsage, ...] = ()
    leases: Mapping[UUID, LeasedBlocks] = field(default_factory=dict)


def with_range(ranges: Ranges, new: tuple[int, int], step: int) -> Ranges | None:
    """Return the ranges with one more, or None if it overlaps one. Adjacent ranges are joined."""
    index = bisect_left(ranges, new)
    before, after = ranges[max(0, index - 1) : index], ranges[index : index + 1]
    if (before and before[0][1] >= new[0]) or (after and after[0][0] <= new[1]):
        return None
    low, high = new
    start, end = index, index
    if before and before[0][1] + step == low:
        low, start = before[0][0], index - 1
    if after and high + step == after[0][0]:
        high, end = after[0][1], index + 1
    return (*ranges[:start], (low, high), *ranges[end:])


def leases_after(
    leases: PersistentMap[UUID, LeasedBlocks], accepted: Iterable[Accepted]
) -> PersistentMap[UUID, LeasedBlocks]:
    """Return the leases after an entry that accepted these proposals."""
    changed: dict[UUID, LeasedBlocks] = {}
    for proposal in accepted:
        if proposal.identity_blocks:
            changed[proposal.id] = LeasedBlocks(proposal.identity_blocks)
        for usage in proposal.identity_used:
            if usage.lease is None:
                continue
            known = changed.get(usage.lease) or leases.get(usage.lease)
            after = known.after(usage) if known else None
            if after is not None:
                changed[usage.lease] = after
    return leases.changed(changed) if changed else leases


def lapsed(
    leases: PersistentMap[UUID, LeasedBlocks], columns: Mapping[str, IdentityColumn]
) -> list[UUID]:
    """Return leases that are void because the high-water mark was set back below their values."""

    def is_safe(block: IdentityBlock) -> bool:
        column = columns.get(block.column)
        if column is None or column.mark is None:
            return False
        return not column.is_beyond(block.first + (block.count - 1) * block.step, column.mark)

    return [lease for lease, leased in leases.items() if not all(map(is_safe, leased.blocks))]
