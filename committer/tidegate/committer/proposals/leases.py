"""Leases of identity values: blocks that the log gave out, and what has been used of them.

A lease is the proposal that asked for it. Its values lie behind the high-water mark from the entry
on that grants it, so whoever knows no leases takes others.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from tidegate.committer.proposals.persistent import PersistentMap
from tidegate.delta.features.identity import IdentityColumn, Lease
from tidegate.pipeline.identity_values import IdentityBlock, IdentityUsage
from tidegate.pipeline.provenance import Accepted

Ranges = tuple[tuple[int, int], ...]
"""Least and greatest values, ascending and apart from one another."""


@dataclass(frozen=True)
class Leased:
    """The blocks of a lease, and the values of each column that have been used."""

    blocks: tuple[IdentityBlock, ...]
    used: Mapping[str, Ranges] = field(default_factory=dict)

    def block_of(self, usage: IdentityUsage) -> IdentityBlock | None:
        """Return the block that holds the values which are used, or None."""
        for block in self.blocks:
            held = Lease(block.column, block.column, block.first, block.step, block.count)
            if block.column == usage.column and held.holds(usage.low, usage.high):
                return block
        return None

    def after(self, usage: IdentityUsage) -> "Leased | None":
        """Return the lease after some values were used, or None where one of them had been."""
        block = self.block_of(usage)
        known = self.used.get(usage.column, ())
        ranges = with_range(known, (usage.low, usage.high), abs(block.step) if block else 1)
        return None if ranges is None else replace(self, used={**self.used, usage.column: ranges})


@dataclass(frozen=True)
class Numbers:
    """What a proposal does to identity columns, decided.

    `marks` are the values that its claims and blocks reach, by physical name; `blocks` what it is
    given; `used` its use of leases, `leases` these after it.
    """

    marks: Mapping[str, int]
    blocks: tuple[IdentityBlock, ...] = ()
    used: tuple[IdentityUsage, ...] = ()
    leases: Mapping[UUID, Leased] = field(default_factory=dict)


def with_range(ranges: Ranges, new: tuple[int, int], step: int) -> Ranges | None:
    """Return ranges with one more, or None where it meets one; neighbours become one range."""
    at = bisect_left(ranges, new)
    before, after = ranges[max(0, at - 1) : at], ranges[at : at + 1]
    if (before and before[0][1] >= new[0]) or (after and after[0][0] <= new[1]):
        return None
    low, high = new
    start, end = at, at
    if before and before[0][1] + step == low:
        low, start = before[0][0], at - 1
    if after and high + step == after[0][0]:
        high, end = after[0][1], at + 1
    return (*ranges[:start], (low, high), *ranges[end:])


def leases_after(
    leases: PersistentMap[UUID, Leased], accepted: Iterable[Accepted]
) -> PersistentMap[UUID, Leased]:
    """Return the leases after an entry that accepted some proposals."""
    changed: dict[UUID, Leased] = {}
    for one in accepted:
        if one.identity_blocks:
            changed[one.id] = Leased(one.identity_blocks)
        for usage in one.identity_used:
            if usage.lease is None:
                continue
            known = changed.get(usage.lease) or leases.get(usage.lease)
            after = known.after(usage) if known else None
            if after is not None:
                changed[usage.lease] = after
    return leases.changed(changed) if changed else leases


def lapsed(
    leases: PersistentMap[UUID, Leased], columns: Mapping[str, IdentityColumn]
) -> list[UUID]:
    """Return the leases of whose values others may take some: the mark has been set back."""

    def is_safe(block: IdentityBlock) -> bool:
        column = columns.get(block.column)
        if column is None or column.mark is None:
            return False
        return not column.is_beyond(block.first + (block.count - 1) * block.step, column.mark)

    return [one for one, leased in leases.items() if not all(map(is_safe, leased.blocks))]
