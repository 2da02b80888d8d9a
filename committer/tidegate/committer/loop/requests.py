"""What operators ask of a table: to halt it, to reopen it, to drop it.

A request has its place in the topic. What comes after it waits until it is obeyed; a drop waits for
what came before it, unless a halt comes, too. A halt waits for no more than the PUT that flies: it
is for an incident, and who stands in line is told to come again.
"""

from collections.abc import Collection
from typing import Final

from tidegate.committer.judging.verdicts import Verdict, denied
from tidegate.committer.loop import registration
from tidegate.committer.loop.desk import Desk
from tidegate.committer.proposals.candidate import Candidate
from tidegate.pipeline.published import Ruling, TableRecord

REQUESTS: Final = frozenset({"halt", "reopen", "drop"})
"""The kinds of proposals that are an operator's: nothing of them is written to the log."""

_UNHALTED: Final = {"reason": None, "overwritten": None, "halted_by_hand": None}


def objection(candidate: Candidate, desk: Desk) -> Verdict | None:
    """Return why a request is not for the table at a desk, or None."""
    assert candidate.proposal is not None, "a request is a proposal"
    if not desk.is_registered:
        return registration.being_created(candidate)
    if candidate.proposal.table_root != desk.record.table_root:
        reason = f"table: {candidate.table} is {desk.record.table_root}; name the table's root"
        return denied(candidate, "other_root", reason)
    return None


def is_due(waiting: Collection[Candidate], desk: Desk) -> bool:
    """Return whether it is the turn of the first request of those that wait.

    A halt behind a drop ends the waiting of the drop: it is asked for where the store is away.
    """
    first = next(iter(waiting)).proposal
    assert first is not None, "a request is a proposal"
    has_time = first.kind == "drop" and desk.line and not any(map(is_halt, waiting))
    return desk.flying is None and not has_time


def is_halt(candidate: Candidate) -> bool:
    """Return whether a request is to halt its table."""
    return candidate.proposal is not None and candidate.proposal.kind == "halt"


def granted(candidate: Candidate, record: TableRecord, *, repeat: bool = False) -> Verdict:
    """Return the answer to a request that is obeyed, or was before."""
    version = max(record.published_through, 0)
    return Verdict(candidate, "committed", version=version, repeat=repeat)


def denied_by_halt(candidate: Candidate, record: TableRecord) -> Verdict:
    """Return the answer to a proposal for a table that an operator halted."""
    why = record.halted_by_hand
    reason = f"table: an operator halted it by hand: {why}; it takes commits once it is reopened"
    return denied(candidate, "table_halted", reason, "retry")


def still_closed(candidate: Candidate, why: str) -> Verdict:
    """Return the answer to who would reopen a table whose log cannot be served."""
    reason = f"table: it stays halted, for its log cannot be served: {why}"
    return denied(candidate, "table_halted", reason, "retry")


def is_over(candidate: Candidate, record: TableRecord, stream: str) -> bool:
    """Return whether a request comes again that was obeyed, or overruled, before."""
    last = record.ruling
    return last is not None and last.stream == stream and candidate.offset <= last.offset


def halted(record: TableRecord, why: str, ruling: Ruling) -> TableRecord:
    """Return the registration of a table that an operator halts."""
    update = {"status": "halted", "reason": f"by hand: {why}", "halted_by_hand": why}
    return record.model_copy(update={**update, "ruling": ruling})


def reopened(record: TableRecord, ruling: Ruling) -> TableRecord:
    """Return the registration of a table that is open again: its log was found sound."""
    return record.model_copy(update={**_UNHALTED, "status": "open", "ruling": ruling})


def dropped(record: TableRecord, ruling: Ruling) -> TableRecord:
    """Return the registration of a table that is no more."""
    return record.model_copy(update={**_UNHALTED, "status": "dropped", "ruling": ruling})


def ruling(candidate: Candidate, record: TableRecord, stream: str) -> Ruling:
    """Return what is remembered of a request that is obeyed."""
    return Ruling(number=record.rulings + 1, stream=stream, offset=candidate.offset)
