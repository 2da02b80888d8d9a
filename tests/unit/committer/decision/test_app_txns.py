"""Positions of applications: compared with the table's and set, all of a proposal or none."""

import json

import pytest

from tests.builders import Gate, add, proposal, to_bytes
from tests.support.outcomes import rejection_of, rules_of
from tidegate_committer.intake.proposal_reader import read_record
from tidegate_committer.policy import Policy
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_messages.codec import encode
from tidegate_messages.proposal import AppTxn, AppTxnAdvance, Proposal


def advance(file: str, *advances: tuple[str, int, int]) -> Proposal:
    """Return an append of a file with (application, version, expected version) triples."""
    txns = tuple(
        AppTxnAdvance(app_id=app_id, version=version, expected=expected)
        for app_id, version, expected in advances
    )
    return proposal(add(file), app_txns=txns)


def versions(gate: Gate, *app_ids: str) -> dict[str, int]:
    question = proposal(kind="app_versions", app_ids=app_ids, read_version=-1)
    [outcome] = gate.ask(question)
    assert outcome.status == "answered"
    return dict(outcome.app_versions or {})


def test_several_positions_advance_together(gate: Gate) -> None:
    assert rules_of(gate.ask(advance("a", ("s/0", 10, -1), ("s/1", 4, -1)))) == ["committed"]
    assert versions(gate, "s/0", "s/1", "s/2") == {"s/0": 10, "s/1": 4, "s/2": -1}


def test_all_or_none_advance(gate: Gate) -> None:
    gate.ask(advance("a", ("s/0", 10, -1), ("s/1", 4, -1)))
    [outcome] = gate.ask(advance("b", ("s/0", 12, 10), ("s/1", 9, 7)))
    assert outcome.status == "denied"
    assert versions(gate, "s/0", "s/1") == {"s/0": 10, "s/1": 4}


def test_work_that_is_there_is_to_be_skipped(gate: Gate) -> None:
    first = advance("a", ("s/0", 10, -1), ("s/1", 4, -1))
    gate.ask(first)
    [outcome] = gate.ask(advance("b", ("s/0", 10, -1), ("s/1", 4, -1)))
    result = rejection_of(outcome)
    assert (outcome.status, result.rule, result.advice) == ("rejected", "app_txn_seen", "skip")
    assert (result.app_version, result.head_version) == (10, 1)
    assert result.winner_proposal_id == str(first.proposal_id)


def test_another_writer_that_went_further_is_reported_with_both_versions(gate: Gate) -> None:
    gate.ask(advance("a", ("s", 10, -1)), advance("b", ("s", 20, 10)))
    [outcome] = gate.ask(advance("c", ("s", 15, 10)))
    result = rejection_of(outcome)
    assert (outcome.status, result.rule, result.advice) == ("rejected", "app_txn_conflict", "rerun")
    assert (result.app_id, result.app_version, result.expected_app_version) == ("s", 20, 10)


def test_another_writer_that_took_the_same_version_from_elsewhere_is_not_taken_for_this_one(
    gate: Gate,
) -> None:
    gate.ask(advance("a", ("s/0", 10, -1)))
    [outcome] = gate.ask(advance("b", ("s/0", 10, -1), ("s/1", 3, -1)))
    assert rejection_of(outcome).rule == "app_txn_conflict", "only a part of the work is there"


def test_a_gap_is_denied_and_the_same_bytes_are_taken_once_it_is_closed(gate: Gate) -> None:
    early = advance("b", ("s", 20, 10))
    [outcome] = gate.ask(early)
    result = rejection_of(outcome)
    assert (outcome.status, result.rule) == ("denied", "app_txn_conflict")
    assert (result.app_version, result.expected_app_version) == (-1, 10)
    gate.ask(advance("a", ("s", 10, -1)))
    assert rules_of(gate.ask(early)) == ["committed"]


def test_proposals_that_follow_each_other_need_not_wait_for_outcomes(gate: Gate) -> None:
    chain = [advance(f"f{n}", ("s", n, n - 1)) for n in range(5)]
    assert [outcome.status for outcome in gate.ask(*chain)] == ["committed"] * 5
    assert versions(gate, "s") == {"s": 4}


def test_a_question_is_answered_behind_the_proposals_before_it(gate: Gate) -> None:
    question = proposal(kind="app_versions", app_ids=("s",), read_version=-1)
    first, answer = gate.ask(advance("a", ("s", 7, -1)), question)
    assert (first.version, answer.version) == (1, 1)
    assert answer.app_versions == {"s": 7}


def test_a_question_writes_nothing_and_names_its_applications(gate: Gate) -> None:
    before = len(gate.entries())
    versions(gate, "s")
    assert len(gate.entries()) == before
    with pytest.raises(ValueError, match="app_ids"):
        proposal(kind="app_versions", read_version=-1)


def test_the_answer_to_the_largest_question_fits_into_a_record(gate: Gate) -> None:
    names = tuple(f"{number:03d}" + "x" * 500 for number in range(1_000))
    gate.bus.limit(gate.topics.outcomes, 1024 * 1024)
    assert versions(gate, *names) == dict.fromkeys(names, -1)
    longer = tuple(name + "x" * 100 for name in names)
    [outcome] = gate.ask(proposal(kind="app_versions", app_ids=longer, read_version=-1))
    result = rejection_of(outcome)
    assert (outcome.status, result.rule, result.field) == ("denied", "too_large", "app_ids")


def test_what_another_engine_commits_counts(gate: Gate) -> None:
    store = next(iter(gate.stores.values()))
    txn = {"txn": {"appId": "s", "version": 3, "lastUpdated": 1}}
    store.put(in_log(commit_name(len(gate.entries()))), to_bytes([txn, add("x")]))
    assert versions(gate, "s") == {"s": 3}, "a question looks for versions of others"
    assert rules_of(gate.ask(advance("a", ("s", 3, 2)))) == ["app_txn_seen"]


def test_a_version_after_the_tables_is_enough_by_deltas_rule(gate: Gate) -> None:
    gate.ask(advance("a", ("s", 3, -1)))
    [outcome] = gate.ask(proposal(add("b"), app_txn=AppTxn(app_id="s", version=9)))
    assert outcome.status == "committed"
    [outcome] = gate.ask(proposal(add("c"), app_txn=AppTxn(app_id="s", version=5)))
    result = rejection_of(outcome)
    assert (result.rule, result.advice, result.app_version) == ("app_txn_seen", "skip", 9)
    assert "may lack these rows" in result.reason


def test_a_txn_among_the_actions_is_committed_with_a_warning(gate: Gate) -> None:
    txn = {"txn": {"appId": "s", "version": 3}}
    [outcome] = gate.ask(proposal(add("a"), txn))
    assert outcome.status == "committed"
    assert outcome.warnings is not None
    assert "app_txns" in outcome.warnings[0]
    [outcome] = gate.ask(proposal(add("b")))
    assert outcome.warnings is None


@pytest.mark.parametrize(
    ("advances", "field"),
    [
        ([("s", 1, 0), ("s", 2, 1)], "app_txns[1].app_id"),
        ([("tidegate/x", 1, 0)], "app_txns[0].app_id"),
        ([("x" * 2_000, 1, 0)], "app_txns[0].app_id"),
    ],
)
def test_an_application_is_named_once_and_by_a_name_of_its_own(
    gate: Gate, advances: list[tuple[str, int, int]], field: str
) -> None:
    [outcome] = gate.ask(advance("a", *advances))
    assert (outcome.status, rejection_of(outcome).field) == ("rejected", field)


@pytest.mark.parametrize(
    "txn",
    [
        {"app_id": "s", "version": 3},
        {"app_id": "s", "version": 3, "expected": 3},
        {"app_id": "s", "version": 3, "expected": -2},
        {"app_id": "", "version": 3, "expected": 2},
    ],
)
def test_an_expected_app_version_is_given_and_lower(txn: dict[str, object]) -> None:
    body = json.loads(encode(proposal(add("a")))) | {"app_txns": [txn]}
    candidate = read_record(json.dumps(body).encode(), 0, Policy())
    flaw = getattr(candidate, "flaw", None)
    assert flaw is not None
    assert (flaw.rule, flaw.field.startswith("app_txns.0")) == ("malformed", True)
