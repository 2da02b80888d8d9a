"""A slow writer of verbatim entries beside busy native writers: which gets its turn, and when."""

from dataclasses import dataclass

import pytest

from tests import builders
from tests.builders import Gate, add, create, info, proposal
from tests.verbatim_proposals import verbatim
from tidegate_committer.settings import CommitterSection
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Proposal, ReadSet

TICK_S = 0.05
"""One native group commits in every tick: twenty commits a second."""

RETRY_TICKS = 4
"""The time a refused writer needs to read the winners and stage its entry again."""

TICKS = 200


@dataclass
class Slow:
    """A writer that proposes a verbatim entry for the next version until it is committed.

    It needs RETRY_TICKS between reading the table and proposing.
    """

    gate: Gate
    name: str
    began: int = 0
    attempts: int = 0
    due: int = 0
    drawn: Proposal | None = None
    asked: Proposal | None = None
    is_done: bool = False

    def tick(self, now: int) -> None:
        """Read the table, propose the prepared entry, or read the outcome."""
        if self.is_done:
            return
        answer = self._answer()
        if answer is not None:
            self.is_done = answer.status == "committed"
            self.asked = None
        if self.is_done or self.asked is not None:
            return
        if self.drawn is None:
            self.attempts += 1
            rows = (info(txnId=self.name), add(f"{self.name}{self.attempts}"))
            version = len(self.gate.entries())
            self.began = self.began or version - 1
            self.drawn = verbatim(self.gate, version, *rows, read_version=self.began)
            self.due = now + RETRY_TICKS
        elif now >= self.due:
            self.gate.send(self.drawn)
            self.asked, self.drawn = self.drawn, None

    def _answer(self) -> Outcome | None:
        wanted = self.asked.proposal_id if self.asked else None
        result = (outcome for outcome in self.gate.outcomes() if outcome.proposal_id == wanted)
        return next(result, None)


def gate_with(grace_ms: int) -> Gate:
    section = CommitterSection(
        roots=("memory://tables",), external_grace_ms=grace_ms, linger_share=0
    )
    gate = Gate(section)
    gate.ask(create())
    return gate


def flood(gate: Gate, *writers: Slow, ticks: int = TICKS) -> list[int]:
    """Send native appends in every tick beside some writers; return the head of each tick."""
    heads = []
    for now in range(ticks):
        gate.send(proposal(add(f"native{now}"), read_version=0))
        for writer in writers:
            writer.tick(now)
        while gate.loop.step(0.0):
            pass
        gate.clock.boot += TICK_S
        heads.append(len(gate.entries()) - 1)
    return heads


def test_without_a_right_of_way_a_slow_writer_starves() -> None:
    gate = gate_with(0)
    writer = Slow(gate, "w")
    flood(gate, writer)
    assert not writer.is_done
    assert writer.attempts > TICKS // (2 * RETRY_TICKS)


@pytest.mark.parametrize("writers", [1, 2, 3])
def test_with_it_every_slow_writer_gets_his_turn(writers: int) -> None:
    gate = gate_with(1_000)
    slow = [Slow(gate, f"w{number}") for number in range(writers)]
    flood(gate, *slow)
    assert all(writer.is_done for writer in slow)
    if writers == 1:
        assert slow[0].attempts == 2


def test_native_groups_wait_no_longer_than_the_grace_and_then_go_on() -> None:
    gate = gate_with(500)
    [late] = [verbatim(gate, 1, info(txnId="gone"), add("a"))]
    gate.ask(proposal(add("b")))
    gate.send(late)
    gate.loop.step(0.0)
    held_at_s, before = gate.clock.boot, len(gate.entries())
    gate.send(proposal(add("c"), read_version=0))
    while len(gate.entries()) == before:
        gate.loop.step(0.0)
        gate.clock.boot += TICK_S
        assert gate.clock.boot - held_at_s < 0.5 + 3 * TICK_S
    assert gate.clock.boot - held_at_s > 0.5


def test_the_loop_sleeps_until_the_deadline_of_a_hold() -> None:
    gate = gate_with(500)
    late = verbatim(gate, 1, info(txnId="gone"), add("a"))
    gate.ask(proposal(add("b")))
    gate.send(late)
    gate.loop.step(0.0)
    gate.send(proposal(add("c"), read_version=0))
    gate.loop.step(0.0)
    assert gate.table_committer().waits_until_s == pytest.approx(gate.clock.boot + 0.5)


def test_during_a_hold_ready_bytes_overtake_and_the_offset_stays_at_the_first_pending() -> None:
    gate = gate_with(60_000)
    late = verbatim(gate, 1, info(txnId="w"), add("a"))
    gate.ask(proposal(add("b")))
    gate.ask(late, proposal(add("c")))
    again = verbatim(gate, 2, info(txnId="w"), add("a2"), read_version=0)
    before = gate.bus.committed("tidegate.committer")
    gate.send(again)
    gate.loop.step(0.0)
    assert len(gate.entries()) == 3
    gate.settle()
    assert [outcome.version for outcome in gate.outcomes()[-2:]] == [2, 3]
    assert list(before.values()) == [3]
    assert list(gate.bus.committed("tidegate.committer").values()) == [5]


def test_a_hold_makes_nobody_wait_who_was_decided_ahead_wrongly() -> None:
    gate = gate_with(60_000)
    gate.ask(proposal(add("x")))
    reads = ReadSet(files=("x",))
    late = verbatim(gate, 1, info(txnId="w"), add("a"))
    gate.send(late)
    gate.loop.step(0.0)
    gate.send(proposal(builders.remove("x"), add("y"), read_version=1, reads=reads))
    gate.send(verbatim(gate, 2, info(txnId="w"), builders.remove("x"), read_version=0))
    gate.settle()
    assert [outcome.status for outcome in gate.outcomes()[-2:]] == ["committed", "rejected"]
