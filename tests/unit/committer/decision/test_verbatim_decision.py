"""Verbatim entries decided by a whole committer: each row of their decision table, and denials."""

import json
from typing import Any
from unittest import mock
from uuid import UUID

import pytest

from tests import builders
from tests.builders import ROOT, TABLE, Gate, add, create, info, proposal, remove, to_bytes
from tests.checkpoints import put_classic
from tests.support.feature_rows import VECTOR
from tests.support.outcomes import rejection_of, rule_of, rules_of
from tests.support.tables import creating
from tests.verbatim_proposals import stage, verbatim
from tidegate_committer.settings import CommitterSection
from tidegate_delta.errors import Unavailable
from tidegate_delta.log.commit import sha256
from tidegate_delta.log.file_names import Version, commit_name, in_log
from tidegate_messages.proposal import Proposal
from tidegate_runtime.table_io.checkpoint_writer import move_hint_forward
from tidegate_runtime.table_io.open_table import open_snapshot


def answer(gate: Gate, one: Proposal) -> tuple[str, str]:
    outcome = gate.ask(one)[-1]
    return outcome.status, rule_of(outcome)


def bytes_of(gate: Gate, version: int) -> bytes | None:
    return gate.stores[ROOT].read(in_log(commit_name(version)))


def staged_at(one: Proposal) -> str:
    assert one.claim_check is not None
    return one.claim_check.path


def test_ready_bytes_become_the_next_version_as_they_are(gate: Gate) -> None:
    one = verbatim(gate, 1, info(txnId="w"), add("a"))
    [outcome] = gate.ask(one)
    assert (outcome.status, outcome.version, outcome.sub_index) == ("committed", 1, None)
    content = bytes_of(gate, 1)
    assert content is not None
    assert one.claim_check is not None
    assert sha256(content) == one.claim_check.sha256


def test_a_verbatim_version_is_published_as_another_engines_and_lives_on(gate: Gate) -> None:
    gate.ask(verbatim(gate, 1, info(txnId="w"), add("a")))
    event = gate.commits()[-1]
    content = bytes_of(gate, 1)
    assert content is not None
    assert (event.version, event.author, event.sha256) == (1, "external", sha256(content))
    assert gate.tables()[TABLE].published_through == 1
    [outcome] = gate.ask(builders.delete("a", read_version=1))
    assert (outcome.status, outcome.version) == ("committed", 2)


def test_the_same_bytes_again_are_a_repeat_whatever_came_between(gate: Gate) -> None:
    one = verbatim(gate, 1, info(txnId="w"), add("a"))
    gate.ask(one, proposal(add("b")))
    [again] = gate.ask(one)
    assert (again.status, again.version, again.repeat) == ("committed", 1, True)
    assert len(gate.entries()) == 3


def test_a_repeat_needs_no_staged_file_and_no_memory(gate: Gate) -> None:
    one = verbatim(gate, 1, info(txnId="w"), add("a"))
    gate.ask(one)
    gate.stores[ROOT].delete(staged_at(one))
    gate.restart()
    outcomes = gate.ask(one)
    assert {(again.status, again.version) for again in outcomes} == {("committed", 1)}


def test_a_version_that_holds_other_bytes_is_taken_and_the_head_is_returned(gate: Gate) -> None:
    late = verbatim(gate, 1, info(txnId="w"), add("a"))
    gate.ask(proposal(add("b")), proposal(builders.metadata(note="x"), add("c")))
    [outcome] = gate.ask(late)
    assert (outcome.status, rule_of(outcome)) == ("rejected", "version_taken")
    assert rejection_of(outcome).winner_version == 1
    assert rejection_of(outcome).head_version == len(gate.entries()) - 1


def test_a_refusal_writes_nothing_and_is_published_again_after_a_crash(gate: Gate) -> None:
    late = verbatim(gate, 1, info(txnId="w"), add("a"))
    gate.ask(proposal(add("b")))
    gate.ask(late)
    gate.restart()
    assert answer(gate, late) == ("rejected", "version_taken")
    assert len(gate.entries()) == 2


def test_a_gap_is_denied_once_the_log_was_read_again(gate: Gate) -> None:
    assert answer(gate, verbatim(gate, 2, info(txnId="w"), add("a"))) == ("denied", "version_ahead")


def test_a_version_that_another_engine_has_made_room_for_is_no_gap(gate: Gate) -> None:
    gate.stores[ROOT].put(in_log(commit_name(1)), to_bytes([info(), add("x")]))
    [outcome] = gate.ask(verbatim(gate, 2, info(txnId="w"), add("a")))
    assert (outcome.status, outcome.version) == ("committed", 2)


def test_a_staged_file_that_is_not_there_is_never_called_a_taken_version(gate: Gate) -> None:
    one = verbatim(gate, 1, info(txnId="w"), add("a"))
    gate.stores[ROOT].delete(staged_at(one))
    assert answer(gate, one) == ("denied", "staged_file")
    gate.ask(proposal(add("b")))
    assert answer(gate, one) == ("denied", "staged_file")


def test_a_staged_file_with_other_bytes_is_denied(gate: Gate) -> None:
    one = verbatim(gate, 1, info(txnId="w"), add("a"))
    gate.stores[ROOT].put(staged_at(one), to_bytes([info(), add("z")]))
    assert answer(gate, one) == ("denied", "staged_file")
    gate.stores[ROOT].put(staged_at(one), to_bytes([info(txnId="w"), add("z")]))
    assert answer(gate, one) == ("denied", "staged_file"), "as many, too"
    assert bytes_of(gate, 1) is None


def test_who_names_the_work_needs_no_staged_file_to_hear_that_the_version_is_taken(
    gate: Gate,
) -> None:
    one = verbatim(gate, 1, info(txnId="w"), add("a"), txn_id="w")
    gate.stores[ROOT].delete(staged_at(one))
    gate.ask(proposal(add("b")))
    assert answer(gate, one) == ("rejected", "version_taken")


def test_work_without_a_name_is_not_taken_for_another_one_without(gate: Gate) -> None:
    gate.stores[ROOT].put(in_log(commit_name(1)), to_bytes([info(), add("theirs")]))
    assert answer(gate, verbatim(gate, 1, info(), add("a"))) == ("rejected", "version_taken")


@pytest.mark.parametrize("txn_id", [None, "w"])
@pytest.mark.parametrize("version", [2, 3])
def test_work_that_is_in_the_table_is_not_committed_twice(
    gate: Gate, version: int, txn_id: str | None
) -> None:
    gate.ask(verbatim(gate, 1, info(txnId="w"), add("a")))
    gate.ask(proposal(add("b")))
    again = verbatim(gate, version, info(txnId="w"), add("a2"), read_version=0, txn_id=txn_id)
    outcome = gate.ask(again)[-1]
    assert (outcome.status, rule_of(outcome)) == ("denied", "already_committed")
    assert "version 1" in rejection_of(outcome).reason


def test_a_version_below_the_oldest_that_is_left_is_expired() -> None:
    gate = Gate(CommitterSection(roots=("memory://tables",), id_window=1))
    gate.ask(create())
    for number in range(3):
        gate.ask(proposal(add(f"a{number}"), read_version=number))
    late = verbatim(gate, 1, info(txnId="w"), add("a"))
    # The versions since its read version are cleaned up, so whether it landed cannot be checked.
    later = verbatim(gate, 4, info(txnId="v"), add("b"), read_version=0)
    store = gate.stores[ROOT]
    move_hint_forward(store, put_classic(store, open_snapshot(store, Version(3)), 0))
    for version in range(3):
        store.delete(in_log(commit_name(version)))
    gate.restart()
    assert [
        outcome.status for outcome in gate.ask(late) if outcome.proposal_id == late.proposal_id
    ] == ["expired"]
    assert gate.ask(later)[-1].status == "expired"
    last = verbatim(gate, 4, info(txnId="v"), add("b"), read_version=2)
    assert gate.ask(last)[-1].status == "committed", "every version since is at hand"


def test_a_put_without_an_answer_is_resolved_by_the_bytes(gate: Gate) -> None:
    one = verbatim(gate, 1, info(txnId="w"), add("a"))
    store = gate.stores[ROOT]
    with mock.patch.object(store, "put_if_absent", side_effect=Unavailable("it is away")):
        gate.send(one)
        gate.settle(2)
    assert gate.outcomes()[1:] == []
    gate.settle(8)
    assert [(outcome.status, outcome.version) for outcome in gate.outcomes()[1:]] == [
        ("committed", 1)
    ]


def test_what_was_not_published_before_a_crash_is_published_after_it(gate: Gate) -> None:
    one = verbatim(gate, 1, info(txnId="w"), add("a"))
    gate.send(one)
    dead = mock.patch.object(gate.loop.producer, "flush", side_effect=Unavailable("it dies"))
    with dead, pytest.raises(Unavailable):
        gate.settle(3)
    gate.restart()
    gate.settle(12)
    answers = {(outcome.status, outcome.version) for outcome in gate.outcomes()[1:]}
    assert answers == {("committed", 1)}
    assert [event.version for event in gate.commits()] == [0, 1]


def test_it_shares_a_line_with_native_proposals_and_no_entry(gate: Gate) -> None:
    outcomes = gate.ask(
        proposal(add("a")),
        proposal(add("b")),
        verbatim(gate, 2, info(txnId="w"), add("c"), read_version=0),
        proposal(add("d")),
        proposal(add("e")),
    )
    assert [outcome.version for outcome in outcomes] == [1, 1, 2, 3, 3]


def test_who_names_his_work_is_known_by_it_when_he_has_the_right_of_way() -> None:
    gate = Gate(CommitterSection(roots=("memory://tables",), external_grace_ms=60_000))
    gate.ask(create(), proposal(add("a")))
    late = verbatim(gate, 1, info(txnId="w"), add("z"), txn_id="w")
    assert answer(gate, late) == ("rejected", "version_taken")
    assert gate.ask(proposal(add("b"))) == [], "he is waited for"
    again = gate.ask(verbatim(gate, 2, info(txnId="w"), add("z"), txn_id="w"))
    assert [(item.status, item.version) for item in again] == [("committed", 2), ("committed", 3)]


ELSEWHERE = {"storageType": "p", "pathOrInlineDv": "s3://bucket/a.bin"}
WRONG: dict[str, tuple[str, list[builders.Row]]] = {
    "nothing": ("malformed", []),
    "no action": ("malformed", [{"add": {"path": "a"}}]),
    "a row of nothing": ("malformed", [info(), {}, add("a")]),
    "a domain that does not say whether it is removed": (
        "malformed",
        [info(), {"domainMetadata": {"domain": "app", "configuration": ""}}],
    ),
    "commitInfo later": ("malformed", [add("a"), info()]),
    "another work": ("malformed", [info(txnId="other"), add("a")]),
    "our provenance": ("reserved_provenance", [info(tidegate={"epoch": "x"}), add("a")]),
    "our watermark": (
        "reserved_provenance",
        [info(), {"txn": {"appId": "tidegate/x/0", "version": 1}}],
    ),
    "a path twice": ("duplicate_action", [info(), add("a"), add("a")]),
    "a dead file": ("removed_file_not_live", [info(), remove("nowhere")]),
    "a vector it has not": (
        "removed_file_not_live",
        [info(), remove("old", deletionVector=VECTOR)],
    ),
    "a partition it has not": ("partition_values", [info(), add("p=1/a")]),
    "an unknown feature": (
        "unknown_feature",
        [info(), builders.protocol(3, 7, readerFeatures=["zz"], writerFeatures=["zz"])],
    ),
    "a feature that is not written": (
        "not_supported",
        [
            info(),
            builders.protocol(1, 7, writerFeatures=["appendOnly", "invariants", "collations"]),
        ],
    ),
    "a lower protocol": ("bad_protocol", [info(), builders.protocol(1, 1)]),
    "a text for a boolean": ("malformed", [info(), add("a", dataChange="true")]),
    "a text for a number": ("malformed", [info(), add("a", baseRowId="5")]),
    "a time in text": ("malformed", [info(timestamp="5"), add("a")]),
    "a number for a boolean": (
        "malformed",
        [info(), {"domainMetadata": {"domain": "d", "configuration": "", "removed": 0}}],
    ),
    "a number that can't be": ("malformed", [info(), add("a", size=-1)]),
    "statistics that are none": ("malformed", [info(), add("a", stats="[]")]),
    "a path out of the table": ("bad_path", [info(), add("../a")]),
    "a path elsewhere": ("place_not_allowed", [info(), add("s3://bucket/a")]),
    "a change file elsewhere": (
        "bad_path",
        [info(), {"cdc": {"path": "/a", "partitionValues": {}, "size": 1, "dataChange": False}}],
    ),
    "a path that is no URI": ("bad_path", [info(), add("a#b")]),
    "a vector elsewhere": ("bad_path", [info(), add("a", deletionVector={**VECTOR, **ELSEWHERE})]),
    "a property of no sense": ("bad_metadata", [info(), builders.metadata(appendOnly="perhaps")]),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_would_break_the_table_is_denied(gate: Gate, name: str) -> None:
    gate.ask(proposal(add("old")))
    rule, rows = WRONG[name]
    assert answer(gate, verbatim(gate, 2, *rows, txn_id="w")) == ("denied", rule)
    assert len(gate.entries()) == 2


def test_lines_that_are_no_commit_are_denied(gate: Gate) -> None:
    one = verbatim(gate, 1, info(txnId="w"))
    torn = b'{"add": {"path": '
    claim = stage(gate.stores[ROOT], 1, torn)
    assert answer(gate, one.model_copy(update={"claim_check": claim})) == ("denied", "malformed")


def test_a_timestamp_of_its_own_must_be_there_and_later() -> None:
    gate = Gate()
    rows = (
        builders.protocol(1, 7, writerFeatures=["inCommitTimestamp", "appendOnly", "invariants"]),
        builders.metadata(enableInCommitTimestamps="true"),
    )
    gate.ask(creating(*rows))
    assert rules_of(gate.ask(verbatim(gate, 1, info(txnId="w"), add("a")))) == ["no_timestamp"]
    [outcome] = gate.ask(verbatim(gate, 1, info(txnId="w", inCommitTimestamp=5), add("a")))
    assert rule_of(outcome) == "timestamp_not_later"
    later = gate.clock.now_ms() + 1_000
    [outcome] = gate.ask(verbatim(gate, 1, info(txnId="w", inCommitTimestamp=later), add("a")))
    assert outcome.status == "committed"


def test_ready_bytes_of_another_table_or_of_long_ago_are_denied(gate: Gate) -> None:
    rows = (info(txnId="w"), add("a"))
    assert answer(gate, verbatim(gate, 1, *rows, table_id="another")) == ("denied", "other_table")
    assert answer(gate, verbatim(gate, 1, *rows, table_id=None, deadline_ms=1)) == (
        "denied",
        "deadline_passed",
    )
    assert answer(gate, verbatim(gate, 1, *rows, deadline_ms=1)) == ("denied", "deadline_passed")
    assert answer(gate, verbatim(gate, 1, *rows, files_since_ms=1)) == ("denied", "files_too_old")
    unread = verbatim(gate, 1, *rows, read_version=-1, table_id=builders.TABLE_ID)
    assert gate.ask(unread)[-1].status == "committed"


def test_an_operator_may_take_none() -> None:
    gate = Gate(CommitterSection(roots=("memory://tables",), verbatim=False))
    gate.ask(create())
    one = verbatim(gate, 1, info(txnId="w"), add("a"))
    assert answer(gate, one) == ("denied", "verbatim_not_allowed")


def test_a_table_that_nobody_knows_takes_none(gate: Gate) -> None:
    one = verbatim(gate, 1, info(txnId="w"), add("a"), table=UUID(int=9))
    assert answer(gate, one) == ("denied", "unknown_table")


def test_a_verbatim_proposal_that_read_its_own_version_becomes_a_dead_letter(gate: Gate) -> None:
    one = verbatim(gate, 1, info(txnId="w"), add("a"))
    body: dict[str, Any] = {**one.model_dump(mode="json"), "read_version": 1}
    value = json.dumps(body).encode()
    assert gate.ask(value)[-1].status == "denied"
    assert gate.letters()
