"""Verbatim priority with work that never ends: can a writer be refused, or held, for ever?

`verbatim.py` counts refusals under budgets. Here native groups and foreign writers go on for ever,
and the log is reduced to one fact per writer: whether the version that it staged bytes for is still
the next one or is taken. The states are few, and `checker.lasso` looks for a run in which a writer
waits for ever.

Time is in ticks, one for each native group that could be committed. In a tick the committer decides
the proposals that have arrived, in any order; then it commits a native group, unless a hold is
active. A writer reads the head when it starts, and its proposal arrives 1 to `retry` ticks later:
any version committed in between makes it stale. A hold starts with a refusal and ends when the same
writer proposes again, or after `grace` ticks.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple, TypeVar

from tests.model.checker import Invariant

T = TypeVar("T")


@dataclass(frozen=True)
class WaySetting:
    """The number of foreign writers, and the rule of the hold.

    `begins`: every refusal starts a hold, or only one that a native group caused, or only if a
    native group was committed since the last hold started. `endless`: every writer starts new work
    when it commits, not just the others. `waits`: which party may starve, writer 0 or the native
    groups. `refusals_max`, `hold_max`: bounds to check; 0 for none.

    Units: `retry`, `grace` and `hold_max` in ticks; a `grace` of 0 means no priority.
    """

    writers: int = 1
    retry: int = 2
    grace: int = 0
    begins: Literal["always", "native", "turn"] = "always"
    takeovers: int = 0
    endless: bool = False
    waits: Literal["foreign", "native"] = "foreign"
    refusals_max: int = 0
    hold_max: int = 0


class Proposing(NamedTuple):
    """A writer: ticks until its proposal arrives, and which kind of writer took its version."""

    ticks: int
    taken_by: Literal["", "native", "foreign"] = ""


class WayState(NamedTuple):
    """The writers, the remaining ticks of each one's hold, and the counters for the bounds."""

    writers: tuple[Proposing, ...]
    holds: tuple[int, ...]
    may_begin: bool
    takeovers: int
    refused: int = 0
    waited: int = 0
    is_over: bool = False


@dataclass(frozen=True)
class RightOfWay:
    """The model with a setting."""

    setting: WaySetting

    @property
    def invariants(self) -> Mapping[str, Invariant[WayState]]:
        """The bounds to check."""
        known: dict[str, Invariant[WayState]] = {}
        if self.setting.refusals_max:
            known["RightOfWay"] = self._refusals
        if self.setting.hold_max:
            known["NativeWait"] = self._waits
        return known

    def starts(self) -> Iterable[WayState]:
        """Return the initial states, in which proposals are on their way."""
        setting = self.setting
        for ticks in product(range(1, setting.retry + 2), repeat=setting.writers):
            writers = tuple(Proposing(tick) for tick in ticks)
            yield WayState(writers, (0,) * setting.writers, True, setting.takeovers)

    def is_done(self, state: WayState) -> bool:
        """Whether writer 0 has finished."""
        return state.is_over

    def serves(self, label: str) -> bool:
        """Whether a step serves the waiting party."""
        return ("commits v0" if self.setting.waits == "foreign" else "native group") in label

    def steps(self, state: WayState) -> Iterator[tuple[str, WayState]]:
        """Yield the results of a tick, or a takeover, which loses the holds."""
        if state.is_over:
            return
        if state.takeovers:
            lost = state._replace(holds=(0,) * len(state.holds), takeovers=state.takeovers - 1)
            yield "takeover", lost
        due = frozenset(at for at, one in enumerate(state.writers) if one.ticks == 1)
        waiting = tuple(
            writer._replace(ticks=writer.ticks - 1) if writer.ticks > 1 else writer
            for writer in state.writers
        )
        for labels, decided in self._arrivals(state._replace(writers=waiting), due):
            yield self._ends(state, labels, decided)

    def _ends(
        self, before: WayState, labels: tuple[str, ...], state: WayState
    ) -> tuple[str, WayState]:
        """End the tick with a native group, or with a hold."""
        setting = self.setting
        if any(state.holds):
            most = setting.hold_max and setting.hold_max + 1
            after = state._replace(
                holds=tuple(max(0, left - 1) for left in state.holds),
                may_begin=before.may_begin and setting.grace not in state.holds,
                waited=min(most, before.waited + 1),
            )
            return ", ".join((*labels, "holds")), after
        stale = tuple(
            writer._replace(taken_by=writer.taken_by or "native") for writer in state.writers
        )
        after = state._replace(writers=stale, may_begin=True, waited=0)
        return ", ".join((*labels, "native group")), after

    def _arrivals(
        self, state: WayState, due: frozenset[int]
    ) -> Iterator[tuple[tuple[str, ...], WayState]]:
        """Yield every order in which the arrived proposals can be decided."""
        if not due:
            yield (), state
        for number in due:
            label, decided = self._decided(state, number)
            is_served = number == 0 and not state.writers[number].taken_by
            is_over = is_served and not self.setting.endless
            again = (0,) if is_over else range(1, self.setting.retry + 1)
            for ticks in again:
                begun = _at(decided.writers, number, Proposing(ticks))
                after = decided._replace(writers=begun, is_over=state.is_over or is_over)
                for labels, last in self._arrivals(after, due - {number}):
                    yield (label, *labels), last

    def _decided(self, state: WayState, number: int) -> tuple[str, WayState]:
        """Commit a proposal, which makes all others stale; or refuse it, which may start a hold."""
        setting = self.setting
        taken_by = state.writers[number].taken_by
        if not taken_by:
            stale = tuple(
                one if at == number else one._replace(taken_by="foreign")
                for at, one in enumerate(state.writers)
            )
            after = state._replace(writers=stale, holds=_at(state.holds, number, 0))
            refused = 0 if number == 0 else state.refused
            return f"commits v{number}", after._replace(refused=refused)
        begins = {"always": True, "native": taken_by == "native", "turn": state.may_begin}[
            setting.begins
        ]
        joins = max(state.holds) if setting.begins == "turn" else 0
        holds = _at(state.holds, number, setting.grace if begins else joins)
        most = setting.refusals_max and setting.refusals_max + 1
        refused = min(most, state.refused + 1) if number == 0 else state.refused
        return f"refuses v{number}", state._replace(holds=holds, refused=refused)

    def _refusals(self, state: WayState) -> str | None:
        result = f"v0 was refused {state.refused} times"
        return result if state.refused > self.setting.refusals_max else None

    def _waits(self, state: WayState) -> str | None:
        result = f"native groups waited {state.waited} ticks"
        return result if state.waited > self.setting.hold_max else None


def _at(values: tuple[T, ...], number: int, value: T) -> tuple[T, ...]:
    return (*values[:number], value, *values[number + 1 :])
