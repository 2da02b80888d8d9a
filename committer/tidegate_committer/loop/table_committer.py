"""One table's committer: decides its waiting proposals, one log entry at a time.

    LOAD ─▶ READY ─▶ DECIDE ─▶ PUT ──WON──▶ evolve ─▶ (published by the partition worker)
      ▲                ▲        ├──LOST──▶ REBASE: read what others wrote, decide the batch again
      └──deadline──────┼────────┴──UNKNOWN─▶ RESOLVE: read, compare; send the same bytes again
                       └───────────────────────────┘

A table never has two PUTs in flight, and retries no version before the log was read up to it. While
a PUT is in flight, the next entry is decided as if that one had landed; once it is full, its own
PUT is prepared. If the first PUT does not land, the next entry is dropped unsent.

The loop never waits for a store: `TableCache.load` and fetches read it in other threads, and the
methods here return nothing until the result is there.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
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
from tidegate_committer.intake.proposal_reader import needs_claim
from tidegate_committer.loop.adaptive_linger import AdaptiveLinger
from tidegate_committer.loop.entry_encoder import EntryEncoder
from tidegate_committer.loop.entry_put import PAUSE_S, EntryPut, PutResult
from tidegate_committer.loop.pending_commits import (
    RACES_MAX,
    NextEntry,
    PendingCommit,
    contended,
    draft_after,
    start_put,
    turn_behind,
)
from tidegate_committer.state.log_entry import Entry
from tidegate_committer.state.table_state import TableState, narrowed
from tidegate_committer.state.version_history import BYTES_MAX, VERSIONS_MAX, weight, weight_of_past
from tidegate_committer.store_executor import PendingRead
from tidegate_committer.store_reads.decision_reads import DecisionRead
from tidegate_committer.store_reads.read_cache import ReadCache
from tidegate_committer.store_reads.recovery import NO_PAST, missing
from tidegate_committer.store_reads.table_loading import LoadedTable, read, read_unregistered
from tidegate_committer.store_reads.version_history_reads import FETCHED_MAX, VersionHistory
from tidegate_committer.verbatim.verbatim_priority import VerbatimPriority
from tidegate_delta.errors import TidegateError
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.containment import Faults
from tidegate_runtime.kafka.client_protocols import Headers
from tidegate_runtime.observability import metrics
from tidegate_runtime.storage.log_store import LogStore, Put


@dataclass
class TableCache:
    """A table's registration, store and state, and the queue of proposals that wait for it.

    `state` is None until the log was read; `viewed_s` is when it was last known to be the head.
    `is_behind`: others are known to have written since. `news` are versions that are not yet
    published to the topic `commits`. `is_registered` is false while the proposal that creates or
    registers the table is being decided; if it registers one, `others` are the tables registered
    before. `written` is a version and when its file was written, in ms since the Unix epoch.
    `fetch` is the read in progress: until it ends, the state belongs to the thread that runs it,
    and the loop must not read its maps. `history` are old versions, read for the candidates that
    were set aside. `history_bytes` is how much of it the state holds; `drops_history`: the state
    is to drop it; `history_floor`: before this version the history was too large to keep.
    Units: `viewed_s`, `history_used_s` by `Clock.boot_s`.
    """

    record: TableRecord
    store: LogStore
    dependencies: Dependencies
    origin: EntryWriter
    is_registered: bool = True
    others: tuple[TableRecord, ...] = ()
    state: TableState | None = None
    news: list[Entry] = field(default_factory=list)
    viewed_s: float = 0.0
    is_behind: bool = False
    written: tuple[int, int] = (-1, 0)
    line: FairQueue = field(default_factory=FairQueue)
    fetch: DecisionRead | None = None
    history: VersionHistory | None = None
    history_bytes: int = 0
    history_used_s: float = 0.0
    history_floor: int = 0
    drops_history: bool = False
    looking_back: PendingRead[VersionHistory] = field(init=False)
    loading: PendingRead[LoadedTable] = field(init=False)
    fetching: PendingRead[DecisionRead] = field(init=False)
    read_cache: ReadCache = field(init=False)

    def __post_init__(self) -> None:
        dependencies, root = self.dependencies, self.store.root
        self.loading = PendingRead(dependencies.loads, dependencies.clock, root)
        self.fetching = PendingRead(dependencies.reads, dependencies.clock, root)
        self.looking_back = PendingRead(dependencies.reads, dependencies.clock, root)
        self.read_cache = ReadCache(self.store)

    def load(self) -> bool:
        """Return whether the table is loaded; if not, start the load or take its result.

        Raises: BrokenLog; UnsupportedFeature; InvalidRequest; Misconfigured; Unavailable.
        """
        loaded = self.loading.end(self._read)
        if loaded is None:
            return False
        self.read_cache.forget_files()
        self.state, self.news, self.viewed_s = loaded
        self.is_behind = False
        reach("after_load", self.record.name)
        return True

    def catch_up(self) -> bool:
        """Return whether the state is at the log's head, as far as known. If others wrote, start to
        read their versions, or take the result.

        Raises: as `load`.
        """
        if self.fetch is None and self.is_behind:
            self.fetch = self.fetch_for(0, [])
        return self.fetch is None or self.has_fetched(self.fetch)

    def ensure_current(self) -> bool:
        """Return whether the state is loaded, recent enough, and at the log's head. If not, start
        to read what is missing, or take the result.

        While a batch's fetch is in progress this returns True: the state was recent when it began.
        Raises: as `load`.
        """
        if self.fetch is not None and self.fetch.batch:
            return True
        age_s = self.dependencies.clock.boot_s() - self.viewed_s
        if self.state is not None and age_s > self.dependencies.settings.view_age_max_s:
            self.forget()
        return self.catch_up() if self.state is not None else self.load()

    def fetch_for(self, start: int, batch: list[Candidate]) -> DecisionRead:
        """Return a fetch for the batch at place `start` of the queue; an empty one only catches
        up.
        """
        assert self.state is not None, "what is fetched is fetched for a state"
        seen = self.state, self.viewed_s, self.is_behind
        past = self.history.entries if self.history is not None else NO_PAST
        return DecisionRead(
            self.store, self.dependencies, self.read_cache, *seen, start, batch, past
        )

    def has_fetched(self, fetch: DecisionRead) -> bool:
        """Return whether a fetch has ended and its result is taken; else start it or keep waiting.

        If it fails, its partial result is taken all the same. Raises: as `load`.
        """
        self.fetch = fetch
        try:
            if self.fetching.end(fetch.run) is None:
                return False
        except TidegateError:
            self._take(fetch)
            raise
        self._take(fetch)
        return True

    def forget(self) -> None:
        """Drop the cached state: the log is read again before anything is decided."""
        self.state, self.is_behind, self.written = None, False, (-1, 0)
        self.history, self.history_bytes, self.drops_history = None, 0, False
        self.line.bring_back(0)
        self.looking_back.forget()
        self.loading.forget()
        if self.fetch is not None:
            # A thread may still be filling the old cache, so we take a new one.
            self.fetch, self.read_cache = None, ReadCache(self.store)
            self.fetching.forget()

    @property
    def waits_for(self) -> PendingRead[LoadedTable] | PendingRead[DecisionRead] | None:
        """The load or fetch in progress, or None."""
        if self.loading.answer is not None:
            return self.loading
        return self.fetching if self.fetching.answer is not None else None

    def _read(self) -> LoadedTable:
        if self.is_registered:
            return read(self.store, self.dependencies, self.record)
        return read_unregistered(self.store, self.dependencies, self.record, self.others)

    def _take(self, fetch: DecisionRead) -> None:
        self.fetch, self.state, self.viewed_s = None, fetch.state, fetch.viewed_s
        self.is_behind = fetch.is_behind
        self.news += fetch.news
        if fetch.written_ms is not None:
            self.written = (fetch.state.version, fetch.written_ms)
        for place, candidate in enumerate(fetch.batch, fetch.start):
            if candidate is not self.line[place].candidate:
                self.line.replace(place, candidate)
        if fetch.past and fetch.state.keeps_past:
            # The state holds the history by now.
            self.history = None
            self.keep_history(weight_of_past(fetch.state))

    def look_back(self, decided: int) -> list[Candidate]:
        """Set aside the candidates behind the first `decided` that read a very old version, until
        the versions since then are read. Return those whose missing versions are too many to keep.

        Raises: BrokenLog; Unavailable.
        """
        state, line = self.state, self.line
        if state is None or self.fetch is not None or not self.is_registered:
            return []
        line.set_aside(decided, self.dependencies.policy.group_members_max, self._needs_history)
        if line.aside and (too_far := line.remove_aside(self._is_too_far)):
            return too_far
        if not line.aside:
            return []
        history = self.history = self.history or VersionHistory(self.store)
        wanted = missing(state, min(one.candidate.read_version for one in line.aside))
        if self.looking_back.answer is None and history.holds(wanted):
            line.bring_back(decided)
            return []
        if self.looking_back.end(lambda: history.read(wanted)) is None:
            return []
        if history.is_full:
            self.history_floor, history.is_full = min(history.entries), False
        # Others may have committed meanwhile, and a candidate with an older read version may have
        # come.
        return self.look_back(decided)

    def _needs_history(self, candidate: Candidate) -> bool:
        assert self.state is not None, "candidates are held against a state"
        needed = missing(self.state, candidate.read_version)
        if len(needed) <= FETCHED_MAX:
            return False
        return self.history is None or not self.history.holds(needed)

    def _is_too_far(self, candidate: Candidate) -> bool:
        assert self.state is not None, "candidates are held against a state"
        needed = missing(self.state, candidate.read_version)
        return needed.start < self.history_floor or len(needed) > VERSIONS_MAX

    def keep_history(self, size_bytes: int) -> None:
        """Record how much history the state holds; others make room for it (`HistoryBudget`)."""
        self.history_bytes, self.history_used_s = size_bytes, self.dependencies.clock.boot_s()
        self.dependencies.histories.keep(self)

    def drop_history(self) -> None:
        """Drop the history that the state holds, once no decision uses it."""
        self.drops_history = True
        if self.fetch is None and not self.line:
            self.narrow()

    def narrow(self) -> None:
        """Drop the history that the state holds, if `drops_history` asks for it."""
        if self.drops_history and self.state is not None:
            self.state = narrowed(self.state)
            self.history_bytes, self.drops_history = 0, False


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
class TableCommitter(TableCache):
    """One table: its cached state, its waiting proposals, the entry in flight and the next one.

    `draft` is the next entry as far as it is decided; it is valid only for the state on which it
    was decided. `flying` is the entry in flight. `races_lost` counts the versions in a row that
    others won. `traces` are the trace contexts of versions with a single proposal.
    `pause_for_audit` stops PUTs from following one another at once, so that an audit can begin.
    `has_sent`: a PUT was ever sent. `claims` is since when claim-check files are being
    read, by proposal offset.
    After a store failure the table rests until `rests_until_s`. Tables are worked on in the order
    of `seat`.
    Units: `_until_s` and `claims` by `Clock.boot_s`; `rest_s` in seconds.
    """

    seat: int = 0
    pause_for_audit: bool = False
    has_sent: bool = False
    claims: dict[int, float] = field(default_factory=dict)
    traces: dict[int, Headers] = field(default_factory=dict)
    flying: PendingCommit | None = None
    draft: NextEntry | None = None
    pace: AdaptiveLinger = field(default_factory=AdaptiveLinger)
    races_lost: int = 0
    halted: str | None = None
    faults: Faults = field(default_factory=Faults)
    rests_until_s: float = 0.0
    rest_s: float = PAUSE_S
    idle_until_s: float = 0.0
    bucket: TokenBucket = field(init=False)
    encoder: EntryEncoder = field(init=False)
    right_of_way: VerbatimPriority = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.encoder = EntryEncoder(self.dependencies, self.origin, self.record.name)
        section, now_s = self.dependencies.settings, self.dependencies.clock.boot_s()
        self.right_of_way = VerbatimPriority(section.external_grace_ms / 1000)
        burst = section.refusals_burst
        self.bucket = TokenBucket(burst, section.refusals_per_s, burst, now_s)

    def settle(self) -> tuple[Verdict, ...]:
        """Decide the waiting proposals and start their PUT; return the verdicts that are final.

        First deny proposals whose claim-check file was not read within CLAIM_S. Return none while a
        PUT is in flight, while a group waits for more members, or while the store is being read.
        Raises: as `load`; OutcomeUnknown when a PUT stayed in doubt; Contended.
        """
        if self.flying is None or not self._fails_to_look_back:
            too_far = self.look_back(self._decided)
            if too_far:
                return tuple(map(self._too_far, too_far))
        if self.flying is not None and not self.flying.flight.done():
            self._decide_ahead(self.flying)
            return ()
        verdicts = self.land() or self._give_up_claims()
        while not verdicts and self.line.waiting:
            if not self.ensure_current():
                return ()
            plan = self._decide()
            if plan is None:
                return ()
            if plan.group.is_empty:
                return self._finish(plan)
            if not self._knows_last_write(plan):
                return ()
            self._start_put(plan)
            if self.flying is not None and not self.flying.flight.done():
                return ()
            verdicts = self.land()
        return verdicts

    def land(self) -> tuple[Verdict, ...]:
        """Take the result of the PUT in flight; return the entry's verdicts if it won, else none.

        Raises: as `settle`.
        """
        flying, self.flying = self.flying, None
        if flying is None:
            return ()
        landing = flying.flight.result()
        if landing.put is Put.WON:
            self._landed(flying, landing)
            return self._finish(flying.plan_as_landed)
        if landing.put is Put.WITHHELD:
            return ()
        self.races_lost += 1
        metrics.RACES_LOST.labels(self.label).inc()
        self.is_behind = True
        self.ensure_current()
        if self.races_lost < RACES_MAX:
            return ()
        self.races_lost = 0
        raise contended(self.store.root, flying.encoded.entry.version)

    def _note_claims(self, batch: Iterable[Candidate]) -> None:
        """Record since when claim-check files are being read; failed attempts count."""
        now_s = self.dependencies.clock.boot_s()
        for one in filter(needs_claim, batch):
            self.claims.setdefault(one.offset, now_s)

    def _give_up_claims(self) -> tuple[Verdict, ...]:
        """Remove the proposals whose files were not read within CLAIM_S; return their denials.

        A read that hangs is given up, and the state dropped: its thread may still be changing it.
        """
        too_old_s = self.dependencies.clock.boot_s() - CLAIM_S
        if not self.claims or min(self.claims.values()) > too_old_s:
            return ()
        late = {offset for offset, since_s in self.claims.items() if since_s <= too_old_s}
        over = [one for one in self.line.head(0, len(self.line)) if one.offset in late]
        over = [one for one in over if needs_claim(one)]
        self.claims.clear()
        if not over:
            return ()
        if self.fetch is not None:
            self.fetching.give_up()
        self.forget()
        self.line.leave({one.offset for one in over})
        return tuple(claim_unread(one, CLAIM_S) for one in over)

    def forget(self) -> None:
        """Drop the cached state: the log is read again before anything is decided."""
        super().forget()
        self.draft, self.idle_until_s = None, 0.0

    def rest(self, now_s: float) -> None:
        """Drop the cached state and pause; the pause doubles with each failure in a row."""
        self.forget()
        self.rests_until_s = now_s + self.rest_s
        self.rest_s = min(2 * self.rest_s, 30.0)

    @property
    def label(self) -> str:
        """The table's label in metrics: its name once it is registered. A name that a writer only
        requests never becomes a label.
        """
        return self.record.name if self.is_registered else metrics.NOBODY

    @property
    def waits_until_s(self) -> float | None:
        """When this table is due again; None: not before a proposal comes or its PUT ends."""
        if self.waits_for is not None:
            return self.waits_for.looked_after_s
        looks_s = self.looking_back.looked_after_s if self.looking_back.answer else math.inf
        if self.line.waiting and self.flying is None:
            held = self.right_of_way.holds(self.dependencies.clock.boot_s())
            goes_on_s = self.right_of_way.until_s if held else self.lingers_until_s
            looks_s = min(looks_s, max(self.rests_until_s, goes_on_s))
        return looks_s if looks_s < math.inf else None

    @property
    def _decided(self) -> int:
        """How many queued proposals have their verdicts, if the entry in flight lands."""
        if self.flying is not None:
            ahead = self.flying.ahead
            return len(self.flying.plan.verdicts) + (ahead.planning.taken if ahead else 0)
        return self.draft.planning.taken if self.draft else 0

    @property
    def _fails_to_look_back(self) -> bool:
        """Whether reading the history failed: the table rests or halts once no PUT is in flight."""
        answer = self.looking_back.answer
        return answer is not None and answer.done() and answer.exception() is not None

    def _too_far(self, candidate: Candidate) -> Verdict:
        assert self.state is not None, "it was looked back from"
        behind = self.state.version - candidate.read_version
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
            return self.line[0].since_s + self.dependencies.settings.refusal_linger_ms / 1000
        share, newest_s = self.dependencies.settings.linger_share, self.line[-1].since_s
        return self.pace.lingers_until_s(len(self.line), newest_s, share)

    def _decide(self) -> BatchPlan | None:
        """Decide the next entry. Return None while the group waits for members, while native groups
        pause for a verbatim entry, or while the store is being read.
        """
        is_under_way = self.fetch is not None
        fetch = self.fetch or self._next_fetch()
        if fetch is None:
            return None
        if is_under_way or fetch.is_needed:
            if not is_under_way:
                self._note_claims(fetch.batch)
            if not self.has_fetched(fetch):
                return None
            self.claims.clear()
        if self.state is not None and self.state.keeps_past and fetch.reads_past:
            self.history_used_s = self.dependencies.clock.boot_s()
        if fetch.is_verbatim:
            return self._decide_verbatim(fetch)
        now_s, draft = self.dependencies.clock.boot_s(), self.draft
        assert self.state is not None, "what is fetched is fetched for a state"
        if draft and not draft.holds(self.state, now_s):
            # The draft is too old: decide its members again, with those behind them.
            self.draft = None
            return self._decide() if self.ensure_current() else None
        draft = self.draft = draft or NextEntry(
            BatchPlanner(self.state, self.dependencies.policy), now_s
        )
        planning = draft.planning
        planning.extend(fetch.batch, self._terms(), self.read_cache.known)
        reach("after_decide", self.record.name)
        assert planning.verdicts, "the first record fits into an empty group"
        if self._lingers(planning):
            draft.lingers_since_s = draft.lingers_since_s or now_s
            return None
        self.draft = None
        lingered_s = now_s - (draft.lingers_since_s or now_s)
        metrics.decided(self.label, now_s - self.line[0].since_s, lingered_s)
        return planning.plan()

    def _decide_verbatim(self, fetch: DecisionRead) -> BatchPlan:
        """Decide a verbatim entry, which is committed alone; drop the draft of other proposals."""
        assert self.state is not None, "what is fetched is fetched for a state"
        self.draft, [candidate] = None, fetch.batch
        reach("after_decide", self.record.name)
        case = verbatim_decision.VerbatimCase(
            candidate, fetch.content, self._terms().now_ms, self.dependencies.policy
        )
        return verbatim_decision.plan_of(self.state, verbatim_decision.decide(self.state, case))

    def _next_fetch(self) -> DecisionRead | None:
        """Return the fetch for the next proposals to decide. Return None while a verbatim writer
        has priority and has not come back yet.
        """
        now_s = self.dependencies.clock.boot_s()
        assert self.state is not None, "the table is at hand"
        if self.right_of_way.holds(now_s):
            place = self.line.first_verbatim()
            if place is None:
                return None
            self.line.bring_forward(place)
        if not self.line[0].candidate.is_verbatim:
            if self.draft and not self.draft.holds(self.state, now_s):
                self.draft = None
            if self.draft is None:
                self.line.share_out(0, machine.members_max(self.state, self.dependencies.policy))
        first = self.line[0].candidate
        if first.is_verbatim:
            return self.fetch_for(0, [first])
        decided = self.draft.planning.taken if self.draft else 0
        return self.fetch_for(decided, list(self._batch(decided)))

    def _batch(self, start: int) -> Iterator[Candidate]:
        # Before the table exists, decide one at a time: the first may create it, or be refused.
        most = self.dependencies.policy.group_members_max if self.is_registered else 1
        return self.line.batch(start, most, self.dependencies.policy.group_bytes_max)

    def _terms(self, spoken_for: int = 0) -> DecisionTerms:
        left = self.bucket.left(self.dependencies.clock.boot_s()) - spoken_for
        return DecisionTerms(self.dependencies.clock.now_ms(), max(0, left))

    def _decide_ahead(self, flying: PendingCommit) -> None:
        """Decide the next entry as if the one in flight had landed, without reading the store."""
        if not self.is_registered:
            return
        assert self.state is not None, "what flies was decided on a state"
        served = len(flying.plan.verdicts)
        if flying.ahead is None:
            known, now_s = self.read_cache.after(flying.encoded), self.dependencies.clock.boot_s()
            flying.ahead = draft_after(flying, self.state, known, self.dependencies.policy, now_s)
            self.line.share_out(served, machine.members_max(self.state, self.dependencies.policy))
        terms = self._terms(len(flying.plan.group.refused))
        flying.ahead.extend_plainly(self.line, served, self.dependencies.policy, terms)
        flying.ahead.spell_out(self.encoder)
        self._prepare_follower(flying, flying.ahead)

    def _prepare_follower(self, flying: PendingCommit, ahead: NextEntry) -> None:
        """Prepare the PUT of a full next entry: it is sent as soon as the one in flight has won."""
        clock, served = self.dependencies.clock, len(flying.plan.verdicts)
        encoded = ahead.ready(self.pace.put_s)
        if flying.follower is not None or encoded is None or self.pause_for_audit:
            return
        if self._fails_to_look_back:
            return
        # A verbatim entry in flight may give other writers priority, depending on its result.
        if flying.plan.answer is not None or self.right_of_way.holds(clock.boot_s()):
            return
        put = EntryPut(self.store, self.label, encoded)
        turn = turn_behind(flying.flight, ahead.since_s, clock)
        plan = ahead.planning.plan()
        flying.follower = start_put(
            plan, put, self.dependencies, self.viewed_s, turn, flying.flight
        )
        metrics.decided(self.label, clock.boot_s() - self.line[served].since_s, 0.0)

    def _lingers(self, planning: BatchPlanner) -> bool:
        """Whether to keep the group open: no more proposals wait, it has room, and there is
        time.
        """
        if planning.is_closed or planning.taken < len(self.line) or planning.group.is_empty:
            return False
        return self.dependencies.clock.boot_s() < self.lingers_until_s

    def _knows_last_write(self, plan: BatchPlan) -> bool:
        """Whether the file time of the last version is known, if the new entry's timestamp depends
        on it; if it is not known, read it.
        """
        assert self.state is not None, "what is written was decided on a state"
        matters = plan.ready is None and follows_untimed(self.state, plan.group.members)
        if not matters or self.written[0] == self.state.version:
            return True
        fetch = self.fetch_for(0, [])
        fetch.asks_when = True
        return self.has_fetched(fetch)

    def _start_put(self, plan: BatchPlan) -> None:
        assert self.state is not None, "what is written was decided on a state"
        ready = verbatim_decision.encoded_of(plan)
        encoded = ready or self.encoder.spell(self.state, plan, self.written[1])
        put = EntryPut(self.store, self.label, encoded)
        self.flying, self.has_sent = start_put(plan, put, self.dependencies, self.viewed_s), True

    def _landed(self, flying: PendingCommit, landing: PutResult) -> None:
        assert self.state is not None, "what was decided on is remembered"
        entry, ahead, group = flying.encoded.entry, flying.ahead, flying.plan.group
        self.state = (
            ahead.planning.state if ahead else machine.evolve(self.state, VersionLanded(entry))
        )
        self.flying = flying.follower
        self.draft = ahead if flying.follower is None else None
        self.read_cache.landed(flying.encoded)
        self.news.append(entry)
        if len(group.members) == 1:
            self.traces[entry.version] = group.members[0].trace
        # We know the log as of when this PUT was sent, not as of when it landed.
        self.viewed_s = flying.since_s
        waiting = len(self.line) - len(flying.plan.verdicts)
        self.pace.landed(landing.took_s, len(group.members), waiting)
        self.rest_s, self.races_lost = PAUSE_S, 0
        self.bucket.tokens -= len(group.refused)
        metrics.landed(self.record.name, len(group.members), entry.size)
        self._grow_history()

    def _grow_history(self) -> None:
        """Count the version that left the window, if history is kept; drop history that is too
        large.
        """
        state = self.state
        if state is not None and state.keeps_past:
            passed = state.entries.get(state.version - state.window)
            self.history_bytes += weight(passed) if passed else 0
            if self.history_bytes > BYTES_MAX:
                self.drops_history = True
            self.narrow()

    def _finish(self, plan: BatchPlan) -> tuple[Verdict, ...]:
        self.line.served(len(plan.verdicts))
        self.right_of_way = verbatim_decision.priority_after(
            self.right_of_way, plan, self.dependencies.clock.boot_s()
        )
        return plan.verdicts


def seat_of(table_committer: TableCommitter) -> int:
    """Return a table's position in the order in which tables are worked on."""
    return table_committer.seat
