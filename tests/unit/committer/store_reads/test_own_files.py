"""New files are looked at before the decision, for those proposals and tables that ask for it."""

from typing import Any

import pytest

from tests.builders import ROOT, Gate, Row, add, create, metadata, proposal, protocol, remove
from tests.fakes.memory_store import MemoryStore
from tests.support.outcomes import rejection_of
from tests.support.tables import creating
from tidegate_committer.admission import tidegate_properties
from tidegate_committer.store_reads import decision_reads
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Proposal


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore(ROOT)
    for name, size in (("a", 1), ("b c", 2), ("d/e", 3)):
        store.put(name, b"x" * size)
    return store


@pytest.fixture
def new_gate(store: MemoryStore) -> Gate:
    gate = Gate()
    gate.stores[ROOT] = store
    return gate


@pytest.fixture
def first_proposals() -> list[Proposal]:
    return [create()]


def verified(*rows: Row, **fields: Any) -> Proposal:
    return proposal(*rows, verify_files=True, **fields)


def with_property(flag: str) -> list[Row]:
    """Return the definition of a table with the property."""
    defined = metadata()
    defined["metaData"]["configuration"] = {"tidegate.verifyFiles": flag}
    return [protocol(), defined]


def answer(outcome: Outcome) -> tuple[str, str | None, str | None]:
    """Return an outcome's status, and the rule and the field of its rejection."""
    result = outcome.rejection
    return outcome.status, result.rule if result else None, result.field if result else None


def test_files_that_are_there_are_committed_and_encoded_names_are_understood(gate: Gate) -> None:
    [outcome] = gate.ask(verified(add("a", size=1), add("b%20c", size=2), add("d/e", size=3)))
    assert answer(outcome) == ("committed", None, None)


@pytest.mark.parametrize(
    ("row", "rule", "field"),
    [
        (add("gone", size=1), "file_missing", "actions.add[1].path"),
        (add("b%20c", size=3), "wrong_file_size", "actions.add[1].size"),
    ],
)
def test_a_file_that_is_not_as_proposed_is_rejected_and_the_table_goes_on(
    gate: Gate, row: Row, rule: str, field: str
) -> None:
    wrong = verified(add("a", size=1), row)
    first, second, again = gate.ask(wrong, verified(add("a", size=1)), wrong)
    assert answer(first) == ("rejected", rule, field)
    assert answer(second) == ("committed", None, None)
    assert answer(again) == ("rejected", rule, field)


def test_nothing_is_checked_unless_requested(gate: Gate) -> None:
    [outcome] = gate.ask(proposal(add("gone", size=1)))
    assert answer(outcome) == ("committed", None, None)


def test_a_table_may_require_the_check_for_all_its_proposals(new_gate: Gate) -> None:
    opened = with_property("true")
    outcomes = new_gate.ask(
        creating(*opened, add("gone", size=1)),
        creating(*opened),
        proposal(add("gone", size=1)),
        proposal(add("a", size=1)),
    )
    assert [answer(outcome)[:2] for outcome in outcomes] == [
        ("denied", "file_missing"),
        ("committed", None),
        ("rejected", "file_missing"),
        ("committed", None),
    ]


def test_the_property_is_true_or_false(new_gate: Gate) -> None:
    [outcome] = new_gate.ask(creating(*with_property("yes")))
    assert rejection_of(outcome).rule == "bad_metadata"
    assert "tidegate.verifyFiles is 'yes'" in rejection_of(outcome).reason


def test_a_proposal_that_is_in_the_log_is_not_decided_again(gate: Gate, store: MemoryStore) -> None:
    own = verified(add("a", size=1))
    gate.ask(own)
    store.delete("a")
    [again] = gate.ask(own)
    assert (again.status, again.repeat) == ("committed", True)


def test_files_of_the_table_are_not_checked(gate: Gate, store: MemoryStore) -> None:
    gate.ask(proposal(add("a", size=1)))
    store.delete("a")
    [outcome] = gate.ask(verified(remove("a"), read_version=1))
    assert answer(outcome) == ("committed", None, None)


def test_only_a_limited_number_of_files_is_checked(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidegate_properties, "FILES_MAX", 1)
    monkeypatch.setattr(decision_reads, "FILES_MAX", 1)
    [outcome] = gate.ask(verified(add("a", size=1), add("gone", size=1)))
    assert answer(outcome) == ("rejected", "too_large", "verify_files")


def test_proposals_with_and_without_the_check_keep_their_order(gate: Gate) -> None:
    asked = [
        proposal(add("n1")),
        verified(add("a", size=1)),
        proposal(add("n2")),
        verified(add("gone", size=1)),
        proposal(add("n3")),
    ]
    outcomes = gate.ask(*asked)
    assert [outcome.proposal_id for outcome in outcomes] == [
        outcome.proposal_id for outcome in asked
    ]
    assert [outcome.status for outcome in outcomes].count("rejected") == 1


def test_only_a_commit_brings_files() -> None:
    with pytest.raises(ValueError, match="verify_files"):
        verified(kind="app_versions", app_ids=("a",))
