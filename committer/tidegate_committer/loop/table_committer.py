"""One table's committer: decides its waiting proposals, one log entry at a time.

    LOAD ─▶ READY ─▶ DECIDE ─▶ PUT ──WON──▶ evolve ─▶ (published by the partition worker)
      ▲                ▲        ├──LOST──▶ REBASE: read what others wrote, decide the batch again
      └──deadline──────┼────────┴──UNKNOWN─▶ RESOLVE: read, compare; send the same bytes again
                       └───────────────────────────┘

A table never has two PUTs in flight, and retries no version before the log was read up to it. While
a PUT is in flight, the next entry is decided as if that one had landed; once it is full, its own
PUT is prepared. If the first PUT does not land, the next entry is dropped unsent.

The loop never waits for a store: `TableCache` reads it in other threads, and the methods here
return nothing until the result is there.

`AdaptiveLinger` says how long a group of proposals stays open for more members.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from tidegate_committer.decision import machine, verbatim_decision
from tidegate_committer.decision.decision_types import Verdict, claim_unread, denied
from tidegate_committer.decision.machine import (
    BatchPlan,
    BatchPlanner,
    DecisionTerms,
    VersionLanded,
)
from tidegate_committer.dependencies import Dependencies, reach
from tidegate_committer.group_commit.entry_encoding import EntryWriter
from tidegate_committer.group_commit.fair_queue import FairQueue
from tidegate_committer.group_commit.version_dependent_fields import follows_untimed
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.loop.entry_put import PAUSE_S, EntryPut, PutResult
from tidegate_committer.loop.pending_commits import (
    RACES_MAX,
    EntryEncoder,
    NextEntry,
    PendingCommit,
    contended,
    draft_after,
    start_put,
    turn_behind,
)
from tidegate_committer.loop.table_cache import TableCache
from tidegate_committer.state.table_state import TableState
from tidegate_committer.store_reads.decision_reads import DecisionRead, needs_own_files
from tidegate_committer.store_reads.table_loading import LoadedTable, read, read_unregistered
from tidegate_committer.verbatim.verbatim_validation import VerbatimPriority
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.containment import Faults
from tidegate_runtime.kafka.client_protocols import Headers
from tidegate_runtime.observability import metrics
from tidegate_runtime.storage.log_store import LogStore, Put

REMEMBERED: Final = 16
"""How many recent PUTs are kept: their median is the expected duration of the next one."""

QUIET_SHARE: Final = 0.2
"""How long a group stays open after the last arrival, as a share of a PUT, while half of the
expected members are there."""

LINGER_GROWTH_MAX: Final = 2.0
"""The most by which the wait may grow when few members have come and many are expected."""

STREAM_SHARE: Final = 0.03
"""How recent an arrival must be, as a share of a PUT, to count as part of a stream of arrivals."""


@dataclass
class AdaptiveLinger:
    """How long a table's group stays open, from the durations of PUTs and the expected members.

    `crowd` is the number of expected members: those of the last entry plus the proposals that
    waited when it landed. `published_s` is when the outcomes of that entry were published.
    Units: seconds, moments by `Clock.boot_s`.
    """

    took_s: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    crowd: int = 0
    published_s: float = 0.0

    def landed(self, took_s: float, members: int, waiting: int) -> None:
        """Record an entry that landed, its member count, and how many proposals were waiting."""
        self.took_s.append(took_s)
        self.crowd = members + waiting

    @property
    def put_s(self) -> float:
        """The expected duration of a PUT: the median of the recent ones; 0 before the first."""
        return median(self.took_s) if self.took_s else 0.0

    def lingers_until_s(self, waiting: int, newest_s: float, share: float) -> float:
        """Return until when the group stays open, from the number waiting and the last arrival.

        A writer that just got its outcome may propose again at once. If the group closes without
        it, both wait for two PUTs: their own and the other's. So the group waits for `crowd`
        members, until `share` of a PUT after `published_s`, and closes earlier if no proposal came
        for a while. Both times grow, within LINGER_GROWTH_MAX, with the number of missing members
        per waiting one. A lone writer never waits.
        """
        if waiting >= self.crowd:
            return 0.0
        out = max(1.0, (self.crowd - waiting) / max(1, waiting))
        usual_s, last_s = share * self.put_s, max(self.published_s, newest_s)
        patient_s = min(
            self.published_s + min(LINGER_GROWTH_MAX, out) * usual_s,
            last_s + QUIET_SHARE * self.put_s * out,
        )
        # Wait on while proposals stream in: otherwise writers that propose together are split over
        # two groups, and stay split.
        longer_s = min(LINGER_GROWTH_MAX * usual_s, usual_s + QUIET_SHARE * self.put_s)
        return max(patient_s, min(self.published_s + longer_s, last_s + STREAM_SHARE * self.put_s))


@dataclass
class TokenBucket:
    """Limits how many refusals are written into a table's log. Units: `at_s` by `Clock.boot_s`."""

    burst: int
    rate_s: float
    tokens: float
    at_s: float

    def left(self, now_s: float) -> int:
        """Return how many refusals may be written at this moment."""
        self.tokens = min(self.burst, self.tokens + (now_s - self.at_s) * self.rate_s)
        self.at_s = now_s
        return int(self.tokens)


CLAIM_S: Final = 600.0
"""How long reading a claim-check file may take: as long as creating a table (`CREATION_S`)."""


@dataclass
class TableCommitter:
    """One table: its waiting proposals, the entry in flight and the next one, on its cached state.

    `record` is its registration. `is_registered` is false while the proposal that creates or
    registers the table is being decided; if it registers one, `others` are the tables registered
    before. `draft` is the next entry as far as it is decided; it is valid only for the state on
    which it was decided. `in_flight` is the entry in flight. `races_lost` counts the versions in a
    row that others won. `traces` are the trace contexts of versions with a single proposal.
    `pause_for_audit` stops PUTs from following one another at once, so that an audit can begin.
    `has_sent`: a PUT was ever sent. `claims` is since when claim-check files are being read, by
    proposal offset.
    `requests` are an operator's request or a registration that is not carried out yet, and all
    candidates behind it; `reads_for_request`: the log is being read for that.
    After a store failure the table rests until `rests_until_s`. Tables are worked on in the order
    of `order`.
    Units: `_until_s` and `claims` by `Clock.boot_s`; `rest_s` in seconds.
    """

    record: TableRecord
    store: LogStore
    dependencies: Dependencies
    origin: EntryWriter
    is_registered: bool = True
    others: tuple[TableRecord, ...] = ()
    queue: FairQueue = field(default_factory=FairQueue)
    order: int = 0
    pause_for_audit: bool = False
    has_sent: bool = False
    requests: deque[Candidate] = field(default_factory=deque)
    reads_for_request: bool = False
    claims: dict[int, float] = field(default_factory=dict)
    traces: dict[int, Headers] = field(default_factory=dict)
    in_flight: PendingCommit | None = None
    draft: NextEntry | None = None
    linger: AdaptiveLinger = field(default_factory=AdaptiveLinger)
    races_lost: int = 0
    halted: str | None = None
    faults: Faults = field(default_factory=Faults)
    rests_until_s: float = 0.0
    rest_s: float = PAUSE_S
    idle_until_s: float = 0.0
    cache: TableCache = field(init=False)
    bucket: TokenBucket = field(init=False)
    encoder: EntryEncoder = field(init=False)
    verbatim_priority: VerbatimPriority = field(init=False)

    def __post_init__(self) -> None:
        self.cache = TableCache(self.store, self.dependencies, self.queue)
        self.encoder = EntryEncoder(self.dependencies, self.origin, self.record.name)
        section, now_s = self.dependencies.settings, self.dependencies.clock.boot_s()
        self.verbatim_priority = VerbatimPriority(section.external_grace_ms / 1000)
        burst = section.refusals_burst
        self.bucket = TokenBucket(burst, section.refusals_per_s, burst, now_s)

    def load(self) -> bool:
        """Return whether the table is loaded; if not, start the load or take its result.

        Raises: as `TableCache.load`.
        """
        if not self.cache.load(self._read):
            return False
        reach("after_load", self.record.name)
        return True

    def _read(self) -> LoadedTable:
        if self.is_registered:
            return read(self.store, self.dependencies, self.record)
        return read_unregistered(self.store, self.dependencies, self.record, self.others)

    def _ensure_current(self) -> bool:
        """Return whether the state is loaded, recent enough, and at the log's head. If not, start
        to read what is missing, or take the result.

        While a batch's fetch is in progress this returns True: the state was recent when it began.
        Raises: as `load`.
        """
        if self.cache.fetch is not None and self.cache.fetch.batch:
            return True
        age_s = self.dependencies.clock.boot_s() - self.cache.viewed_s
        if self.cache.state is not None and age_s > self.dependencies.settings.view_age_max_s:
            self.forget()
        return self.cache.catch_up() if self.cache.state is not None else self.load()

    def decide_waiting(self) -> tuple[Verdict, ...]:
        """Decide the waiting proposals and start their PUT; return the verdicts that are final.

        First deny proposals whose claim-check file was not read within CLAIM_S. Return none while a
        PUT is in flight, while a group waits for more members, or while the store is being read.
        Raises: as `load`; OutcomeUnknown when a PUT stayed in doubt; Contended.
        """
        is_to_fetch = self.in_flight is None or not self.cache.fails_to_fetch_history
        if self.is_registered and is_to_fetch:
            too_far = self.cache.fetch_history(self._decided)
            if too_far:
                return tuple(map(self._too_far, too_far))
        if self.in_flight is not None and not self.in_flight.future.done():
            self._decide_ahead(self.in_flight)
            return ()
        verdicts = self.land() or self._give_up_claims()
        while not verdicts and self.queue.waiting:
            if not self._ensure_current():
                return ()
            plan = self._decide()
            if plan is None:
                return ()
            if plan.group.is_empty:
                return self._finish(plan)
            if not self._knows_last_write(plan):
                return ()
            self._start_put(plan)
            if self.in_flight is not None and not self.in_flight.future.done():
                return ()
            verdicts = self.land()
        return verdicts

    def land(self) -> tuple[Verdict, ...]:
        """Take the result of the PUT in flight; return the entry's verdicts if it won, else none.

        Raises: as `decide_waiting`.
        """
        in_flight, self.in_flight = self.in_flight, None
        if in_flight is None:
            return ()
        landing = in_flight.future.result()
        if landing.put is Put.WON:
            self._landed(in_flight, landing)
            return self._finish(in_flight.plan_as_landed)
        if landing.put is Put.WITHHELD:
            return ()
        self.races_lost += 1
        metrics.RACES_LOST.labels(self.label).inc()
        self.cache.is_behind = True
        self._ensure_current()
        if self.races_lost < RACES_MAX:
            return ()
        self.races_lost = 0
        raise contended(self.store.root, in_flight.encoded.entry.version)

    def _note_claims(self, state: TableState, batch: Iterable[Candidate]) -> None:
        """Record since when own files of proposals are being read; failed attempts count."""
        now_s = self.dependencies.clock.boot_s()
        for candidate in batch:
            if needs_own_files(state, candidate):
                self.claims.setdefault(candidate.offset, now_s)

    def _give_up_claims(self) -> tuple[Verdict, ...]:
        """Remove the proposals whose files were not read within CLAIM_S; return their denials.

        A read that hangs is given up, and the state dropped: its thread may still be changing it.
        """
        too_old_s = self.dependencies.clock.boot_s() - CLAIM_S
        if not self.claims or min(self.claims.values()) > too_old_s:
            return ()
        late = {offset for offset, since_s in self.claims.items() if since_s <= too_old_s}
        overdue = [
            candidate
            for candidate in self.queue.head(0, len(self.queue))
            if candidate.offset in late
        ]
        state = self.cache.state
        overdue = [
            candidate for candidate in overdue if state is None or needs_own_files(state, candidate)
        ]
        self.claims.clear()
        if not overdue:
            return ()
        if self.cache.fetch is not None:
            self.cache.fetching.give_up()
        self.forget()
        self.queue.leave({candidate.offset for candidate in overdue})
        return tuple(claim_unread(candidate, CLAIM_S) for candidate in overdue)

    def forget(self) -> None:
        """Drop the cached state: the log is read again before anything is decided."""
        self.cache.forget()
        self.draft, self.idle_until_s = None, 0.0

    def rest(self, now_s: float) -> None:
        """Drop the cached state and pause; the pause doubles with each failure in a row."""
        self.forget()
        self.rests_until_s = now_s + self.rest_s
        self.rest_s = min(2 * self.rest_s, 30.0)

    def give_up_requests(self) -> list[Candidate]:
        """Forget the requests; return them and the candidates behind them."""
        given_up, self.requests, self.reads_for_request = list(self.requests), deque(), False
        return given_up

    @property
    def label(self) -> str:
        """The table's label in metrics: its name once it is registered. A name that a writer only
        requests never becomes a label.
        """
        return self.record.name if self.is_registered else metrics.NOBODY

    @property
    def waits_until_s(self) -> float | None:
        """When this table is due again; None: not before a proposal comes or its PUT ends."""
        if self.cache.waits_for is not None:
            return self.cache.waits_for.check_after_s
        history = self.cache.reading_history
        due_s = history.check_after_s if history.answer else math.inf
        if self.queue.waiting and self.in_flight is None:
            is_held = self.verbatim_priority.holds(self.dependencies.clock.boot_s())
            goes_on_s = self.verbatim_priority.until_s if is_held else self.lingers_until_s
            due_s = min(due_s, max(self.rests_until_s, goes_on_s))
        return due_s if due_s < math.inf else None

    @property
    def _decided(self) -> int:
        """How many queued proposals have their verdicts, if the entry in flight lands."""
        if self.in_flight is not None:
            ahead = self.in_flight.ahead
            return len(self.in_flight.plan.verdicts) + (ahead.planning.taken if ahead else 0)
        return self.draft.planning.taken if self.draft else 0

    def _too_far(self, candidate: Candidate) -> Verdict:
        assert self.cache.state is not None, "a table whose history is read has a state"
        behind = self.cache.state.version - candidate.read_version
        return denied(
            candidate,
            "read_version_too_far",
            f"read_version: {candidate.read_version} is {behind} versions behind the head, more "
            "than are kept in memory to compare it with; read the table and propose again",
            "rerun",
        )

    @property
    def lingers_until_s(self) -> float:
        """Until when the group stays open for more members."""
        draft = self.draft
        if draft is not None and not draft.planning.group.members:
            return self.queue[0].since_s + self.dependencies.settings.refusal_linger_ms / 1000
        share, newest_s = self.dependencies.settings.linger_share, self.queue[-1].since_s
        return self.linger.lingers_until_s(len(self.queue), newest_s, share)

    def _decide(self) -> BatchPlan | None:
        """Decide the next entry. Return None while the group waits for members, while native groups
        pause for a verbatim entry, or while the store is being read.
        """
        is_under_way = self.cache.fetch is not None
        fetch = self.cache.fetch or self._next_fetch()
        if fetch is None:
            return None
        if is_under_way or fetch.is_needed:
            if not is_under_way:
                self._note_claims(fetch.state, fetch.batch)
            if not self.cache.has_fetched(fetch):
                return None
            self.claims.clear()
        if self.cache.state is not None and self.cache.state.keeps_past and fetch.reads_past:
            self.cache.history_used_s = self.dependencies.clock.boot_s()
        if fetch.is_verbatim:
            return self._decide_verbatim(fetch)
        now_s, draft = self.dependencies.clock.boot_s(), self.draft
        assert self.cache.state is not None, "what is fetched is fetched for a state"
        if draft and not draft.holds(self.cache.state, now_s):
            # The draft is too old: decide its members again, with those behind them.
            self.draft = None
            return self._decide() if self._ensure_current() else None
        draft = self.draft = draft or NextEntry(
            BatchPlanner(self.cache.state, self.dependencies.policy), now_s
        )
        planning = draft.planning
        planning.extend(fetch.batch, self._terms(), self.cache.read_cache.known)
        reach("after_decide", self.record.name)
        assert planning.verdicts, "the first record fits into an empty group"
        if self._lingers(planning):
            draft.lingers_since_s = draft.lingers_since_s or now_s
            return None
        self.draft = None
        lingered_s = now_s - (draft.lingers_since_s or now_s)
        metrics.decided(self.label, now_s - self.queue[0].since_s, lingered_s)
        return planning.plan()

    def _decide_verbatim(self, fetch: DecisionRead) -> BatchPlan:
        """Decide a verbatim entry, which is committed alone; drop the draft of other proposals."""
        state = self.cache.state
        assert state is not None, "what is fetched is fetched for a state"
        self.draft, [candidate] = None, fetch.batch
        reach("after_decide", self.record.name)
        case = verbatim_decision.VerbatimCase(
            candidate, fetch.content, self._terms().now_ms, self.dependencies.policy
        )
        return verbatim_decision.plan_of(state, verbatim_decision.decide(state, case))

    def _next_fetch(self) -> DecisionRead | None:
        """Return the fetch for the next proposals to decide. Return None while a verbatim writer
        has priority and has not come back yet.
        """
        state, now_s = self.cache.state, self.dependencies.clock.boot_s()
        policy = self.dependencies.policy
        assert state is not None, "the table is at hand"
        if self.verbatim_priority.holds(now_s):
            place = self.queue.first_verbatim()
            if place is None:
                return None
            self.queue.bring_forward(place)
        if not self.queue[0].candidate.is_verbatim:
            if self.draft and not self.draft.holds(state, now_s):
                self.draft = None
            if self.draft is None:
                self.queue.share_out(0, machine.members_max(state, policy), now_s)
        first = self.queue[0].candidate
        if first.is_verbatim:
            return self.cache.fetch_for(0, [first])
        decided = self.draft.planning.taken if self.draft else 0
        return self.cache.fetch_for(decided, list(self._batch(decided)))

    def _batch(self, start: int) -> Iterator[Candidate]:
        # Before the table exists, decide one at a time: the first may create it, or be refused.
        count_max = self.dependencies.policy.group_members_max if self.is_registered else 1
        return self.queue.batch(start, count_max, self.dependencies.policy.group_bytes_max)

    def _terms(self, spoken_for: int = 0) -> DecisionTerms:
        tokens = self.bucket.left(self.dependencies.clock.boot_s()) - spoken_for
        return DecisionTerms(self.dependencies.clock.now_ms(), max(0, tokens))

    def _decide_ahead(self, in_flight: PendingCommit) -> None:
        """Decide the next entry as if the one in flight had landed, without reading the store."""
        if not self.is_registered:
            return
        state, policy = self.cache.state, self.dependencies.policy
        assert state is not None, "what is in flight was decided on a state"
        served = len(in_flight.plan.verdicts)
        if in_flight.ahead is None:
            known = self.cache.read_cache.after(in_flight.encoded)
            now_s = self.dependencies.clock.boot_s()
            in_flight.ahead = draft_after(in_flight, state, known, policy, now_s)
            self.queue.share_out(served, machine.members_max(state, policy), now_s)
        terms = self._terms(len(in_flight.plan.group.refused))
        in_flight.ahead.extend_plainly(self.queue, served, policy, terms)
        in_flight.ahead.spell_out(self.encoder)
        self._prepare_follower(in_flight, in_flight.ahead)

    def _prepare_follower(self, in_flight: PendingCommit, ahead: NextEntry) -> None:
        """Prepare the PUT of a full next entry: it is sent as soon as the one in flight has won."""
        clock, served = self.dependencies.clock, len(in_flight.plan.verdicts)
        encoded = ahead.ready(self.linger.put_s)
        if in_flight.follower is not None or encoded is None or self.pause_for_audit:
            return
        if self.cache.fails_to_fetch_history:
            return
        # A verbatim entry in flight may give other writers priority, depending on its result.
        if in_flight.plan.answer is not None or self.verbatim_priority.holds(clock.boot_s()):
            return
        put = EntryPut(self.store, self.label, encoded)
        turn = turn_behind(in_flight.future, ahead.since_s, clock)
        plan = ahead.planning.plan()
        in_flight.follower = start_put(
            plan, put, self.dependencies, self.cache.viewed_s, turn, in_flight.future
        )
        metrics.decided(self.label, clock.boot_s() - self.queue[served].since_s, 0.0)

    def _lingers(self, planning: BatchPlanner) -> bool:
        """Whether to keep the group open: no more proposals wait, it has room, and there is
        time.
        """
        if planning.is_closed or planning.taken < len(self.queue) or planning.group.is_empty:
            return False
        return self.dependencies.clock.boot_s() < self.lingers_until_s

    def _knows_last_write(self, plan: BatchPlan) -> bool:
        """Whether the file time of the last version is known, if the new entry's timestamp depends
        on it; if it is not known, read it.
        """
        assert self.cache.state is not None, "what is written was decided on a state"
        matters = plan.ready is None and follows_untimed(self.cache.state, plan.group.members)
        return not matters or self.cache.knows_last_write()

    def _start_put(self, plan: BatchPlan) -> None:
        assert self.cache.state is not None, "what is written was decided on a state"
        verbatim_entry = verbatim_decision.encoded_of(plan)
        encoded = verbatim_entry or self.encoder.spell(
            self.cache.state, plan, self.cache.written[1]
        )
        put = EntryPut(self.store, self.label, encoded)
        self.in_flight = start_put(plan, put, self.dependencies, self.cache.viewed_s)
        self.has_sent = True

    def _landed(self, in_flight: PendingCommit, landing: PutResult) -> None:
        state = self.cache.state
        assert state is not None, "what was decided on is remembered"
        entry, ahead, group = in_flight.encoded.entry, in_flight.ahead, in_flight.plan.group
        state = ahead.planning.state if ahead else machine.evolve(state, VersionLanded(entry))
        self.cache.landed(in_flight.encoded, state, in_flight.since_s)
        self.in_flight = in_flight.follower
        self.draft = ahead if in_flight.follower is None else None
        if len(group.members) == 1:
            self.traces[entry.version] = group.members[0].trace
        waiting = len(self.queue) - len(in_flight.plan.verdicts)
        self.linger.landed(landing.took_s, len(group.members), waiting)
        self.rest_s, self.races_lost = PAUSE_S, 0
        self.bucket.tokens -= len(group.refused)
        metrics.landed(self.record.name, len(group.members), entry.size)

    def _finish(self, plan: BatchPlan) -> tuple[Verdict, ...]:
        self.queue.served(len(plan.verdicts))
        self.verbatim_priority = verbatim_decision.priority_after(
            self.verbatim_priority, plan, self.dependencies.clock.boot_s()
        )
        return plan.verdicts


def order_of(table_committer: TableCommitter) -> int:
    """Return a table's position in the order in which tables are worked on."""
    return table_committer.order
