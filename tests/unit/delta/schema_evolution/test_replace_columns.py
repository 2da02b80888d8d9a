"""Replacing all columns of a table."""

from typing import Any

import pytest

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.schema.types import (
    INTEGER,
    LONG,
    STRING,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    format_schema,
    parse_schema,
)
from tidegate_delta.schema_evolution.alter_columns import replace_columns

PLAIN = Protocol(min_reader_version=1, min_writer_version=2)
WIDENING = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("typeWidening",),
    writer_features=("typeWidening",),
)
INNER = StructType((StructField("x", INTEGER), StructField("y", STRING)))
SCHEMA = StructType(
    (
        StructField("a", INTEGER, False, {"comment": "c", "mine": 1}),
        StructField("s", INNER),
        StructField("l", ArrayType(INTEGER, False)),
        StructField("m", MapType(STRING, INTEGER, False)),
    )
)


def table(mode: str = "none", **own: str) -> Metadata:
    configuration = {"delta.columnMapping.mode": mode, **own}
    return Metadata(id="t", schema_string=format_schema(SCHEMA), configuration=configuration)


def with_(name: str, kind: DataType, *, nullable: bool = True, **about: Any) -> StructType:
    new = StructField(name, kind, nullable, about)
    return StructType(tuple(new if item.name == name.lower() else item for item in SCHEMA))


def schema_of(metadata: Metadata) -> StructType:
    return parse_schema(metadata.schema_string)


def test_the_same_columns_change_nothing() -> None:
    assert replace_columns(table(), PLAIN, SCHEMA) == table()


def test_order_comments_and_nulls_are_those_of_the_new_columns() -> None:
    inner = StructType(
        (StructField("Y", STRING), StructField("n", LONG), StructField("x", INTEGER))
    )
    new = StructType(
        (
            StructField("S", inner),
            StructField("A", INTEGER, True, {"comment": "d", "mine": 2}),
            *SCHEMA.fields[2:],
            StructField("z", LONG, True, {"comment": "n"}),
        )
    )
    result = schema_of(replace_columns(table(), PLAIN, new))
    assert result.names == ("s", "a", "l", "m", "z")
    assert result.fields[1] == StructField("a", INTEGER, True, {"comment": "d", "mine": 1})
    assert result.fields[0].kind == StructType(
        (StructField("y", STRING), StructField("n", LONG), StructField("x", INTEGER))
    )


def test_types_widen_where_the_table_allows_it() -> None:
    wide = table(**{"delta.enableTypeWidening": "true"})
    result = schema_of(replace_columns(wide, WIDENING, with_("m", MapType(STRING, LONG, False))))
    assert result.fields[3].metadata["delta.typeChanges"][0]["fieldPath"] == "value"
    with pytest.raises(InvalidRequest, match=r"'m\.value' can't be changed"):
        replace_columns(table(), PLAIN, with_("m", MapType(STRING, LONG, False)))


def test_columns_go_only_where_they_are_mapped_and_none_come() -> None:
    fewer = StructType(SCHEMA.fields[1:])
    with pytest.raises(InvalidRequest, match="without column mapping"):
        replace_columns(table(), PLAIN, fewer)
    assert schema_of(replace_columns(table("name"), PLAIN, fewer)) == fewer
    other = StructType((*fewer.fields, StructField("z", LONG)))
    with pytest.raises(InvalidRequest, match="meant as a rename") as refused:
        replace_columns(table("name"), PLAIN, other)
    assert refused.value.error_class == "DELTA_AMBIGUOUS_DATA_TYPE_CHANGE"
    rested_on = table("name", **{"delta.constraints.c": "a > 0"})
    with pytest.raises(InvalidRequest, match=r"c \(a > 0\)"):
        replace_columns(rested_on, PLAIN, fewer)
    with pytest.raises(InvalidRequest, match="partitioned by 'a'"):
        replace_columns(table("name").with_(partition_columns=("a",)), PLAIN, fewer)


@pytest.mark.parametrize(
    "new",
    [
        with_("s", INNER, nullable=False),
        with_("s", StructType((StructField("x", INTEGER, False), StructField("y", STRING)))),
        StructType((*SCHEMA.fields, StructField("z", LONG, False))),
    ],
)
def test_rows_that_are_there_may_hold_nulls(new: StructType) -> None:
    with pytest.raises(InvalidRequest, match="may hold nulls") as refused:
        replace_columns(table(), PLAIN, new)
    assert refused.value.error_class == "DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP"


def test_a_table_that_numbers_its_rows_is_changed_one_column_at_a_time() -> None:
    about = {
        "delta.identity.start": 1, "delta.identity.step": 1,
        "delta.identity.allowExplicitInsert": False,
    }  # fmt: skip
    numbered = StructType((StructField("id", LONG, metadata=about), *SCHEMA))
    of = table().with_(schema_string=format_schema(numbered))
    with pytest.raises(InvalidRequest, match="numbers its column 'id'") as refused:
        replace_columns(of, PLAIN, numbered)
    expected = "DELTA_IDENTITY_COLUMNS_REPLACE_COLUMN_NOT_SUPPORTED"
    assert refused.value.error_class == expected
