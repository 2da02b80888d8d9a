"""Which status a refusal has, as docs/writing-from-any-program.md says."""

import json
from typing import Any
from uuid import UUID

import pytest

from tests.builders import Gate, add, create, proposal, value_of
from tidegate_messages.codec import Headers, headers
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Proposal

CANCELLED = str(UUID(int=77))
BAD_ACTION: dict[str, Any] = {"actions": [{"add": {"path": "a"}}]}
BAD_TYPE = {"deadline_ms": "5"}
UNKNOWN = {"unknown": 1}
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("cancel", {"cancels": CANCELLED}),
    ("register", {}),
    ("halt", {"reason": "maintenance"}),
    ("reopen", {}),
    ("drop", {}),
]


def replaced(one: Proposal, **fields: Any) -> bytes:
    """Return a proposal with some fields replaced by wrong ones."""
    return json.dumps({**json.loads(value_of(one)), **fields}).encode()


def ask(gate: Gate, value: bytes, headers: Headers = ()) -> list[tuple[str, str]]:
    """Return status and rule of the answers to a record."""
    before = len(gate.outcomes())
    gate.send(value, headers=headers)
    gate.settle()
    return [answer(outcome) for outcome in gate.outcomes()[before:]]


def answer(outcome: Outcome) -> tuple[str, str]:
    return outcome.status, outcome.rejection.rule if outcome.rejection else ""


@pytest.mark.parametrize("missing", ["proposal_id", "table", "read_version"])
def test_without_a_readable_identity_a_record_is_denied_by_its_headers(
    gate: Gate, missing: str
) -> None:
    one = proposal(add("a"))
    value = replaced(one, **{missing: "x"})
    assert ask(gate, value, headers(one)) == [("denied", "malformed")]
    assert len(gate.letters()) == len(gate.entries()) == 1


@pytest.mark.parametrize(("kind", "fields"), REQUESTS, ids=[kind for kind, _ in REQUESTS])
def test_a_malformed_request_is_denied_and_not_carried_out(
    gate: Gate, kind: str, fields: dict[str, Any]
) -> None:
    before = gate.tables()
    one = proposal(kind=kind, **fields)
    assert ask(gate, replaced(one, **BAD_TYPE)) == [("denied", "malformed")]
    assert ask(gate, replaced(one, **UNKNOWN)) == [("denied", "not_supported")]
    assert ask(gate, replaced(one, **BAD_ACTION)) == [("denied", "malformed")]
    assert gate.tables() == before
    assert len(gate.entries()) == 1


def test_a_malformed_question_is_denied(gate: Gate) -> None:
    question = proposal(kind="app_versions", app_ids=["a"])
    assert ask(gate, replaced(question, **BAD_TYPE)) == [("denied", "malformed")]
    assert ask(gate, replaced(question, **UNKNOWN)) == [("denied", "not_supported")]


@pytest.mark.parametrize("fields", [BAD_ACTION, BAD_TYPE, {"table_id": "another"}])
def test_a_malformed_creation_is_denied_as_there_is_no_log_to_refuse_it_in(
    fields: dict[str, Any],
) -> None:
    gate = Gate()
    assert ask(gate, replaced(create(), **fields)) == [("denied", "malformed")]
    assert gate.tables() == {}


def test_a_malformed_commit_to_an_unknown_table_is_denied(gate: Gate) -> None:
    one = proposal(add("a"), table=UUID(int=3))
    assert ask(gate, replaced(one, **BAD_TYPE)) == [("denied", "malformed")]
    assert ask(gate, replaced(one, **BAD_ACTION)) == [("denied", "unknown_table")]


def test_a_creation_at_the_root_of_another_tables_registration_is_denied(gate: Gate) -> None:
    other = create(table=UUID(int=9))
    assert ask(gate, value_of(other)) == [("denied", "table_exists")]
