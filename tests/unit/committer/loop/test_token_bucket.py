"""How fast refusals are written to a table's log under a flood."""

from tests.builders import Gate, add, create, late
from tidegate_committer.settings import CommitterSection


def test_a_flood_that_goes_on_is_let_into_the_log_at_the_rate_alone() -> None:
    gate = Gate(CommitterSection(roots=("memory://tables",), refusals_burst=5, refusals_per_s=0.1))
    gate.ask(create())

    def written() -> int:
        outcomes = gate.ask(*(late(add("x")) for _ in range(20)))
        return [outcome.status for outcome in outcomes].count("rejected")

    assert written() == 5
    assert written() == 0, "what the entry before wrote is spent"
    gate.clock.sleep(20)
    assert written() == 2
    gate.clock.sleep(10_000)
    assert written() == 5
