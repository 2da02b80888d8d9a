"""Records that are read and not yet decided: a flooded table delays only its own writers."""

from uuid import UUID

import pytest

from tests.builders import TABLE, Gate, add, create, proposal
from tidegate_committer.loop import read_ahead, service
from tidegate_committer.loop.poison_records import SuspectNote
from tidegate_committer.loop.read_ahead import OTHERS, ReadAhead, size_of
from tidegate_messages.codec import encode
from tidegate_messages.proposal import Proposal
from tidegate_runtime.kafka.client_protocols import Offset, Record, TopicPartition

AT = TopicPartition("tidegate.proposals", 0)
A, B = UUID(int=1), UUID(int=2)
OTHER = UUID(int=0x7000_8000_0000_0000_4712)
OTHER_ROOT = "memory://tables/other"


def record(offset: int, size: int = 10) -> Record:
    return Record(AT, Offset(offset), None, b"x" * size)


def at_other(name: str) -> Proposal:
    return proposal(add(name), table=OTHER, table_root=OTHER_ROOT)


def send(gate: Gate, *proposals: Proposal, key: bytes | None = None) -> None:
    """Send proposals under the key of their table, or under another one."""
    for item in proposals:
        gate.bus.append(AT, key or str(item.table).encode(), encode(item), ())


def steps_until_answered(gate: Gate, wanted: Proposal, most: int = 100) -> int:
    """Run the committer until a proposal has its outcome; return how many steps that took."""
    for steps in range(most):
        if wanted.proposal_id in {outcome.proposal_id for outcome in gate.outcomes()}:
            return steps
        gate.loop.step(0.0)
        gate.clock.boot += 0.3
    raise AssertionError(f"no outcome after {most} steps")


def gate_of_two() -> Gate:
    gate = Gate()
    gate.ask(create(), create(table=OTHER, table_root=OTHER_ROOT))
    return gate


def test_records_are_released_table_by_table() -> None:
    known = ReadAhead()
    for offset in range(6):
        known.hold(record(offset), A if offset < 4 else B)
    assert [item.offset for item in known.release(4)] == [0, 4, 1, 5]
    assert (len(known), known.handled, known.first) == (6, 4, 0)
    known.discard(0)
    assert (len(known), known.handled, known.first) == (5, 3, 1)
    assert [one.offset for one in known.release(9)] == [2, 3]
    for offset in (1, 2, 3, 4, 5):
        known.discard(offset)
    assert (len(known), known.size_bytes, known.handled_bytes, known.first) == (0, 0, 0, None)


@pytest.mark.parametrize("bound", ["HANDLED_MAX", "HANDLED_BYTES_MAX"])
def test_however_much_comes_for_some_tables_there_is_room_for_another(
    monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(read_ahead, bound, 100 if bound == "HANDLED_MAX" else 1_000)
    known = ReadAhead()
    flows = [UUID(int=number) for number in range(1, 9)]
    for offset in range(1_000):
        known.hold(record(offset), flows[offset % len(flows)])
    judged = list(known.release(1_000))
    assert 50 < len(judged) < 100
    assert not known.may_go_on
    assert known.has_room(UUID(int=99))


def test_one_table_alone_takes_four_fifths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "HANDLED_MAX", 100)
    known = ReadAhead()
    for offset in range(1_000):
        known.hold(record(offset), A)
    assert len(list(known.release(1_000))) == 80


def test_a_flow_that_is_parted_keeps_its_order() -> None:
    known = ReadAhead()
    for offset in range(6):
        known.hold(record(offset), OTHERS)
    known.part(OTHERS, lambda one: A if one.offset % 2 else B)
    assert [item.offset for item in known.release(6)] == [0, 1, 2, 3, 4, 5]
    assert known.first == 0


def test_the_size_of_a_record_counts_key_and_headers() -> None:
    one = Record(AT, Offset(0), b"key", b"value", (("name", b"text"),))
    assert size_of(one) == 3 + 5 + 4 + 4


@pytest.mark.parametrize("length", [300, 3_000])
def test_another_table_is_answered_after_a_few_entries_of_a_flooded_one(length: int) -> None:
    """At most as many entries are written as it takes steps to read past the flood."""
    gate = gate_of_two()
    flood = [proposal(add(f"f{number}")) for number in range(length)]
    other = at_other("o")
    send(gate, *flood, other)
    steps_until_answered(gate, other)
    assert len(gate.entries()) <= 1 + 3
    gate.settle(60)
    result = [outcome.status for outcome in gate.outcomes()]
    assert result == ["committed"] * (length + 3)
    assert gate.loop.pending == 0


def test_a_table_whose_put_hangs_leaves_room_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "HANDLED_MAX", 40)
    monkeypatch.setattr(service, "HANDLED_MAX", 10)
    gate = gate_of_two()
    table_committer = gate.table_committer()
    table_committer.rests_until_s = 1e9
    send(gate, *(proposal(add(f"f{number}")) for number in range(200)))
    for _ in range(20):
        gate.loop.step(0.0)
    [worker] = gate.loop.workers.values()
    assert (len(table_committer.queue), worker.read_ahead.held(TABLE)) == (32, 168)
    assert gate.loop.movable == 0, "a restart would help none of them"
    other = at_other("o")
    send(gate, other)
    gate.settle()
    assert gate.outcomes()[-1].proposal_id == other.proposal_id
    table_committer.rests_until_s = 0.0
    gate.settle(60)
    assert gate.loop.pending == 0
    added = [row["add"]["path"] for rows in gate.entries()[1:] for row in rows if "add" in row]
    assert added == [f"f{number}" for number in range(200)]


def test_the_offset_stays_at_the_first_record_that_is_held_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read_ahead, "HANDLED_MAX", 40)
    gate = gate_of_two()
    gate.table_committer().rests_until_s = 1e9
    send(gate, *(proposal(add(f"f{number}")) for number in range(100)), at_other("o"))
    gate.settle(10)
    assert gate.outcomes()[-1].table == OTHER
    assert list(gate.bus.committed("tidegate.committer").values()) == [2]
    gate.restart()
    gate.settle(60)
    assert list(gate.bus.committed("tidegate.committer").values()) == [2 + 101]
    assert len({outcome.proposal_id for outcome in gate.outcomes()}) == 2 + 101


def test_keys_that_name_no_table_wait_for_one_another_and_for_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read_ahead, "HANDLED_MAX", 40)
    monkeypatch.setattr(service, "HANDLED_MAX", 10)
    gate = gate_of_two()
    for number in range(300):
        send(gate, proposal(add(f"f{number}")), key=b"key %d" % number)
    other = at_other("o")
    send(gate, other)
    assert steps_until_answered(gate, other) <= 4


def test_after_a_death_records_are_decided_in_the_order_of_their_offsets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read_ahead, "HANDLED_MAX", 40)
    gate = gate_of_two()
    flood = [proposal(add(f"f{number}")) for number in range(100)]
    last = at_other("o")
    send(gate, *flood, last)
    gate.loop.step(0.0)
    gate.restart()
    gate.loop.step(0.0)
    [worker] = gate.loop.workers.values()
    assert worker.suspects.note.deaths == 1
    steps_until_answered(gate, last)
    assert len(gate.outcomes()) >= 2 + 60, "what is judged at a time comes before it"
    gate.settle()
    assert worker.suspects.note == SuspectNote(
        worker.suspects.note.owner, topic=worker.suspects.note.topic
    )


def test_records_of_a_table_that_was_just_created_keep_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "HANDLED_MAX", 1)
    gate = Gate()
    gate.loop.step(0.0)
    nowhere = [proposal(add("n"), table=UUID(int=number)) for number in (7, 8)]
    early = [create(table=OTHER, table_root=OTHER_ROOT), *map(at_other, "abcdef")]
    send(gate, *nowhere, *early)
    [worker] = gate.loop.workers.values()
    while OTHER not in worker.tables.committers:
        gate.loop.step(0.0)
    assert worker.read_ahead.held(OTHERS) > 2, "they came before the table was served"
    send(gate, at_other("z"))
    gate.settle(20)
    rows = [row for rows in gate.entries(OTHER_ROOT) for row in rows]
    assert [row["add"]["path"] for row in rows if "add" in row] == list("abcdefz")
