"""A table whose store takes no commits rests, and the registry says why."""

from unittest import mock

from tests.builders import ROOT, TABLE, Gate, add, proposal
from tidegate_delta.errors import Unavailable

FULL = "cannot write '_delta_log/00000000000000000001.json': No space left on device"


def rest(gate: Gate, seconds: float) -> None:
    """Let the table try to commit a proposal to a full disk for a while."""
    full = mock.Mock(side_effect=Unavailable(FULL))
    with mock.patch.object(gate.stores[ROOT], "put_if_absent", full):
        for _ in range(round(seconds / 0.05)):
            gate.loop.step()
            gate.clock.boot += 0.05


def test_the_registry_says_why_a_table_rests_and_takes_it_back(gate: Gate) -> None:
    gate.send(proposal(add("a")))
    rest(gate, 5.0)
    record = gate.tables()[TABLE]
    assert record.status == "open"
    assert FULL in str(record.reason)
    assert str(record.reason).startswith("rests, its proposals wait: ")
    gate.clock.boot += 30.0
    gate.settle()
    assert gate.outcomes()[-1].status == "committed"
    assert gate.tables()[TABLE].reason is None


def test_a_hiccup_of_a_store_is_not_told(gate: Gate) -> None:
    gate.send(proposal(add("a")))
    rest(gate, 0.2)
    assert gate.tables()[TABLE].reason is None
