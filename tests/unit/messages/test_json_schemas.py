from importlib.resources import files
from typing import Any
from uuid import UUID

import jsonschema
import orjson
import pytest

from tidegate_messages.codec import FORMATS, encode
from tidegate_messages.json_schemas import FOLDER, schema_files, schema_of
from tidegate_messages.message import Message
from tidegate_messages.outcome import Outcome, Rejection
from tidegate_messages.proposal import AppTxn, Proposal, ReadSet
from tidegate_messages.published_records import CommitRecord, FollowerRecord, TableRecord

SHIPPED = files("tidegate_messages").joinpath(FOLDER)
MAKE_ANEW = (
    "the shipped schemas are not those of the models; write them again: python -c "
    '"from pathlib import Path; from tidegate_messages.json_schemas import schema_files; '
    "[Path('protocol/tidegate_messages/schemas', name).write_bytes(content) "
    'for name, content in schema_files().items()]"'
)
ID, TABLE, SHA256 = UUID(int=1), UUID(int=2), "a" * 64
MESSAGES: list[Message] = [
    Proposal(
        proposal_id=ID,
        table=TABLE,
        table_root="file:///t",
        table_id="5d6c",
        read_version=7,
        actions=(
            {
                "add": {
                    "path": "a.parquet",
                    "partitionValues": {},
                    "size": 1,
                    "modificationTime": 1,
                    "dataChange": True,
                }
            },
        ),
        reads=ReadSet(predicates=({"op": "=", "column": "a", "value": 1, "type": "long"},)),
        app_txn=AppTxn(app_id="stream", version=4),
    ),
    Outcome(
        proposal_id=ID,
        proposal_sha256=SHA256,
        table=TABLE,
        status="rejected",
        rejection=Rejection(rule="concurrent_append", reason="added 'a'"),
    ),
    CommitRecord(
        table=TABLE, table_root="file:///t", version=8, sha256=SHA256, size=10, author="tidegate"
    ),
    TableRecord(
        table=TABLE, table_root="file:///t", name="t", proposals_topic="p", topic_partition=0
    ),
    FollowerRecord(
        service="checkpointer",
        table=TABLE,
        name="t",
        reason="OverflowError: too large",
        error_class="OverflowError",
        since_ms=1,
        attempts=1,
        next_try_ms=30_001,
    ),
]


def test_the_shipped_schemas_are_those_of_the_models() -> None:
    shipped = {entry.name: entry.read_bytes() for entry in SHIPPED.iterdir()}
    assert shipped == schema_files(), MAKE_ANEW


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.__name__)
def test_a_schema_is_one(kind: type[Message]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema_of(kind))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_what_we_write_is_valid_and_so_is_what_a_newer_release_adds(message: Message) -> None:
    validator = jsonschema.Draft202012Validator(schema_of(type(message)))
    wire: dict[str, Any] = orjson.loads(encode(message))
    validator.validate(wire)
    newer = {**wire, "a_newer_field": {"of": ["any", "shape"]}}
    # The committer refuses what it does not know of a proposal; readers ignore what we publish.
    assert validator.is_valid(newer) is not isinstance(message, Proposal)


def test_a_malformed_proposal_is_invalid() -> None:
    validator = jsonschema.Draft202012Validator(schema_of(Proposal))
    wire: dict[str, Any] = orjson.loads(encode(MESSAGES[0]))
    for wrong in ({"read_version": -2}, {"kind": "else"}, {"table_root": "t"}, {"actions": 3}):
        assert not validator.is_valid({**wire, **wrong})
    del wire["table"]
    assert not validator.is_valid(wire)
