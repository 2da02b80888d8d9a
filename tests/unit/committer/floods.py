"""A producer that floods a table, and another one with one proposal behind the flood."""

from tests.builders import Gate, add, proposal


def version_beside_a_flood(gate: Gate) -> int | None:
    """Send twenty proposals and one by another producer, and return the version of that one."""
    other = proposal(add("other"))
    flood = [proposal(add(f"f{number}")) for number in range(20)]
    gate.send(*flood, headers=(("producer", b"flood"),))
    gate.send(other, headers=(("producer", b"other"),))
    gate.settle(30)
    result = {outcome.proposal_id: outcome for outcome in gate.outcomes()}
    assert {result[outcome.proposal_id].status for outcome in flood} == {"committed"}
    return result[other.proposal_id].version
