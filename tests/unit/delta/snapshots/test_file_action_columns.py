from typing import Any

import pytest

from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.actions import Add
from tidegate_delta.snapshots.file_action_columns import (
    ADD_SCHEMA,
    REMOVE_SCHEMA,
    rows_to_adds,
    to_columns,
)

ROW = {
    "path": "a",
    "partitionValues": {"p": None, "q": "1"},
    "size": 3,
    "modificationTime": 4,
    "dataChange": True,
    "stats": "{}",
    "deletionVector": {
        "storageType": "u",
        "pathOrInlineDv": "ab",
        "offset": 1,
        "sizeInBytes": 4,
        "cardinality": 2,
    },
    "fromTheFuture": 1,
}


def test_rows_become_columns_and_come_back_as_actions() -> None:
    table = to_columns([ROW, {"path": "b", "partitionValues": {}}], ADD_SCHEMA, "here")
    assert table.schema == ADD_SCHEMA
    assert table["path"].to_pylist() == ["a", "b"]
    known = {key: value for key, value in ROW.items() if key != "fromTheFuture"}
    assert rows_to_adds(table.slice(0, 1)) == [Add.model_validate(known)]


def test_no_rows_are_an_empty_table() -> None:
    assert to_columns([], REMOVE_SCHEMA, "here").num_rows == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"path": None},
        {"path": 7},
        {"size": "3"},
        {"size": 2**70},
        {"partitionValues": [1]},
        {"partitionValues": {"p": 1}},
        {"dataChange": "yes"},
        {"deletionVector": "ab"},
    ],
)
def test_a_malformed_row_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BrokenLog, match="here") as caught:
        to_columns([{**ROW, **wrong}], ADD_SCHEMA, "here")
    assert caught.value.error_class == "CorruptCommit"
