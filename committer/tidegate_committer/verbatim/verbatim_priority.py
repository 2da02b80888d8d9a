"""Verbatim priority: native groups pause for a writer whose verbatim entry came too late.

Such a writer must list the log, read the winners, write its bytes again and propose again. A native
group takes a fraction of that time, so without priority the writer could lose forever. With it
neither side starves: a pause (a *hold*) has one deadline, and a native group is committed between
two holds.

    free ── refusal ──▶ held until a deadline ── every writer came again, or time is up ──▶ free
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidegate_messages.outcome import Status


@dataclass(frozen=True)
class VerbatimPriority:
    """The writers for which native groups of a table pause; none after a takeover.

    `owed` maps each writer to the SHA-256 of its refused bytes. `is_due` says that a native group
    was committed since the last hold began, so that another hold may begin.
    Units: `until_s` by `Clock.boot_s`; `grace_s` in seconds.
    """

    grace_s: float
    owed: Mapping[str, str] = field(default_factory=dict)
    until_s: float = 0.0
    is_due: bool = True

    def holds(self, now_s: float) -> bool:
        """Return whether native groups wait."""
        return bool(self.owed) and now_s < self.until_s


@dataclass(frozen=True)
class AnsweredBytes:
    """The outcome of a verbatim entry, which is identified by its SHA-256."""

    writer: str
    sha256: str
    status: Status


def after_answer(
    priority: VerbatimPriority, answer: AnsweredBytes, now_s: float
) -> VerbatimPriority:
    """Return the priority after the outcome of a verbatim entry.

    Law: a hold's deadline never moves; the same bytes again neither end nor prolong it
    """
    if not priority.holds(now_s):
        priority = replace(priority, owed={})
    if answer.status == "rejected":
        return _after_refusal(priority, answer, now_s)
    if answer.status != "committed" and priority.owed.get(answer.writer) == answer.sha256:
        return priority
    owed = {writer: sha256 for writer, sha256 in priority.owed.items() if writer != answer.writer}
    return replace(priority, owed=owed)


def after_native_group(priority: VerbatimPriority) -> VerbatimPriority:
    """Return the priority after a native group was committed: the next refusal may begin a hold."""
    return replace(priority, is_due=True)


def _after_refusal(
    priority: VerbatimPriority, answer: AnsweredBytes, now_s: float
) -> VerbatimPriority:
    owed = {**priority.owed, answer.writer: answer.sha256}
    if priority.owed:
        return replace(priority, owed=owed)
    if priority.is_due and priority.grace_s > 0:
        return VerbatimPriority(priority.grace_s, owed, now_s + priority.grace_s, is_due=False)
    return priority
