from typing import Any

import pytest

from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.actions import (
    Add,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    LogicalFile,
    Metadata,
    Protocol,
    Remove,
    Unknown,
    from_row,
)

ADD = {
    "path": "a%20b.parquet",
    "partitionValues": {"p": None},
    "size": 3,
    "modificationTime": 4,
    "dataChange": True,
}


def test_an_add_is_read_and_written_as_the_log_spells_it() -> None:
    action = from_row({"add": ADD})
    assert isinstance(action, Add)
    assert action.key == LogicalFile("a%20b.parquet")
    assert action.to_row() == {"add": {**ADD, "partitionValues": {"p": None}}}


def test_fields_of_the_future_survive() -> None:
    row = {"commitInfo": {"operation": "WRITE", "isBlindAppend": True, "fromTheFuture": {"a": [1]}}}
    action = from_row(row)
    assert isinstance(action, CommitInfo)
    assert action.is_blind_append
    assert action.to_row() == row


def test_an_action_of_the_future_survives() -> None:
    action = from_row({"weather": {"rain": True}})
    assert isinstance(action, Unknown)
    assert action.to_row() == {"weather": {"rain": True}}


def test_the_keys_of_a_protocol_are_those_in_the_table_of_the_spec() -> None:
    row = Protocol(min_reader_version=3, min_writer_version=7, reader_features=()).to_row()
    assert row["protocol"] == {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": []}


def test_metadata_has_a_format_when_none_is_given() -> None:
    assert Metadata(id="t", schema_string="{}").format.provider == "parquet"


def test_a_property_that_is_null_is_not_set() -> None:
    body = {"id": "t", "schemaString": "{}", "configuration": {"a": None, "b": "c"}}
    result = from_row({"metaData": body})
    assert isinstance(result, Metadata)
    assert result.configuration == {"b": "c"}


def test_a_field_of_metadata_that_is_null_is_as_if_it_were_not_there() -> None:
    body = {"id": "t", "schemaString": "{}"}
    bare = from_row({"metaData": body})
    for field in ("partitionColumns", "configuration", "format", "createdTime", "name"):
        assert from_row({"metaData": {**body, field: None}}) == bare
    result = {"provider": "parquet", "options": None}
    assert from_row({"metaData": {**body, "format": result}}) == bare


def test_a_domain_that_is_removed_needs_no_configuration() -> None:
    removed = {"domain": "d", "removed": True}
    for body in (removed, {**removed, "configuration": None}):
        action = from_row({"domainMetadata": body})
        assert action == DomainMetadata(domain="d", configuration="", removed=True)
    with pytest.raises(BrokenLog):
        from_row({"domainMetadata": {"domain": "d"}})


def test_a_removal_that_does_not_say_so_changes_data() -> None:
    for body in ({"path": "a"}, {"path": "a", "dataChange": None}):
        assert from_row({"remove": body}) == Remove(path="a", data_change=True)
    with pytest.raises(BrokenLog):
        from_row({"remove": {"path": "a", "dataChange": 7}})


def test_a_vector_is_part_of_a_file_key() -> None:
    vector = DeletionVector(
        storage_type="u", path_or_inline_dv="ab", offset=1, size_in_bytes=4, cardinality=2
    )
    assert vector.unique_id == "uab@1"
    assert vector.with_(offset=None).unique_id == "uab"


@pytest.mark.parametrize(
    "row",
    [
        {"add": ADD, "remove": {"path": "b", "dataChange": True}},
        {"add": {**ADD, "size": "3"}},
        {"add": {**ADD, "path": ""}},
        {"add": {key: ADD[key] for key in ADD if key != "path"}},
        {"protocol": {"readerVersion": 1, "writerVersion": 2}},
    ],
)
def test_a_malformed_action_is_refused(row: dict[str, Any]) -> None:
    with pytest.raises(BrokenLog) as caught:
        from_row(row)
    assert caught.value.error_class == "CorruptCommit"


def test_what_a_later_protocol_puts_beside_an_action_is_ignored() -> None:
    assert from_row({"add": ADD, "from_the_future": {"x": 1}}) == from_row({"add": ADD})


@pytest.mark.parametrize(
    "odd",
    [
        {"operationParameters": ["by", "hand"], "operation_parameters": [1]},
        {"timestamp": "2024-01-01T00:00:00Z", "isBlindAppend": "maybe"},
        {"engineInfo": {"name": "another"}, "readVersion": 10**30},
        {"operationMetrics": [1], "tags": "x", "tidegate": 1, "userMetadata": {"a": 1}},
    ],
)
def test_commit_info_may_hold_anything_and_keeps_the_fields_we_know(odd: Any) -> None:
    info = from_row({"commitInfo": {**odd, "operation": "WRITE", "inCommitTimestamp": 7}})
    assert info == CommitInfo(operation="WRITE", in_commit_timestamp=7)


@pytest.mark.parametrize(
    "row", [{}, {"commitInfo": None}, {"add": None, "remove": None}, {"rain": 1, "snow": 2}]
)
def test_a_row_without_any_action_says_nothing(row: dict[str, Any]) -> None:
    action = from_row(row)
    assert isinstance(action, Unknown)
    assert action.to_row() == {}


def test_commit_info_need_not_be_an_object() -> None:
    assert from_row({"commitInfo": "by hand"}) == Unknown(name="commitInfo", body="by hand")
