"""Messages survive a round trip, including unknown fields of a newer release."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate_delta.errors import MalformedRecord
from tidegate_messages.codec import FORMATS, decode, encode, headers
from tidegate_messages.message import Message
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

INT64 = st.integers(-(2**63), 2**63 - 1)
COUNT = st.integers(0, 2**63 - 1)
ROW_COUNT = st.integers(0, 2**47)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
UUIDS = st.uuids().map(str)
SHA256 = st.text("0123456789abcdef", min_size=64, max_size=64)
ROOTS = st.sampled_from(["file:///t", "s3://b/t", "file:///with space/ü", "abfss://c@a/t"])
SCALARS = st.one_of(
    st.none(), st.booleans(), INT64, st.floats(allow_nan=False, allow_infinity=False), TEXT
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=8,
)
# A message field is absent rather than null; deeper down null is a value like others.
PRESENT = VALUES.filter(lambda value: value is not None)
NEWER = st.dictionaries(TEXT.map(lambda name: f"newer_{name}"), PRESENT, max_size=3)


def message(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Draw messages as another program may write them, with unknown fields."""
    known = st.fixed_dictionaries(required, optional=optional)
    return st.tuples(NEWER, known).map(lambda parts: {**parts[0], **parts[1]})


READS = message(
    {},
    {
        "whole_table": st.booleans(),
        "predicates": st.lists(st.dictionaries(TEXT, VALUES, max_size=3), max_size=2),
        "files": st.lists(TEXT, max_size=3),
        "app_ids": st.lists(TEXT, max_size=2),
        "domains": st.lists(TEXT, max_size=2),
        "delete_insensitive": st.booleans(),
    },
)
INTENT = message(
    {
        "path": TEXT.filter(bool),
        "rows": st.dictionaries(TEXT, VALUES, max_size=3),
        "num_records": ROW_COUNT,
    },
    {"base": TEXT, "op": st.sampled_from(["delete", "update"])},
)
OPERATION = message({}, {"name": TEXT, "parameters": st.dictionaries(TEXT, VALUES, max_size=3)})
PROPOSAL = message(
    {
        "proposal_id": UUIDS,
        "table": UUIDS,
        "table_root": ROOTS,
        "read_version": st.integers(-1, 2**62),
    },
    {
        "kind": st.sampled_from(["commit", "register"]),
        "table_id": TEXT,
        "name": TEXT,
        "operation": OPERATION,
        "actions": st.lists(st.dictionaries(TEXT, VALUES, max_size=3), max_size=3),
        "reads": READS,
        "isolation": st.sampled_from(["default", "Serializable", "WriteSerializable"]),
        "app_txn": message({"app_id": TEXT.filter(bool), "version": COUNT}, {}),
        "dv_intents": st.lists(INTENT, max_size=2),
        "deadline_ms": INT64,
        "user_metadata": TEXT,
    },
)
NAMED = TEXT.filter(bool)
PATHS = st.lists(TEXT, min_size=1, max_size=3)
CHANGES = st.one_of(
    message(
        {"op": st.just("add_column"), "column": st.dictionaries(TEXT, VALUES, max_size=3)},
        {"parent": st.lists(TEXT, max_size=2), "first": st.booleans(), "after": NAMED},
    ),
    message({"op": st.just("drop_column"), "path": PATHS}, {}),
    message({"op": st.just("rename_column"), "path": PATHS, "name": NAMED}, {}),
    message({"op": st.just("change_type"), "path": PATHS, "type": PRESENT}, {}),
    message({"op": st.just("allow_nulls"), "path": PATHS}, {}),
    message({"op": st.just("comment_on"), "path": PATHS}, {"comment": TEXT}),
    message({"op": st.just("set_default"), "column": NAMED}, {"expression": TEXT}),
    message({"op": st.just("set_property"), "key": NAMED, "value": TEXT}, {}),
    message({"op": st.just("unset_property"), "key": NAMED}, {}),
)
PATCH = message({"changes": st.lists(CHANGES, min_size=1, max_size=3)}, {"base": SHA256})
MAPPING = message(
    {
        "path": NAMED,
        "sources": st.lists(
            message(
                {"path": NAMED, "offset": ROW_COUNT, "rows": ROW_COUNT},
                {"base": st.dictionaries(TEXT, VALUES, max_size=3)},
            ),
            min_size=1,
            max_size=3,
        ),
    },
    {"keeps_row_ids": st.booleans()},
)
COMPACTING = message(
    {
        "proposal_id": UUIDS,
        "table": UUIDS,
        "table_root": ROOTS,
        "read_version": st.integers(-1, 2**62),
        "actions": st.lists(st.dictionaries(TEXT, VALUES, max_size=3), max_size=3),
        "row_mapping": st.lists(MAPPING, min_size=1, max_size=2),
    },
    {"operation": OPERATION, "reads": READS},
)
PATCHING = message(
    {
        "proposal_id": UUIDS,
        "table": UUIDS,
        "table_root": ROOTS,
        "read_version": st.integers(-1, 2**62),
        "metadata_patch": PATCH,
    },
    {"operation": OPERATION, "user_metadata": TEXT},
)
REJECTION = message(
    {"rule": TEXT, "reason": TEXT},
    {
        "advice": st.sampled_from(["retry", "resend", "rebase", "rerun", "fix"]),
        "winner_version": INT64,
        "path": TEXT,
    },
)
OUTCOME = message(
    {
        "proposal_id": UUIDS,
        "proposal_sha256": SHA256,
        "table": UUIDS,
        "status": st.sampled_from(["committed", "rejected", "expired", "denied"]),
    },
    {
        "repeat": st.booleans(),
        "version": INT64,
        "sub_index": INT64,
        "rejection": REJECTION,
        "assigned": st.dictionaries(TEXT, VALUES, max_size=3),
    },
)
COMMIT = message(
    {
        "table": UUIDS,
        "table_root": ROOTS,
        "version": COUNT,
        "sha256": SHA256,
        "size": COUNT,
        "author": st.sampled_from(["tidegate", "external"]),
    },
    {"name": TEXT, "timestamp": INT64, "proposal_ids": st.lists(UUIDS, max_size=3)},
)
TABLE = message(
    {
        "table": UUIDS,
        "table_root": ROOTS,
        "name": TEXT,
        "proposals_topic": TEXT,
        "topic_partition": COUNT,
    },
    {
        "status": st.sampled_from(["staged", "open", "managed", "halted", "dropped"]),
        "published_through": INT64,
        "sha256": SHA256,
    },
)
STAGED = st.tuples(st.integers(0, 10**20 - 1), st.uuids()).map(
    lambda parts: f"{parts[0]:020d}.{parts[1]}.json"
)
FOLLOWER = message(
    {
        "service": TEXT,
        "table": UUIDS,
        "name": TEXT,
        "reason": TEXT,
        "error_class": TEXT,
        "since_ms": INT64,
        "attempts": COUNT,
    },
    {"status": st.just("quarantined"), "next_try_ms": INT64},
)
LEASE = message(
    {
        "table": UUIDS,
        "holder": st.text("abcXYZ019._-", min_size=1, max_size=100),
        "needed_from": COUNT,
        "until_ms": COUNT,
    },
    {"reason": TEXT},
)
MAINTENANCE_TASK = message(
    {"kind": st.sampled_from(["pack", "purge", "vacuum"]), "why": TEXT},
    {
        "partitions": st.lists(TEXT, max_size=2),
        "size_bytes": COUNT,
        "outcome": TEXT,
        "at_ms": INT64,
    },
)
MAINTENANCE = message(
    {
        "table": UUIDS,
        "name": TEXT,
        "about": st.sampled_from(["pause", "report"]),
        "at_ms": INT64,
    },
    {"reason": TEXT, "last": MAINTENANCE_TASK, "next": MAINTENANCE_TASK, "deaths": COUNT},
)
COLUMN = st.recursive(
    message({"name": TEXT}, {"before": TEXT, "type": TEXT, "type_before": TEXT}),
    lambda inside: message(
        {"name": TEXT},
        {
            "before": TEXT,
            "fields": st.lists(inside, max_size=2),
            "element": inside,
            "key": inside,
            "value": inside,
        },
    ),
    max_leaves=4,
)
SCHEMA_STEP = message(
    {"change": st.sampled_from(["add", "drop", "rename", "widen", "nullability", "key"])},
    {
        "column": st.lists(TEXT, max_size=3),
        "before": TEXT | st.booleans() | st.lists(TEXT, max_size=2),
        "after": TEXT | st.booleans() | st.lists(TEXT, max_size=2),
    },
)
SCHEMA_CHANGE = message(
    {"table": UUIDS, "name": TEXT, "version": COUNT, "timestamp_ms": INT64, "schema_string": TEXT},
    {
        "operation": TEXT,
        "steps": st.lists(SCHEMA_STEP, max_size=3),
        "columns": st.lists(COLUMN, max_size=3),
        "key_columns": st.lists(TEXT, max_size=2),
        "snapshot": st.booleans(),
    },
)
CHANGE_SIGNAL = message(
    {
        "table": UUIDS,
        "type": st.sampled_from(["execute-snapshot", "pause-snapshot", "reset-position"]),
    },
    {"snapshot": st.sampled_from(["incremental", "blocking"]), "version": COUNT, "reason": TEXT},
)
WIRES: dict[type[Message], st.SearchStrategy[dict[str, Any]]] = {
    Proposal: PROPOSAL | PATCHING | COMPACTING,
    Outcome: OUTCOME,
    CommitRecord: COMMIT,
    TableRecord: TABLE,
    FollowerRecord: FOLLOWER,
    LeaseRecord: LEASE,
    MaintenanceRecord: MAINTENANCE,
    SchemaChange: SCHEMA_CHANGE,
    ChangeSignal: CHANGE_SIGNAL,
}


def wires() -> st.SearchStrategy[tuple[type[Message], dict[str, Any]]]:
    return st.sampled_from(list(WIRES)).flatmap(lambda kind: st.tuples(st.just(kind), WIRES[kind]))


def holds(whole: Any, part: Any) -> bool:
    """Whether `whole` contains everything in `part`; it may have defaults besides."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            name in whole and holds(whole[name], value) for name, value in part.items()
        )
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(holds, whole, part))
    same: bool = whole == part
    return same


def test_every_message_is_tried() -> None:
    assert set(WIRES) == set(FORMATS)


@given(wires())
def test_a_message_comes_back_as_it_went(case: tuple[type[Message], dict[str, Any]]) -> None:
    kind, wire = case
    read = decode(kind, orjson.dumps(wire))
    again = decode(kind, encode(read))
    assert again == read
    assert encode(again) == encode(read)


@given(wires())
def test_what_a_newer_release_wrote_is_sent_on(case: tuple[type[Message], dict[str, Any]]) -> None:
    kind, wire = case
    sent = orjson.loads(encode(decode(kind, orjson.dumps(wire))))
    assert holds(sent, wire)


@given(wires())
def test_the_headers_name_the_message(case: tuple[type[Message], dict[str, Any]]) -> None:
    kind, wire = case
    named = dict(headers(decode(kind, orjson.dumps(wire))))
    assert named["format"].decode() == FORMATS[kind]
    assert (named["table"].decode() if "table" in named else None) == wire.get("table")


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.__name__)
@given(value=st.one_of(st.binary(max_size=60), VALUES.map(orjson.dumps)))
def test_anything_else_is_malformed_and_nothing_worse(kind: type[Message], value: bytes) -> None:
    with pytest.raises(MalformedRecord):
        decode(kind, value)


@given(wires())
def test_fields_that_are_known_to_be_right_make_the_same_message(
    case: tuple[type[Message], dict[str, Any]],
) -> None:
    kind, wire = case
    result = {name: value for name, value in wire.items() if name in kind.model_fields}
    read = decode(kind, orjson.dumps(result))
    again = kind.trusted({name: getattr(read, name) for name in read.model_fields_set})
    assert again == read
    assert encode(again) == encode(read)
