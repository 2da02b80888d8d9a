"""Column defaults."""

from typing import Any

import pytest

from tests.definitions import of_schema
from tidegate_delta.constraints.column_defaults import (
    ColumnDefault,
    check_defaults,
    check_no_default,
    column_defaults,
    set_default,
)
from tidegate_delta.errors import BrokenLog, InvalidRequest
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.schema.types import (
    LONG,
    STRING,
    VARIANT,
    StructField,
    StructType,
    parse_schema,
    parse_type,
)

IDENTITY = {
    "delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.allowExplicitInsert": True,
}  # fmt: skip
SCHEMA = StructType(
    (
        StructField("a", LONG, metadata={"CURRENT_DEFAULT": "40 + 2", "EXISTS_DEFAULT": "42"}),
        StructField("s", STRING, metadata={"comment": "c"}),
        StructField("v", VARIANT),
        StructField("id", LONG, metadata=IDENTITY),
        StructField("g", LONG, metadata={"delta.generationExpression": "a"}),
        StructField("geo", parse_type("geometry(EPSG:4326)")),
    )
)
TABLE = of_schema(SCHEMA)
WITH = Protocol(
    min_reader_version=1, min_writer_version=7, writer_features=("allowColumnDefaults",)
)
WITHOUT = Protocol(min_reader_version=1, min_writer_version=6)


def field_of(metadata: Metadata, name: str) -> StructField:
    result = parse_schema(metadata.schema_string).get(name)
    assert result is not None
    return result


def test_defaults_count_where_the_table_supports_them() -> None:
    assert column_defaults(TABLE, WITH) == (ColumnDefault("a", "a", "40 + 2"),)
    assert column_defaults(TABLE, WITHOUT) == ()


def test_a_default_is_set_and_taken_away() -> None:
    result = set_default(TABLE, WITH, "S", "'d''ef'")
    assert field_of(result, "s").metadata == {"comment": "c", "CURRENT_DEFAULT": "'d''ef'"}
    assert set_default(result, WITH, "s", None) == TABLE
    assert field_of(set_default(TABLE, WITH, "a", "7"), "a").metadata == {"CURRENT_DEFAULT": "7"}
    assert field_of(set_default(TABLE, WITHOUT, "a", None), "a").metadata == {}
    assert field_of(set_default(TABLE, WITH, "v", " Null "), "v").metadata
    assert field_of(set_default(TABLE, WITH, "s", "current_date()"), "s").metadata


@pytest.mark.parametrize(
    ("column", "text", "error_class"),
    [
        ("z", "1", "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"),
        ("s", "", "INVALID_DEFAULT_VALUE"),
        ("s", "a + 1", "INVALID_DEFAULT_VALUE"),
        ("s", "'open", "INVALID_DEFAULT_VALUE"),
        ("v", "1", "DELTA_OPERATION_NOT_SUPPORTED_FOR_DATATYPES"),
        ("geo", "NULL", "DELTA_OPERATION_NOT_SUPPORTED_FOR_DATATYPES"),
        ("id", "1", "DELTA_IDENTITY_COLUMNS_ALTER_COLUMN_NOT_SUPPORTED"),
        ("g", "1", "GENERATED_COLUMN_WITH_DEFAULT_VALUE"),
    ],
)
def test_a_default_that_a_column_cannot_have_is_refused(
    column: str, text: str, error_class: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        set_default(TABLE, WITH, column, text)
    assert refused.value.error_class == error_class


def test_a_table_must_support_defaults() -> None:
    for act in (
        lambda: set_default(TABLE, WITHOUT, "s", "'x'"),
        lambda: check_defaults(SCHEMA, WITHOUT),
    ):
        with pytest.raises(InvalidRequest, match="allowColumnDefaults") as refused:
            act()
        assert refused.value.error_class == "WRONG_COLUMN_DEFAULTS_FOR_DELTA_FEATURE_NOT_ENABLED"
    check_defaults(SCHEMA, WITH)


def test_a_default_does_not_come_with_its_column() -> None:
    check_no_default(SCHEMA.fields[1])
    with pytest.raises(InvalidRequest, match="then set its default"):
        check_no_default(SCHEMA.fields[0])


@pytest.mark.parametrize("text", [5, None, ["1"]])
def test_a_default_that_is_no_text_is_refused(text: Any) -> None:
    schema = StructType((StructField("a", LONG, metadata={"CURRENT_DEFAULT": text}),))
    with pytest.raises(BrokenLog, match="which is no expression"):
        column_defaults(of_schema(schema), WITH)
