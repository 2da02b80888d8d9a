"""A desk: where the proposals of one table are settled, one entry at a time.

    LOAD ─▶ READY ─▶ DECIDE ─▶ PUT ──WON──▶ evolve ─▶ (told by the lane)
      ▲                ▲        ├──LOST──▶ REBASE: read what others wrote, decide the batch anew
      └──deadline──────┼────────┴──UNKNOWN─▶ RESOLVE: read, compare; send the same bytes again
                       └───────────────────────────┘

Never are two PUTs in flight, and no version is tried again before what is there has been read.
While one flies, the next entry is decided as if it had landed, and its PUT made ready where nobody
else may join it; if it has not landed, that is forgotten, and nothing was sent.

The store is asked aside: the table is loaded, and fetches fetch what a decision needs besides.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tidegate.committer.doors import reach
from tidegate.committer.group_commit.late import follows_untimed
from tidegate.committer.judging import machine, verbatim
from tidegate.committer.judging.machine import Landed, Plan, Planning, Terms
from tidegate.committer.judging.right_of_way import RightOfWay
from tidegate.committer.judging.verdicts import Verdict
from tidegate.committer.loop.entry_encoder import EntryEncoder
from tidegate.committer.loop.entry_put import PAUSE_S, EntryPut
from tidegate.committer.loop.in_flight import (
    RACES_MAX,
    Draft,
    InFlight,
    contended,
    following,
    sent,
    turn_behind,
)
from tidegate.committer.loop.table_cache import TableCache
from tidegate.committer.loop.token_bucket import TokenBucket
from tidegate.committer.proposals.candidate import Candidate
from tidegate.committer.puts import Landing, Pace
from tidegate.committer.reading.fetches import Fetch
from tidegate.runtime import metrics
from tidegate.runtime.bus import Headers
from tidegate.runtime.stores.log_store import Put


@dataclass
class Desk(TableCache):
    """One table: what is remembered of it, who waits, and what is decided and on its way.

    `traces` are the trace contexts of versions that hold one proposal. `draft` is only good for the
    very state that it was made for. Where it `wants_calm`, no PUT follows on another at once;
    `has_sent` says whether there ever was one.
    """

    wants_calm: bool = False
    has_sent: bool = False
    traces: dict[int, Headers] = field(default_factory=dict)
    flying: InFlight | None = None
    draft: Draft | None = None
    pace: Pace = field(default_factory=Pace)
    races: int = 0
    halted: str | None = None
    rests_until_s: float = 0.0
    rest_s: float = PAUSE_S
    idle_until_s: float = 0.0
    bucket: TokenBucket = field(init=False)
    encoder: EntryEncoder = field(init=False)
    way: RightOfWay = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.encoder = EntryEncoder(self.doors, self.origin, self.record.name)
        section, now_s = self.doors.settings, self.doors.clock.boot_s()
        self.way, burst = RightOfWay(section.external_grace_ms / 1000), section.refusals_burst
        self.bucket = TokenBucket(burst, section.refusals_per_s, burst, now_s)

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
            if not self.is_at_hand():
                return ()
            plan = self._decide()
            if plan is None:
                return ()
            if plan.group.is_empty:
                return self._done(plan)
            if not self._knows_when(plan):
                return ()
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
        self.is_behind = True
        self.is_at_hand()
        if self.races < RACES_MAX:
            return ()
        self.races = 0
        raise contended(self.store.root, flying.encoded.entry.version)

    def forget(self) -> None:
        """Drop what is remembered: the log is asked anew before anything is decided."""
        super().forget()
        self.draft, self.idle_until_s = None, 0.0

    def rest(self, now_s: float) -> None:
        """Forget, and try again later; each time in a row the pause is longer."""
        self.forget()
        self.rests_until_s = now_s + self.rest_s
        self.rest_s = min(2 * self.rest_s, 30.0)

    @property
    def label(self) -> str:
        """The table's name for metrics: what a stranger asks a table to be called is none."""
        return self.record.name if self.is_registered else metrics.NOBODY

    @property
    def waits_until_s(self) -> float | None:
        """Until when nothing can be done here, though somebody waits; None where nobody does."""
        if self.waits_for is not None:
            return self.waits_for.looked_after_s
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
        """DECIDE on the first of the line; None while they linger, let another one go first, or
        wait for what the store is asked.
        """
        fetch = self.fetch or self._next()
        if fetch is None:
            return None
        if (self.fetch or fetch.is_needed) and not self.runs(fetch):
            return None
        if fetch.is_verbatim:
            return self._decide_verbatim(fetch)
        now_s, draft = self.doors.clock.boot_s(), self.draft
        assert self.state is not None, "what is fetched is fetched for a state"
        if draft and not draft.holds(self.state, now_s):
            # It is of no use any more, and what it held has to be looked after, too.
            self.draft = None
            return self._decide() if self.is_at_hand() else None
        draft = self.draft = draft or Draft(Planning(self.state, self.doors.policy), now_s)
        planning = draft.planning
        planning.extend(fetch.batch, self._terms(), self.read_cache.known)
        reach("after_decide")
        assert planning.verdicts, "the first record fits into an empty group"
        if self._lingers(planning):
            draft.lingers_since_s = draft.lingers_since_s or now_s
            return None
        self.draft = None
        lingered_s = now_s - (draft.lingers_since_s or now_s)
        metrics.decided(self.label, now_s - self.line[0].since_s, lingered_s)
        return planning.plan()

    def _decide_verbatim(self, fetch: Fetch) -> Plan:
        """DECIDE on ready bytes: alone, and nothing that was decided before holds after them."""
        assert self.state is not None, "what is fetched is fetched for a state"
        self.draft, [candidate] = None, fetch.batch
        reach("after_decide")
        case = verbatim.Case(candidate, fetch.content, self._terms().now_ms, self.doors.policy)
        return verbatim.plan_of(self.state, verbatim.decide(self.state, case))

    def _next(self) -> Fetch | None:
        """Return what those need whose turn it is; None where they let another one go first."""
        now_s = self.doors.clock.boot_s()
        assert self.state is not None, "the table is at hand"
        if self.way.holds(now_s):
            place = self.line.first_verbatim()
            if place is None:
                return None
            self.line.bring_forward(place)
        if not self.line[0].candidate.is_verbatim:
            if self.draft and not self.draft.holds(self.state, now_s):
                self.draft = None
            if self.draft is None:
                self.line.share_out(0, machine.members_max(self.state, self.doors.policy))
        first = self.line[0].candidate
        if first.is_verbatim:
            return self.fetch_for(0, [first])
        decided = self.draft.planning.taken if self.draft else 0
        return self.fetch_for(decided, list(self._batch(decided)))

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
            known, now_s = self.read_cache.after(flying.encoded), self.doors.clock.boot_s()
            flying.ahead = following(flying, self.state, known, self.doors.policy, now_s)
            self.line.share_out(served, machine.members_max(self.state, self.doors.policy))
        terms = self._terms(len(flying.plan.group.refused))
        flying.ahead.extend_plainly(self.line, served, self.doors.policy, terms)
        flying.ahead.spell_out(self.encoder)
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

    def _knows_when(self, plan: Plan) -> bool:
        """Whether it is known when the last version was written, where that matters; else ask."""
        assert self.state is not None, "what is written was decided on a state"
        matters = plan.ready is None and follows_untimed(self.state, plan.group.members)
        if not matters or self.written[0] == self.state.version:
            return True
        fetch = self.fetch_for(0, [])
        fetch.asks_when = True
        return self.runs(fetch)

    def _take_off(self, plan: Plan) -> None:
        assert self.state is not None, "what is written was decided on a state"
        ready = verbatim.encoded_of(plan)
        encoded = ready or self.encoder.spell(self.state, plan, self.written[1])
        put = EntryPut(self.store, self.label, encoded)
        self.flying, self.has_sent = sent(plan, put, self.doors, self.viewed_s), True

    def _landed(self, flying: InFlight, landing: Landing) -> None:
        assert self.state is not None, "what was decided on is remembered"
        entry, ahead, group = flying.encoded.entry, flying.ahead, flying.plan.group
        self.state = ahead.planning.state if ahead else machine.evolve(self.state, Landed(entry))
        self.flying = flying.follower
        self.draft = ahead if flying.follower is None else None
        self.read_cache.landed(flying.encoded)
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
