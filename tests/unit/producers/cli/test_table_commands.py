"""The commands over an in-memory committer: what was refused, why, and what to do."""

import json
from typing import Any, NoReturn
from unittest import mock
from uuid import UUID

import pytest

from tests.builders import (
    ROOT,
    TABLE,
    add,
    an_id,
    create,
    delete,
    info,
    late,
    metadata,
    proposal,
    protocol,
    remove,
    table_in_memory,
    to_bytes,
)
from tests.fakes.memory_bus import MemoryBus
from tests.fakes.memory_store import MemoryStore
from tests.unit.producers.commands import Line, conflict, line_of
from tidegate_committer.loop.partition_worker import RETRY_HALTED_S
from tidegate_delta.errors import Unavailable
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_messages.proposal import Operation, Predicate, ReadSet
from tidegate_producers.cli import proposal_commands, table_commands, table_place
from tidegate_runtime.cli import main
from tidegate_runtime.followers.quarantine import Quarantine

REFUSED = ("list", "--refused", "--table")


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Line:
    return line_of(monkeypatch)


def test_the_list_has_the_outcomes_and_can_be_of_one_table(line: Line) -> None:
    loser = conflict(line)
    other: dict[str, Any] = {"table": UUID(int=9), "table_root": "memory://tables/other"}
    line.gate.ask(create(**other, name="other"))
    everything = line.json(proposal_commands.app, "list")
    assert len(everything) == 5
    result = line.json(proposal_commands.app, "list", "--table", "shop", "--limit", 2)
    assert [item["status"] for item in result] == ["committed", "rejected"]
    assert result[1]["proposal"] == str(loser.proposal_id)
    assert (result[1]["rule"], result[1]["winner"]) == ("concurrent_delete_read", 2)
    printed = line.run(proposal_commands.app, "list").stdout
    assert f"{loser.proposal_id}" in printed
    assert all(ROOT in row or "other" in row for row in printed.splitlines()[1:]), "a row a line"


def test_a_conflict_is_explained_by_rule_winner_overlap_and_way_out(line: Line) -> None:
    loser = conflict(line)
    result = line.explained(loser, 2)
    assert (result["status"], result["rule"]) == ("rejected", "concurrent_delete_read")
    assert result["delta_name"] == "ConcurrentDeleteReadException"
    assert result["winner"]["version"] == 2
    assert result["winner"]["operation"] == "DELETE"
    assert result["winner"]["engine_info"].startswith("Nightly/7")
    [winner] = result["winner"]["proposal_ids"]
    assert result["overlap"]["files"] == ["a"]
    assert "run the operation again" in result["remedy"]
    assert result["commands"] == [
        f"tidegate proposals show {winner}",
        f"tidegate proposals list --refused --table {ROOT}",
    ]
    printed = line.run(proposal_commands.app, "show", loser.proposal_id).stdout
    for word in ("concurrent_delete_read", "version 2", "Nightly/7", "never will be", "run "):
        assert word in printed


def test_an_append_conflict_names_the_predicate_that_was_read(line: Line) -> None:
    line.gate.ask(proposal(add("a")))
    line.gate.ask(proposal(add("late"), read_version=1))
    predicate: Predicate = {"op": "=", "column": ["x"], "value": 7, "type": "long"}
    one = proposal(
        remove("a"),
        read_version=1,
        operation=Operation(name="DELETE"),
        reads=ReadSet(predicates=(predicate,), files=("a",)),
    )
    line.gate.ask(one)
    result = line.explained(one, 2)
    assert result["rule"] == "concurrent_append"
    assert result["overlap"] == {
        "files": ["late"],
        "predicates": ["x = 7"],
        "applications": [],
        "domains": [],
    }


def test_a_winner_from_outside_is_named_by_its_engine(line: Line) -> None:
    line.gate.ask(proposal(add("a")))
    rows = [info("OPTIMIZE", engineInfo="Apache-Spark/4.2"), remove("a")]
    line.gate.stores[ROOT].put(in_log(commit_name(2)), to_bytes(rows))
    loser = delete("a", read_version=1)
    line.gate.ask(loser)
    winner = line.explained(loser, 2)["winner"]
    assert (winner["operation"], winner["proposal_ids"]) == ("OPTIMIZE", [])
    printed = line.run(proposal_commands.app, "show", loser.proposal_id).stdout
    assert "Apache-Spark/4.2, by an external writer" in printed


def test_what_is_in_the_table_needs_nothing(line: Line) -> None:
    one = proposal(add("a"))
    line.gate.ask(one)
    result = line.explained(one, 0)
    assert (result["status"], result["version"], result["rule"]) == ("committed", 1, None)


def test_an_entry_that_does_not_hold_what_was_promised_calls_for_a_person(line: Line) -> None:
    one = proposal(add("a"))
    line.gate.ask(one)
    store = line.gate.stores[ROOT]
    assert isinstance(store, MemoryStore)
    store.files[in_log(commit_name(1))] = to_bytes([info(), add("theirs")])
    assert "compare the entry with a backup" in line.explained(one, 3)["remedy"]


def test_what_was_refused_for_itself_has_no_winner(line: Line) -> None:
    one = proposal(add("../x"))
    line.gate.ask(one)
    result = line.explained(one, 2)
    assert (result["rule"], result["winner"]) == ("bad_path", None)
    assert "below the root" in result["remedy"]


def test_an_unpublished_outcome_is_pending(line: Line) -> None:
    one = proposal(add("a"))
    line.gate.send(one)
    result = line.explained(one, 4)
    assert result["status"] == "pending"
    assert f"tidegate proposals cancel {one.proposal_id}" in result["commands"]


def test_the_log_alone_explains_what_the_topics_have_lost(line: Line) -> None:
    done, bad = proposal(add("a")), late(add("x"))
    line.gate.ask(done)
    line.gate.ask(bad)
    for topic in (line.gate.topics.proposals, line.gate.topics.outcomes):
        line.gate.records(topic).clear()
    assert line.explained(done, 0, "--table", "shop")["version"] == 1
    assert line.explained(bad, 2, "--table", "shop")["rule"] == "deadline_passed"
    nobody = line.run(proposal_commands.app, "show", an_id(), "--table", "shop")
    assert nobody.exit_code == 2
    assert "ProposalNotFound" in nobody.stderr
    hint = line.run(proposal_commands.app, "show", done.proposal_id)
    assert hint.exit_code == 2
    assert "--table" in hint.stderr


def test_without_a_broker_the_log_at_a_root_explains_and_a_name_does_not(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = proposal(add("a"))
    line.gate.ask(one)

    def silent() -> None:
        raise Unavailable("no broker answers")

    monkeypatch.setattr(line.gate.bus, "reader", silent)
    told = line.explained(one, 0, "--table", ROOT)
    assert (told["status"], told["version"]) == ("committed", 1)
    for more in ((), ("--table", "shop")):
        result = line.run(proposal_commands.app, "show", one.proposal_id, *more)
        assert result.exit_code == 4
        assert "no broker answers" in result.stderr


def test_a_halted_table_needs_an_operator(line: Line) -> None:
    line.gate.ask(proposal(add("a")))
    store = line.gate.stores[ROOT]
    assert isinstance(store, MemoryStore)
    store.files[in_log(commit_name(1))] = b"torn"
    line.gate.restart()
    one = proposal(add("b"))
    line.gate.ask(one)
    result = line.explained(one, 3)
    assert (result["status"], result["rule"]) == ("denied", "table_halted")


def test_a_proposal_is_given_up_for_ever(line: Line) -> None:
    line.gate.ask(proposal(add("a")))
    store = line.gate.stores[ROOT]
    assert isinstance(store, MemoryStore)
    path = in_log(commit_name(1))
    whole, store.files[path] = store.files[path], b"torn"
    line.gate.restart()
    one = proposal(add("b"))
    line.gate.ask(one)
    store.files[path] = whole
    line.gate.clock.boot += RETRY_HALTED_S
    line.gate.settle()
    result = line.json(proposal_commands.app, "cancel", one.proposal_id)
    assert result["outcome"]["rejection"]["rule"] == "cancelled"
    assert "never will be in the table" in result["said"]
    line.gate.ask(one)
    assert line.explained(one, 2)["rule"] == "cancelled"


def test_what_is_in_the_table_cannot_be_given_up(line: Line) -> None:
    one = proposal(add("a"))
    line.gate.ask(one)
    result = line.run(proposal_commands.app, "cancel", one.proposal_id)
    assert result.exit_code == 2
    assert "is in the table at version 1" in result.stdout
    nobody = line.run(proposal_commands.app, "cancel", an_id())
    assert nobody.exit_code == 2
    assert "ProposalNotFound" in nobody.stderr


def test_conflicts_are_counted_by_rule_and_shown_with_their_winners(line: Line) -> None:
    assert "nothing was refused" in line.run(proposal_commands.app, *REFUSED, "shop").stdout
    loser = conflict(line)
    bad = late(add("x"), read_version=1)
    line.gate.ask(bad)
    result = line.json(proposal_commands.app, *REFUSED, "shop")
    assert result["rules"] == {"deadline_passed": 1, "concurrent_delete_read": 1}
    by_id = {item["proposal"]: item for item in result["conflicts"]}
    lost = by_id[str(loser.proposal_id)]
    assert lost["refusedIn"] is None, "a conflict follows from the log by itself"
    assert lost["winner"]["operation"] == "DELETE"
    assert by_id[str(bad.proposal_id)]["refusedIn"] == 3
    assert by_id[str(bad.proposal_id)]["winner"] is None
    printed = line.run(proposal_commands.app, *REFUSED, ROOT).stdout
    assert "concurrent_delete_read" in printed
    assert "DELETE by Nightly/7" in printed


def test_all_conflicts_are_counted_however_few_are_shown(line: Line) -> None:
    conflict(line)
    line.gate.ask(*(proposal(add("../x"), read_version=1) for _ in range(3)))
    result = line.json(proposal_commands.app, *REFUSED, "shop", "--limit", "1")
    assert result["rules"] == {"bad_path": 3, "concurrent_delete_read": 1}
    assert len(result["conflicts"]) == 1
    assert "and 3 older" in line.run(proposal_commands.app, *REFUSED, "shop", "--limit", "1").stdout


def test_what_nobody_registered_has_no_conflicts_to_show(line: Line) -> None:
    result = line.run(proposal_commands.app, *REFUSED, "nobody")
    assert result.exit_code == 2
    assert "TableNotRegistered" in result.stderr


def test_a_table_is_described_with_its_registration(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_place, "canonical_root", str)
    monkeypatch.setattr("tidegate_runtime.table_registry.recorded_root", str)
    result = line.json(table_commands.app, "describe", ROOT)
    assert result["version"] == 0
    assert result["registered"]["name"] == "shop"
    assert (result["registered"]["status"], result["registered"]["publishedThrough"]) == ("open", 0)

    def silent(*_: object) -> MemoryBus:
        raise Unavailable("no broker answers")

    monkeypatch.setattr(table_place, "KafkaBus", silent)
    result = line.json(table_commands.app, "describe", ROOT)
    assert (result["version"], result["registered"]) == (0, None)
    assert "no broker answers" in result["registry"]


def test_a_registered_table_takes_no_other_name(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_place, "canonical_root", str)
    monkeypatch.setattr("tidegate_runtime.table_registry.recorded_root", str)
    told = line.json(table_commands.app, "register", ROOT, "--name", "shop")
    assert told["status"] == "committed"
    result = line.run(table_commands.app, "register", ROOT, "--name", "other")
    assert result.exit_code == 2
    assert "TableHasName" in result.stderr
    assert "'shop'" in result.stderr
    line.json(table_commands.app, "drop", "shop", "--yes")
    result = line.run(table_commands.app, "register", ROOT, "--name", "other")
    assert "was dropped; take another root" in result.stderr
    assert line.run(table_commands.app, "register", ROOT, "--timeout", 0).exit_code == 2
    # The folder is emptied, and another table is made in it.
    begins = metadata()
    begins["metaData"]["id"] = "other"
    store = line.gate.stores[ROOT]
    assert isinstance(store, MemoryStore)
    store.files = table_in_memory([protocol(), begins]).files
    result = line.json(table_commands.app, "register", ROOT, "--name", "shop")
    assert (result["status"], result["version"]) == ("committed", 0)
    described = line.json(table_commands.app, "describe", ROOT)["registered"]
    assert (described["table"], described["status"]) == (result["table"], "open")


def test_a_table_is_dropped_when_confirmed(line: Line) -> None:
    refused = line.run(table_commands.app, "drop", "shop")
    assert refused.exit_code == 2, "1 is a fault of ours"
    assert "nothing was dropped" in refused.stderr
    assert line.json(table_commands.app, "list")[0]["status"] == "open"
    result = line.json(table_commands.app, "drop", "shop", "--yes")
    assert (result["status"], result["repeat"]) == ("committed", False)
    assert line.json(table_commands.app, "list")[0]["status"] == "dropped"
    again = line.run(table_commands.app, "drop", ROOT, "--yes")
    assert again.exit_code == 0
    assert "it was already" in again.stdout


def test_a_move_names_a_table_and_a_partition_or_asks_for_balance(line: Line) -> None:
    for wrong in (("shop",), ("--to-partition", "0"), ("shop", "--balance"), ()):
        refused = line.run(table_commands.app, "move", *wrong)
        assert refused.exit_code == 2, wrong
        assert "--to-partition, or --balance" in refused.stderr
    moved = line.run(table_commands.app, "move", "shop", "--to-partition", "0")
    assert "shop is on topic partition 0" in moved.stdout
    wrong_number = line.run(table_commands.app, "move", "shop", "--to-partition", "1")
    assert "no_such_partition" in wrong_number.stderr
    assert "0 to 0, and not 1" in wrong_number.stderr
    assert "nothing is worth a move" in line.run(table_commands.app, "move", "--balance").stdout


def test_a_table_is_halted_and_reopened(line: Line) -> None:
    result = line.json(table_commands.app, "halt", "shop", "--reason", "a restore")
    assert (result["status"], result["version"], result["repeat"]) == ("committed", 0, False)
    assert (
        "it was already"
        in line.run(table_commands.app, "halt", "shop", "--reason", "a restore").stdout
    )
    [listed] = line.json(table_commands.app, "list")
    assert (listed["status"], listed["reason"]) == ("halted", "by hand: a restore")
    assert "by hand: a restore" in line.run(table_commands.app, "list").stdout
    one = proposal(add("a"))
    line.gate.ask(one)
    result = line.explained(one, 3)
    assert (result["rule"], result["status"]) == ("table_halted", "denied")
    assert "a restore" in result["reason"]
    assert "shop is open at version 0" in line.run(table_commands.app, "reopen", "shop").stdout
    assert line.json(table_commands.app, "list")[0]["status"] == "open"


class Odd(Exception):
    """An exception class that no handler names."""


def quarantine(line: Line, service: str) -> None:
    """Let a follower put the table `shop` into quarantine."""
    [record] = line.gate.tables().values()
    bus, topics, clock = line.gate.bus, line.gate.topics, line.gate.clock
    follower = Quarantine(service, bus, topics, clock, lambda *_: None)
    with follower.around(record.table, record.name):
        raise Odd("of an odd kind")
    follower.tell()


@pytest.mark.usefixtures("contained")
def test_the_list_shows_which_follower_quarantined_a_table_and_why(line: Line) -> None:
    assert line.json(table_commands.app, "list")[0]["followers"] == []
    quarantine(line, "checkpointer")
    [result] = line.json(table_commands.app, "list")[0]["followers"]
    assert (result["service"], result["error_class"], result["attempts"]) == (
        "checkpointer",
        "Odd",
        1,
    )
    printed = line.run(table_commands.app, "list").stdout
    assert "checkpointer since " in printed
    assert "Odd: of an odd kind" in printed


@pytest.mark.usefixtures("contained")
def test_a_quarantined_table_is_retried_on_request(line: Line) -> None:
    assert "nobody has set it aside" in line.run(table_commands.app, "retry", "shop").stdout
    for service in ("checkpointer", "cdc-publisher"):
        quarantine(line, service)
    tried = line.json(table_commands.app, "retry", "shop", "--service", "cdc-publisher")["tried"]
    assert tried == ["cdc-publisher"]
    result = line.json(table_commands.app, "list")[0]["followers"]
    assert [item["service"] for item in result] == ["checkpointer"]
    assert "checkpointer at its next look" in line.run(table_commands.app, "retry", "shop").stdout
    assert line.json(table_commands.app, "list")[0]["followers"] == []


@pytest.mark.usefixtures("contained")
def test_a_table_that_the_committer_halted_is_read_again_on_request(line: Line) -> None:
    store = line.gate.stores[ROOT]
    line.gate.table_committer().forget()
    with mock.patch.object(store, "list_from", side_effect=Odd("of an odd kind")):
        line.gate.ask(proposal(add("a")))
        assert line.json(table_commands.app, "list")[0]["reason"] == "Odd: of an odd kind"
        failed = line.run(table_commands.app, "retry", "shop")
        assert failed.exit_code == 2
        assert "Odd: of an odd kind" in failed.stderr
    assert line.json(table_commands.app, "retry", "shop")["tried"] == ["committer"]
    assert line.json(table_commands.app, "list")[0]["status"] == "open"


def test_what_is_halted_by_hand_is_not_tried(line: Line) -> None:
    line.json(table_commands.app, "halt", "shop", "--reason", "a restore")
    assert "halted by hand" in line.run(table_commands.app, "retry", "shop").stdout
    assert line.json(table_commands.app, "list")[0]["status"] == "halted"


def test_the_list_is_shown_where_followers_have_no_topic(line: Line) -> None:
    line.gate.bus._partitions.pop(line.gate.topics.follower_state)
    result = line.run(table_commands.app, "list")
    assert "shop" in result.stdout
    assert "follower-state" in result.stderr


def test_a_version_that_nobody_foresaw_ends_a_command_in_one_message(
    line: Line, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> NoReturn:
        raise RecursionError("too deep")

    monkeypatch.setattr(Commit, "decode", fail)
    monkeypatch.setattr(
        main, "command_for", lambda words: lambda prog_name: table_commands.app(words[1:])
    )
    for more, traces in ((), 0), (("--set", "log.level=DEBUG"), 1):
        monkeypatch.setattr("sys.argv", ["tidegate", "table", "history", ROOT, *more])
        with pytest.raises(SystemExit) as ended:
            main.main()
        assert ended.value.code == 1
        result = capsys.readouterr().err
        assert f"RecursionError: `tidegate table history {ROOT}` failed" in result
        assert f"too deep (version 0) (table {ROOT})" in result
        assert result.count("Traceback") == traces


@pytest.mark.parametrize("reason", ["", "x" * 1001])
def test_a_halt_has_a_reason(line: Line, reason: str) -> None:
    result = line.run(table_commands.app, "halt", "shop", "--reason", reason)
    assert result.exit_code == 2
    assert "BadReason" in result.stderr
    assert line.json(table_commands.app, "list")[0]["status"] == "open"


def test_a_table_that_cannot_be_served_is_not_reopened_and_the_answer_explains_why(
    line: Line,
) -> None:
    line.gate.ask(proposal(add("a")))
    line.json(table_commands.app, "halt", "shop", "--reason", "a restore")
    store = line.gate.stores[ROOT]
    assert isinstance(store, MemoryStore)
    del store.files[in_log(commit_name(1))]
    result = line.run(table_commands.app, "reopen", "shop")
    assert result.exit_code == 2
    assert "version 1 was published" in result.stderr


def test_a_table_is_altered_from_the_command_line(line: Line) -> None:
    result = line.json(
        table_commands.app,
        *("alter", "shop", "--add-column", "price decimal(10, 2)", "--comment", "x=a number"),
        *("--property", "owner=ann", "--property", "tier=gold", "--unset", "tier"),
    )
    assert (result["status"], result["version"]) == ("committed", 1)
    [after] = [row["metaData"] for row in line.gate.entries()[1] if "metaData" in row]
    columns = {item["name"]: item for item in json.loads(after["schemaString"])["fields"]}
    assert columns["price"]["type"] == "decimal(10,2)"
    assert columns["x"]["metadata"] == {"comment": "a number"}
    assert after["configuration"] == {"owner": "ann"}


def test_all_columns_are_listed_again_from_the_command_line(line: Line) -> None:
    def listed(*columns: str) -> tuple[str, ...]:
        return ("alter", "shop", *(f"--replace-columns={column}" for column in columns))

    result = line.json(table_commands.app, *listed("s string", "x bigint", "price double"))
    assert (result["status"], result["version"]) == ("committed", 1)
    [after] = [row["metaData"] for row in line.gate.entries()[1] if "metaData" in row]
    names = [item["name"] for item in json.loads(after["schemaString"])["fields"]]
    assert names == ["s", "x", "price"]
    again = line.run(table_commands.app, *listed("s string", "x bigint", "price double"))
    assert "shop has these columns; nothing was proposed" in again.stdout
    again = line.run(table_commands.app, *listed("s string", "x bigint"))
    assert again.exit_code == 2
    assert "price can't be dropped without column mapping" in again.stderr


@pytest.mark.parametrize(
    "options",
    [
        ("--replace-columns", "x bigint", "--property", "owner=ann"),
        ("--drop-feature", "deletionVectors", "--drop-column", "x"),
        ("--drop-feature", "deletionVectors", "--replace-columns", "x bigint"),
        ("--truncate-history",),
        ("--truncate-history", "--add-column", "y int"),
    ],
)
def test_what_is_changed_alone_is_not_changed_with_anything_else(
    line: Line, options: tuple[str, ...]
) -> None:
    before = len(line.gate.outcomes())
    result = line.run(table_commands.app, "alter", "shop", *options)
    assert result.exit_code == 2
    assert "Invalid value" in result.stderr
    assert len(line.gate.outcomes()) == before


def test_a_feature_that_a_table_has_not_is_not_dropped(line: Line) -> None:
    result = line.run(table_commands.app, "alter", "shop", "--drop-feature", "typeWidening")
    assert result.exit_code == 2
    assert "NOT_PRESENT" in result.stderr


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--schema", "id bigint", "--clone-of", "shop"),
        ("--clone-of", "shop", "--partition-by", "x"),
        ("--clone-of", "shop", "--property", "owner=ann"),
        ("--schema", "id bigint", "--at", "0"),
        ("--schema", "id bigint", "--replace"),
    ],
)
def test_a_table_is_created_of_a_schema_or_of_another_table(
    line: Line, options: tuple[str, ...]
) -> None:
    before = len(line.gate.outcomes())
    result = line.run(table_commands.app, "create", "memory://tables/x", *options)
    assert result.exit_code == 2
    assert "Invalid value" in result.stderr
    assert len(line.gate.outcomes()) == before


def test_a_table_is_cloned_from_the_command_line(line: Line) -> None:
    line.gate.ask(proposal(add("a")))
    root = "memory://tables/clone"
    line.gate.stores[root] = MemoryStore(root)
    cloned = ("create", root, "--clone-of", "shop", "--name", "copy")
    result = line.json(table_commands.app, *cloned, "--at", "1")
    assert (result["status"], result["version"]) == ("committed", 0)
    [shown] = line.json(table_commands.app, "snapshot", "copy")["shown"]
    assert shown["path"] == f"{ROOT}/a"
    again = line.run(table_commands.app, *cloned)
    assert again.exit_code == 2
    replaced = line.run(table_commands.app, *cloned, "--at", "0", "--replace")
    assert f"{root} is a clone in version 1" in replaced.stdout


def test_a_table_is_created_from_the_command_line_and_found_by_its_name(line: Line) -> None:
    root = "memory://tables/flights"
    schema = "id bigint, price decimal(10, 2), day date"
    line.gate.stores[root] = MemoryStore(root)
    created = ("create", root, "--schema", schema, "--partition-by", "day", "--name", "flights")
    result = line.json(table_commands.app, *created, "--property", "delta.appendOnly=true")
    assert (result["status"], result["version"]) == ("committed", 0)
    shown = line.json(table_commands.app, "describe", "flights")
    assert [column["type"] for column in shown["columns"]] == ["long", "decimal(10,2)", "date"]
    assert shown["partitionColumns"] == ["day"]
    assert shown["properties"] == {"delta.appendOnly": "true"}
    again = line.run(table_commands.app, *created)
    assert again.exit_code == 2
    assert "table_exists" in again.stderr


def test_an_invalid_schema_is_reported_before_anything_is_proposed(line: Line) -> None:
    for schema in ("id", "id bigint,", "a.b bigint", "id {"):
        result = line.run(table_commands.app, "create", "memory://tables/x", "--schema", schema)
        assert result.exit_code == 2
        assert "BadChange" in result.stderr


def test_the_last_versions_of_applications_are_shown(line: Line) -> None:
    txns = ({"app_id": "orders/0", "version": 7, "expected": -1},)
    line.gate.ask(proposal(add("a"), app_txns=txns))
    result = line.json(table_commands.app, "snapshot", "shop")
    [orders] = [app for app in result["appTransactions"] if app["appId"] == "orders/0"]
    assert (result["version"], orders["version"]) == (1, 7)
    assert orders["lastUpdated"].endswith("Z")
    printed = line.run(table_commands.app, "snapshot", ROOT, "--limit", 0).stdout
    assert "version 1 of the table" in printed
    [row] = [row for row in printed.splitlines() if row.startswith("orders/0")]
    assert row.split()[1] == "7"


def test_a_name_that_nobody_registered_is_no_root(line: Line) -> None:
    for verb in ("rows", "history", "describe"):
        result = line.run(table_commands.app, verb, "nobody")
        assert result.exit_code == 2
        assert "TableNotRegistered" in result.stderr
        assert "tidegate table list" in result.stderr


def test_an_invalid_change_is_reported_before_anything_is_proposed(line: Line) -> None:
    before = len(line.gate.outcomes())
    for wrong in (("--add-column", "price"), ("--property", "owner"), ()):
        result = line.run(table_commands.app, "alter", "shop", *wrong)
        assert result.exit_code == 2
        assert "BadChange" in result.stderr
    assert len(line.gate.outcomes()) == before


def test_a_table_that_was_made_anew_is_served_by_one_command(line: Line) -> None:
    refused = line.run(table_commands.app, "reopen", "shop", "--made-anew")
    assert refused.exit_code == 2
    assert "it was not made anew" in " ".join(refused.stderr.split())
    store = line.gate.stores[ROOT]
    assert isinstance(store, MemoryStore)
    store.files.clear()
    again = {"metaData": {**metadata()["metaData"], "id": "another"}}
    store.put(in_log(commit_name(0)), to_bytes([info(), protocol(), again]))
    store.put(in_log(commit_name(1)), to_bytes([info(), add("there")]))
    result = line.json(table_commands.app, "reopen", "shop", "--made-anew")
    assert (result["status"], result["version"]) == ("committed", 1)
    record = line.gate.tables()[TABLE]
    assert (record.status, record.table_id, record.name) == ("open", "another", "shop")
    [outcome] = line.gate.ask(proposal(add("late"), read_version=0))
    assert outcome.rejection is not None
    assert outcome.rejection.rule == "other_table"
