"""What a task finds out before it writes a row."""

import pytest

from tidegate.delta.errors import UnsupportedFeature
from tidegate.delta.schema.types import LONG, StructField, StructType
from tidegate.producers.files.parquet import Layout
from tidegate.producers.options import Place, for_writing
from tidegate.producers.source.batch import check_overwrite
from tidegate.producers.writing import Mode, Plan

SCHEMA = StructType((StructField("k", LONG), StructField("p", LONG)))


def planned(mode: Mode, *partition_columns: str) -> Plan:
    return Plan(Place("memory://t"), mode, Layout(SCHEMA, partition_columns), 3, "m", 0)


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
