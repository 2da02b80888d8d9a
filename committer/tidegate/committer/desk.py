"""A desk: where the proposals of one table are settled, one entry at a time.

    LOAD ─▶ READY ─▶ DECIDE ─▶ PUT ──WON──▶ evolve ─▶ (told by the lane)
      ▲                ▲        ├──LOST──▶ REBASE: read what others wrote, decide the batch anew
      └──deadline──────┼────────┴──UNKNOWN─▶ RESOLVE: read, compare; send the same bytes again
                       └───────────────────────────┘

Never are two PUTs in flight, and no version is tried again before what is there has been read.
"""

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from tidegate.committer import intake, machine, recovery
from tidegate.committer.candidate import Candidate
from tidegate.committer.doors import Doors, reach
from tidegate.committer.entries import Entry
from tidegate.committer.machine import Landed, Plan, Terms
from tidegate.committer.rebase import Attempt, Encoded, Origin, encode
from tidegate.committer.rows import OUR_APPS
from tidegate.committer.state import TableState
from tidegate.committer.verdicts import Verdict
from tidegate.delta.errors import BrokenLog, Contended, OutcomeUnknown
from tidegate.delta.names import commit_name, in_log
from tidegate.pipeline.published import TableRecord
from tidegate.runtime.log_store import LogStore, Put
from tidegate.runtime.logs import log_event
from tidegate.runtime.metrics import COMMIT_WRITE, GROUP_SIZE, STORAGE_AMBIGUOUS, TABLE_VERSION

RACES_MAX: Final = 100
"""Versions lost in a row after which somebody else keeps winning, and the table rests."""

RETOLD_MAX: Final = 10_000
"""Versions that are told again, at most, of a table whose registration was lost."""

PAUSE_S: Final = 0.05
AHEAD_MS: Final = 5 * 60 * 1000
"""How far a commit's time may lie ahead of our clock before we say so."""
_log = logging.getLogger(__name__)


def is_ours(state: TableState) -> bool:
    """Return whether a committer has ever written to a table: its watermark says so for ever."""
    return any(app.startswith(OUR_APPS) for app in state.apps)


@dataclass(frozen=True)
class Waiting:
    """A candidate in the queue, and when it came. Units: `since_s` by `Clock.boot_s`."""

    candidate: Candidate
    since_s: float


@dataclass
class Bucket:
    """How many refusals may be written into a table's log. Units: `at_s` by `Clock.boot_s`."""

    burst: int
    rate_s: float
    tokens: float
    at_s: float

    def left(self, now_s: float) -> int:
        """Return how many may be written now."""
        self.tokens = min(self.burst, self.tokens + (now_s - self.at_s) * self.rate_s)
        self.at_s = now_s
        return int(self.tokens)


@dataclass
class Desk:
    """One table: its registration, its store, what is remembered of it, and who waits.

    `news` are versions that stand in the log and have not been told. `is_registered` is false while
    the proposal that creates the table is being settled.
    """

    record: TableRecord
    store: LogStore
    doors: Doors
    origin: Origin
    is_registered: bool = True
    state: TableState | None = None
    queue: deque[Waiting] = field(default_factory=deque)
    news: list[Entry] = field(default_factory=list)
    halted: str | None = None
    viewed_s: float = 0.0
    rests_until_s: float = 0.0
    rest_s: float = PAUSE_S
    bucket: Bucket = field(init=False)

    def __post_init__(self) -> None:
        section = self.doors.settings
        burst, now_s = section.refusals_burst, self.doors.clock.boot_s()
        self.bucket = Bucket(burst, section.refusals_per_s, burst, now_s)

    def load(self) -> None:
        """LOAD and RECONCILE: remember the table from its log; what was not told becomes news.

        Raises: BrokenLog; UnsupportedFeature; InvalidRequest; Unavailable.
        """
        table, through = self.record.table, self.record.published_through
        state = recovery.load(self.store, table, self.doors.policy.window)
        if state.version < 0 and not self.is_registered:
            self.state, self.viewed_s = state, self.doors.clock.boot_s()
            return
        if state.version < max(through, 0):
            raise BrokenLog(
                f"the log of {self.store.root} ends at version {state.version}, but version "
                f"{max(through, 0)} was published: restore the missing files",
                error_class="LogGap",
            )
        if not self.is_registered:
            through = max(-1, state.version - (RETOLD_MAX if is_ours(state) else 0))
        state = recovery.reach_back(self.store, state, through - 1)
        told = state.entries.get(through)
        if told is not None and self.record.sha256 not in (None, told.sha256):
            raise BrokenLog(
                f"version {through} of {self.store.root} is not the file that was published: "
                "somebody overwrote it; compare it with a backup before anything is written",
                error_class="CorruptCommit",
            )
        start = max(through + 1, state.window_start)
        # What the window can't hold for want of a basis below it was written all the same.
        self.news = recovery.entries(self.store, range(through + 1, state.window_start))
        self.news += [state.entries[version] for version in range(start, state.version + 1)]
        self.state, self.viewed_s = state, self.doors.clock.boot_s()
        reach("after_load")

    def settle(self) -> tuple[Verdict, ...]:
        """Decide on the first of the queue and make it true in the log; empty while they linger.

        Raises: as `load`; OutcomeUnknown when a PUT stayed in doubt; Contended.
        """
        for _ in range(RACES_MAX):
            state = self._ready()
            plan = self._plan(state)
            reach("after_decide")
            if plan.group.is_empty:
                return self._done(plan)
            if self._lingers(plan):
                return ()
            encoded = self._encode(state, plan)
            if self._put(encoded) is Put.WON:
                self._landed(encoded)
                return self._done(plan)
            self.look()
        raise Contended(
            f"{RACES_MAX} versions of {self.store.root} in a row were won by others, the last one "
            f"{self.state.version if self.state else '?'}: find out who else writes so much"
        )

    def look(self) -> None:
        """REBASE, and the look at an idle table: learn what others wrote.

        Raises: as `load`.
        """
        assert self.state is not None, "a table is looked at once it is loaded"
        self.state, news = recovery.refresh(self.store, self.state)
        self.news += news
        self.viewed_s = self.doors.clock.boot_s()

    def forget(self) -> None:
        """Drop what is remembered: the log is asked anew before anything is decided."""
        self.state = None

    def rest(self, now_s: float) -> None:
        """Forget, and try again later; each time in a row the pause is longer."""
        self.forget()
        self.rests_until_s = now_s + self.rest_s
        self.rest_s = min(2 * self.rest_s, 30.0)

    @property
    def label(self) -> str:
        """The table's name for metrics and logs."""
        return self.record.name

    def _ready(self) -> TableState:
        """Return a state that is young enough and reaches back to what the batch read."""
        if self.doors.clock.boot_s() - self.viewed_s > self.doors.settings.view_age_max_s:
            self.forget()
        if self.state is None:
            self.load()
        batch = self._batch()
        assert self.state is not None, "the table is loaded"
        if max(one.read_version for one in batch) > self.state.version:
            self.look()
        oldest_read = min(one.read_version for one in batch)
        if oldest_read + 1 < self.state.window_start:
            self.state = recovery.reach_back(self.store, self.state, oldest_read)
        self._redeem_claims()
        return self.state

    def _batch(self) -> Sequence[Candidate]:
        """Return as many from the head of the queue as may share an entry, claims included."""
        if not self.is_registered:
            # One at a time: it may be the one that creates the table, or not.
            return [self.queue[0].candidate]
        policy = self.doors.policy
        batch: list[Candidate] = []
        size = 0
        for waiting in islice(self.queue, policy.group_members_max):
            size += intake.full_size(waiting.candidate)
            if batch and size > policy.group_bytes_max:
                break
            batch.append(waiting.candidate)
        return batch

    def _redeem_claims(self) -> None:
        for place in range(len(self._batch())):
            waiting = self.queue[place]
            if intake.needs_claim(waiting.candidate):
                candidate = self._redeemed(waiting.candidate)
                self.queue[place] = Waiting(candidate, waiting.since_s)

    def _redeemed(self, candidate: Candidate) -> Candidate:
        proposal = candidate.proposal
        check = proposal.claim_check if proposal else None
        assert check is not None, "only a claim check is redeemed"
        return intake.with_claim(candidate, self.store.read(check.path), self.doors.policy)

    def _plan(self, state: TableState) -> Plan:
        clock = self.doors.clock
        terms = Terms(clock.now_ms(), self.bucket.left(clock.boot_s()))
        return machine.plan(state, self._batch(), self.doors.policy, terms)

    def _lingers(self, plan: Plan) -> bool:
        """Whether there are only refusals so far, and company may still come."""
        if plan.group.members or len(plan.verdicts) < len(self.queue):
            return False
        return self.doors.clock.boot_s() < self.lingers_until_s

    @property
    def lingers_until_s(self) -> float:
        """Until when a refusal at the head of the queue may wait."""
        return self.queue[0].since_s + self.doors.settings.refusal_linger_ms / 1000

    def _encode(self, state: TableState, plan: Plan) -> Encoded:
        now_ms = self.doors.clock.now_ms()
        if state.timestamp > now_ms + AHEAD_MS:
            ahead_ms = state.timestamp - now_ms
            log_event(
                _log, "time_ahead", level=logging.WARNING, table=self.label, ahead_ms=ahead_ms
            )
        return encode(state, plan.group, self.origin, Attempt(self.doors.new_id(), now_ms))

    def _put(self, encoded: Encoded) -> Put:
        """Return WON or LOST for certain. Raises: OutcomeUnknown past the deadline; Unavailable."""
        clock = self.doors.clock
        path = in_log(commit_name(encoded.entry.version))
        section = self.doors.settings
        # Whoever slept since he looked at the log may not send: it may have been cleaned up since.
        ends_s = (
            min(clock.boot_s(), self.viewed_s + section.view_age_max_s) + section.put_deadline_s
        )
        reach("before_put")
        with COMMIT_WRITE.labels(self.label).time():
            while (left_s := ends_s - clock.boot_s()) > 0:
                answer = self.store.put_if_absent(path, encoded.content, left_s)
                reach("after_put")
                if answer is Put.UNKNOWN:
                    answer = self._resolve(path, encoded.content)
                if answer is not Put.UNKNOWN:
                    return answer
                clock.sleep(PAUSE_S)
        STORAGE_AMBIGUOUS.labels("deadline").inc()
        raise OutcomeUnknown(
            f"the PUT of version {encoded.entry.version} of {self.store.root} stayed without an "
            "answer until its deadline: the log is read anew before anything is decided"
        )

    def _resolve(self, path: str, content: bytes) -> Put:
        """RESOLVE: what a PUT in doubt came to; UNKNOWN where nothing is there."""
        reach("before_resolve")
        there = self.store.read(path)
        if there is None:
            STORAGE_AMBIGUOUS.labels("absent").inc()
            return Put.UNKNOWN
        answer = Put.WON if there == content else Put.LOST
        STORAGE_AMBIGUOUS.labels(answer.value).inc()
        return answer

    def _landed(self, encoded: Encoded) -> None:
        assert self.state is not None, "what was decided on is remembered"
        self.state = machine.evolve(self.state, Landed(encoded.entry))
        self.news.append(encoded.entry)
        self.viewed_s = self.doors.clock.boot_s()
        self.rest_s = PAUSE_S
        origin = encoded.entry.provenance
        self.bucket.tokens -= len(origin.refused) if origin else 0
        GROUP_SIZE.labels(self.label).observe(len(origin.accepted) if origin else 0)
        TABLE_VERSION.labels(self.label).set(encoded.entry.version)

    def _done(self, plan: Plan) -> tuple[Verdict, ...]:
        for _ in plan.verdicts:
            self.queue.popleft()
        return plan.verdicts
