"""Physical and display names of columns."""

from typing import Any

import pytest

from tidegate_delta.errors import BrokenLog, InvalidRequest, UnsupportedFeature
from tidegate_delta.log.actions import Metadata
from tidegate_delta.schema.column_mapping import (
    ColumnMappingMode,
    Rename,
    check_mapped,
    dropped,
    field_id,
    logical_names,
    logical_path,
    mode_of,
    physical_name,
    physical_partition_columns,
    physical_path,
    renamed,
    to_logical,
    to_physical,
)
from tidegate_delta.schema.types import (
    LONG,
    STRING,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    format_schema,
)


def mapped(name: str, kind: DataType, number: int, physical: str = "") -> StructField:
    about = {
        "delta.columnMapping.id": number,
        "delta.columnMapping.physicalName": physical or f"c{number}",
    }
    return StructField(name, kind, metadata=about)


INNER = StructType((mapped("a", LONG, 3), mapped("b", STRING, 4)))
SCHEMA = StructType(
    (
        mapped("p", STRING, 1),
        mapped("s", INNER, 2),
        mapped("l", ArrayType(StructType((mapped("x", LONG, 6),))), 5),
        mapped("m", MapType(STRING, StructType((mapped("y", LONG, 8),))), 7),
    )
)


def metadata(schema: StructType = SCHEMA, mode: str | None = "name") -> Metadata:
    return Metadata(
        id="t",
        schema_string=format_schema(schema),
        partition_columns=("p",),
        configuration={} if mode is None else {"delta.columnMapping.mode": mode},
    )


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        (None, ColumnMappingMode.NONE),
        ("none", ColumnMappingMode.NONE),
        ("NAME", ColumnMappingMode.NAME),
        ("id", ColumnMappingMode.ID),
    ],
)
def test_the_mode_is_a_property_and_none_where_it_is_not_set(
    text: str | None, mode: ColumnMappingMode
) -> None:
    assert mode_of(metadata(mode=text)) is mode


def test_a_mode_that_the_spec_lacks_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="none, name or id"):
        mode_of(metadata(mode="both"))
    with pytest.raises(UnsupportedFeature, match="columnMapping"):
        check_mapped(metadata(mode="both"), SCHEMA, "here")


def test_without_a_mode_the_names_on_record_do_not_count() -> None:
    assert physical_name(SCHEMA.fields[0], ColumnMappingMode.NONE) == "p"
    assert to_physical(SCHEMA, ColumnMappingMode.NONE) == SCHEMA


def test_a_field_that_was_given_no_name_keeps_its_own() -> None:
    assert (
        physical_name(StructField("_change_type", STRING), ColumnMappingMode.NAME) == "_change_type"
    )
    assert field_id(StructField("_change_type", STRING)) is None


@pytest.mark.parametrize(
    ("logical", "physical"),
    [
        (("p",), ("c1",)),
        (("s", "b"), ("c2", "c4")),
        (("l", "element", "x"), ("c5", "element", "c6")),
        (("m", "value", "y"), ("c7", "value", "c8")),
    ],
)
def test_a_path_of_names_has_a_path_of_physical_names(
    logical: tuple[str, ...], physical: tuple[str, ...]
) -> None:
    assert physical_path(SCHEMA, logical, ColumnMappingMode.ID) == physical
    assert logical_path(SCHEMA, physical, ColumnMappingMode.ID) == logical
    assert logical_names(SCHEMA, ColumnMappingMode.ID)[physical] == logical[-1]


def test_a_path_that_is_not_there_is_a_mistake() -> None:
    with pytest.raises(ValueError, match=r"s\.gone"):
        physical_path(SCHEMA, ("s", "gone"), ColumnMappingMode.NAME)
    with pytest.raises(ValueError, match="gone"):
        logical_path(SCHEMA, ("gone",), ColumnMappingMode.NAME)
    with pytest.raises(ValueError, match="gone"):
        to_logical(StructType((StructField("gone", LONG),)), SCHEMA, ColumnMappingMode.NAME)


def test_a_part_of_the_schema_in_physical_names_finds_its_names() -> None:
    part = StructType((StructField("c2", StructType((StructField("c4", STRING),))),))
    assert str(to_logical(part, SCHEMA, ColumnMappingMode.NAME)) == "struct<s:struct<b:string>>"


def test_partition_values_lie_under_the_physical_name() -> None:
    assert physical_partition_columns(metadata()) == {"p": "c1"}
    assert physical_partition_columns(metadata(mode=None)) == {"p": "p"}


@pytest.mark.parametrize("mode", ["name", "id"])
def test_a_schema_whose_fields_all_have_what_they_are_found_by_is_fine(mode: str) -> None:
    check_mapped(metadata(mode=mode), SCHEMA, "here")


@pytest.mark.parametrize(
    ("mode", "about", "missing"),
    [
        ("name", {"delta.columnMapping.id": 9}, "physical name"),
        ("id", {"delta.columnMapping.physicalName": "c9"}, "no id"),
        ("name", {"delta.columnMapping.physicalName": "c9"}, "no id"),
        ("id", {"delta.columnMapping.physicalName": "c", "delta.columnMapping.id": "9"}, "no id"),
    ],
)
def test_a_field_that_could_not_be_found_breaks_the_log(
    mode: str, about: dict[str, Any], missing: str
) -> None:
    inner = StructType((StructField("x", LONG, metadata=about),))
    schema = StructType((mapped("l", ArrayType(inner), 1),))
    with pytest.raises(BrokenLog, match=missing) as broken:
        check_mapped(metadata(schema, mode), schema, "here")
    assert broken.value.error_class == "CorruptCommit"
    assert "l.element.x" in str(broken.value)
    check_mapped(metadata(schema, None), schema, "here")


def test_renames_and_drops_are_found_by_physical_names() -> None:
    inner = StructType((mapped("new", LONG, 3), mapped("other", STRING, 99)))
    after = StructType((mapped("p", STRING, 1), mapped("t", inner, 2), mapped("a", LONG, 98)))
    assert renamed(SCHEMA, after, ColumnMappingMode.NAME) == (
        Rename(("s",), ("t",)),
        Rename(("s", "a"), ("t", "new")),
    )
    assert dropped(SCHEMA, after, ColumnMappingMode.NAME) == (
        ("s", "b"), ("l",), ("l", "element", "x"), ("m",), ("m", "value", "y"),
    )  # fmt: skip
    assert renamed(SCHEMA, after, ColumnMappingMode.NONE) == ()
    assert ("s",) in dropped(SCHEMA, after, ColumnMappingMode.NONE)
