"""Verbatim proposals: bytes that become exactly version N or nothing, beside native proposals.

    N = head + 1    the bytes are PUT as version N
    N <= head       version N holds these bytes: committed, a repeat; other bytes: rejected
    N > head + 1    the snapshot is refreshed; if that does not help: denied

Neither outcome for N <= head is written into the log: version N never changes, so both are facts.

Verbatim priority: after a refusal the committer holds its native groups until the same transaction
proposes again and is decided, or the hold runs out. Verbatim proposals overtake held ones, so the
committed offset is that of the first undecided record, and the committer remembers which records
after it are decided. Hold and memory are its own: a takeover loses both.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tests.model import verbatim_invariants
from tests.model.checker import Invariant
from tests.model.committer import CommitterModel, start
from tests.model.committer_state import (
    Committer,
    Entry,
    Extras,
    Foreign,
    Hold,
    Operation,
    Outcome,
    Plan,
    Put,
    Record,
    State,
    Writer,
    head_of,
)
from tests.model.publishing import placed
from tests.model.verbatim_setting import VerbatimSetting
from tests.model.verbatim_writers import ENDED, Steps, foreign_of, transaction_of, writers


@dataclass(frozen=True)
class VerbatimModel:
    """The protocol with both kinds of proposals, with a setting."""

    setting: VerbatimSetting

    @cached_property
    def native(self) -> CommitterModel:
        """The protocol of native proposals; its groups end before a verbatim proposal."""
        return CommitterModel(self.setting.native, self._sizes, self._passed)

    @cached_property
    def invariants(self) -> Mapping[str, Invariant[Any]]:
        """The invariants, or only those that the setting names."""
        known = {**self.native.invariants, **verbatim_invariants.of(self.setting)}
        only = self.setting.only.split()
        if not only:
            known.pop("DeniedStays")
        return {name: one for name, one in known.items() if not only or name in only}

    def starts(self) -> Iterable[State]:
        """Return the initial state."""
        setting = self.setting
        extras = Extras(
            setting.replays, setting.gaps, setting.impatient, setting.expiries, setting.spoils
        )
        foreign = Foreign(
            tuple(Writer("new") for _ in setting.writers),
            (Hold(),) * setting.native.committers,
            extras,
        )
        return (start(setting.native)._replace(foreign=foreign),)

    def is_done(self, state: State) -> bool:
        """Whether everything was sent, answered and passed, and every foreign writer has ended."""
        result = {outcome.id for outcome in state.outcomes}
        natives = sum(not _is_verbatim(record) for record in state.topic)
        return (
            natives >= len(self.setting.native.kinds)
            and state.group.offset == len(state.topic)
            and all(record.id in result for record in state.topic)
            and all(writer.phase in ENDED for writer in foreign_of(state).writers)
        )

    def serves(self, label: str) -> bool:
        """Return True: no wait is checked here, see `is_done`."""
        return True

    def steps(self, state: State) -> Steps:
        """Yield the next steps; none after a version was overwritten."""
        if state.broken:
            return
        for label, following in self.native.steps(state):
            yield label, self._followed(state, following)
        yield from writers(self.setting, state)
        for number, who in enumerate(state.committers):
            yield from self._holds_end(state, number)
            if who.phase == "ready":
                yield from self._decides(state, number, who)

    def _sizes(self, state: State, number: int, who: Committer) -> Iterable[int]:
        """Yield the sizes of the next native group: no verbatim proposal in it, none in a hold."""
        if foreign_of(state).holds[number].writers:
            return
        most = min(self.setting.native.group_max, len(state.topic) - who.position)
        for count in range(1, most + 1):
            if _is_verbatim(state.topic[who.position + count - 1]):
                return
            yield count

    def _passed(self, state: State, number: int, end: int) -> int:
        settled = foreign_of(state).holds[number].settled
        while end in settled:
            end += 1
        return end

    def _followed(self, before: State, after: State) -> State:
        """Update holds and records decided ahead after a committer's step."""
        if before.committers is after.committers:
            return after
        holds = list(foreign_of(before).holds)
        pairs = zip(before.committers, after.committers, strict=True)
        for number, (was, now) in enumerate(pairs):
            if was is now:
                continue
            if now.generation != was.generation or now.phase == "off":
                holds[number] = Hold()
            elif was.phase in ("publishing", "published") and now.phase == "ready":
                holds[number] = self._settled(before, holds[number], was, now)
        if tuple(holds) == foreign_of(before).holds:
            return after
        return after._replace(foreign=foreign_of(after)._replace(holds=tuple(holds)))

    def _settled(self, state: State, hold: Hold, was: Committer, now: Committer) -> Hold:
        plan = was.plan
        assert plan is not None, "who published has settled something"
        if plan.place >= 0:
            hold = self._answered(state, hold, plan)
        elif plan.entry is not None and self.setting.begins == "turn":
            hold = hold._replace(may_begin=True)
        left = frozenset(place for place in hold.settled if place >= now.position)
        return hold._replace(settled=left)

    def _answered(self, state: State, hold: Hold, plan: Plan) -> Hold:
        """Start a hold for a refused writer; end it for one with another outcome."""
        setting, result = self.setting, plan.outcomes[0]
        own = transaction_of(result.id)
        is_repeat = any(record.id == result.id for record in state.topic[: plan.place])
        held, may_begin = hold.writers, hold.may_begin
        if result.status != "R" or (is_repeat and setting.ends_on == "replay"):
            held -= {own}
        elif setting.hold != "none" and (may_begin or held):
            held = frozenset({own}) if setting.hold == "last" else held | {own}
            may_begin = setting.begins == "always"
        return Hold(held, hold.settled | {plan.place}, may_begin)

    def _holds_end(self, state: State, number: int) -> Steps:
        """Let a hold run out: always for a writer that has ended, otherwise by the budget."""
        foreign = foreign_of(state)
        hold = foreign.holds[number]
        for own in sorted(hold.writers):
            has_ended = foreign.writers[int(own[1:])].phase in ENDED
            left = foreign.extras.expiries
            if not self.setting.holds_end or not (has_ended or left):
                continue
            extras = foreign.extras if has_ended else foreign.extras._replace(expiries=left - 1)
            ended = hold._replace(writers=hold.writers - {own})
            holds = (*foreign.holds[:number], ended, *foreign.holds[number + 1 :])
            after = state._replace(foreign=foreign._replace(holds=holds, extras=extras))
            yield f"c{number} holds for {own} no longer", after

    def _decides(self, state: State, number: int, who: Committer) -> Steps:
        """Decide the next verbatim proposal: at the head of the queue, or ahead of held ones."""
        place = self._next_verbatim(state, number, who)
        if place is None:
            return
        record, head = state.topic[place], head_of(state.log)
        if record.read > who.head and self.setting.refreshes and head > who.head:
            younger = who._replace(head=head, plan=None)
            fresh = state._replace(committers=placed(state, number, younger))
            yield f"c{number} looks at the log again", fresh
            return
        outcome, writes = self._verdict(state, who.head, record)
        is_next = place == who.position or not self.setting.keeps_low_water
        end = self._passed(state, number, place + 1) if is_next else who.position
        label = f"c{number} decides {record.id} as {record.read}: {outcome.status}{outcome.reason}"
        if not writes:
            plan = Plan(who.head, None, end, (outcome,), place)
            after = who._replace(phase="publishing", plan=plan)
            yield label, state._replace(committers=placed(state, number, after))
            return
        token = (record.id, record.read) if self.setting.keeps_bytes else who.generation
        deed = Operation(transaction_of(record.id), record.rows, record.removes)
        entry = Entry(token, (deed,), ())
        plan = Plan(who.head, entry, end, (outcome,), place)
        sent = state._replace(
            committers=placed(state, number, who._replace(phase="waiting", plan=plan)),
            network=state.network | {Put(who.head, entry, number)},
        )
        yield f"{label}, PUT {who.head}", sent

    def _next_verbatim(self, state: State, number: int, who: Committer) -> int | None:
        hold = foreign_of(state).holds[number]
        places = range(who.position, len(state.topic))
        place = next(
            (at for at in places if at not in hold.settled and _is_verbatim(state.topic[at])), None
        )
        may_overtake = bool(hold.writers) and self.setting.overtakes
        return place if place == who.position or may_overtake else None

    def _verdict(self, state: State, head: int, record: Record) -> tuple[Outcome, bool]:
        """Return a verbatim proposal's outcome, and whether its bytes are to be written."""
        setting, version = self.setting, record.read
        lost = foreign_of(state).lost

        def outcome(status: str, reason: int | str) -> Outcome:
            return Outcome(record.id, status, reason)  # type: ignore[arg-type]  # C, R or E

        if version < state.floor:
            is_expired = setting.cleaned == "expired"
            return (outcome("E", "expired") if is_expired else outcome("R", "taken")), False
        if version < head and self._is_repeat(state, record):
            return outcome("C", version), False
        if setting.guards and _has(state.log[:head], transaction_of(record.id)):
            return outcome("E", "already committed"), False
        if version < head:
            at_head = setting.at == "head"
            return (outcome("C", head), True) if at_head else (outcome("R", "taken"), False)
        if version > head:
            return outcome("E", "denied"), False
        if record.id in lost:
            return outcome("E", "file lost"), False
        return outcome("C", version), True

    def _is_repeat(self, state: State, record: Record) -> bool:
        """Whether version N holds these bytes, judged by SHA-256 or by the staged file."""
        there = state.log[record.read]
        is_same = there is not None and there.token == (record.id, record.read)
        can_tell = self.setting.claims == "sha256" or record.id not in foreign_of(state).lost
        return self.setting.knows_replays and is_same and can_tell


def _is_verbatim(record: Record) -> bool:
    return record.id[0] == "v"


def _has(log: Iterable[Entry | None], own: str) -> bool:
    return any(operation.id == own for entry in log if entry for operation in entry.operations)
