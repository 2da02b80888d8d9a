"""What a task checks before it writes a row."""

import pytest

from tidegate_delta.errors import InvalidRequest, UnsupportedFeature
from tidegate_delta.schema.types import LONG, StructField, StructType
from tidegate_producers.datasource.batch_writer import replaces_partitions, with_condition
from tidegate_producers.options import TableLocation, for_writing
from tidegate_producers.parquet.data_file_encoding import FileLayout
from tidegate_producers.writing.table_write import WriteMode, WritePlan

SCHEMA = StructType((StructField("k", LONG), StructField("p", LONG)))


def planned(mode: WriteMode, *partition_columns: str) -> WritePlan:
    return WritePlan(
        TableLocation("memory://t"), mode, FileLayout(SCHEMA, partition_columns), 3, "m", 0
    )


def test_the_option_or_else_the_session_decides_whether_partitions_are_replaced() -> None:
    options = for_writing({"path": "memory://t"})
    static = for_writing({"path": "memory://t", "partitionOverwriteMode": "static"})
    dynamic = for_writing({"path": "memory://t", "partitionOverwriteMode": "dynamic"})
    where = for_writing({"path": "memory://t", "replaceWhere": "p = 1"})
    assert replaces_partitions(planned("overwrite", "p"), options, "DYNAMIC")
    assert replaces_partitions(planned("overwrite", "p"), dynamic, None)
    assert not replaces_partitions(planned("overwrite", "p"), static, "dynamic")
    assert not replaces_partitions(planned("overwrite", "p"), where, "dynamic")
    assert not replaces_partitions(planned("overwrite", "p"), options, None)
    assert not replaces_partitions(planned("overwrite", "p"), options, "static")
    assert not replaces_partitions(planned("overwrite"), options, "dynamic")
    assert not replaces_partitions(planned("append", "p"), options, "dynamic")


def test_columns_are_not_replaced_where_the_session_keeps_some_rows() -> None:
    options = for_writing({"path": "memory://t", "overwriteSchema": "true"})
    with pytest.raises(InvalidRequest, match="partitionOverwriteMode=static"):
        replaces_partitions(planned("overwrite", "p"), options, "dynamic")


def test_a_condition_that_is_not_evaluated_here_is_refused_before_a_row_is_written() -> None:
    options = for_writing({"path": "memory://t", "replaceWhere": "abs(k) = 1"})
    with pytest.raises(UnsupportedFeature, match="ABS"):
        with_condition(planned("overwrite", "p"), options)
