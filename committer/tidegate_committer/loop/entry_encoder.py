"""Encodes the entries of one table, with the clock, random id and settings that this needs."""

import logging
from dataclasses import dataclass
from typing import Final

from tidegate_committer.decision.machine import BatchPlan
from tidegate_committer.dependencies import Dependencies
from tidegate_committer.group_commit.entry_encoding import (
    Attempt,
    EncodedEntry,
    EntryWriter,
    encode,
)
from tidegate_committer.group_commit.version_dependent_fields import follows_untimed
from tidegate_committer.state.table_state import TableState
from tidegate_runtime.observability.logs import log_event

AHEAD_MS: Final = 5 * 60 * 1000
"""How far a commit's timestamp may be ahead of our clock before a warning is logged."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EntryEncoder:
    """Encodes the entries of one table; `label` is its name in logs."""

    dependencies: Dependencies
    origin: EntryWriter
    label: str

    def spell(
        self, state: TableState, plan: BatchPlan, written_ms: int | None = None
    ) -> EncodedEntry:
        """Return the entry that follows a state and makes a plan's verdicts true.

        If in-commit timestamps begin with it, `written_ms` of the last version must be known.
        Units: `written_ms` since the Unix epoch.
        """
        now_ms = self.dependencies.clock.now_ms()
        if follows_untimed(state, plan.group.members):
            assert written_ms is not None, "the store was asked for it"
            now_ms = max(now_ms, written_ms + 1)
        if state.timestamp > now_ms + AHEAD_MS:
            ahead, level = state.timestamp - now_ms, logging.WARNING
            log_event(_log, "time_ahead", level=level, table=self.label, ahead_ms=ahead)
        inline_bytes_max = self.dependencies.settings.inline_vector_bytes_max
        attempt = Attempt(self.dependencies.new_id(), now_ms, inline_bytes_max)
        return encode(state, plan.group, self.origin, attempt)
