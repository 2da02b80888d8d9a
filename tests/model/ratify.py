"""Stores without put-if-absent: the Kafka partition decides, the store follows.

A committer stages its bytes under a unique name, appends a record (version, name) to the `ratify`
partition and reads the partition back. A version is the first valid record for it; a record is
valid if its number is that of the valid records before it. Publishing copies the staged bytes of a
valid record with a plain PUT; any committer may do so, any number of times, at any later time.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tests.model.checker import Invariant


@dataclass(frozen=True)
class RatifySetting:
    """The rules in force and the faults that may happen.

    `folds`: the validity rule is applied; otherwise every record counts and the last one wins.
    `is_fenced`: Kafka refuses records of an older generation, except for `leaks` of them.
    `publishing` may happen in order, in any order, or before the record was read back.
    """

    proposals: int = 2
    committers: int = 2
    folds: bool = True
    is_fenced: bool = False
    leaks: int = 0
    publishing: Literal["ordered", "unordered", "early"] = "ordered"
    rebalances: int = 1
    timeouts: int = 1
    repeats: int = 1
    drops: int = 1


class Ratified(NamedTuple):
    """A record of the partition: the bytes that it proposes as a version."""

    version: int
    generation: int
    proposal: int

    @property
    def content(self) -> "Content":
        """The staged bytes that it names."""
        return self.generation, self.proposal


Content = tuple[int, int]
"""Staged bytes: the generation that staged them, and the proposal in them."""


class Ratifier(NamedTuple):
    """A committer: `position` in the proposals, `read` of the partition, `own` pending record."""

    phase: Literal["off", "fencing", "ready", "waiting"]
    generation: int = 0
    position: int = 0
    read: int = 0
    own: Ratified | None = None


class RatifyBudget(NamedTuple):
    """The events that may still happen."""

    rebalances: int
    timeouts: int
    repeats: int
    leaks: int
    drops: int


class RatifyState(NamedTuple):
    """The whole state: `appends` and `puts` are pending; `store` maps versions to their content."""

    topic: tuple[int, ...]
    records: tuple[Ratified, ...]
    appends: frozenset[tuple[Ratified, int]]
    store: tuple[tuple[int, Content], ...]
    puts: frozenset[tuple[int, Content]]
    committers: tuple[Ratifier, ...]
    generation: int
    fence: int
    outcomes: frozenset[tuple[int, int]]
    budget: RatifyBudget


Steps = Iterator[tuple[str, RatifyState]]


@dataclass(frozen=True)
class Ratify:
    """The model with a setting."""

    setting: RatifySetting

    @property
    def invariants(self) -> Mapping[str, Invariant[RatifyState]]:
        """The invariants."""
        return {
            "ExactlyOnce": self._exactly_once,
            "StoreFollowsLog": self._store_follows_log,
            "NoGap": no_gap,
            "OutcomeAgreement": self._outcome_agreement,
        }

    def starts(self) -> Iterable[RatifyState]:
        """Return the initial state."""
        setting = self.setting
        rest = (Ratifier("off") for _ in range(setting.committers - 1))
        budget = RatifyBudget(
            setting.rebalances, setting.timeouts, setting.repeats, setting.leaks, setting.drops
        )
        none: frozenset[tuple[int, int]] = frozenset()
        committers = (Ratifier("fencing", 1), *rest)
        return (RatifyState((), (), frozenset(), (), frozenset(), committers, 1, 0, none, budget),)

    def is_done(self, state: RatifyState) -> bool:
        """Whether every proposal is a version, answered, and in the store."""
        decided = self._fold(state.records)
        proposals = {content[1] for content in decided.values()}
        result = {proposal for proposal, _ in state.outcomes}
        is_all = len(proposals) == self.setting.proposals
        return is_all and result == proposals and len(state.store) == len(proposals)

    def serves(self, label: str) -> bool:
        """Return True: no wait is checked here, see `is_done`."""
        return True

    def steps(self, state: RatifyState) -> Steps:
        """Yield the next steps."""
        yield from self._sends(state)
        yield from self._rebalances(state)
        yield from self._appends_land(state)
        yield from _puts_land(state)
        for number, who in enumerate(state.committers):
            match who.phase:
                case "fencing":
                    ready = Ratifier("ready", who.generation, 0, len(state.records))
                    fence = max(state.fence, who.generation)
                    yield (
                        f"c{number} fences older ones",
                        _with(state, number, ready)._replace(fence=fence),
                    )
                case "ready" | "waiting":
                    yield from self._works(state, number, who)
                    yield from self._publishes(state, number, who)

    def _fold(self, records: tuple[Ratified, ...]) -> dict[int, Content]:
        """Return the content of each version by the rule in force."""
        decided: dict[int, Content] = {}
        for record in records:
            if not self.setting.folds or record.version == len(decided):
                decided[record.version] = record.content
        return decided

    def _sends(self, state: RatifyState) -> Steps:
        for proposal in range(self.setting.proposals):
            sent = state._replace(topic=(*state.topic, proposal))
            if proposal not in state.topic:
                yield f"p{proposal} is sent", sent
            elif state.budget.repeats:
                budget = state.budget._replace(repeats=state.budget.repeats - 1)
                yield f"p{proposal} is sent again", sent._replace(budget=budget)

    def _rebalances(self, state: RatifyState) -> Steps:
        if not state.budget.rebalances:
            return
        generation = state.generation + 1
        budget = state.budget._replace(rebalances=state.budget.rebalances - 1)
        for number in range(self.setting.committers):
            after = _with(state, number, Ratifier("fencing", generation))
            label = f"c{number} becomes the owner"
            yield label, after._replace(generation=generation, budget=budget)

    def _appends_land(self, state: RatifyState) -> Steps:
        for append in state.appends:
            record, _ = append
            rest, budget = state.appends - {append}, state.budget
            is_late = self.setting.is_fenced and record.generation < state.fence
            if is_late and not budget.leaks:
                yield f"{tuple(record)} is refused", state._replace(appends=rest)
                continue
            if is_late:
                budget = budget._replace(leaks=budget.leaks - 1)
            landed = (*state.records, record)
            after = state._replace(records=landed, appends=rest, budget=budget)
            yield f"{tuple(record)} lands", after

    def _works(self, state: RatifyState, number: int, who: Ratifier) -> Steps:
        """Read the partition; append a record for the next proposal; send it again."""
        if who.read < len(state.records):
            record = state.records[who.read]
            # Once a committer's own record is read back, the fold says whether it won.
            phase = "ready" if record == who.own else who.phase
            own = None if record == who.own else who.own
            read = who._replace(phase=phase, read=who.read + 1, own=own)
            yield f"c{number} reads {tuple(record)}", _with(state, number, read)
        if who.phase == "ready" and who.position < len(state.topic):
            yield self._decided(state, number, who)
        if who.own is not None and state.budget.timeouts:
            budget = state.budget._replace(timeouts=state.budget.timeouts - 1)
            again = state.appends | {(who.own, number)}
            yield f"c{number} appends again", state._replace(appends=again, budget=budget)

    def _decided(self, state: RatifyState, number: int, who: Ratifier) -> tuple[str, RatifyState]:
        proposal = state.topic[who.position]
        known = self._fold(state.records[: who.read])
        at = [version for version, content in known.items() if content[1] == proposal]
        if at:
            after = _with(state, number, who._replace(position=who.position + 1))
            result = state.outcomes | {(proposal, at[0])}
            return f"c{number} tells p{proposal} {at[0]}", after._replace(outcomes=result)
        own = Ratified(len(known), who.generation, proposal)
        after = _with(state, number, who._replace(phase="waiting", own=own))
        sent = state.appends | {(own, number)}
        return f"c{number} stages and appends {tuple(own)}", after._replace(appends=sent)

    def _publishes(self, state: RatifyState, number: int, who: Ratifier) -> Steps:
        there = dict(state.store)
        if who.own is not None and self.setting.publishing == "early":
            put = (who.own.version, who.own.content)
            if put[0] not in there:
                early = state._replace(puts=state.puts | {put})
                yield f"c{number} publishes {put[0]} early", early
        known = self._fold(state.records[: who.read])
        for version, content in known.items():
            put = (version, content)
            if there.get(version) == content or put in state.puts:
                continue
            before = version - 1
            is_next = version == 0 or there.get(before) == known[before]
            if is_next or self.setting.publishing == "unordered":
                yield f"c{number} publishes {version}", state._replace(puts=state.puts | {put})

    def _exactly_once(self, state: RatifyState) -> str | None:
        seen: dict[int, int] = {}
        for version, (_, proposal) in self._fold(state.records).items():
            if proposal in seen:
                return f"p{proposal} is in version {seen[proposal]} and in {version}"
            seen[proposal] = version
        return None

    def _store_follows_log(self, state: RatifyState) -> str | None:
        decided = self._fold(state.records)
        for version, content in state.store:
            if decided.get(version) != content:
                result = f"the store has {content} as {version}"
                return f"{result}, the partition says {decided.get(version)}"
        return None

    def _outcome_agreement(self, state: RatifyState) -> str | None:
        at = {content[1]: version for version, content in self._fold(state.records).items()}
        for proposal, version in state.outcomes:
            if at.get(proposal) != version:
                return f"p{proposal} was told {version}, the partition says {at.get(proposal)}"
        return None


def no_gap(state: RatifyState) -> str | None:
    """I3: the store's versions are contiguous."""
    versions = [version for version, _ in state.store]
    return None if versions == list(range(len(versions))) else f"the store has {versions}"


def _puts_land(state: RatifyState) -> Steps:
    for put in state.puts:
        rest = state.puts - {put}
        store = tuple(sorted({**dict(state.store), put[0]: put[1]}.items()))
        yield f"{put} is stored", state._replace(store=store, puts=rest)
        if state.budget.drops:
            budget = state.budget._replace(drops=state.budget.drops - 1)
            yield f"{put} is lost", state._replace(puts=rest, budget=budget)


def _with(state: RatifyState, number: int, who: Ratifier) -> RatifyState:
    others = state.committers
    return state._replace(committers=(*others[:number], who, *others[number + 1 :]))
