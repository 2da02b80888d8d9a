"""Two committers that both believe they own the partition, and another engine, on real files."""

import random
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.builders import TABLE, Gate, add, create, proposal, remove
from tests.linearizability.checker import explain
from tests.linearizability.memory_run_record import account_of
from tidegate_committer.settings import CommitterSection
from tidegate_messages.proposal import Proposal, ReadSet
from tidegate_runtime.storage.local_store import LocalStore

ROUNDS = 40


def proposed(gate: Gate, root: str, dice: random.Random) -> Proposal:
    """Return an append, or the rewrite of a file that was live recently."""
    entries = gate.entries(root)
    read = max(0, len(entries) - 1 - dice.choice((0, 0, 1, 3)))
    new = add(f"f{dice.randrange(10**9)}")
    files = [row["add"]["path"] for rows in entries[: read + 1] for row in rows if "add" in row]
    if not files or dice.random() < 0.5:
        return proposal(new, table=TABLE, table_root=root, read_version=read)
    old = dice.choice(files)
    reads = ReadSet(files=(old,))
    return proposal(remove(old), new, table_root=root, read_version=read, reads=reads)


@pytest.mark.parametrize("seed", range(4))
def test_who_races_over_real_files_leaves_a_serial_order(tmp_path: Path, seed: int) -> None:
    root, dice = tmp_path.as_uri(), random.Random(seed)
    settings = CommitterSection(roots=(root,), group_members_max=3)
    gate = Gate(settings, stores={root: LocalStore(root)})
    gate.ask(create(table_root=root))
    members = [gate.loop, gate.start()]
    for _ in range(ROUNDS):
        for _ in range(dice.randint(0, 2)):
            gate.send(proposed(gate, root, dice))
        gate.bus.drop_offsets(f"{gate.topics.prefix}committer")
        for member in dice.sample(members, dice.randint(1, 2)):
            member.step()
            gate.clock.boot += 0.3
        if dice.random() < 0.2:
            write_deltalake(root, pa.table({"x": [1], "s": ["a"]}), mode="append")
    gate.bus.expire(members[1].consumer)  # type: ignore[arg-type]  # the test's bus is in memory
    gate.settle(20)
    order = explain(account_of(gate, root))
    assert len(order) > ROUNDS / 4
    assert {outcome.status for outcome in gate.outcomes()} >= {"committed", "rejected"}
