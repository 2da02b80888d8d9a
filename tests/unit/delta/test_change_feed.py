import json
from typing import Any

import pytest

from tidegate_delta.change_feed import is_change_feed_readable_as, is_schema_readable_as, plan
from tidegate_delta.deletion_vectors.descriptors import RowChoice
from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.actions import DeletionVector, Metadata
from tidegate_delta.log.commit import Commit
from tidegate_delta.schema.types import StructType, parse_schema

OLD = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
NEW = {"storageType": "u", "pathOrInlineDv": "y", "offset": 1, "sizeInBytes": 1, "cardinality": 2}


def commit(*rows: dict[str, Any]) -> Commit:
    return Commit.decode(4, "\n".join(json.dumps(row) for row in rows).encode())


def add(path: str, **more: Any) -> dict[str, Any]:
    body = {"path": path, "partitionValues": {"p": "1"}, "size": 7, "modificationTime": 0}
    return {"add": {"dataChange": True, **body, **more}}


def remove(path: str, **more: Any) -> dict[str, Any]:
    return {"remove": {"path": path, "dataChange": True, "partitionValues": {"p": "2"}, **more}}


def cdc(path: str) -> dict[str, Any]:
    return {"cdc": {"path": path, "partitionValues": {}, "size": 3, "dataChange": False}}


def files(*rows: dict[str, Any]) -> list[tuple[str, str]]:
    return [(file.change, file.path) for file in plan(commit(*rows), 5).files]


def merge(**metrics: str) -> dict[str, Any]:
    return {"commitInfo": {"operation": "MERGE", "operationMetrics": metrics}}


def test_change_files_hide_everything_else() -> None:
    assert files(add("a"), remove("b"), cdc("c"), cdc("d")) == [("cdc", "c"), ("cdc", "d")]


def test_without_change_files_removes_are_deletions_and_adds_insertions() -> None:
    assert files(add("a"), remove("b", size=9)) == [("delete", "b"), ("insert", "a")]
    first, second = plan(commit(add("a"), remove("b", size=9)), 5).files
    assert first.partition_values == {"p": "2"}
    assert (first.size, second.size) == (9, 7)


def test_actions_that_change_no_data_hold_no_changes() -> None:
    assert files(add("a", dataChange=False), remove("b", dataChange=False)) == []


def test_a_merge_that_changed_no_row_holds_no_changes() -> None:
    zeros = {f"numTargetRows{what}": "0" for what in ("Inserted", "Updated", "Deleted")}
    assert files(merge(**zeros), add("a"), remove("b")) == []
    assert files(merge(**{**zeros, "numTargetRowsUpdated": "1"}), add("a")) == [("insert", "a")]
    assert files(merge(), add("a")) == [("insert", "a")]
    assert files(merge(**zeros), cdc("c")) == [("cdc", "c")]


def vector(body: dict[str, Any]) -> DeletionVector:
    return DeletionVector.model_validate(body)


def chosen(*rows: dict[str, Any]) -> list[tuple[str, str, RowChoice]]:
    return [(file.change, file.path, file.rows) for file in plan(commit(*rows), 5).files]


def test_of_a_file_that_leaves_or_joins_the_rows_without_its_vector_changed() -> None:
    assert chosen(remove("a", deletionVector=OLD)) == [("delete", "a", RowChoice(vector(OLD)))]
    assert chosen(add("a", deletionVector=OLD)) == [("insert", "a", RowChoice(vector(OLD)))]


def test_of_a_file_that_stays_the_rows_of_one_vector_and_not_of_the_other_changed() -> None:
    old, new = vector(OLD), vector(NEW)
    assert chosen(remove("x%20y"), add("x y", deletionVector=NEW)) == [
        ("delete", "x y", RowChoice(only=new))
    ]
    assert chosen(remove("a", deletionVector=OLD), add("a")) == [
        ("insert", "a", RowChoice(only=old))
    ]
    assert chosen(remove("a", deletionVector=OLD), add("a", deletionVector=NEW)) == [
        ("delete", "a", RowChoice(without=old, only=new)),
        ("insert", "a", RowChoice(without=new, only=old)),
    ]
    assert chosen(remove("a", deletionVector=OLD), add("a", deletionVector=OLD)) == []


def test_deletions_come_before_insertions_whatever_they_are_read_from() -> None:
    rows = [add("b"), add("a"), remove("a", deletionVector=OLD), remove("c")]
    assert [item[:2] for item in chosen(*rows)] == [
        ("delete", "c"),
        ("insert", "b"),
        ("insert", "a"),
    ]


def test_a_file_that_is_removed_and_added_as_it_was_holds_no_changes() -> None:
    assert files(remove("a"), add("a")) == []


def test_a_remove_without_partition_values_cannot_be_published() -> None:
    with pytest.raises(BrokenLog, match="partition values"):
        files({"remove": {"path": "b", "dataChange": True}})


def test_without_partition_columns_a_remove_needs_no_partition_values() -> None:
    bare = commit({"remove": {"path": "b", "dataChange": True}})
    (one,) = plan(bare, 5, is_partitioned=False).files
    assert (one.change, one.path, one.partition_values) == ("delete", "b", {})


def test_the_plan_carries_version_and_time() -> None:
    result = plan(commit(), 5)
    assert (result.version, result.timestamp_ms, result.files) == (4, 5, ())


def struct(**kinds: Any) -> dict[str, Any]:
    fields = [
        {"name": name.rstrip("_"), "type": kind, "nullable": not name.endswith("_")}
        for name, kind in kinds.items()
    ]
    return {"type": "struct", "fields": fields}


def schema(**kinds: Any) -> StructType:
    return parse_schema(json.dumps(struct(**kinds)))


def array(element: Any, contains_null: bool = True) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": contains_null}


def test_new_columns_and_looser_ones_are_fine() -> None:
    assert is_schema_readable_as(schema(a="long"), schema(a="long", b="string"))
    assert is_schema_readable_as(schema(a_="long"), schema(a="long"))
    assert is_schema_readable_as(schema(a="void"), schema(a="long"))
    assert is_schema_readable_as(schema(s=struct(a="long")), schema(s=struct(a="long", b="long")))
    assert is_schema_readable_as(schema(l=array("long", False)), schema(l=array("long")))


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        (schema(a="long", b="long"), schema(a="long")),
        (schema(a="long"), schema(A="long")),
        (schema(a="long"), schema(a="integer")),
        (schema(a="long"), schema(a_="long")),
        (schema(l=array("long")), schema(l=array("long", False))),
        (schema(s=struct(a="long")), schema(s=struct(b="long"))),
        (schema(s=struct(a="long")), schema(s="long")),
    ],
)
def test_a_column_gone_renamed_retyped_or_tightened_is_not(
    written: StructType, wanted: StructType
) -> None:
    assert not is_schema_readable_as(written, wanted)


def table(mode: str, partition: tuple[str, ...] = (), **columns: str) -> Metadata:
    """Return a table of long columns: name -> physical name."""
    fields = [
        {
            "name": name,
            "type": "long",
            "nullable": True,
            "metadata": {"delta.columnMapping.physicalName": physical} if physical else {},
        }
        for name, physical in columns.items()
    ]
    return Metadata(
        id="t",
        schema_string=json.dumps({"type": "struct", "fields": fields}),
        partition_columns=partition,
        configuration={"delta.columnMapping.mode": mode},
    )


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        (table("none", a=""), table("none", a="", b="")),
        (table("name", a="c1"), table("name", a="c1", b="c2")),
        (table("none", a=""), table("name", a="a", b="c2")),
        (table("none", a=""), table("id", a="a")),
        (table("none", ("a",), a="", b=""), table("none", ("b",), a="", b="")),
    ],
)
def test_columns_that_join_and_a_mapping_that_begins_are_fine(
    written: Metadata, wanted: Metadata
) -> None:
    assert is_change_feed_readable_as(written, wanted)


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        (table("name", a="c1"), table("name", b="c1")),
        (table("name", a="c1"), table("name", a="c2")),
        (table("name", a="c1", b="c2"), table("name", a="c2", b="c1")),
        (table("name", a="c1", b="c2"), table("name", a="c1")),
        (table("name", a="a"), table("none", a="")),
        (table("name", a="a"), table("id", a="a")),
        (table("none", a=""), table("name", a="c1")),
        (table("none", ("a",), a="", b=""), table("name", ("b",), a="a", b="b")),
    ],
)
def test_a_column_that_others_call_otherwise_is_not(written: Metadata, wanted: Metadata) -> None:
    assert not is_change_feed_readable_as(written, wanted)
