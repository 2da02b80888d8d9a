"""Tables that come to the committer: registered again, after a cleanup, on a failing bus."""

import json
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

import pytest

from tests.builders import (
    NOW_MS,
    ROOT,
    TABLE,
    TABLE_ID,
    Gate,
    add,
    create,
    creation,
    info,
    metadata,
    proposal,
    table_in_memory,
    to_bytes,
)
from tests.checkpoints import put_classic
from tests.fakes.memory_store import MemoryStore
from tests.support.outcomes import answers_of, rejection_of, rule_of, rules_of
from tests.support.registry import publish, table_record
from tests.support.stores import store_of
from tests.unit.committer.held_reads import Held
from tidegate_committer.decision.published_record_limits import TEXT_CHARS_MAX
from tidegate_committer.loop.served_tables import STALE_S
from tidegate_committer.settings import CommitterSection
from tidegate_committer.store_executor import InlineExecutor, StoreExecutor
from tidegate_delta.errors import OutcomeUnknown, Unavailable
from tidegate_delta.log.file_names import Version, commit_name, in_log
from tidegate_messages.codec import encode
from tidegate_messages.proposal import Proposal
from tidegate_runtime import failpoints
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.checkpoint_writer import move_hint_forward
from tidegate_runtime.table_io.open_table import open_snapshot


def register(table: UUID = TABLE, root: str = ROOT) -> Proposal:
    return proposal(kind="register", table=table, table_root=root)


def written(folder: Path, table_id: str = TABLE_ID) -> str:
    """Write a table of one version, and return its root."""
    store, rows = LocalStore(str(folder)), creation()
    for row in rows:
        row.get("metaData", {})["id"] = table_id
    store.put(in_log(commit_name(0)), to_bytes(rows))
    return store.root


def gate_to(folder: Path, *roots: str, loads: StoreExecutor | None = None) -> Gate:
    stores: dict[str, LogStore] = {root: LocalStore(root) for root in roots}
    settings = CommitterSection(roots=(f"file://{folder}",), audit_s=1e9)
    return Gate(stores=stores, settings=settings, loads=loads or InlineExecutor())


def without_registry(gate: Gate) -> None:
    gate.bus.create_topic(gate.topics.table_state, 1)
    gate.restart()
    gate.settle(4)


def test_a_lost_registry_is_published_again_from_memory(gate: Gate) -> None:
    gate.bus.create_topic(gate.topics.table_state, 1)
    [outcome] = gate.ask(register())
    assert (outcome.status, outcome.repeat) == ("committed", True)
    assert gate.tables()[TABLE].table_root == ROOT


def test_a_table_of_ours_that_is_registered_again_publishes_pending_versions(gate: Gate) -> None:
    gate.bus.create_topic(gate.topics.table_state, 1)
    gate.stores[ROOT].put(in_log(commit_name(1)), to_bytes([info(), add("a")]))
    without_registry(gate)
    assert [event.version for event in gate.commits()] == [0]
    [outcome, *_] = gate.ask(register())
    assert (outcome.status, outcome.version) == ("committed", 1)
    assert [event.version for event in gate.commits()] == [0, 0, 1]
    assert gate.tables()[TABLE].published_through == 1


def test_a_table_whose_log_was_cleaned_up_to_a_change_of_the_table_is_registered() -> None:
    root, table = "memory://tables/found", UUID(int=5)
    changed = [info(), metadata()]
    store = table_in_memory(creation(), [add("a")], changed, root=root)
    hint = put_classic(store, open_snapshot(store, Version(2)), NOW_MS)
    move_hint_forward(store, hint)
    for version in (0, 1):
        store.delete(in_log(commit_name(version)))
    gate = Gate(stores={root: store})
    [outcome] = gate.ask(register(table, root))
    assert (outcome.status, outcome.version) == ("committed", 2)
    assert gate.tables()[table].published_through == 2


def test_a_table_of_ours_of_which_a_checkpoint_alone_is_left_is_registered(gate: Gate) -> None:
    store = store_of(gate)
    move_hint_forward(store, put_classic(store, open_snapshot(store, Version(0)), NOW_MS))
    store.delete(in_log(commit_name(0)))
    without_registry(gate)
    [outcome] = gate.ask(register())
    assert (outcome.status, outcome.version) == ("committed", 0)
    assert gate.tables()[TABLE].published_through == 0
    [later] = gate.ask(proposal(add("a")))
    assert (later.status, later.version) == ("committed", 1)


def test_versions_below_a_vanished_checkpoint_are_published_all_the_same(gate: Gate) -> None:
    store = store_of(gate)
    for version, rows in ((1, [info(), metadata()]), (2, [info(), add("a")])):
        store.put(in_log(commit_name(version)), to_bytes(rows))
    hint = put_classic(store, open_snapshot(store, Version(1)), NOW_MS)
    move_hint_forward(store, hint)
    store.delete(in_log(commit_name(0)))
    gate.restart()
    gate.settle(8)
    assert [event.version for event in gate.commits()] == [0, 1, 2]


def test_a_bus_that_fails_while_a_table_is_registered_ends_the_lane_and_not_the_answer() -> None:
    gate = Gate()
    gate.send(create())
    failing = mock.patch.object(gate.loop.producer, "flush", side_effect=OutcomeUnknown("no ack"))
    with failing, pytest.raises(OutcomeUnknown):
        gate.settle(4)
    gate.restart()
    gate.settle(10)
    # The restarted committer publishes what the log holds, and then answers the record again.
    result = gate.outcomes()
    assert [(item.status, item.version, item.repeat) for item in result] == [
        ("committed", 0, True)
    ] * 2
    assert gate.tables()[TABLE].published_through == 0


def test_a_table_that_is_just_being_created_is_not_registered_on_the_way() -> None:
    """The creation is refused in the end, because another engine has created the table."""
    gate = Gate(stores={ROOT: table_in_memory(creation())})
    other = create(table=UUID(int=9))
    outcomes = gate.ask(create(), register(), other)
    rules = {outcome.proposal_id: rule_of(outcome) for outcome in outcomes}
    assert list(rules.values()).count("being_created") == 2
    assert "table_exists" in rules.values()
    assert gate.tables() == {}
    assert gate.ask(register())[0].status == "committed"


@pytest.mark.parametrize("deadline_ms", [NOW_MS + 60_000, None])
def test_a_table_to_be_whose_store_stays_away_is_given_up_when_its_time_is_over(
    gate: Gate, deadline_ms: int | None
) -> None:
    root = "memory://tables/far"
    one = create(table=UUID(int=9), table_root=root, deadline_ms=deadline_ms)
    gate.stores[root] = store = MemoryStore(root)
    with mock.patch.object(store, "list_from", side_effect=Unavailable("403 AccessDenied")):
        assert gate.ask(one) == []
        gate.clock.boot += 61 if deadline_ms else 601
        gate.settle()
        [outcome] = gate.outcomes()[1:]
    assert outcome.rejection is not None
    assert (outcome.status, outcome.rejection.rule) == ("denied", "Unavailable")
    assert (outcome.rejection.advice, outcome.rejection.field) == ("retry", "table_root")
    assert "403 AccessDenied" in outcome.rejection.reason
    assert gate.loop.pending == 0, "the offset stands behind it"
    later = one.model_copy(update={"deadline_ms": None})
    assert [item.status for item in gate.ask(later)] == ["committed"]


def drop(gate: Gate) -> None:
    """Publish in the registry that the table was dropped, and restart."""
    gone = gate.tables()[TABLE].model_copy(update={"status": "dropped"})
    publish(gate, gone)
    gate.restart()
    gate.settle(4)


def test_an_unreadable_creation_is_answered_with_its_problem() -> None:
    gate = Gate()
    broken = {**json.loads(encode(create())), "operation": 5}
    [result] = gate.ask(json.dumps(broken).encode())
    assert (result.status, rejection_of(result).rule) == ("denied", "malformed")
    assert "operation" in rejection_of(result).reason


def test_a_table_that_was_dropped_takes_nothing_and_is_not_touched(gate: Gate) -> None:
    drop(gate)
    outcomes = gate.ask(proposal(add("a")), register(), create())
    assert rules_of(outcomes) == ["table_dropped"] * 3
    assert {outcome.status for outcome in outcomes} == {"denied"}
    assert len(gate.entries()) == 1
    assert gate.tables()[TABLE].status == "dropped"


def test_the_root_of_a_table_that_is_dropped_just_now_is_not_given_out_either(gate: Gate) -> None:
    gate.restart()
    wanted = proposal(kind="drop", table=TABLE, table_root=ROOT)
    assert rules_of(gate.ask(wanted, register(UUID(int=99)))) == ["committed", "table_dropped"]


def test_a_repeated_registration_answers_with_the_table_as_it_is_now(gate: Gate) -> None:
    gate.send(proposal(add("a"), table=UUID(int=99)), proposal(add("a")))
    gate.settle(2)
    gate.send(register())
    gate.settle(2)
    assert gate.outcomes()[-1].repeat
    assert gate.tables()[TABLE].published_through == 1


def test_a_root_that_another_committer_has_just_registered_is_not_given_out() -> None:
    gate = Gate()
    gate.loop.step()
    elsewhere(gate)
    assert answers_of(gate.ask(create())) == [("denied", "table_exists")]
    assert TABLE not in gate.tables()


def test_the_creator_of_a_table_that_another_registered_may_retry() -> None:
    gate = Gate()
    one = create()
    assert [result.status for result in gate.ask(one)] == ["committed"]
    gate.records(gate.topics.table_state).clear()
    gate.restart()
    gate.ask(register(UUID(int=99), ROOT))
    assert answers_of(gate.ask(one)) == [("denied", "table_exists")]


def test_a_root_that_another_registers_while_its_log_is_read_has_one_life() -> None:
    gates: list[Gate] = []
    gate = Gate(stores={ROOT: table_in_memory(creation())}, vet=lambda _: elsewhere(*gates))
    gates.append(gate)
    [result] = gate.ask(register())
    assert (result.status, result.table, result.repeat) == ("committed", UUID(int=99), True)
    assert list(gate.tables()) == [UUID(int=99)]
    assert rules_of(gate.ask(proposal(add("a")))) == ["unknown_table"]


def test_a_root_that_another_registers_as_it_is_created_has_one_life() -> None:
    gate, one = Gate(), create()

    def reach(point: str, about: object) -> None:
        if point == "after_put":
            elsewhere(gate)

    with mock.patch.object(failpoints, "reach", reach):
        result = gate.ask(one, proposal(add("a")))
    assert [outcome.status for outcome in result] == ["committed", "denied"]
    assert list(gate.tables()) == [UUID(int=99)]
    assert gate.commits() == [], "who has the table tells its versions"


def elsewhere(gate: Gate) -> None:
    """Register the root for another committer."""
    publish(gate, table_record(UUID(int=99)))


def staged(gate: Gate, name: str) -> None:
    """Publish in the registry that the root is claimed, with no table there yet."""
    topic = gate.topics.proposals
    publish(gate, table_record(name=name, topic=topic, status="staged"))


def test_a_staged_table_is_created_by_who_was_given_its_root_and_by_nobody_else() -> None:
    gate = Gate()
    staged(gate, "main.sales.orders")
    [other, early, outcome] = gate.ask(create(table=UUID(int=99)), proposal(add("a")), create())
    assert rules_of([other, early]) == ["root_given_out", "unknown_table"]
    assert (outcome.status, outcome.version) == ("committed", 0)
    record = gate.tables()[TABLE]
    assert (record.status, record.name) == ("open", "main.sales.orders")


def test_a_staged_table_that_another_engine_made_is_registered() -> None:
    gate = Gate(stores={ROOT: table_in_memory(creation())})
    staged(gate, "main.sales.orders")
    [outcome] = gate.ask(register())
    assert (outcome.status, outcome.version, outcome.repeat) == ("committed", 0, False)
    assert gate.tables()[TABLE].status == "open"


@pytest.mark.parametrize(
    "asked",
    [
        {"table_root": "memory://elsewhere/t", "read_version": -1},
        {"table_root": "memory://elsewhere/t", "kind": "register"},
        {"table_root": ROOT, "read_version": -1},
        {"table_root": ROOT, "kind": "register"},
    ],
)
def test_a_flood_of_tables_that_may_not_be_or_are_there_reads_the_registry_once(
    gate: Gate, asked: dict[str, Any]
) -> None:
    gate.clock.boot += 2 * STALE_S
    flood = [proposal(**asked, table=UUID(int=number)) for number in range(1, 51)]
    with mock.patch.object(gate.bus, "reader", wraps=gate.bus.reader) as reader:
        result = gate.ask(*flood)
    assert {outcome.rejection and outcome.rejection.rule for outcome in result} <= {
        None if asked["table_root"] == ROOT and "kind" in asked else "root_not_allowed",
        "table_exists",
    }
    assert len(result) == len(flood)
    assert reader.call_count <= 2


def test_a_folder_that_is_registered_has_no_second_life_under_another_name(tmp_path: Path) -> None:
    root = written(tmp_path / "t")
    (tmp_path / "link").symlink_to(tmp_path / "t")
    link = f"file://{tmp_path}/link"
    gate = gate_to(tmp_path, root, link)
    gate.ask(register(TABLE, root))
    [outcome] = gate.ask(register(UUID(int=5), link))
    assert (outcome.status, rejection_of(outcome).rule) == ("denied", "table_exists")
    assert root in rejection_of(outcome).reason
    assert list(gate.tables()) == [TABLE]
    assert list((tmp_path / "t" / "_tidegate").iterdir()) == [], "nothing is left behind"
    gate.ask(proposal(kind="drop", table_root=root))
    [outcome] = gate.ask(register(UUID(int=6), link))
    assert outcome.status == "committed", "a table that moves is dropped first"


def test_of_two_names_of_a_folder_that_are_registered_at_once_one_is(tmp_path: Path) -> None:
    root = written(tmp_path / "t")
    (tmp_path / "link").symlink_to(tmp_path / "t")
    link, held = f"file://{tmp_path}/link", Held()
    gate = gate_to(tmp_path, root, link, loads=held)
    held.held |= {root, link}
    gate.ask(register(TABLE, root), register(UUID(int=5), link))
    held.held.clear()
    held.answer()
    gate.settle()
    first, second = gate.outcomes()
    assert first.status == "committed"
    assert (second.status, rejection_of(second).rule) == ("denied", "table_exists")
    assert list(gate.tables()) == [TABLE]


def test_a_table_that_is_long_in_coming_leaves_its_name_to_who_got_it_meanwhile() -> None:
    gate, there = Gate(stores={ROOT: MemoryStore(ROOT)}), UUID(int=99)
    with mock.patch.object(gate.stores[ROOT], "list_from", side_effect=Unavailable("away")):
        gate.ask(create(name="sales"))
        publish(gate, table_record(there, "memory://tables/o", "sales"))
    gate.settle(20)
    assert [outcome.status for outcome in gate.outcomes()] == ["committed"]
    names = {table: one.name for table, one in gate.tables().items()}
    assert names == {there: "sales", TABLE: f"sales-{TABLE.hex[-8:]}"}


def gate_while_another_registers(root: str, name: str) -> Gate:
    held = Held({ROOT})
    gate = Gate(stores={ROOT: table_in_memory(creation())}, loads=held)
    gate.ask(register())
    publish(gate, table_record(UUID(int=99), root, name))
    held.held.clear()
    held.answer()
    gate.settle()
    return gate


def test_a_root_that_another_committer_registers_while_its_log_is_read_is_registered_once() -> None:
    gate = gate_while_another_registers(ROOT, "other")
    [outcome] = gate.outcomes()
    assert (outcome.table, outcome.repeat) == (UUID(int=99), True)
    assert list(gate.tables()) == [UUID(int=99)]


def test_a_name_that_another_committer_gives_while_a_log_is_read_is_given_once() -> None:
    gate = gate_while_another_registers("memory://tables/other", "t")
    assert [outcome.status for outcome in gate.outcomes()] == ["committed"]
    assert sorted(table.name for table in gate.tables().values()) == ["t", f"t-{TABLE.hex[-8:]}"]


def test_a_folder_is_known_though_its_table_calls_itself_by_a_very_long_id(tmp_path: Path) -> None:
    root = written(tmp_path / "t", "i" * 2 * TEXT_CHARS_MAX)
    (tmp_path / "link").symlink_to(tmp_path / "t")
    link = f"file://{tmp_path}/link"
    gate = gate_to(tmp_path, root, link)
    gate.ask(register(TABLE, root))
    gate.restart()
    assert rules_of(gate.ask(register(UUID(int=5), link))) == ["table_exists"]


def test_a_copy_of_a_table_is_another_table(tmp_path: Path) -> None:
    root, copy = written(tmp_path / "t"), written(tmp_path / "copy")
    gate = gate_to(tmp_path, root, copy)
    gate.ask(register(TABLE, root))
    assert gate.ask(register(UUID(int=5), copy))[0].status == "committed"


def test_registration_is_queried_again_where_the_store_does_not_answer(tmp_path: Path) -> None:
    root, copy = written(tmp_path / "t"), written(tmp_path / "copy")
    gate = gate_to(tmp_path, root, copy)
    gate.ask(register(TABLE, root))
    with mock.patch.object(gate.stores[root], "read", side_effect=Unavailable("away")):
        [outcome] = gate.ask(register(UUID(int=5), copy))
    assert outcome.rejection is not None
    assert (outcome.rejection.rule, outcome.rejection.advice) == ("Unavailable", "retry")
    assert "drop it first" in outcome.rejection.reason
    assert gate.ask(register(UUID(int=6), copy))[0].status == "committed"
