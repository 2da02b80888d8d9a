"""The commit protocol: committers, one topic partition of proposals, one table.

Events: proposals are started, sent, and sent again at any later time; a rebalance gives the topic
partition to another committer, or to the same one restarted, while the old owner goes on as a
zombie; PUTs travel, land late, are lost, or get an ambiguous response; another engine writes to the
same log; the admission rule changes its result; the log is cleaned up; publication is fenced, in
one transaction with the offset or not, or torn.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.model import committer_invariants, committer_store, publishing
from tests.model.checker import Invariant
from tests.model.committer_state import (
    ALIVE,
    Budget,
    Committer,
    Entry,
    External,
    Group,
    Phase,
    Plan,
    Put,
    Record,
    Setting,
    State,
    head_of,
    made_of,
)
from tests.model.decision import decide

Steps = Iterator[tuple[str, Any]]
Sizes = Callable[[Any, int, Committer], Iterable[int]]
"""How many records a committer may decide next."""

Passed = Callable[[Any, int, int], int]
"""The offset that a committer has passed once everything before a record is decided."""


def start(setting: Setting) -> State:
    """Return the initial state: the table has one version with one file."""
    first: Committer = Committer("fencing" if setting.fences_first else "loading", generation=1)
    base = Entry(0, (made_of((), "A", "b"),), ())
    return State(
        proposals=(None,) * len(setting.kinds),
        topic=(),
        log=(base,),
        network=frozenset(),
        committers=(first, *(Committer("off") for _ in range(setting.committers - 1))),
        group=Group(1, 0, 0, 0),
        outcomes=frozenset(),
        budget=Budget(
            setting.rebalances,
            setting.repeats,
            setting.drops,
            setting.timeouts,
            setting.rule_changes,
            setting.cleanups,
            1 if setting.publishing == "torn" else 0,
        ),
        external=External(0, None, "", setting.external_max if setting.external else 0),
        denies=setting.denies_first,
        floor=0,
        broken="",
    )


@dataclass(frozen=True)
class CommitterModel:
    """The protocol with a setting. A model that extends it supplies `sizes` and `passed`."""

    setting: Setting
    sizes: Sizes | None = None
    passed: Passed | None = None

    @property
    def invariants(self) -> Mapping[str, Invariant[Any]]:
        """The invariants, except those that the setting leaves unchecked."""
        known = committer_invariants.INVARIANTS
        return {name: one for name, one in known.items() if name not in self.setting.unchecked}

    def starts(self) -> Iterable[State]:
        """Return the initial state."""
        return (start(self.setting),)

    def is_done(self, state: State) -> bool:
        """Whether everything was sent, answered and passed by the offset."""
        result = {outcome.id for outcome in state.outcomes}
        sent = {record.id for record in state.topic}
        all_sent = len(state.topic) >= len(self.setting.kinds)
        return all_sent and state.group.offset == len(state.topic) and sent <= result

    def serves(self, label: str) -> bool:
        """Return True: no wait is checked here, see `is_done`."""
        return True

    def steps(self, state: State) -> Steps:
        """Yield the next steps; none after a version was overwritten."""
        if state.broken:
            return
        yield from self._writers(state)
        yield from self._rule(state)
        yield from self._cleanup(state)
        yield from self._external(state)
        yield from committer_store.arrivals(self.setting, state)
        yield from self._rebalances(state)
        for number, who in enumerate(state.committers):
            if who.phase != "off":
                yield from publishing.publishes_late(self.setting, state, number, who)
                yield from self._works(state, number, who)

    def _writers(self, state: State) -> Steps:
        """W1: a proposal gets its id and its read version together; a repeat has the same bytes."""
        setting = self.setting
        for number, kind in enumerate(setting.kinds):
            own = str(number)
            made = state.proposals[number]
            if made is None:
                done = (*state.proposals[:number], self._begun(state, kind, own))
                after = state._replace(proposals=(*done, *state.proposals[number + 1 :]))
                yield f"p{own} begins at version {len(state.log)}", after
            elif not any(record.id == own for record in state.topic):
                yield f"p{own} is sent", state._replace(topic=(*state.topic, made))
            elif state.budget.repeats:
                budget = state.budget._replace(repeats=state.budget.repeats - 1)
                if not setting.repeats_are_the_same:
                    made = self._begun(state, kind, own)
                after = state._replace(topic=(*state.topic, made), budget=budget)
                yield f"p{own} is sent again", after
            elif setting.asks_again and self._misses_its_outcome(state, own):
                yield f"p{own} is sent for its outcome", state._replace(topic=(*state.topic, made))

    @staticmethod
    def _begun(state: State, kind: str, own: str) -> Record:
        made = made_of(state.log, kind, own)
        return Record(own, len(state.log), made.rows, made.removes)

    @staticmethod
    def _misses_its_outcome(state: State, own: str) -> bool:
        is_passed = state.group.offset == len(state.topic)
        return is_passed and not any(outcome.id == own for outcome in state.outcomes)

    def _rule(self, state: State) -> Steps:
        """Change the admission rule's result: a clock, a quota or a release does so."""
        left = state.budget.rule_changes
        if left:
            budget = state.budget._replace(rule_changes=left - 1)
            what = "allows" if state.denies else "denies"
            yield f"the rule {what}", state._replace(denies=not state.denies, budget=budget)

    def _cleanup(self, state: State) -> Steps:
        """A4: clean the log up to its head; no PUT and no snapshot in use may be that old."""
        head, left = len(state.log), state.budget.cleanups
        if not left or state.floor >= head:
            return
        if self.setting.puts_expire and any(put.version < head for put in state.network):
            return
        if self.setting.views_expire and any(self._is_old(who, head) for who in state.committers):
            return
        budget = state.budget._replace(cleanups=left - 1)
        yield f"the log is cleaned below {head}", state._replace(floor=head, budget=budget)

    @staticmethod
    def _is_old(who: Committer, head: int) -> bool:
        if who.phase not in ALIVE:
            return False
        wrote = who.plan is not None and who.plan.entry is not None
        return (who.plan.version + 1 if who.plan and wrote else who.head) < head

    def _external(self, state: State) -> Steps:
        """Let another engine read, commit, and rebase its appends."""
        setting, other = self.setting, state.external
        if other.work is None:
            if other.left:
                for kind in sorted(set(setting.external)):
                    work = made_of(state.log, kind, f"x{other.left}")
                    begun = External(len(state.log), work, kind, other.left - 1)
                    yield f"another engine begins {kind}", state._replace(external=begun)
            return
        idle = External(0, None, "", other.left)
        if len(state.log) == other.head:
            log = (*state.log, Entry(0, (other.work,), ()))
            yield "another engine commits", state._replace(log=log, external=idle)
        elif not setting.external_puts_if_absent:
            if state.log[other.head] is not None:
                why = f"another engine overwrote version {other.head}"
                yield "another engine overwrites", state._replace(broken=why)
        elif other.kind == "A":
            later = other._replace(head=len(state.log))
            yield "another engine rebases", state._replace(external=later)
        else:
            yield "another engine gives up", state._replace(external=idle)

    def _rebalances(self, state: State) -> Steps:
        """Make any committer the owner, without state; the old owner goes on."""
        left = state.budget.rebalances
        if not left:
            return
        generation = state.group.generation + 1
        phase: Phase = "fencing" if self.setting.fences_first else "loading"
        for number in range(self.setting.committers):
            successor = Committer(phase, generation)
            after = state._replace(
                committers=publishing.placed(state, number, successor),
                group=state.group._replace(generation=generation, owner=number),
                budget=state.budget._replace(rebalances=left - 1),
            )
            yield f"c{number} becomes the owner", after

    def _works(self, state: State, number: int, who: Committer) -> Steps:
        match who.phase:
            case "fencing":
                yield self._fences(state, number, who)
            case "loading":
                following: Phase = "ready" if self.setting.fences_first else "fencing"
                head = head_of(state.log)
                loaded = Committer(following, who.generation, state.group.offset, head)
                yield (
                    f"c{number} loads",
                    state._replace(committers=publishing.placed(state, number, loaded)),
                )
            case "ready":
                yield from self._decides(state, number, who)
            case "waiting":
                yield from committer_store.timeouts(state, number, who)
            case "resolving":
                yield committer_store.resolved(self.setting, state, number, who)
            case "publishing":
                yield from publishing.publishes(self.setting, state, number, who)
            case "published":
                yield publishing.records(self.setting, state, number, who)

    def _fences(self, state: State, number: int, who: Committer) -> tuple[str, State]:
        following = who._replace(phase="loading" if self.setting.fences_first else "ready")
        fence = max(state.group.fence, who.generation)
        after = state._replace(
            committers=publishing.placed(state, number, following),
            group=state.group._replace(fence=fence),
        )
        return f"c{number} fences older ones", after

    def _decides(self, state: State, number: int, who: Committer) -> Steps:
        """DECIDE, and send the PUT if an entry is to be written."""
        claims = self.setting.refusals == "claimed"
        seen = [entry for entry in state.log[: who.head] if entry is not None]
        if claims and any(_generation(entry) > who.generation for entry in seen):
            gone = state._replace(
                committers=publishing.placed(state, number, who._replace(phase="off"))
            )
            yield f"c{number} sees a newer epoch and stops", gone
            return
        for count in self._sizes(state, number, who):
            decision = decide(self.setting, state, who, count)
            known = who.known
            if self.setting.dedupe == "memory":
                known |= frozenset(decision.outcomes)
            writes = bool(decision.operations or decision.refused)
            if (
                claims
                and not writes
                and any(outcome.status == "R" for outcome in decision.outcomes)
            ):
                writes = all(_generation(entry) != who.generation for entry in seen)
            end = self._passed(state, number, who.position + count)
            result = ", ".join(
                f"p{outcome.id} {outcome.status}{outcome.reason}" for outcome in decision.outcomes
            )
            label = f"c{number} decides {result}"
            if not writes:
                plan = Plan(who.head, None, end, decision.outcomes)
                after = who._replace(phase="publishing", plan=plan, known=known)
                yield label, state._replace(committers=publishing.placed(state, number, after))
                continue
            entry = Entry(who.generation, decision.operations, decision.refused)
            plan = Plan(who.head, entry, end, decision.outcomes)
            after = who._replace(phase="waiting", plan=plan, known=known)
            sent = state._replace(
                committers=publishing.placed(state, number, after),
                network=state.network | {Put(who.head, entry, number)},
            )
            yield f"{label}, PUT {who.head}", sent
            if self.setting.pipelines:
                yield from self._pipelined(state, sent, number, entry, who.position + count)

    def _pipelined(
        self, state: State, sent: State, number: int, entry: Entry, position: int
    ) -> Steps:
        """Send the PUT of the version after the next one, before that one has landed."""
        who = state.committers[number]
        if position >= len(state.topic):
            return
        ahead = who._replace(position=position, head=who.head + 1)
        imagined = state._replace(log=(*state.log[: who.head], entry))
        decision = decide(self.setting, imagined, ahead, 1)
        if decision.operations:
            after = Entry(who.generation, decision.operations, decision.refused)
            network = sent.network | {Put(who.head + 1, after, number)}
            yield f"c{number} PUTs {who.head} and {who.head + 1}", sent._replace(network=network)

    def _sizes(self, state: State, number: int, who: Committer) -> Iterable[int]:
        if self.sizes:
            return self.sizes(state, number, who)
        return range(1, min(self.setting.group_max, len(state.topic) - who.position) + 1)

    def _passed(self, state: State, number: int, end: int) -> int:
        return self.passed(state, number, end) if self.passed else end


def _generation(entry: Entry) -> int:
    return entry.token if isinstance(entry.token, int) else 0
