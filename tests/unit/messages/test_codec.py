from typing import Any
from uuid import UUID

import orjson
import pytest

from tidegate_delta.errors import MalformedRecord
from tidegate_delta.value_limits import DEPTH_MAX
from tidegate_messages.codec import FORMATS, decode, encode, headers, parse_json
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Proposal
from tidegate_messages.published_records import (
    ChangeSignal,
    CommitRecord,
    FollowerRecord,
    LeaseRecord,
    MaintenanceRecord,
    TableRecord,
)
from tidegate_messages.schema_announcement import SchemaChange

ID = UUID("01890000-0000-7000-8000-000000000001")
TABLE = UUID("01890000-0000-7000-8000-00000000000a")
PROPOSAL = Proposal(proposal_id=ID, table=TABLE, table_root="s3://b/t", read_version=3)


def body(**more: Any) -> bytes:
    wire = {"proposal_id": str(ID), "table": str(TABLE), "table_root": "s3://b/t"}
    return orjson.dumps({**wire, "read_version": 3, **more})


LEASED: dict[str, Any] = {"identity_leases": [{"column": "n", "count": 5}]}
APP = {"app_id": "a", "version": 1}
TXN = {"txn": {"appId": "a", "version": 1}}


@pytest.mark.parametrize(
    "more", [{}, {"app_txn": APP, "actions": [TXN, {"remove": {"path": "p", "dataChange": True}}]}]
)
def test_a_lease_has_no_transactions_or_rows_that_they_are_for(more: dict[str, Any]) -> None:
    assert decode(Proposal, body(**LEASED, **more)).identity_leases[0].count == 5


def test_what_is_absent_is_not_written() -> None:
    wire = orjson.loads(encode(PROPOSAL))
    assert "deadline_ms" not in wire
    assert None not in wire.values()


def test_ids_are_hyphenated_text() -> None:
    assert orjson.loads(encode(PROPOSAL))["proposal_id"] == str(ID)


def test_headers_say_what_the_record_is() -> None:
    named = dict(headers(PROPOSAL, [("traceparent", b"00-x")]))
    assert named == {
        "format": b"proposal/1",
        "proposal_id": str(ID).encode(),
        "table": str(TABLE).encode(),
        "traceparent": b"00-x",
    }


def test_a_record_of_a_table_has_no_proposal_in_its_headers() -> None:
    record = TableRecord(
        table=TABLE, table_root="s3://b/t", name="t", proposals_topic="p", topic_partition=0
    )
    assert [name for name, _ in headers(record)] == ["format", "table"]


def test_every_message_has_a_format_of_its_own() -> None:
    assert set(FORMATS) == {
        *(Proposal, Outcome, CommitRecord, TableRecord, FollowerRecord, LeaseRecord),
        MaintenanceRecord,
        SchemaChange,
        ChangeSignal,
    }
    assert len(set(FORMATS.values())) == len(FORMATS)


def test_a_newer_writers_fields_come_through() -> None:
    read = decode(Proposal, body(colour="blue", operation={"name": "WRITE", "hue": [1, {"a": 2}]}))
    wire = orjson.loads(encode(read))
    assert wire["colour"] == "blue"
    assert wire["operation"]["hue"] == [1, {"a": 2}]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "tombstone"),
        (b"", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[1]", "no JSON object"),
        (b"null", "no JSON object"),
        (b"{}", "proposal_id"),
        (body(proposal_id="no uuid"), "proposal_id"),
        (body(read_version=-2), "read_version"),
        (body(table_root="s3://b/t/"), "table_root"),
        (body(table_root="relative"), "table_root"),
        (body(actions=[1]), "actions.0"),
        (body(app_txn={"app_id": "", "version": 1}), "app_txn.app_id"),
        (body(kind="cancel"), "cancels"),
        (body(kind="verbatim"), "exact_version"),
        (body(kind="else"), "kind"),
        (body(actions=[{}], claim_check={"path": "p", "size": 1, "sha256": "0" * 64}), "not both"),
        (body(**LEASED, app_txns=[{**APP, "expected": -1}]), "identity_leases.*with the rows"),
        (body(**LEASED, app_txn=APP), "with the rows"),
        (body(**LEASED, actions=[TXN]), "with the rows"),
    ],
)
def test_what_cannot_be_read_is_malformed_at_a_named_place(
    value: bytes | None, message: str
) -> None:
    with pytest.raises(MalformedRecord, match=message) as raised:
        decode(Proposal, value)
    assert raised.value.error_class == "malformed"


def test_the_reason_does_not_repeat_what_was_sent() -> None:
    with pytest.raises(MalformedRecord) as raised:
        decode(Proposal, body(isolation="a secret"))
    assert "a secret" not in str(raised.value)


def test_what_is_nested_too_deeply_is_refused() -> None:
    def nested(levels: int) -> bytes:
        return b'{"a":' * levels + b"1" + b"}" * levels

    assert parse_json(nested(DEPTH_MAX))
    with pytest.raises(MalformedRecord, match="nested"):
        parse_json(nested(DEPTH_MAX + 1))
    with pytest.raises(MalformedRecord):
        parse_json(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
