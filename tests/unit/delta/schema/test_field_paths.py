"""Columns found by their paths."""

import pytest

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.schema.field_paths import (
    check_names,
    dotted,
    edit_at,
    field_at,
    field_paths,
    kind_at,
    resolve,
    transform,
)
from tidegate_delta.schema.types import LONG, STRING, ArrayType, MapType, StructField, StructType

INNER = StructType((StructField("X", LONG),))
SCHEMA = StructType(
    (
        StructField("a", STRING),
        StructField("S", INNER),
        StructField("l", ArrayType(INNER)),
        StructField("m", MapType(STRING, ArrayType(LONG))),
    )
)


def test_a_path_is_spelled_as_sql_spells_it() -> None:
    assert dotted(("a", "b c", "d`e", "f.g")) == "a.`b c`.`d``e`.`f.g`"


def test_every_field_has_a_path() -> None:
    assert [path for path, _ in field_paths(SCHEMA)] == [
        ("a",),
        ("S",),
        ("S", "X"),
        ("l",),
        ("l", "element", "X"),
        ("m",),
    ]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (("A",), ("a",)),
        (("s", "x"), ("S", "X")),
        (("L", "element", "x"), ("l", "element", "X")),
        (("M", "value", "element"), ("m", "value", "element")),
        ((), ()),
    ],
)
def test_a_path_is_found_without_regard_to_case(
    path: tuple[str, ...], found: tuple[str, ...]
) -> None:
    assert resolve(SCHEMA, path) == found


def test_what_a_path_leads_to_is_found() -> None:
    assert kind_at(SCHEMA, ("m", "value", "element")) == LONG
    assert field_at(SCHEMA, ("s", "x")) == INNER.fields[0]


@pytest.mark.parametrize(
    ("path", "error_class"),
    [
        (("b",), "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"),
        (("s", "y"), "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"),
        (("a", "b"), "DELTA_COLUMN_PATH_NOT_NESTED"),
        (("l", "x"), "DELTA_INCORRECT_ARRAY_ACCESS_BY_NAME"),
        (("m", "x"), "DELTA_FOUND_MAP_TYPE_COLUMN"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(path: tuple[str, ...], error_class: str) -> None:
    for find in (resolve, kind_at, field_at):
        with pytest.raises(InvalidRequest) as refused:
            find(SCHEMA, path)
        assert refused.value.error_class == error_class


@pytest.mark.parametrize("path", [(), ("l", "element"), ("m", "key")])
def test_what_is_no_field_is_none(path: tuple[str, ...]) -> None:
    with pytest.raises(InvalidRequest, match="no field of a struct"):
        field_at(SCHEMA, path)


def test_one_type_is_changed_and_the_rest_stays() -> None:
    result = edit_at(SCHEMA, ("M", "value", "element"), lambda _: STRING)
    assert kind_at(result, ("m", "value")) == ArrayType(STRING)
    assert result.fields[:3] == SCHEMA.fields[:3]


def test_every_field_is_changed_those_inside_too() -> None:
    result = transform(SCHEMA, lambda path, one: StructField("".join(path), one.kind))
    assert [one.name for _, one in field_paths(result)] == [
        "a", "S", "SX", "l", "lelementX", "m",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["b c", "b,c", "b;", "b{", "b}", "b(", "b)", "b\n", "b\t", "b=c"])
def test_a_name_that_files_cannot_spell_needs_column_mapping(name: str) -> None:
    schema = StructType((StructField("s", StructType((StructField(name, LONG),))),))
    check_names(schema, is_mapped=True)
    with pytest.raises(InvalidRequest, match="column mapping") as refused:
        check_names(schema, is_mapped=False)
    assert refused.value.error_class == "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES"


def test_two_names_that_differ_in_case_are_one() -> None:
    twice = StructType((StructField("a", LONG), StructField("A", LONG)))
    inside = StructType(
        (StructField("s", ArrayType(twice)), StructField("t", twice.fields[0].kind))
    )
    for schema in (twice, inside):
        with pytest.raises(InvalidRequest, match="one name but for case") as refused:
            check_names(schema, is_mapped=True)
        assert refused.value.error_class == "DELTA_DUPLICATE_COLUMNS_FOUND"
    apart = StructType((StructField("s", INNER), StructField("t", INNER), StructField("x", LONG)))
    check_names(apart, is_mapped=False)


def test_a_column_without_a_name_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="an empty name"):
        check_names(StructType((StructField("", LONG),)), is_mapped=True)
