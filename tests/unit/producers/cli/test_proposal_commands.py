"""The proposal commands, given ids, bytes and records that do not match."""

import json
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from tests.builders import (
    ROOT,
    TABLE,
    add,
    an_id,
    batch_of,
    info,
    metadata,
    proposal,
    protocol,
    remove,
    row_delete,
    rows_of,
)
from tests.fakes.memory_clients import MemoryProducer
from tests.fakes.memory_store import MemoryStore
from tests.unit.producers.commands import Line, conflict, line_of
from tests.verbatim_proposals import verbatim
from tidegate_delta.errors import Unavailable
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_messages.codec import encode
from tidegate_messages.proposal import Operation, Predicate, ReadSet
from tidegate_producers.cli import proposal_commands, table_commands
from tidegate_runtime.kafka.client_protocols import TopicPartition


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Line:
    return line_of(monkeypatch)


def unreadable(line: Line, topic: str, value: bytes) -> None:
    line.gate.bus.append(TopicPartition(topic, 0), str(TABLE).encode(), value)


@pytest.mark.parametrize("as_header", [True, False])
def test_a_dead_letter_without_an_outcome_is_explained_and_shown(
    line: Line, as_header: bool
) -> None:
    """It names its id, and no table: there is nobody whom an outcome would reach."""
    one = proposal(add("a"))
    headers = (("proposal_id", str(one.proposal_id).upper().encode()),) if as_header else ()
    no_table = encode(one)[:-1].replace(b'"table"', b'"other"')
    value = b"no JSON" if as_header else no_table
    at = TopicPartition(line.gate.topics.proposals, 0)
    line.gate.bus.append(at, None, b"another", ())
    offset = line.gate.bus.append(at, None, value, headers)
    line.gate.settle()
    result = line.explained(one, 2)
    assert (result["status"], result["rule"], result["root"]) == ("dead letter", "malformed", None)
    assert f"{at}@{offset}" in result["meaning"]
    assert "set the headers `proposal_id` and `table`" in result["remedy"]
    shown = line.json(proposal_commands.app, "show", one.proposal_id, exit_code=2)
    assert (shown["status"], shown["reason"]) == ("dead letter", result["reason"])
    assert line.run(proposal_commands.app, "show", an_id()).exit_code == 2


def test_other_bytes_under_an_id_are_another_row_with_an_answer_of_their_own(line: Line) -> None:
    one = proposal(add("a"))
    line.gate.ask(one)
    line.gate.ask(one.model_copy(update={"user_metadata": "other"}))
    [result] = line.json(proposal_commands.app, "list", "--limit", 1)
    assert (result["status"], result["rule"], result["version"]) == ("denied", "id_reused", None)
    assert result["latency_ms"] >= 0
    assert datetime.fromisoformat(result["at"]).tzinfo is not None, "a time has its zone"
    result = line.explained(one, 0)
    assert (result["version"], result["others"]) == (1, ["denied (id_reused)"])
    printed = line.run(proposal_commands.app, "show", one.proposal_id).stdout
    assert "other bytes came under its id, which were denied (id_reused)" in printed
    outcomes = line.json(proposal_commands.app, "show", one.proposal_id)["outcomes"]
    assert [each["status"] for each in outcomes] == ["committed", "denied"]
    assert outcomes[1]["rejection"]["field"] == "proposal_id"


def test_an_unreadable_record_is_explained_by_its_outcome(line: Line) -> None:
    name = an_id()
    body = f'{{"proposal_id":"{name}","table":"{TABLE}","kind":"explode"}}'
    unreadable(line, line.gate.topics.proposals, body.encode())
    line.gate.settle()
    shown = line.json(proposal_commands.app, "show", name, exit_code=2)
    told = shown["explanation"]
    assert (told["status"], told["rule"], told["root"]) == ("denied", "unknown_kind", ROOT)
    assert told["field"] == "kind"
    [*_, listed] = line.json(proposal_commands.app, "list")
    assert (listed["proposal"], listed["rule"]) == (str(name), "unknown_kind")
    assert shown["body"] is None
    result = line.run(proposal_commands.app, "cancel", name)
    assert result.exit_code == 2
    assert "ProposalUnreadable" in result.stderr


def test_outcomes_of_an_unregistered_table_are_explained(line: Line) -> None:
    one = UUID(int=7)
    body = f'{{"proposal_id":"{one}","table":"{UUID(int=8)}","kind":"explode"}}'
    unreadable(line, line.gate.topics.proposals, body.encode())
    line.gate.settle()
    assert line.json(proposal_commands.app, "show", one, exit_code=2)["explanation"]["root"] is None


def test_an_outcome_outlives_its_record(line: Line) -> None:
    one, loser = proposal(add("z")), conflict(line)
    line.gate.ask(one)
    line.gate.records(line.gate.topics.proposals).clear()
    assert line.explained(one, 0)["version"] == 3
    assert line.explained(loser, 2)["rule"] == "concurrent_delete_read"


def test_what_is_no_outcome_hides_none(line: Line) -> None:
    one = proposal(add("a"))
    line.gate.ask(one)
    unreadable(line, line.gate.topics.outcomes, b"not json")
    assert line.explained(one, 0)["version"] == 1
    assert line.json(proposal_commands.app, "list")[-1]["status"] == "committed"
    assert (
        line.json(proposal_commands.app, "list", "--refused", "--table", "shop")["conflicts"] == []
    )


def test_brokers_that_are_silent_leave_open_whether_a_proposal_was_sent(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent() -> None:
        raise Unavailable("no broker answers")

    monkeypatch.setattr(line.gate.bus, "reader", silent)
    result = line.run(proposal_commands.app, "show", an_id(), "--table", ROOT)
    assert result.exit_code == 4
    assert "no broker answers" in result.stderr
    assert "never sent" not in result.stderr


def test_a_broker_that_falls_silent_is_no_end_of_the_topic(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = proposal(add("a"))
    line.gate.ask(one)
    made = line.gate.bus.reader

    def reader() -> Any:
        reading = made()
        asked: list[TopicPartition] = []
        bounds = reading.bounds

        def at_first(at: TopicPartition, timeout_s: float = 1.0) -> Any:
            if at in asked:
                raise Unavailable("no broker answers")
            asked.append(at)
            return bounds(at)

        monkeypatch.setattr(reading, "bounds", at_first)
        monkeypatch.setattr(reading, "read", lambda *_: [])
        return reading

    monkeypatch.setattr(line.gate.bus, "reader", reader)
    result = line.run(proposal_commands.app, "show", one.proposal_id)
    assert result.exit_code == 4
    assert "no broker answers" in result.stderr


def test_what_the_topics_hold_is_shown_where_the_log_cannot_be_read(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    loser = conflict(line)

    def silent(*_: object) -> None:
        raise Unavailable("the store does not answer")

    monkeypatch.setattr(line.gate.stores[ROOT], "read", silent)
    result = line.run(proposal_commands.app, "show", loser.proposal_id, "--json")
    assert result.exit_code == 4
    assert "the store does not answer" in result.stderr
    shown = json.loads(result.stdout)
    assert (shown["rule"], shown["explanation"]) == ("concurrent_delete_read", None)
    assert shown["outcomes"][0]["status"] == "rejected"
    printed = line.run(proposal_commands.app, "show", loser.proposal_id).stdout
    assert "status        rejected" in printed


def test_the_refusals_of_no_table_are_not_listed(line: Line) -> None:
    result = line.run(proposal_commands.app, "list", "--refused")
    assert result.exit_code == 2
    assert "--table" in result.stderr


def test_a_conflict_that_was_given_up_is_still_shown_as_the_conflict(line: Line) -> None:
    loser = conflict(line)
    line.gate.ask(proposal(kind="cancel", cancels=loser.proposal_id, read_version=1))
    result = line.json(proposal_commands.app, "list", "--refused", "--table", "shop")["conflicts"]
    by_id = {item["proposal"]: item for item in result}
    lost = by_id[str(loser.proposal_id)]
    assert lost["rejection"]["rule"] == "concurrent_delete_read"
    assert lost["winner"]["version"] == 2


def test_who_gives_a_proposal_up_was_not_refused_himself(line: Line) -> None:
    line.gate.ask(proposal(add("a")))
    never = an_id()
    line.gate.ask(proposal(kind="cancel", cancels=never, read_version=1))
    result = line.json(proposal_commands.app, "list", "--refused", "--table", "shop")
    assert result["rules"] == {"cancelled": 1}
    assert [item["proposal"] for item in result["conflicts"]] == [str(never)]


def test_what_was_rejected_is_given_up_without_a_word_in_the_log(line: Line) -> None:
    loser = conflict(line)
    before = line.gate.entries()
    result = line.json(proposal_commands.app, "cancel", loser.proposal_id)
    assert result["said"].endswith("never will be in the table (rule concurrent_delete_read)")
    assert line.gate.entries() == before


def test_a_cancel_is_explained_by_what_it_gave_up(line: Line) -> None:
    loser = conflict(line)
    cancel = proposal(kind="cancel", cancels=loser.proposal_id, read_version=1)
    line.gate.ask(cancel)
    result = line.explained(cancel, 0)
    assert result["status"] == "rejected"
    assert f"gave up proposal {loser.proposal_id}" in result["meaning"]
    assert line.json(proposal_commands.app, "list")[-1]["cancels"] == str(loser.proposal_id)


def test_an_unanswered_cancel_names_its_proposal(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = proposal(add("a"))
    line.gate.send(one)
    monkeypatch.setattr(line.gate.bus, "producer", lambda: MemoryProducer(line.gate.bus))
    result = line.run(proposal_commands.app, "cancel", one.proposal_id, "--timeout", 1)
    assert result.exit_code == 4
    assert f"whether proposal {one.proposal_id} is given up" in result.stderr


def test_ready_bytes_are_explained_by_the_bytes_of_their_version(line: Line) -> None:
    one = verbatim(line.gate, 1, info(txnId="w"), add("a"))
    line.gate.ask(one)
    result = line.explained(one, 0)
    assert (result["version"], result["meaning"]) == (1, "it is version 1")
    store = line.gate.stores[ROOT]
    assert isinstance(store, MemoryStore)
    store.files[in_log(commit_name(1))] += b" "
    assert "has other bytes" in line.explained(one, 3)["meaning"]


def test_a_conflict_is_explained_by_the_predicate_and_the_application_that_it_is_about(
    line: Line,
) -> None:
    first = batch_of("s", 1, add("a"))
    line.gate.ask(first, batch_of("other", 1, add("b")))
    looked: list[Predicate] = [
        {"op": "=", "column": ["x"], "value": n, "type": "long"} for n in (1, 2)
    ]
    late = proposal(add("c"), reads=ReadSet(app_ids=("s",)))
    read = proposal(add("d"), reads=ReadSet(predicates=tuple(looked)))
    line.gate.ask(late, read)
    result = line.explained(late, 2)
    assert result["overlap"]["applications"] == ["s"]
    assert result["winner"]["proposal_ids"] == [str(first.proposal_id)]
    assert line.explained(read, 2)["overlap"]["predicates"] == ["x = 1"]
    assert "  s\n" in line.run(proposal_commands.app, "list", "--refused", "--table", "shop").stdout


def test_of_many_who_deleted_rows_those_of_the_file_are_named(line: Line) -> None:
    names = ["deletionVectors"]
    listed = protocol(3, 7, readerFeatures=names, writerFeatures=names)
    line.gate.ask(
        proposal(
            listed,
            metadata(enableDeletionVectors="true"),
            table=UUID(int=5),
            table_root="memory://tables/rows",
            read_version=-1,
            operation=Operation(name="CREATE TABLE"),
        )
    )
    at = {"table": UUID(int=5), "table_root": "memory://tables/rows"}
    line.gate.ask(proposal(add("a"), add("b"), read_version=0, **at))
    first, other, second = (
        row_delete(rows_of(path, [row]), read_version=1, **at)
        for path, row in (("a", 1), ("b", 1), ("a", 2))
    )
    line.gate.ask(first, other, second)
    late = proposal(remove("a"), read_version=1, reads=ReadSet(files=("a",)), **at)
    line.gate.ask(late)
    result = line.explained(late, 2)
    assert result["winner"]["proposal_ids"] == [str(first.proposal_id), str(second.proposal_id)]


def test_a_torn_log_does_not_hide_what_the_topic_says_of_refusals(line: Line) -> None:
    loser = conflict(line)
    store = line.gate.stores[ROOT]
    assert isinstance(store, MemoryStore)
    store.files[in_log(commit_name(2))] = b"torn"
    result = line.json(proposal_commands.app, "list", "--refused", "--table", "shop")["conflicts"]
    assert [item["proposal"] for item in result] == [str(loser.proposal_id)]
    assert datetime.fromisoformat(result[0]["at"]).tzinfo is not None


def test_what_a_writer_sent_steers_no_terminal_and_ends_no_line(line: Line) -> None:
    one = proposal(add("../\x1b[2J\nx"))
    line.gate.ask(one)
    for command in (("show", one.proposal_id), ("list",)):
        assert "\x1b" not in line.run(proposal_commands.app, *command).stdout
    printed = line.run(proposal_commands.app, "list", "--refused", "--table", "shop").stdout
    assert "\x1b" not in printed
    assert r"../\x1b[2J\nx" in printed


def test_a_row_ends_with_its_last_word(line: Line) -> None:
    line.gate.ask(proposal(add("a")))
    printed = (
        line.run(table_commands.app, "list").stdout + line.run(proposal_commands.app, "list").stdout
    )
    assert not [row for row in printed.splitlines() if row != row.rstrip()]
