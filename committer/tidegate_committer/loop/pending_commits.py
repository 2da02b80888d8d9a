"""What is decided and not yet in the log: the entry in flight, and the draft of the next one."""

import logging
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final

from tidegate_committer.decision import machine
from tidegate_committer.decision.machine import (
    BatchPlan,
    BatchPlanner,
    DecisionTerms,
    VersionLanded,
)
from tidegate_committer.decision.required_reads import wanted
from tidegate_committer.dependencies import Dependencies
from tidegate_committer.group_commit.entry_encoding import (
    Attempt,
    EncodedEntry,
    EntryWriter,
    encode,
)
from tidegate_committer.group_commit.fair_queue import FairQueue
from tidegate_committer.group_commit.version_dependent_fields import follows_untimed
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.loop.entry_put import EntryPut, PutResult
from tidegate_committer.policy import Policy
from tidegate_committer.state.fetched_inputs import NOTHING, FetchedInputs
from tidegate_committer.state.table_state import TableState
from tidegate_committer.store_reads import recovery
from tidegate_committer.store_reads.decision_reads import needs_own_files
from tidegate_delta.errors import Contended
from tidegate_runtime.clock import Clock
from tidegate_runtime.containment import attempted
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.storage.log_store import Put, Turn, at_once

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


DECISION_AGE_MAX_S: Final = 1.0
"""How old a decision may be when its PUT starts; an older one is made again."""

RACES_MAX: Final = 100
"""Versions lost in a row after which the table rests, because another writer keeps winning."""


@dataclass
class NextEntry:
    """The next entry as far as it is decided.

    `known` is what was read for it beyond the state. `lingers_since_s` is since when the group is
    kept open for more members, or None. `encoded` is the entry's bytes, once no more proposals may
    join it.
    Units: `_s` by `Clock.boot_s`.
    """

    planning: BatchPlanner
    since_s: float
    known: FetchedInputs = NOTHING
    lingers_since_s: float | None = None
    encoded: EncodedEntry | None = None

    def holds(self, state: TableState, now_s: float) -> bool:
        """Return whether it was decided on exactly this state, and recently enough."""
        return self.planning.state is state and now_s <= self.since_s + DECISION_AGE_MAX_S

    def ready(self, put_s: float) -> EncodedEntry | None:
        """Return the entry if it will be recent enough after a PUT of `put_s` seconds. Return None
        otherwise, or if other proposals may join it.
        """
        return self.encoded if put_s <= DECISION_AGE_MAX_S / 2 else None

    def extend_plainly(
        self, queue: FairQueue, served: int, policy: Policy, terms: DecisionTerms
    ) -> None:
        """Decide the proposals after the first `served` of the queue, up to the first for which the
        store would have to be read.
        """
        start = served + self.planning.taken
        if self.planning.is_closed or start >= len(queue):
            return
        behind = queue.head(start, policy.group_members_max - self.planning.taken)
        known = self.known
        self.planning.extend(
            decidable_from_memory(behind, self.planning.state, known, policy), terms, known
        )

    def spell_out(self, encoder: EntryEncoder) -> None:
        """Encode the entry once it is full, if that needs nothing from the store."""
        planning, group = self.planning, self.planning.group
        if self.encoded is not None or not planning.is_closed or group.is_empty:
            return
        if not follows_untimed(planning.state, group.members):
            self.encoded = encoder.spell(planning.state, planning.plan())


@dataclass
class PendingCommit:
    """An entry whose PUT is in flight, and what is decided on top of it.

    `ahead` is the draft of the next entry, `follower` that entry once its PUT is prepared: it is
    sent when this one has won. `since_s` is when this PUT was started; if it wins, our view of the
    log dates from then.
    Units: `since_s` by `Clock.boot_s`.
    """

    plan: BatchPlan
    encoded: EncodedEntry
    future: Future[PutResult]
    since_s: float
    ahead: NextEntry | None = None
    follower: "PendingCommit | None" = None

    @property
    def plan_as_landed(self) -> BatchPlan:
        """The plan with the row ids that its entry has assigned."""
        ids = self.encoded.row_ids
        if not ids:
            return self.plan
        verdicts = (
            verdict._replace(row_ids=ids[verdict.place])
            if verdict.needs == "membership" and verdict.place is not None
            else verdict
            for verdict in self.plan.verdicts
        )
        return replace(self.plan, verdicts=tuple(verdicts))


def start_put(
    plan: BatchPlan,
    put: EntryPut,
    dependencies: Dependencies,
    viewed_s: float,
    turn: Turn = at_once,
    behind: Future[PutResult] | None = None,
) -> PendingCommit:
    """Start the PUT of a plan's entry, or prepare it to be sent after `behind`."""
    since_s = dependencies.clock.boot_s()
    return PendingCommit(
        plan, put.encoded, put.start(dependencies, viewed_s, turn, behind), since_s
    )


def turn_behind(before: Future[PutResult], since_s: float, clock: Clock) -> Turn:
    """Return the turn of a prepared PUT: whether it may be sent. It may once the PUT before it has
    won, unless its decision is older than `DECISION_AGE_MAX_S` by then.

    Units: `since_s` by `Clock.boot_s`.
    """

    def comes() -> bool:
        left_s = since_s + DECISION_AGE_MAX_S - clock.boot_s()
        # A waiting PUT occupies a thread, so it waits no longer than its decision is valid. The
        # table committer meets the same error when it takes the result of the PUT before.
        landing = attempted(lambda: _result(before, max(0.0, left_s)), lambda _: None)
        if landing is None or landing.put is not Put.WON:
            return False
        return clock.boot_s() <= since_s + DECISION_AGE_MAX_S

    return comes


def _result(before: Future[PutResult], timeout_s: float) -> PutResult | None:
    return before.result(timeout_s)


def decidable_from_memory(
    candidates: Iterator[Candidate], state: TableState, known: FetchedInputs, policy: Policy
) -> Iterator[Candidate]:
    """Yield candidates up to the first for whose decision the store would have to be read."""
    for candidate in candidates:
        is_known = state.window_start - 1 <= candidate.read_version <= state.version
        if candidate.is_verbatim or not is_known or needs_own_files(state, candidate):
            return
        if recovery.lacks(state, [candidate]):
            return
        if wanted(state, [candidate], known, policy.vector_bytes_max):
            return
        yield candidate


def draft_after(
    in_flight: PendingCommit, state: TableState, known: FetchedInputs, policy: Policy, now_s: float
) -> NextEntry:
    """Return an empty draft of the entry after the one in flight, as if that one had landed."""
    after = machine.evolve(state, VersionLanded(in_flight.encoded.entry))
    return NextEntry(BatchPlanner(after, policy), now_s, known)


def contended(root: str, version: int) -> Contended:
    """Return the error for a table of which other writers win every version."""
    return Contended(
        f"{RACES_MAX} versions of {root} in a row were won by others, the last one {version}: find "
        "out who else writes so much"
    )
