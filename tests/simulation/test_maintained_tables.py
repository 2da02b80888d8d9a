"""Worlds where a maintainer packs files while writers change them: nobody who changes data loses.

That nobody does is checked by `linearizable`: a rejection must name a winner that changed rows.
"""

from collections import Counter
from collections.abc import Iterable

import pytest

from tests.simulation.row_mutants import maintained, without_vectors_for_moved_files
from tests.simulation.world import World

SEEDS = (2_025, 2_039, 2_041, 2_045, 2_047, 2_077)


def run(seeds: Iterable[int]) -> Counter[str]:
    """Run worlds, and count what compactions did to the proposals of others."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        world = World(seed)
        world.run()
        for log in world.history.logs.values():
            for version in range(len(log.entries)):
                accepted = log.provenance(version).get("accepted", ())
                seen["came back"] += sum(bool(member.get("returned")) for member in accepted)
        for outcome in world.history.outcomes:
            sent = world.history.sent.get(outcome.key)
            moved = (outcome.body.get("assigned") or {}).get("moved")
            seen["followed"] += bool(sent and moved and not sent.body.get("dv_intents"))
    return seen


@pytest.mark.timeout(600)
def test_who_changes_whole_files_follows_their_rows() -> None:
    with maintained():
        seen = run(SEEDS)
    assert seen["followed"], seen


@pytest.mark.timeout(600)
def test_where_no_vectors_are_taken_compactions_give_way() -> None:
    with maintained(), without_vectors_for_moved_files():
        seen = run(SEEDS)
    assert seen["came back"], seen
