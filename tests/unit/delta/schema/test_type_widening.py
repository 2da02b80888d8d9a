"""Which type may widen to which, and how it is recorded."""

import json
from typing import Any

import pytest

from tidegate_delta.errors import UnsupportedFeature
from tidegate_delta.schema.type_widening import (
    Automatic,
    changes,
    check_widened,
    holds,
    widens,
    widens_for_iceberg,
)
from tidegate_delta.schema.types import StructField, StructType, parse_schema, parse_type

WIDENINGS = [
    ("byte", "short"),
    ("byte", "integer"),
    ("short", "long"),
    ("integer", "long"),
    ("float", "double"),
    ("byte", "double"),
    ("short", "double"),
    ("integer", "double"),
    ("date", "timestamp_ntz"),
    ("decimal(6,2)", "decimal(6,2)"),
    ("decimal(6,2)", "decimal(10,2)"),
    ("decimal(6,2)", "decimal(10,4)"),
    ("byte", "decimal(10,0)"),
    ("short", "decimal(12,2)"),
    ("integer", "decimal(38,28)"),
    ("long", "decimal(20,0)"),
    ("long", "decimal(25,5)"),
]
HELD = [
    ("byte", "decimal(3,0)"),
    ("byte", "decimal(4,1)"),
    ("byte", "decimal(9,0)"),
    ("short", "decimal(5,0)"),
    ("long", "decimal(19,0)"),
    ("long", "decimal(21,2)"),
    ("byte", "float"),
    ("short", "float"),
]
"""Changes that no writer may make but every reader can follow."""
OTHERS = [
    ("byte", "decimal(3,1)"),
    ("short", "decimal(4,0)"),
    ("integer", "decimal(9,0)"),
    ("long", "decimal(18,0)"),
    ("short", "byte"),
    ("long", "double"),
    ("long", "float"),
    ("integer", "float"),
    ("double", "float"),
    ("double", "decimal(38,10)"),
    ("float", "decimal(38,10)"),
    ("date", "timestamp"),
    ("timestamp_ntz", "timestamp"),
    ("timestamp", "timestamp_ntz"),
    ("decimal(6,2)", "decimal(7,4)"),
    ("decimal(6,2)", "decimal(6,1)"),
    ("decimal(6,0)", "long"),
    ("integer", "decimal(11,2)"),
    ("integer", "string"),
    ("string", "binary"),
]


def field(kind: Any, recorded: Any) -> StructField:
    about = {"delta.typeChanges": recorded}
    text = {"name": "a", "type": kind, "nullable": True, "metadata": about}
    return parse_schema(json.dumps({"type": "struct", "fields": [text]})).fields[0]


@pytest.mark.parametrize(("before", "after"), WIDENINGS)
def test_every_widening_of_the_spec_is_known(before: str, after: str) -> None:
    assert widens(parse_type(before), parse_type(after))
    check_widened(StructType((field(after, [{"fromType": before, "toType": after}]),)), "here")


@pytest.mark.parametrize(("before", "after"), HELD)
def test_what_others_recorded_is_read_where_the_type_holds_every_value(
    before: str, after: str
) -> None:
    assert holds(parse_type(before), parse_type(after))
    check_widened(StructType((field(after, [{"fromType": before, "toType": after}]),)), "here")


def test_writers_make_no_change_that_is_only_read() -> None:
    assert not [pair for pair in HELD if widens(*map(parse_type, pair))]


@pytest.mark.parametrize(("before", "after"), OTHERS)
def test_every_other_change_is_refused(before: str, after: str) -> None:
    assert not widens(parse_type(before), parse_type(after))
    assert not holds(parse_type(before), parse_type(after))
    with pytest.raises(UnsupportedFeature, match="column 'a' of table here") as refused:
        check_widened(StructType((field(after, [{"fromType": before, "toType": after}]),)), "here")
    assert refused.value.feature == "typeWidening"


def test_a_history_is_listed_in_order_with_the_paths_of_what_changed() -> None:
    kind = {"type": "array", "elementType": "long", "containsNull": True}
    one = {"fromType": "byte", "toType": "short", "fieldPath": "element"}
    two = {"fromType": "short", "toType": "long", "fieldPath": "element", "tableVersion": 7}
    result = changes(field(kind, [one, two]))
    assert [(str(c.before), str(c.after), c.path) for c in result] == [
        ("byte", "short", ("element",)),
        ("short", "long", ("element",)),
    ]
    assert changes(StructField("a", parse_type("long"))) == ()


def test_a_change_of_a_nested_field_is_checked() -> None:
    inner = {"type": "struct", "fields": [{"name": "x", "type": "string", "nullable": True}]}
    inner["fields"][0]["metadata"] = {  # type: ignore[index]  # JSON
        "delta.typeChanges": [{"fromType": "long", "toType": "string"}]
    }
    kind = {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True}
    with pytest.raises(UnsupportedFeature, match="'x'"):
        check_widened(StructType((field(kind, []),)), "here")


def test_limits_of_strings_are_none_of_our_business() -> None:
    recorded = [{"fromType": "varchar(5)", "toType": "string"}]
    check_widened(StructType((field("string", recorded),)), "here")


@pytest.mark.parametrize(
    "recorded",
    [
        "integer",
        ["integer"],
        [{"fromType": "integer"}],
        [{"fromType": "integer", "toType": {"type": "struct", "fields": []}}],
        [{"fromType": "integer", "toType": "fromMars"}],
        [{"fromType": "integer", "toType": "decimal(99,0)"}],
        [{"fromType": "integer", "toType": "long", "fieldPath": 3}],
    ],
)
def test_a_record_that_cannot_be_read_is_refused(recorded: Any) -> None:
    with pytest.raises(UnsupportedFeature, match="given another type"):
        check_widened(StructType((field("long", recorded),)), "here")


def test_iceberg_knows_some_of_the_changes() -> None:
    known = [pair for pair in WIDENINGS if widens_for_iceberg(*map(parse_type, pair))]
    assert known == [
        ("byte", "short"),
        ("byte", "integer"),
        ("short", "long"),
        ("integer", "long"),
        ("float", "double"),
        ("decimal(6,2)", "decimal(6,2)"),
        ("decimal(6,2)", "decimal(10,2)"),
    ]
    assert not any(widens_for_iceberg(*map(parse_type, pair)) for pair in OTHERS)


@pytest.mark.parametrize(
    ("before", "after", "same_family"),
    [
        ("byte", "long", True),
        ("float", "double", True),
        ("date", "timestamp_ntz", True),
        ("decimal(5,2)", "decimal(9,3)", True),
        ("integer", "double", False),
        ("long", "decimal(20,0)", False),
    ],
)
def test_rows_widen_types_of_themselves_as_far_as_they_may(
    before: str, after: str, same_family: bool
) -> None:
    pair = parse_type(before), parse_type(after)
    assert Automatic.ALWAYS.allows(*pair)
    assert Automatic.SAME_FAMILY.allows(*pair) is same_family
    assert not Automatic.NEVER.allows(*pair)
    assert not Automatic.ALWAYS.allows(pair[1], pair[0])
