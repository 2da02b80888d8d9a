"""Partitions as values: two spellings of one value are one partition."""

import pytest

from tidegate_delta.log.actions import Metadata
from tidegate_delta.schema.partition_values import partition_kinds, partition_of
from tidegate_delta.schema.types import (
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    StructField,
    StructType,
    format_schema,
)


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (TIMESTAMP, ["2024-01-01 00:00:00", "2024-01-01 00:00:00.000000", "2024-01-01T00:00:00Z"]),
        (TIMESTAMP, ["2024-01-01T02:00:00.000000+02:00", "2024-01-01T00:00:00.000000Z"]),
        (TIMESTAMP_NTZ, ["2024-01-01 00:00:00.5", "2024-01-01 00:00:00.500000"]),
        (DATE, ["2024-01-01", "2024-1-1"]),
        (DATE, ["+12024-01-01", "12024-01-01"]),
        (DecimalType(5, 2), ["1.5", "1.50", "01.500"]),
        (INTEGER, ["7", "+7", "07"]),
        (DOUBLE, ["1", "1.0", "1E0"]),
        (DOUBLE, ["0.0", "-0.0"]),
        (FLOAT, ["NaN", "nan"]),
        (STRING, [None, ""]),
    ],
)
def test_spellings_of_one_value_are_one_partition(kind: DataType, texts: list[str | None]) -> None:
    assert len({partition_of({"p": text}, {"p": kind}) for text in texts}) == 1


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (STRING, ["1", "01", " 1", "1 "]),
        (TIMESTAMP, ["2024-01-01 00:00:00", "2024-01-01 00:00:00.000001"]),
        (DATE, ["12024-01-01", "12024-01-02", "nonsense", "other nonsense"]),
        (INTEGER, ["0", None]),
    ],
)
def test_other_values_are_other_partitions(kind: DataType, texts: list[str | None]) -> None:
    partitions = {partition_of({"p": text}, {"p": kind}) for text in texts}
    assert len(partitions) == len(texts)


def test_values_are_found_under_the_physical_names_of_their_columns() -> None:
    names = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    mapped = Metadata(
        id="t",
        schema_string=format_schema(StructType((StructField("p", DATE, True, names),))),
        partition_columns=("p",),
        configuration={"delta.columnMapping.mode": "name"},
    )
    kinds = partition_kinds(mapped)
    assert kinds == {"col-1": DATE}
    assert partition_of({"col-1": "2024-1-1"}, kinds) == partition_of(
        {"col-1": "2024-01-01", "p": "1999-01-01"}, kinds
    )
    assert partition_of(None, kinds) == (None,)
