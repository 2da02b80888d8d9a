"""Encodes the entries of one table, with the clock, the random token and the settings they need."""

import logging
from dataclasses import dataclass
from typing import Final

from tidegate.committer.doors import Doors
from tidegate.committer.group_commit.late import follows_untimed
from tidegate.committer.group_commit.rebase import Attempt, Encoded, Origin, encode
from tidegate.committer.judging.machine import Plan
from tidegate.committer.tables.state import TableState
from tidegate.runtime.logs import log_event

AHEAD_MS: Final = 5 * 60 * 1000
"""How far a commit's time may lie ahead of our clock before we say so."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EntryEncoder:
    """Encodes the entries of one table; `label` is its name in logs."""

    doors: Doors
    origin: Origin
    label: str

    def spell(self, state: TableState, plan: Plan, written_ms: int | None = None) -> Encoded:
        """Return the entry after a state that makes a plan's verdicts true.

        Where in-commit timestamps begin, `written_ms` of the last version must be known.
        Units: `written_ms` since the Unix epoch.
        """
        now_ms = self.doors.clock.now_ms()
        if follows_untimed(state, plan.group.members):
            assert written_ms is not None, "the store was asked for it"
            now_ms = max(now_ms, written_ms + 1)
        if state.timestamp > now_ms + AHEAD_MS:
            ahead, level = state.timestamp - now_ms, logging.WARNING
            log_event(_log, "time_ahead", level=level, table=self.label, ahead_ms=ahead)
        inline_bytes_max = self.doors.settings.inline_vector_bytes_max
        attempt = Attempt(self.doors.new_id(), now_ms, inline_bytes_max)
        return encode(state, plan.group, self.origin, attempt)
