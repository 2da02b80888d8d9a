"""The loop over in-memory dependencies: create, decide, publish, recover, and other engines."""

import itertools
from collections.abc import Iterator
from typing import Any
from unittest import mock
from uuid import UUID

import pytest

from tests import builders
from tests.builders import (
    ROOT,
    TABLE,
    Gate,
    add,
    create,
    creation,
    delete,
    info,
    proposal,
    table_in_memory,
    to_bytes,
)
from tests.fakes.memory_bus import MemoryConsumer
from tests.fakes.memory_store import MemoryStore
from tests.support.other_engines import write_next
from tests.support.outcomes import answers_of, rejection_of, rule_of, rules_of
from tidegate_committer.loop.partition_worker import PartitionWorker
from tidegate_committer.loop.table_committer import TableCommitter
from tidegate_delta.errors import Misconfigured, OutcomeUnknown, Unavailable
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_messages.outcome import Outcome
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.storage.log_store import FileStat, LogStore, Put, Turn, at_once

AT = TopicPartition("tidegate.proposals", 0)


def statuses(outcomes: list[Outcome]) -> list[str]:
    return [outcome.status for outcome in outcomes]


def test_the_first_proposal_makes_and_registers_the_table(gate: Gate) -> None:
    record = gate.tables()[TABLE]
    assert (record.table_root, record.name, record.status) == (ROOT, "t", "open")
    assert record.published_through == 0
    assert record.table_id == builders.TABLE_ID
    assert [commit.version for commit in gate.commits()] == [0]


def test_proposals_that_came_together_share_a_version(gate: Gate) -> None:
    outcomes = gate.ask(*(proposal(add(f"f{number}")) for number in range(5)))
    assert {outcome.version for outcome in outcomes} == {1}
    assert [outcome.sub_index for outcome in outcomes] == list(range(5))
    assert gate.commits()[-1].proposal_ids == tuple(outcome.proposal_id for outcome in outcomes)


def test_a_resent_proposal_gets_the_same_answer_and_no_second_version(gate: Gate) -> None:
    one = proposal(add("a"))
    first, again = gate.ask(one)[0], gate.ask(one)[0]
    assert (first.version, again.version, again.repeat) == (1, 1, True)
    assert len(gate.entries()) == 2


def test_the_offset_moves_past_what_was_answered(gate: Gate) -> None:
    gate.ask(proposal(add("a")), b"no proposal", builders.late(add("b")))
    assert gate.bus.committed("tidegate.committer") == {AT: 4}


def test_a_refusal_waits_for_company(gate: Gate) -> None:
    gate.send(builders.late(add("x")))
    gate.loop.step()
    gate.clock.boot += 0.05
    gate.loop.step()
    assert len(gate.entries()) == 1
    gate.send(proposal(add("a")))
    gate.settle()
    assert len(gate.entries()) == 2
    assert statuses(gate.outcomes()[-2:]) == ["rejected", "committed"]


def test_a_refusal_that_stays_alone_gets_a_version(gate: Gate) -> None:
    assert statuses(gate.ask(builders.late(add("x")))) == ["rejected"]
    assert gate.entries()[1][0]["commitInfo"]["operation"] == "TIDEGATE REFUSALS"


def test_a_new_committer_knows_from_the_log_what_was_done(gate: Gate) -> None:
    one, bad = proposal(add("a")), builders.late(add("b"))
    gate.ask(one, bad)
    gate.bus.drop_offsets("tidegate.committer")
    gate.restart()
    gate.settle(12)
    repeats = [outcome for outcome in gate.outcomes() if outcome.repeat]
    assert {(outcome.proposal_id, outcome.status) for outcome in repeats} >= {
        (one.proposal_id, "committed"),
        (bad.proposal_id, "rejected"),
    }
    assert len(gate.entries()) == 2


def test_unpublished_outcomes_are_published_from_the_log_alone(gate: Gate) -> None:
    """Even with the proposals expired from the topic: which were accepted or refused, and why."""
    one, bad = proposal(add("a")), builders.late(add("b"))
    gate.send(one, bad)
    dead = mock.patch.object(gate.loop.producer, "flush", side_effect=Unavailable("it dies"))
    with dead, pytest.raises(Unavailable):
        gate.settle(3)
    assert gate.outcomes()[1:] == []
    gate.bus.logs[AT].clear()
    gate.restart()
    gate.settle(12)
    result = {outcome.proposal_id: outcome for outcome in gate.outcomes()[1:]}
    assert (result[one.proposal_id].status, result[one.proposal_id].version) == ("committed", 1)
    assert (result[bad.proposal_id].status, rule_of(result[bad.proposal_id])) == (
        "rejected",
        "deadline_passed",
    )
    assert all(outcome.repeat for outcome in result.values())
    assert [event.version for event in gate.commits()] == [0, 1]
    assert len(gate.entries()) == 2


def test_another_engines_versions_are_published_and_respected(gate: Gate) -> None:
    gate.ask(proposal(add("old")))
    write_next(gate, info("DELETE"), builders.remove("old"))
    gate.clock.boot += 6
    gate.settle()
    assert [(commit.version, commit.author) for commit in gate.commits()][-1] == (2, "external")
    assert rules_of(gate.ask(delete("old", read_version=1))) == ["concurrent_delete_read"]


def test_a_lost_race_is_decided_anew(gate: Gate) -> None:
    gate.ask(proposal(add("old")))
    gate.clock.boot += 1
    write_next(gate, info("DELETE"), builders.remove("old"))
    outcomes = gate.ask(delete("old", read_version=1), proposal(add("b"), read_version=1))
    assert rule_of(outcomes[0]) == "concurrent_delete_read"
    assert (outcomes[1].status, outcomes[1].version) == ("committed", 3)


def test_where_others_win_every_version_the_table_rests_and_its_writers_wait(
    monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    monkeypatch.setattr("tidegate_committer.loop.table_committer.RACES_MAX", 3)
    store, put = gate.stores[ROOT], MemoryStore.put_if_absent

    def overtaken(path: str, content: bytes, deadline_s: float, turn: Turn = at_once) -> Put:
        assert isinstance(store, MemoryStore)
        put(store, path, to_bytes([info(), add(f"of {path[-8:]}".replace(" ", "-"))]), deadline_s)
        return put(store, path, content, deadline_s)

    gate.send(proposal(add("a")))
    with mock.patch.object(store, "put_if_absent", side_effect=overtaken):
        for _ in range(9):
            gate.loop.step()
    assert gate.table_committer().rests_until_s > gate.clock.boot
    assert (len(gate.entries()), gate.loop.pending) == (4, 1)
    gate.settle(12)
    assert (gate.outcomes()[-1].status, gate.outcomes()[-1].version) == ("committed", 4)


class Doubtful(MemoryStore):
    """A store that leaves the result of the next PUTs unknown."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.fates: list[str] = []

    def put_if_absent(
        self, path: str, content: bytes, deadline_s: float, turn: Turn = at_once
    ) -> Put:
        fate = self.fates.pop(0) if self.fates else "told"
        if fate == "lost":
            return Put.UNKNOWN
        if fate == "taken":
            super().put_if_absent(path, to_bytes([info(), add("foreign")]), deadline_s)
            return Put.UNKNOWN
        answer = super().put_if_absent(path, content, deadline_s)
        return Put.UNKNOWN if fate == "landed" else answer


def doubtful() -> tuple[Gate, Doubtful]:
    store = Doubtful(ROOT)
    gate = Gate(stores={ROOT: store})
    gate.ask(create())
    return gate, store


@pytest.mark.parametrize(
    ("fates", "authors"),
    [
        (["landed"], ["tidegate", "tidegate"]),
        (["lost", "lost"], ["tidegate", "tidegate"]),
        (["taken"], ["tidegate", "external", "tidegate"]),
    ],
    ids=["it landed", "it was lost and is sent again", "another took it and it is rebased"],
)
def test_a_put_in_doubt_is_resolved_by_the_log(fates: list[str], authors: list[str]) -> None:
    gate, store = doubtful()
    store.fates = fates
    assert gate.ask(proposal(add("a")))[0].version == len(authors) - 1
    assert [commit.author for commit in gate.commits()] == authors
    assert len(gate.entries()) == len(authors)


def test_past_the_deadline_the_log_is_read_anew() -> None:
    gate, store = doubtful()
    store.fates = ["lost"] * 2_000
    gate.send(proposal(add("a")))
    gate.loop.step()
    assert gate.outcomes()[1:] == []
    store.fates = []
    gate.settle(20)
    assert gate.outcomes()[-1].version == 1


def test_a_store_that_is_down_holds_up_its_own_table_only(gate: Gate) -> None:
    class Down(MemoryStore):
        def list_from(self, folder: str, start: str) -> Iterator[FileStat]:
            raise Unavailable("down")

        def put_if_absent(
            self, path: str, content: bytes, deadline_s: float, turn: Turn = at_once
        ) -> Put:
            raise Unavailable("down")

    other, root = UUID(int=9), "memory://tables/other"
    gate.ask(create(table=other, table_root=root))
    sound, table_committer = gate.stores[ROOT], gate.table_committer()
    table_committer.store = Down(ROOT)
    gate.send(proposal(add("a")), proposal(add("b"), table=other, table_root=root))
    gate.settle(2)
    assert [outcome.table for outcome in gate.outcomes()][2:] == [other]
    table_committer.store = sound
    gate.settle(20)
    assert [outcome.table for outcome in gate.outcomes()][3:] == [TABLE]


def test_a_table_to_be_whose_first_put_is_in_doubt_is_not_given_up() -> None:
    away = mock.Mock(side_effect=OutcomeUnknown("nobody knows"))
    gate = Gate(stores={ROOT: MemoryStore(ROOT)})
    with mock.patch.object(gate.stores[ROOT], "put_if_absent", away):
        gate.send(create())
        gate.settle(60)
    assert gate.outcomes() == []
    gate.settle(60)
    assert statuses(gate.outcomes()) == ["committed"]


def test_a_new_table_whose_put_is_in_doubt_waits_for_a_store_that_then_refuses_it() -> None:
    store = MemoryStore(ROOT)
    gate, put = Gate(stores={ROOT: store}), store.put_if_absent

    def lands_without_an_answer(*asked: Any) -> Put:
        put(*asked)
        raise OutcomeUnknown("nobody knows")

    away = mock.Mock(side_effect=Unavailable("503"))
    with mock.patch.object(store, "put_if_absent", lands_without_an_answer):
        gate.send(create())
        gate.settle(2)
    assert in_log(commit_name(0)) in store.files
    with mock.patch.object(store, "list_from", away), mock.patch.object(store, "read", away):
        gate.settle(60)
        assert gate.outcomes() == []
    gate.settle(60)
    assert statuses(gate.outcomes()) == ["committed"]


def test_two_committers_do_not_commit_twice(gate: Gate) -> None:
    other = gate.start()
    proposals = [proposal(add(f"f{number}"), read_version=0) for number in range(6)]
    for item in proposals:
        gate.send(item)
        gate.bus.drop_offsets("tidegate.committer")
        gate.loop.step()
        other.step()
        gate.clock.boot += 0.3
    gate.settle(10)
    for _ in range(10):
        other.step()
        gate.clock.boot += 0.3
    accepted = [
        row["id"]
        for rows in gate.entries()
        for row in rows[0]["commitInfo"]["tidegate"].get("accepted", ())
    ]
    assert len(accepted) == len(set(accepted)) == 7


def test_an_existing_table_is_registered_without_a_word_in_its_log() -> None:
    root, table = "memory://tables/found", UUID(int=5)
    gate = Gate(stores={root: table_in_memory(creation(), [add("a")], root=root)})
    fields: dict[str, Any] = {
        "kind": "register",
        "table": table,
        "table_root": root,
        "read_version": 0,
    }
    one = proposal(**fields)
    [outcome] = gate.ask(one)
    assert (outcome.status, outcome.version) == ("committed", 1)
    assert len(gate.entries(root)) == 2
    assert gate.tables()[table].published_through == 1
    assert gate.ask(one)[0].repeat
    again = gate.ask(proposal(**{**fields, "table": UUID(int=6)}))[0]
    assert (again.status, again.repeat, again.table) == ("committed", True, table)
    [appended] = gate.ask(proposal(add("b"), table=table, table_root=root, read_version=1))
    assert appended.version == 2
    assert [event.version for event in gate.commits()] == [2]


def test_what_is_no_table_is_not_registered() -> None:
    gate = Gate()
    assert answers_of(gate.ask(proposal(kind="register"))) == [("denied", "NotADeltaTable")]
    assert gate.tables() == {}


def unsafe(store: LogStore) -> None:
    raise Misconfigured(f"{store.root}: both were told that they won", error_class="UnsafeStore")


def test_no_table_is_accepted_on_a_store_that_is_not_safe() -> None:
    root = "memory://tables/found"
    gate = Gate(stores={root: table_in_memory(creation(), root=root)}, vet=unsafe)
    assert answers_of(gate.ask(create())) == [("denied", "UnsafeStore")]
    result = proposal(kind="register", table=UUID(int=5), table_root=root)
    [outcome] = gate.ask(result)
    assert (outcome.status, rule_of(outcome)) == ("denied", "UnsafeStore")
    assert "both were told that they won" in rejection_of(outcome).reason
    assert gate.tables() == {}
    assert gate.entries() == []


def test_a_store_that_does_not_answer_its_vetting_or_is_being_probed_is_tried_again() -> None:
    answers = iter([Unavailable("the store is down"), Unavailable("it is being probed")])

    def down_at_first(store: LogStore) -> None:
        for error in answers:
            raise error

    gate = Gate(vet=down_at_first)
    assert statuses(gate.ask(create())) == ["committed"]


def test_a_table_id_stands_for_one_root(gate: Gate) -> None:
    root = "memory://tables/found"
    gate.stores[root] = table_in_memory(creation(), root=root)
    [outcome] = gate.ask(proposal(kind="register", table_root=root))
    assert (outcome.status, rule_of(outcome)) == ("denied", "other_root")
    assert gate.tables()[TABLE].table_root == ROOT


def test_who_waits_behind_a_creation_that_failed_is_answered() -> None:
    gate = Gate(stores={ROOT: table_in_memory(creation())})
    outcomes = gate.ask(create(), proposal(add("a")), create())
    assert [rule_of(outcome) for outcome in outcomes] == [
        "table_exists",
        "unknown_table",
        "table_exists",
    ]
    assert (outcomes[0].status, len(gate.entries()), gate.tables()) == ("rejected", 1, {})


def test_a_creation_whose_registration_was_lost_is_registered_by_its_repeat() -> None:
    gate = Gate()
    one = create()
    gate.ask(one)
    gate.records(gate.topics.table_state).clear()
    gate.bus.drop_offsets("tidegate.committer")
    gate.restart()
    gate.settle(10)
    assert gate.tables()[TABLE].table_root == ROOT
    assert gate.outcomes()[-1].repeat


def test_a_halted_table_heals_when_its_log_does(gate: Gate) -> None:
    path = in_log(commit_name(1))
    gate.stores[ROOT].put(path, b"torn")
    assert rule_of(gate.ask(proposal(add("a")))[0]) == "table_halted"
    gate.stores[ROOT].delete(path)
    gate.clock.boot += 31
    gate.settle()
    assert gate.tables()[TABLE].status == "open"
    assert gate.ask(proposal(add("a")))[0].version == 1


def test_a_torn_log_halts_its_own_table_only(gate: Gate) -> None:
    other, root = UUID(int=0x4711), "memory://tables/other"
    gate.ask(create(table=other, table_root=root))
    gate.stores[ROOT].put(in_log(commit_name(1)), b'{"commitInfo":')
    gate.clock.boot += 6.0
    gate.settle()
    assert gate.tables()[TABLE].status == "halted"
    assert rules_of(gate.ask(proposal(add("a"), table=other, table_root=root))) == ["committed"]
    assert gate.tables()[other].status == "open"


@pytest.mark.parametrize("behind", [[], [2, 3]], ids=["the last one", "others wrote behind it"])
def test_an_overwritten_version_halts_the_table(gate: Gate, behind: list[int]) -> None:
    gate.ask(proposal(add("a")))
    for version in (1, *behind):
        gate.stores[ROOT].put(in_log(commit_name(version)), to_bytes([info(), add(f"c{version}")]))
    gate.restart()
    gate.settle(10)
    assert gate.tables()[TABLE].status == "halted"


def test_reading_stops_while_too_much_waits(monkeypatch: pytest.MonkeyPatch, gate: Gate) -> None:
    monkeypatch.setattr("tidegate_committer.loop.read_ahead.RECORDS_MAX", 3)
    table_committer = gate.table_committer()
    table_committer.rest_s = 5.0
    table_committer.rest(gate.clock.boot)
    gate.send(*(proposal(add(f"f{number}")) for number in range(10)))
    gate.loop.step()
    gate.send(*(proposal(add(f"g{number}")) for number in range(10)))
    for _ in range(3):
        gate.loop.step()
    assert gate.loop.pending == 10
    gate.settle(60)
    assert gate.loop.pending == 0
    assert len(gate.outcomes()) == 21


def test_who_loses_what_he_had_paused_counts_it_as_paused_no_more(
    monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    """The partition's new owner reads or pauses it; our gauge counts only our own partitions."""
    monkeypatch.setattr("tidegate_committer.loop.read_ahead.RECORDS_MAX", 3)
    table_committer = gate.table_committer()
    table_committer.rest_s = 5.0
    table_committer.rest(gate.clock.boot)
    gate.send(*(proposal(add(f"f{number}")) for number in range(10)))
    for _ in range(2):
        gate.loop.step()
    assert gate.loop.paused == {AT}
    consumer = gate.loop.consumer
    assert isinstance(consumer, MemoryConsumer)
    gate.start().step()
    gate.bus.expire(consumer)
    gate.loop.step()
    assert (gate.loop.workers, gate.loop.paused) == ({}, set())


def test_idle_tables_are_loaded_one_a_step(gate: Gate) -> None:
    for number in range(3):
        fields: dict[str, Any] = {"table": UUID(int=100 + number)}
        gate.ask(create(**fields, table_root=f"memory://tables/t{number}"))
    gate.restart()
    loaded = []
    for _ in range(8):
        gate.loop.step()
        table_committers = [
            table_committer
            for worker in gate.loop.workers.values()
            for table_committer in worker.tables.committers.values()
        ]
        loaded.append(
            sum(table_committer.cache.state is not None for table_committer in table_committers)
        )
    assert loaded == sorted(loaded)
    assert loaded[-1] == 4
    assert {after - before for before, after in itertools.pairwise(loaded)} <= {0, 1}


def test_a_step_passes_idle_tables_by(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        fields: dict[str, Any] = {"table": UUID(int=100 + number)}
        gate.ask(create(**fields, table_root=f"memory://tables/t{number}"))
    gate.settle(60)
    [worker] = gate.loop.workers.values()
    attend, attended = PartitionWorker._attend, list[UUID]()

    def spied(self: PartitionWorker, table_committer: TableCommitter) -> bool:
        attended.append(table_committer.record.table)
        return attend(self, table_committer)

    monkeypatch.setattr(PartitionWorker, "_attend", spied)
    gate.loop.step()
    assert attended == []
    gate.send(proposal(add("a")))
    gate.loop.step()
    assert set(attended) == {TABLE}
    gate.settle(60)
    attended.clear()
    gate.clock.boot += gate.settings.external_probe_s
    gate.loop.step()
    assert set(attended) == set(worker.tables.committers)


def test_a_clean_stop_leaves_nothing_behind(gate: Gate) -> None:
    gate.send(proposal(add("a")))
    gate.loop.step()
    gate.loop.step()
    gate.loop.finish()
    gate.loop.leave()
    assert gate.outcomes()[-1].version == 1
    assert gate.bus.committed("tidegate.committer") == {AT: 2}
