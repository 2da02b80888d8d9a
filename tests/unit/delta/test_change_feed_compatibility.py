import json
from typing import Any

import pytest

from tidegate_delta.change_feed import is_change_feed_readable_as, is_schema_readable_as
from tidegate_delta.log.actions import Metadata
from tidegate_delta.schema.types import StructType, parse_schema


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
