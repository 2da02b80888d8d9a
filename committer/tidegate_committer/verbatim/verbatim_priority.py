"""The right of way: native groups pause for a writer whose ready bytes came too late.

Such a writer has to list the log, read the winners, write its bytes anew and propose again; a
native group takes a fraction of that time, so without a right of way it may lose for ever. With it
nobody starves: a pause (a *hold*) has one deadline, and between two holds a native group is
committed.

    free ── a refusal ──▶ held, until a deadline ── each came again, or the time is up ──▶ free
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidegate_messages.outcome import Status


@dataclass(frozen=True)
class VerbatimPriority:
    """The writers for which native groups of a table pause; none after a takeover.

    `owed` maps each of them to the SHA-256 of its refused bytes; `is_due` says that a native group
    was committed since the last hold began, so that another may begin.
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
    """The answer that a writer got for ready bytes, by their SHA-256."""

    writer: str
    sha256: str
    status: Status


def after_answer(way: VerbatimPriority, answer: AnsweredBytes, now_s: float) -> VerbatimPriority:
    """Return the right of way after an answer to ready bytes.

    Law: a hold's deadline never moves; the same bytes again neither end nor prolong it
    """
    if not way.holds(now_s):
        way = replace(way, owed={})
    if answer.status == "rejected":
        return _after_refusal(way, answer, now_s)
    if answer.status != "committed" and way.owed.get(answer.writer) == answer.sha256:
        return way
    owed = {writer: told for writer, told in way.owed.items() if writer != answer.writer}
    return replace(way, owed=owed)


def after_native_group(way: VerbatimPriority) -> VerbatimPriority:
    """Return the right of way after a native group was committed: the next refusal may hold."""
    return replace(way, is_due=True)


def _after_refusal(way: VerbatimPriority, answer: AnsweredBytes, now_s: float) -> VerbatimPriority:
    owed = {**way.owed, answer.writer: answer.sha256}
    if way.owed:
        return replace(way, owed=owed)
    if way.is_due and way.grace_s > 0:
        return VerbatimPriority(way.grace_s, owed, now_s + way.grace_s, is_due=False)
    return way
