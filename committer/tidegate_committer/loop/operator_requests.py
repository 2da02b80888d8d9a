"""Operators' requests about a table: halt it, reopen it, drop it.

A request is a record among the table's proposals. Proposals after it wait until it is carried out.
A drop waits for the proposals before it, unless a halt follows. A halt is for incidents: it waits
only for the PUT in flight, and waiting proposals are denied with the advice to retry.
"""

from collections.abc import Collection
from typing import Final

from tidegate_committer.decision.decision_types import Verdict, denied
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.loop import table_registration
from tidegate_committer.loop.table_committer import TableCommitter
from tidegate_messages.published_records import Ruling, TableRecord

REQUESTS: Final = frozenset({"halt", "reopen", "drop"})
"""The kinds of operators' requests; they write nothing to the log."""

_UNHALTED: Final = {"reason": None, "overwritten": None, "halted_by_hand": None}


def objection(candidate: Candidate, table_committer: TableCommitter) -> Verdict | None:
    """Return why a request does not match its table's registration, or None."""
    assert candidate.proposal is not None, "a request is a proposal"
    if not table_committer.is_registered:
        return table_registration.being_created(candidate)
    if candidate.proposal.table_root != table_committer.record.table_root:
        reason = (
            f"table: {candidate.table} is {table_committer.record.table_root}; "
            "name the table's root"
        )
        return denied(candidate, "other_root", reason)
    return None


def is_due(waiting: Collection[Candidate], table_committer: TableCommitter) -> bool:
    """Return whether the first waiting request may be carried out at this moment.

    A halt queued behind a drop makes the drop due: operators send it when the store is down.
    """
    first = next(iter(waiting)).proposal
    assert first is not None, "a request is a proposal"
    has_time = first.kind == "drop" and table_committer.queue and not any(map(is_halt, waiting))
    return table_committer.in_flight is None and not has_time


def is_halt(candidate: Candidate) -> bool:
    """Return whether a request is to halt its table."""
    return candidate.proposal is not None and candidate.proposal.kind == "halt"


def granted(candidate: Candidate, record: TableRecord, *, repeat: bool = False) -> Verdict:
    """Return the answer to a request that was carried out; `repeat`: it had been before."""
    version = max(record.published_through, 0)
    return Verdict(candidate, "committed", version=version, repeat=repeat)


def denied_by_halt(candidate: Candidate, record: TableRecord) -> Verdict:
    """Return the denial of a proposal for a table that an operator halted."""
    why = record.halted_by_hand
    reason = f"table: an operator halted it by hand: {why}; it takes commits once it is reopened"
    return denied(candidate, "table_halted", reason, "retry")


def still_closed(candidate: Candidate, why: str) -> Verdict:
    """Return the denial of a request to reopen a table whose log cannot be served."""
    reason = f"table: it stays halted, for its log cannot be served: {why}"
    return denied(candidate, "table_halted", reason, "retry")


def is_over(candidate: Candidate, record: TableRecord, stream: str) -> bool:
    """Return whether this request, or a later one, was carried out before."""
    last = record.ruling
    return last is not None and last.stream == stream and candidate.offset <= last.offset


def halted(record: TableRecord, why: str, ruling: Ruling) -> TableRecord:
    """Return the registration of a table that an operator halts."""
    update = {"status": "halted", "reason": f"by hand: {why}", "halted_by_hand": why}
    return record.model_copy(update={**update, "ruling": ruling})


def reopened(record: TableRecord, ruling: Ruling) -> TableRecord:
    """Return the registration of a table that is open again because its log is sound."""
    return record.model_copy(update={**_UNHALTED, "status": "open", "ruling": ruling})


def dropped(record: TableRecord, ruling: Ruling) -> TableRecord:
    """Return the registration of a dropped table."""
    return record.model_copy(update={**_UNHALTED, "status": "dropped", "ruling": ruling})


def ruling(candidate: Candidate, record: TableRecord, stream: str) -> Ruling:
    """Return what the registry keeps of a request that is carried out."""
    return Ruling(number=record.rulings + 1, stream=stream, offset=candidate.offset)
