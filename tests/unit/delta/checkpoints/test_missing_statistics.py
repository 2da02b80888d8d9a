"""Which files lack statistics, by what their texts say."""

import json

import pytest

from tidegate_delta.checkpoints.missing_statistics import lack_statistics
from tidegate_delta.log.actions import Add, Metadata
from tidegate_delta.schema.types import (
    BINARY,
    LONG,
    STRING,
    ArrayType,
    StructField,
    StructType,
    format_schema,
)
from tidegate_delta.snapshots.file_action_columns import adds_to_columns

INNER = StructType((StructField("c", STRING), StructField("d", BINARY)))
SCHEMA = StructType(
    (
        StructField("a", LONG),
        StructField("p", STRING),
        StructField("s", INNER),
        StructField("list", ArrayType(LONG, True)),
    )
)
WHOLE = {"numRecords": 3, "nullCount": {"a": 0, "s": {"c": 1}}}


def lacking(*texts: str | None, schema: StructType = SCHEMA, **properties: str) -> list[bool]:
    files = adds_to_columns(
        [
            Add(
                path=f"f{number}",
                partition_values={"p": "x"},
                size=1,
                modification_time=1,
                data_change=True,
                stats=text,
            )
            for number, text in enumerate(texts)
        ]
    )
    metadata = Metadata(
        id="m",
        schema_string=format_schema(schema),
        partition_columns=("p",),
        configuration={key.replace("_", "."): value for key, value in properties.items()},
    )
    result: list[bool] = lack_statistics(files, metadata).to_pylist()
    return result


@pytest.mark.parametrize(
    ("stats", "is_lacking"),
    [
        (WHOLE, False),
        ({**WHOLE, "tightBounds": False}, False),
        ({"numRecords": 3}, True),
        ({"numRecords": 3, "nullCount": {"a": 0}}, True),
        ({"numRecords": 3, "nullCount": {"a": 0, "s": {"d": 1}}}, True),
        ({"nullCount": WHOLE["nullCount"]}, True),
        ({}, True),
        ({**WHOLE, "numRecords": "3"}, True),
    ],
)
def test_rows_and_nulls_of_each_bounded_column_are_stated(stats: object, is_lacking: bool) -> None:
    text = json.dumps(stats)
    assert lacking(text) == [is_lacking]
    assert lacking(None, text, "not JSON", json.dumps(WHOLE)) == [True, is_lacking, True, False]


def test_only_the_columns_count_that_the_table_indexes() -> None:
    rows = json.dumps({"numRecords": 3})
    assert lacking(rows, delta_dataSkippingNumIndexedCols="0") == [False]
    of_a = json.dumps({"numRecords": 3, "nullCount": {"a": 0}})
    assert lacking(of_a, delta_dataSkippingStatsColumns="a") == [False]
    assert lacking() == []
