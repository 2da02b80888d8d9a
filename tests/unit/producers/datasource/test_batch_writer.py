"""What a task checks before it writes a row."""

import pytest

from tidegate_delta.errors import UnsupportedFeature
from tidegate_delta.schema.types import LONG, StructField, StructType
from tidegate_producers.datasource.batch_writer import check_overwrite
from tidegate_producers.options import TableLocation, for_writing
from tidegate_producers.parquet.data_file_encoding import FileLayout
from tidegate_producers.writing.table_write import WriteMode, WritePlan

SCHEMA = StructType((StructField("k", LONG), StructField("p", LONG)))


def planned(mode: WriteMode, *partition_columns: str) -> WritePlan:
    return WritePlan(
        TableLocation("memory://t"), mode, FileLayout(SCHEMA, partition_columns), 3, "m", 0
    )


def test_an_overwrite_is_refused_where_the_session_wants_some_partitions_replaced() -> None:
    options = for_writing({"path": "memory://t"})
    static = for_writing({"path": "memory://t", "partitionOverwriteMode": "static"})
    with pytest.raises(UnsupportedFeature, match="partitionOverwriteMode=static"):
        check_overwrite(planned("overwrite", "p"), options, "DYNAMIC")
    check_overwrite(planned("overwrite", "p"), static, "dynamic")
    check_overwrite(planned("overwrite", "p"), options, None)
    check_overwrite(planned("overwrite", "p"), options, "static")
    check_overwrite(planned("overwrite"), options, "dynamic")
    check_overwrite(planned("append", "p"), options, "dynamic")
