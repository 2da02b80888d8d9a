"""A desk: where the proposals of one table are settled, one entry at a time.

    LOAD ─▶ READY ─▶ DECIDE ─▶ PUT ──WON──▶ evolve ─▶ (told by the lane)
      ▲                ▲        ├──LOST──▶ REBASE: read what others wrote, decide the batch anew
      └──deadline──────┼────────┴──UNKNOWN─▶ RESOLVE: read, compare; send the same bytes again
                       └───────────────────────────┘

Never are two PUTs in flight, and no version is tried again before what is there has been read.
While one flies, the next entry is decided as if it had landed, and its PUT made ready where nobody
else may join it; if it has not landed, that is forgotten, and nothing was sent.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tidegate.committer import intake, machine, recovery, verbatim
from tidegate.committer.bucket import Bucket
from tidegate.committer.candidate import Candidate
from tidegate.committer.claims import read_claim
from tidegate.committer.doors import Doors, reach
from tidegate.committer.entries import Entry
from tidegate.committer.entry_put import PAUSE_S, EntryPut
from tidegate.committer.in_flight import (
    RACES_MAX,
    Draft,
    InFlight,
    contended,
    following,
    sent,
    turn_behind,
)
from tidegate.committer.line import Line
from tidegate.committer.loading import Loaded, Loading, read
from tidegate.committer.machine import Landed, Plan, Planning, Terms
from tidegate.committer.puts import Landing, Pace
from tidegate.committer.rebase import Origin
from tidegate.committer.right_of_way import RightOfWay
from tidegate.committer.scribe import Scribe
from tidegate.committer.shelf import Shelf
from tidegate.committer.state import TableState
from tidegate.committer.telling import NOBODY
from tidegate.committer.verdicts import Verdict
from tidegate.pipeline.published import TableRecord
from tidegate.runtime import metrics
from tidegate.runtime.bus import Headers
from tidegate.runtime.log_store import LogStore, Put


@dataclass
class Desk:
    """One table: its registration, its store, what is remembered of it, and who waits.

    `news` are versions that stand in the log and have not been told, `traces` the trace contexts of
    those that hold one proposal. `is_registered` is false while the proposal that creates the table
    is being settled. `draft` is only good for the very state that it was made for. Where it
    `wants_calm`, no PUT follows on another at once.
    """

    record: TableRecord
    store: LogStore
    doors: Doors
    origin: Origin
    is_registered: bool = True
    wants_calm: bool = False
    state: TableState | None = None
    line: Line = field(default_factory=Line)
    news: list[Entry] = field(default_factory=list)
    traces: dict[int, Headers] = field(default_factory=dict)
    flying: InFlight | None = None
    draft: Draft | None = None
    pace: Pace = field(default_factory=Pace)
    races: int = 0
    halted: str | None = None
    viewed_s: float = 0.0
    rests_until_s: float = 0.0
    rest_s: float = PAUSE_S
    idle_until_s: float = 0.0
    loading: Loading = field(init=False)
    bucket: Bucket = field(init=False)
    shelf: Shelf = field(init=False)
    scribe: Scribe = field(init=False)
    way: RightOfWay = field(init=False)

    def __post_init__(self) -> None:
        self.loading = Loading(self.doors, self.store.root)
        self.shelf = Shelf(self.store)
        self.scribe = Scribe(self.store, self.doors, self.origin, self.record.name)
        section, now_s = self.doors.settings, self.doors.clock.boot_s()
        self.way, burst = RightOfWay(section.external_grace_ms / 1000), section.refusals_burst
        self.bucket = Bucket(burst, section.refusals_per_s, burst, now_s)

    def load(self) -> bool:
        """Return whether the table is remembered; where it is not, have it read, and go on.

        Raises: BrokenLog; UnsupportedFeature; InvalidRequest; Unavailable.
        """
        loaded = self.loading.end(self._read)
        return loaded is not None and self._remember(loaded) is not None

    def load_now(self) -> TableState:
        """Return the table as its log tells it, read while everybody waits. Raises: as `load`."""
        self.forget()
        return self._remember(self._read())

    def _read(self) -> Loaded:
        return read(self.store, self.doors, self.record, is_registered=self.is_registered)

    def _remember(self, loaded: Loaded) -> TableState:
        self.shelf.forget_files()
        self.state, self.news, self.viewed_s = loaded
        reach("after_load")
        return loaded.state

    def settle(self) -> tuple[Verdict, ...]:
        """Go on with the first of the line; return what stands in the log since the last call.

        Empty while a PUT flies or company is waited for.
        Raises: as `load`; OutcomeUnknown when a PUT stayed in doubt; Contended.
        """
        if self.flying is not None and not self.flying.flight.done():
            self._think_ahead(self.flying)
            return ()
        verdicts = self.land()
        while not verdicts and self.line:
            if not self._is_at_hand():
                return ()
            plan = self._decide()
            if plan is None:
                return ()
            if plan.group.is_empty:
                return self._done(plan)
            self._take_off(plan)
            if self.flying is not None and not self.flying.flight.done():
                return ()
            verdicts = self.land()
        return verdicts

    def land(self) -> tuple[Verdict, ...]:
        """Return the verdicts of the entry that flew, if it is in the log. Raises: as `settle`."""
        flying, self.flying = self.flying, None
        if flying is None:
            return ()
        landing = flying.flight.result()
        if landing.put is Put.WON:
            self._landed(flying, landing)
            return self._done(flying.told)
        if landing.put is Put.WITHHELD:
            return ()
        self.races += 1
        metrics.RACES_LOST.labels(self.label).inc()
        if self._is_at_hand():
            self.look()
        if self.races < RACES_MAX:
            return ()
        self.races = 0
        raise contended(self.store.root, flying.encoded.entry.version)

    def look(self) -> None:
        """REBASE, and the look at an idle table: learn what others wrote. Raises: as `load`."""
        state, began_s = self._young(), self.doors.clock.boot_s()
        self.state, news = recovery.refresh(self.store, state)
        self.shelf.overtaken(news)
        self.news += news
        self.viewed_s = began_s

    def forget(self) -> None:
        """Drop what is remembered: the log is asked anew before anything is decided."""
        self.state, self.draft, self.idle_until_s = None, None, 0.0
        self.loading.forget()

    def rest(self, now_s: float) -> None:
        """Forget, and try again later; each time in a row the pause is longer."""
        self.forget()
        self.rests_until_s = now_s + self.rest_s
        self.rest_s = min(2 * self.rest_s, 30.0)

    @property
    def label(self) -> str:
        """The table's name for metrics: what a stranger asks a table to be called is none."""
        return self.record.name if self.is_registered else NOBODY

    @property
    def waits_until_s(self) -> float | None:
        """Until when nothing can be done here, though somebody waits; None where nobody does."""
        if self.loading.answer is not None:
            return self.loading.looked_after_s
        if not self.line or self.flying is not None:
            return None
        held = self.way.holds(self.doors.clock.boot_s())
        return max(self.rests_until_s, self.way.until_s if held else self.lingers_until_s)

    @property
    def lingers_until_s(self) -> float:
        """Until when the first of the line may be kept waiting for company."""
        draft = self.draft
        if draft is not None and not draft.planning.group.members:
            return self.line[0].since_s + self.doors.settings.refusal_linger_ms / 1000
        share, newest_s = self.doors.settings.linger_share, self.line[-1].since_s
        return self.pace.lingers_until_s(len(self.line), newest_s, share)

    def _decide(self) -> Plan | None:
        """DECIDE on the first of the line; None while they linger, or let another one go first."""
        if self.way.holds(self.doors.clock.boot_s()):
            place = self.line.first_verbatim()
            if place is None:
                return None
            self.line.bring_forward(place)
        state = None if self.line[0].candidate.is_verbatim else self._ready()
        if state is None or self.line[0].candidate.is_verbatim:  # It may be another one's turn now.
            return self._decide_verbatim(self.line[0].candidate)
        now_s = self.doors.clock.boot_s()
        draft = self.draft = self.draft or Draft(Planning(state, self.doors.policy), now_s)
        planning = draft.planning
        planning.extend(self._batch(planning.taken), self._terms(), self.shelf.known)
        reach("after_decide")
        assert planning.verdicts, "the first record fits into an empty group"
        if self._lingers(planning):
            draft.lingers_since_s = draft.lingers_since_s or now_s
            return None
        self.draft = None
        lingered_s = now_s - (draft.lingers_since_s or now_s)
        metrics.decided(self.label, now_s - self.line[0].since_s, lingered_s)
        return planning.plan()

    def _decide_verbatim(self, candidate: Candidate) -> Plan:
        """DECIDE on ready bytes: alone, and nothing that was decided before holds after them."""
        self.draft = None
        if verbatim.exact_version(candidate) > self._young().version + 1:
            self.look()
        assert self.state is not None, "the table is loaded"
        self.state = recovery.reach_back(self.store, self.state, candidate.read_version)
        is_needed = verbatim.needs_bytes(self.state, candidate)
        content = read_claim(self.store, candidate.claim) if is_needed else None
        reach("after_decide")
        case = verbatim.Case(candidate, content, self._terms().now_ms, self.doors.policy)
        return verbatim.plan_of(self.state, verbatim.decide(self.state, case))

    def _young(self) -> TableState:
        """Return what is remembered of the table, if it is young enough, or load it anew."""
        state = self.state if self.loading.is_young(self.viewed_s) else None
        return state or self.load_now()

    def _is_at_hand(self) -> bool:
        """Whether what is remembered is young enough; where it is not, have it read anew."""
        if self.state is not None and not self.loading.is_young(self.viewed_s):
            self.forget()
        return self.state is not None or self.load()

    def _ready(self) -> TableState:
        """Return a state that is young enough, with all at hand that the batch asks for."""
        before, draft, now_s = self._young(), self.draft, self.doors.clock.boot_s()
        self.state = before
        if draft and not draft.holds(before, now_s):
            draft = self.draft = None
        if draft is None:
            self.line.share_out(0, machine.members_max(before, self.doors.policy))
        decided = draft.planning.taken if draft else 0
        batch = list(self._batch(decided))
        if not batch:
            return self.state
        if max(one.read_version for one in batch) > self.state.version:
            self.look()
        oldest_read = min(one.read_version for one in batch)
        if oldest_read + 1 < self.state.window_start:
            self.state = recovery.reach_back(self.store, self.state, oldest_read)
        for place, candidate in enumerate(batch):
            if intake.needs_claim(candidate):
                content = read_claim(self.store, candidate.claim)
                batch[place] = intake.with_claim(candidate, content, self.doors.policy)
                self.line.replace(decided + place, batch[place])
        self.state = recovery.complete(self.store, self.state, batch)
        if draft is not None and self.state is not before:
            # The draft is of no use any more, and what it held has to be looked after, too.
            return self._ready()
        self.shelf.learn(self.state, batch, self.doors.policy)
        return self.state

    def _batch(self, start: int) -> Iterator[Candidate]:
        # One at a time at first: it may be the one that creates the table, or not.
        most = self.doors.policy.group_members_max if self.is_registered else 1
        return self.line.batch(start, most, self.doors.policy.group_bytes_max)

    def _terms(self, spoken_for: int = 0) -> Terms:
        left = self.bucket.left(self.doors.clock.boot_s()) - spoken_for
        return Terms(self.doors.clock.now_ms(), max(0, left))

    def _think_ahead(self, flying: InFlight) -> None:
        """Decide on the next entry as if the one that flies had landed; the store is not asked."""
        if not self.is_registered:
            return
        assert self.state is not None, "what flies was decided on a state"
        served = len(flying.plan.verdicts)
        if flying.ahead is None:
            known, now_s = self.shelf.after(flying.encoded), self.doors.clock.boot_s()
            flying.ahead = following(flying, self.state, known, self.doors.policy, now_s)
            self.line.share_out(served, machine.members_max(self.state, self.doors.policy))
        terms = self._terms(len(flying.plan.group.refused))
        flying.ahead.extend_plainly(self.line, served, self.doors.policy, terms)
        flying.ahead.spell_out(self.scribe)
        self._line_up(flying, flying.ahead)

    def _line_up(self, flying: InFlight, ahead: Draft) -> None:
        """Have the next entry's PUT made ready: it leaves the moment that this one has won."""
        clock, served = self.doors.clock, len(flying.plan.verdicts)
        encoded = ahead.ready(self.pace.put_s)
        if flying.follower is not None or encoded is None or self.wants_calm:
            return
        # After ready bytes others may have the right of way: that is not known yet.
        if flying.plan.answer is not None or self.way.holds(clock.boot_s()):
            return
        put = EntryPut(self.store, self.label, encoded)
        turn = turn_behind(flying.flight, ahead.since_s, clock)
        plan = ahead.planning.plan()
        flying.follower = sent(plan, put, self.doors, self.viewed_s, turn, flying.flight)
        metrics.decided(self.label, clock.boot_s() - self.line[served].since_s, 0.0)

    def _lingers(self, planning: Planning) -> bool:
        """Whether company may still come: always for refusals alone, and at a busy table."""
        if planning.is_closed or planning.taken < len(self.line) or planning.group.is_empty:
            return False
        return self.doors.clock.boot_s() < self.lingers_until_s

    def _take_off(self, plan: Plan) -> None:
        assert self.state is not None, "what is written was decided on a state"
        encoded = verbatim.encoded_of(plan) or self.scribe.spell(self.state, plan)
        put = EntryPut(self.store, self.label, encoded)
        self.flying = sent(plan, put, self.doors, self.viewed_s)

    def _landed(self, flying: InFlight, landing: Landing) -> None:
        assert self.state is not None, "what was decided on is remembered"
        entry, ahead, group = flying.encoded.entry, flying.ahead, flying.plan.group
        self.state = ahead.planning.state if ahead else machine.evolve(self.state, Landed(entry))
        self.flying = flying.follower
        self.draft = ahead if flying.follower is None else None
        self.shelf.landed(flying.encoded)
        self.news.append(entry)
        if len(group.members) == 1:
            self.traces[entry.version] = group.members[0].trace
        # When it landed nobody knows; that nothing came after it is known of when it was sent.
        self.viewed_s = flying.since_s
        waiting = len(self.line) - len(flying.plan.verdicts)
        self.pace.landed(landing.took_s, len(group.members), waiting)
        self.rest_s, self.races = PAUSE_S, 0
        self.bucket.tokens -= len(group.refused)
        metrics.landed(self.record.name, len(group.members), entry.size)

    def _done(self, plan: Plan) -> tuple[Verdict, ...]:
        self.line.served(len(plan.verdicts))
        self.way = verbatim.way_after(self.way, plan, self.doors.clock.boot_s())
        return plan.verdicts
