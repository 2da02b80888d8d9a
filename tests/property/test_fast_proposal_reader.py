"""The fast parser of proposals agrees with the full one on any record."""

from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import builders
from tests.property.test_codec import PROPOSAL, VALUES
from tidegate_delta.errors import MalformedRecord
from tidegate_messages import fast_proposal_reader
from tidegate_messages.codec import decode, encode
from tidegate_messages.fast_proposal_reader import read_proposal
from tidegate_messages.proposal import AppTxn, Operation, Proposal
from tidegate_messages.read_set import ReadSet

FIELDS = st.sampled_from([*Proposal.model_fields, "newer"])
NESTED = st.sampled_from(
    [
        *(("operation", name) for name in (*Operation.model_fields, "newer")),
        *(("reads", name) for name in (*ReadSet.model_fields, "newer")),
        *(("app_txn", name) for name in (*AppTxn.model_fields, "newer")),
    ]
)
ODD = st.one_of(
    VALUES,
    st.sampled_from(
        [[], {}, "", "5", "true", 5.0, -2, 2**64 - 1, ["a", 5], [{}], [[]], [None], {"a": None}]
    ),
    st.sampled_from([str(UUID(int=5)), UUID(int=5).hex, f"{{{UUID(int=5)}}}", "file:///t/"]),
    st.sampled_from(["commit", "cancel", "register", "Serializable", "snapshot"]),
)
PLAIN = [
    builders.proposal(builders.add("a")),
    builders.delete("a", "b"),
    builders.batch_of("s", 3, builders.add("a")),
]


def told(value: bytes, read: Any) -> object:
    try:
        result = read(value)
    except MalformedRecord as error:
        return str(error)
    assert isinstance(result, Proposal)
    return result, encode(result), result.model_fields_set, result.model_extra


def both_agree(body: object) -> None:
    value = orjson.dumps(body)
    assert told(value, read_proposal) == told(value, lambda one: decode(Proposal, one))


@given(PROPOSAL)
@settings(deadline=None)
def test_they_agree_on_proposals(body: dict[str, Any]) -> None:
    both_agree(body)


@given(st.sampled_from(PLAIN), st.lists(st.tuples(FIELDS, ODD), max_size=2))
@settings(max_examples=500, deadline=None)
def test_they_agree_where_a_field_is_odd(
    plain: Proposal, changes: list[tuple[str, object]]
) -> None:
    both_agree({**orjson.loads(encode(plain)), **dict(changes)})


@given(st.sampled_from(PLAIN), NESTED, ODD)
@settings(max_examples=500, deadline=None)
def test_they_agree_where_a_field_further_down_is_odd(
    plain: Proposal, where: tuple[str, str], value: object
) -> None:
    body = orjson.loads(encode(plain))
    outer, inner = where
    both_agree({**body, outer: {**body.get(outer, {}), inner: value}})


@given(st.sampled_from(PLAIN), FIELDS)
@settings(deadline=None)
def test_they_agree_where_a_field_is_missing(plain: Proposal, name: str) -> None:
    body = orjson.loads(encode(plain))
    body.pop(name, None)
    both_agree(body)


def test_a_plain_proposal_is_not_read_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_full_adds(*_: object) -> Proposal:
        raise AssertionError("this is the slow way")

    monkeypatch.setattr(fast_proposal_reader, "validated", with_full_adds)
    for item in PLAIN:
        assert read_proposal(encode(item)) == item


def test_what_is_long_is_not_remembered() -> None:
    before = fast_proposal_reader._table_and_root.cache_info().currsize
    long = builders.proposal(
        builders.add("a"), engine_info="e" * fast_proposal_reader.PLACE_CHARS_MAX
    )
    assert read_proposal(encode(long)) == long
    assert fast_proposal_reader._table_and_root.cache_info().currsize == before
