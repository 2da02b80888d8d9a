"""The pipeline survives the world: the real committer over stormy doors, seed by seed."""

import os
from collections import Counter

import pytest

from tests.simulation.world import World

SEEDS = 200
SOMETIMES = (
    *("crash", "lost_answer", "late", "dropped", "outage", "pause"),
    *("suspension", "disk_full", "broker_loss"),
    *("committed", "rejected", "denied", "expired", "repeat committed", "repeat rejected"),
    *("concurrent_append", "concurrent_delete_read", "metadata_changed", "app_txn_seen"),
    *("bad_path", "deadline_passed", "cancelled", "id_reused", "too_many_refusals"),
    *("malformed", "files_too_old", "unknown_table"),
    *("external", "group", "refusals only", "mixed entry", "cleaned"),
    *("rows deleted", "rows merged", "vector in a file", "concurrent_row_delete"),
)
"""What must happen at least now and then, or the seeds prove little."""


def chosen(config: pytest.Config) -> range:
    """Return the seeds to run: `--seed`/SEED one, `--seeds`/SEEDS that many."""
    one = config.getoption("--seed") if os.environ.get("SEED") is None else os.environ["SEED"]
    many = os.environ.get("SEEDS") or config.getoption("--seeds") or SEEDS
    return range(int(one), int(one) + 1) if one is not None else range(int(many))


def test_every_seed_keeps_every_invariant(request: pytest.FixtureRequest) -> None:
    seen: Counter[str] = Counter()
    seeds = chosen(request.config)
    for seed in seeds:
        world = World(seed)
        world.run()
        seen += world.stage.weather.struck
        seen += told(world)
    if len(seeds) >= SEEDS:
        rare = {name: seen[name] for name in SOMETIMES if seen[name] < 10}
        assert not rare, f"the world is too kind: {rare}"


def told(world: World) -> Counter[str]:
    """Return what was answered, how, and what entries there were."""
    seen: Counter[str] = Counter()
    for one in world.history.told:
        seen[one.body["status"]] += 1
        seen[f"repeat {one.body['status']}"] += one.body.get("repeat", False)
        seen[one.body.get("rejection", {}).get("rule", "")] += 1
    for log in world.history.logs.values():
        seen["cleaned"] += log.floor > 0
        for version in range(len(log.entries)):
            origin = log.provenance(version)
            accepted, refused = origin.get("accepted", ()), origin.get("refused", ())
            seen["external"] += not origin
            seen["group"] += len(accepted) > 1
            seen["refusals only"] += bool(refused and not accepted)
            seen["mixed entry"] += bool(refused and accepted)
            deletes = sum("rows_deleted" in one for one in accepted)
            seen["rows deleted"] += deletes
            seen["rows merged"] += deletes > 1
            rows = [row["add"] for row in log.entries[version] if "add" in row]
            kinds = [
                one["deletionVector"]["storageType"] for one in rows if "deletionVector" in one
            ]
            seen["vector in a file"] += "u" in kinds
    return seen


def test_the_same_seed_gives_the_same_history() -> None:
    for seed in range(0, 200, 50):
        assert World(seed).run() == World(seed).run(), f"seed {seed} has two histories"
