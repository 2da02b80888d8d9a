import json

import pytest

from tests.builders import TABLE, Row, add, proposal, rows_of, value_of
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_reader import (
    DeadLetter,
    needs_claim,
    read_record,
    with_claim,
)
from tidegate_committer.policy import Policy
from tidegate_delta.deletion_vectors.roaring_bitmap import of_rows
from tidegate_delta.log.commit import sha256
from tidegate_messages.codec import Headers, headers
from tidegate_messages.outcome import Rejection
from tidegate_messages.proposal import ClaimCheck


def test_a_proposal_becomes_a_candidate_bound_to_its_bytes() -> None:
    one = proposal(add("a"))
    value = value_of(one)
    candidate = read_record(value, 7, Policy())
    assert isinstance(candidate, Candidate)
    assert (candidate.id, candidate.sha256) == (one.proposal_id, sha256(value))
    assert (candidate.offset, candidate.size, candidate.flaw) == (7, len(value), None)


def test_a_tombstone_is_a_dead_letter() -> None:
    letter = read_record(None, 0, Policy())
    assert isinstance(letter, DeadLetter)
    assert letter.proposal_id is None


def test_an_unknown_kind_becomes_a_dead_letter_with_its_writer() -> None:
    one = proposal()
    body = {**json.loads(value_of(one)), "kind": "explode"}
    letter = read_record(json.dumps(body).encode(), 0, Policy())
    assert isinstance(letter, DeadLetter)
    assert (letter.rule, letter.proposal_id) == ("unknown_kind", one.proposal_id)


def flaw_of(**update: object) -> Rejection:
    """Return what is wrong with a record in which some fields of a proposal are replaced."""
    body = {**json.loads(value_of(proposal(add("a")))), **update}
    candidate = read_record(json.dumps(body).encode(), 0, Policy())
    assert isinstance(candidate, Candidate)
    assert candidate.flaw is not None
    return candidate.flaw


def test_a_field_of_a_newer_release_is_refused_by_name() -> None:
    flaw = flaw_of(futureField={"x": 1})
    assert (flaw.rule, flaw.field) == ("not_supported", "futureField")


def test_a_read_set_with_unknown_fields_is_no_blind_append() -> None:
    flaw = flaw_of(reads={"predicate": [{"op": "true"}]})
    assert (flaw.rule, flaw.field) == ("not_supported", "reads.predicate")
    assert "whole_table, predicates, files, app_ids, domains" in flaw.reason


@pytest.mark.parametrize("format_", [b"proposal/2", b"outcome/1", b"\xff"])
def test_a_record_with_another_messages_header_is_not_read_as_a_proposal(format_: bytes) -> None:
    one = proposal(add("a"))
    letter = read_record(value_of(one), 0, Policy(), (("format", format_),))
    assert isinstance(letter, DeadLetter)
    assert (letter.rule, letter.proposal_id, letter.table) == (
        "unknown_kind",
        one.proposal_id,
        one.table,
    )
    assert letter.reason.endswith("say proposal/1, or upgrade the committer")


@pytest.mark.parametrize("headers", [(), (("format", b"proposal/1"),), (("format", b""),)])
def test_a_record_with_a_proposals_header_or_none_is_a_proposal(headers: Headers) -> None:
    assert isinstance(read_record(value_of(proposal(add("a"))), 0, Policy(), headers), Candidate)


@pytest.mark.parametrize(
    ("update", "field", "told"),
    [
        ({"isolation": "strict"}, "isolation", "isolation: Input should be 'default', "),
        ({"reads": {"predicates": ["x"]}}, "reads.predicates.0", "reads.predicates.0: "),
        ({"exact_version": 0}, "(record)", "(record): `exact_version` comes after "),
    ],
)
def test_a_record_that_is_not_as_its_schema_says_is_refused_for_the_field(
    update: dict[str, object], field: str, told: str
) -> None:
    flaw = flaw_of(**update)
    assert (flaw.rule, flaw.field) == ("malformed", field)
    assert flaw.reason.startswith(told)


def claimed(*rows: Row) -> Candidate:
    content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    one = proposal()
    path = f"_tidegate/proposals/{one.proposal_id}.ndjson"
    claim = ClaimCheck(path=path, size=len(content), sha256=sha256(content))
    candidate = read_record(value_of(one.model_copy(update={"claim_check": claim})), 0, Policy())
    assert isinstance(candidate, Candidate)
    return with_claim(candidate, content, Policy())


def test_a_claim_check_brings_row_intents_too() -> None:
    intent = rows_of("b", [1, 2])
    redeemed = claimed(add("a"), {"dv_intent": intent.model_dump(mode="json")})
    assert redeemed.flaw is None
    assert [intent.path for intent in redeemed.intents] == ["b"]
    assert redeemed.intents[0].inline == of_rows([1, 2])
    assert not redeemed.is_blind_append


@pytest.mark.parametrize(
    ("rule", "row"),
    [
        ("malformed", {"dv_intent": {"path": "b"}}),
        ("malformed", {"dv_intent": None}),
        ("bad_path", {"dv_intent": rows_of("../b", [1]).model_dump(mode="json")}),
        ("duplicate_action", {"dv_intent": rows_of("a", [1]).model_dump(mode="json")}),
    ],
)
def test_an_invalid_row_intent_of_a_claim_check_is_a_flaw(rule: str, row: Row) -> None:
    flaw = claimed(add("a"), row).flaw
    assert flaw is not None
    assert flaw.rule == rule


def test_a_claim_check_is_redeemed_once() -> None:
    content = json.dumps(add("a")).encode() + b"\n"
    one = proposal()
    path = f"_tidegate/proposals/{one.proposal_id}.ndjson"
    claim = ClaimCheck(path=path, size=len(content), sha256=sha256(content))
    value = value_of(one.model_copy(update={"claim_check": claim}))
    candidate = read_record(value, 0, Policy())
    assert isinstance(candidate, Candidate)
    assert needs_claim(candidate)
    redeemed = with_claim(candidate, content, Policy())
    assert not needs_claim(redeemed)
    assert [add.path for add in redeemed.content.adds] == ["a"]
    assert redeemed.size == len(value) + len(content)
    assert redeemed.sha256 == candidate.sha256


def test_a_record_of_many_times_the_size_becomes_a_dead_letter_unread() -> None:
    policy = Policy(record_bytes_max=1_000)
    value = value_of(proposal(add("a"), user_metadata="x" * 5_000))
    letter = read_record(value, 0, policy)
    assert isinstance(letter, DeadLetter)
    assert (letter.rule, letter.sha256) == ("too_large", sha256(value))
    assert str(letter.proposal_id).encode() in value, "its writer is answered all the same"


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (b'{"proposal_id": "\\ud800"}', "malformed"),
        (b'{"proposal_id": {}, "table": 7}', "malformed"),
        (b"{" * 100, "malformed"),
        (None, "malformed"),
        (b"x" * 5_000_000, "too_large"),
        (b'{"kind": "unheard of"}', "unknown_kind"),
    ],
)
def test_an_unreadable_record_is_answered_by_its_headers(value: bytes | None, rule: str) -> None:
    letter = read_record(value, 0, Policy(), headers(proposal(add("a"))))
    assert isinstance(letter, DeadLetter)
    assert letter.rule == rule
    assert letter.proposal_id is not None
    assert letter.table == TABLE
    for odd in (b"", b"\xff", b"no id"):
        claims = (("proposal_id", odd), ("table", odd))
        silent = read_record(value, 0, Policy(), claims)
        assert isinstance(silent, DeadLetter)
        assert (silent.proposal_id, silent.table) == (None, None)
