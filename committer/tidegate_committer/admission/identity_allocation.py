"""Allocate values of identity columns, from beyond the mark or from a lease, each only once.

The rows are in files already, so values can't be changed at commit. Only the high-water mark is set
then: the entry writes the farthest value of its members (docs/adr/0020).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

import orjson

from tidegate_committer.admission.constraint_checks import new_files
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.identity_leases import IdentityEffects, LeasedBlocks
from tidegate_committer.intake.refusals import MALFORMED, TOO_LARGE, flaw
from tidegate_delta.constraints.identity_columns import IdentityColumn, lease
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Add
from tidegate_messages.outcome import Rejection
from tidegate_messages.proposal import IdentityBlock, IdentityUsage

LEASE_VALUES_MAX: Final = 10**12
"""Most values of one lease. A column has 2^63, and leased values are never given out again."""

BRING_BACK: Final = frozenset({"RESTORE", "CLONE"})
"""Operations that add files which were in a table before: in this one, or in a clone's source."""

IdentityColumns = Mapping[str, IdentityColumn]


@dataclass(frozen=True)
class IdentityCounters:
    """The identity columns before a proposal, by physical name.

    `columns` are those of the table after the proposal, `before` those of the table before it; both
    with the marks that earlier members of the group reach. `leased` looks up a lease.
    """

    columns: IdentityColumns
    before: IdentityColumns
    leased: Callable[[UUID], LeasedBlocks | None]


def with_reached(columns: IdentityColumns, marks: Mapping[str, int]) -> IdentityColumns:
    """Return the columns with the marks that the members of a group have reached."""
    if not marks:
        return columns
    return {
        name: replace(column, mark=marks[name]) if name in marks else column
        for name, column in columns.items()
    }


def numbers(candidate: Candidate, counters: IdentityCounters) -> IdentityEffects | Rejection | None:
    """Return a proposal's effects on identity columns, or its refusal; None for no effect."""
    proposal = candidate.proposal
    assert proposal is not None, "what is no proposal was refused"
    rejection = _undeclared(candidate, counters)
    if rejection is not None:
        return rejection
    if not (proposal.identity_usage or proposal.identity_leases):
        return None
    effects = IdentityEffects({})
    for index, usage in enumerate(proposal.identity_usage):
        location = f"identity_usage[{index}]"
        column = counters.columns.get(usage.column)
        if column is None:
            return _no_column(f"{location}.column", usage.column)
        misfit = _value_off_step(usage, column, location)
        result = misfit or (_claimed if usage.lease is None else _leased)(
            usage, location, effects, counters
        )
        if isinstance(result, Rejection):
            return result
        effects = result
    return _granted(candidate, effects, counters)


def _claimed(
    usage: IdentityUsage, location: str, effects: IdentityEffects, counters: IdentityCounters
) -> IdentityEffects | Rejection:
    """Take values beyond the mark, and move the mark past them."""
    column = counters.columns[usage.column]
    mark = effects.marks.get(usage.column, column.mark)
    near, far = (usage.low, usage.high) if column.step > 0 else (usage.high, usage.low)
    is_free = mark is None or column.is_beyond(near, mark)
    if is_free and not column.is_beyond(column.start, near):
        return replace(effects, marks={**effects.marks, usage.column: far})
    first = column.start if mark is None else mark + column.step
    return flaw(
        "identity_values_taken",
        location,
        f"{usage.low} to {usage.high} of {usage.column[:128]!r} lie not all beyond what has been "
        f"given out: the next value is {first}",
        "write the files again with values from there on, or lease a block first (identity_leases)",
        advice="rerun",
    )


def _leased(
    usage: IdentityUsage, location: str, effects: IdentityEffects, counters: IdentityCounters
) -> IdentityEffects | Rejection:
    """Take values of a lease that were not used before."""
    assert usage.lease is not None, "they are from a lease"
    leased = effects.leases.get(usage.lease) or counters.leased(usage.lease)
    problem = f"{usage.low} to {usage.high} of {usage.column[:128]!r}"
    if leased is None:
        return flaw(
            "identity_lease_unknown",
            f"{location}.lease",
            f"no lease {usage.lease} is known since read_version, or it has lapsed",
            "lease values again; or propose with the read_version of before the lease",
            advice="rerun",
        )
    if leased.block_of(usage) is None:
        return flaw(
            "outside_identity_lease",
            location,
            f"{problem} lie outside the blocks of lease {usage.lease}",
            "use the values that its outcome names, or lease more",
        )
    after = leased.after(usage)
    if after is None:
        return flaw(
            "identity_values_taken",
            location,
            f"some of {problem} of lease {usage.lease} have been used by another proposal",
            "use each value of a lease once: write the files again with the ones that are left",
            advice="rerun",
        )
    leases = {**effects.leases, usage.lease: after}
    return replace(effects, used=(*effects.used, usage), leases=leases)


def _granted(
    candidate: Candidate, effects: IdentityEffects, counters: IdentityCounters
) -> IdentityEffects | Rejection:
    """Grant the requested blocks, beyond the mark and the proposal's own claims."""
    assert candidate.proposal is not None, "what is no proposal was refused"
    for index, request in enumerate(candidate.proposal.identity_leases):
        location = f"identity_leases[{index}]"
        column = counters.columns.get(request.column)
        if column is None:
            return _no_column(f"{location}.column", request.column)
        if request.count > LEASE_VALUES_MAX:
            problem = f"is {request.count}, {LEASE_VALUES_MAX} are allowed"
            return flaw(TOO_LARGE, f"{location}.count", problem, "lease fewer, and more often")
        reached = replace(column, mark=effects.marks.get(request.column, column.mark))
        try:
            leased = lease(reached, request.count)
        except InvalidRequest as error:
            return flaw("no_identity_values_left", location, str(error), "lease fewer values")
        block = IdentityBlock(
            column=request.column, first=leased.first, step=leased.step, count=leased.count
        )
        marks = {**effects.marks, request.column: leased.last}
        effects = replace(effects, marks=marks, blocks=(*effects.blocks, block))
    return effects


def _undeclared(candidate: Candidate, counters: IdentityCounters) -> Rejection | None:
    """Return which column has new values that the proposal does not state, or None.

    Values that only the table may generate must be stated. Rows that are rewritten or brought back
    keep their values, so there only values beyond the mark are new.
    """
    proposal, content = candidate.proposal, candidate.content
    if not any(not column.allows_explicit for column in counters.columns.values()):
        return None
    files = [(add, orjson.loads(add.stats or "{}")) for add in new_files(candidate)]
    brings_back = candidate.operation in BRING_BACK
    is_append = not (content.removes or candidate.intents or brings_back)
    for name, column in counters.columns.items():
        if column.allows_explicit or not files or _metadata_moves_mark(name, counters):
            continue
        usages = [
            usage for usage in (proposal.identity_usage if proposal else ()) if usage.column == name
        ]
        if is_append and not usages:
            return _refusal_of_undeclared(name, "has new values, of which nothing is said", None)
        hull = (
            (min(usage.low for usage in usages), max(usage.high for usage in usages))
            if usages
            else None
        )
        for add, statistics in files:
            for value in ends(statistics, name):
                is_new = is_append or column.mark is None or column.is_beyond(value, column.mark)
                if is_new and not (hull and hull[0] <= value <= hull[1]):
                    problem = (
                        f"has the value {value} in {add.path[:128]!r}, of which nothing is said"
                    )
                    return _refusal_of_undeclared(name, problem, add)
    return None


def _metadata_moves_mark(name: str, counters: IdentityCounters) -> bool:
    """Whether the proposal's own metaData moves the mark, as other engines do."""
    own, before = counters.columns[name], counters.before.get(name)
    if own.mark is None:
        return False
    known = before.mark if before else None
    return known is None or own.is_beyond(own.mark, known)


def _refusal_of_undeclared(name: str, problem: str, add: Add | None) -> Rejection:
    remedy = "name its least and greatest new value in identity_usage"
    path = add.path if add else None
    return flaw(
        "identity_values_not_told", "identity_usage", f"{name[:128]!r} {problem}", remedy, path=path
    )


def _value_off_step(
    usage: IdentityUsage, column: IdentityColumn, location: str
) -> Rejection | None:
    for name, value in (("low", usage.low), ("high", usage.high)):
        if (value - column.start) % column.step:
            problem = f"is {value}, which is not {column.start} + k * {column.step}"
            return flaw(MALFORMED, f"{location}.{name}", problem, "give values of the column")
    return None


def _no_column(field: str, name: str) -> Rejection:
    problem = f"{name[:128]!r} is the physical name of no identity column"
    return flaw("no_identity_column", field, problem, "name one, or leave it out")


def ends(statistics: Any, name: str) -> Iterator[int]:
    """Yield the least and the greatest value of a column, if statistics have them."""
    for bound in ("minValues", "maxValues"):
        values = statistics.get(bound)
        value = values.get(name) if isinstance(values, dict) else None
        if type(value) is int:
            yield value
