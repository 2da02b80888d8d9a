"""Columns by which files are sorted."""

import pytest

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Metadata
from tidegate_delta.schema.types import (
    INTEGER,
    LONG,
    STRING,
    ArrayType,
    MapType,
    StructField,
    StructType,
    format_schema,
)
from tidegate_producers.writing.clustering import CLUSTER_BY, sorted_by

TABLE = Metadata(
    id="t",
    schema_string=format_schema(
        StructType(
            (
                StructField("k", LONG),
                StructField("s", StructType((StructField("a b", STRING),))),
                StructField("list", ArrayType(INTEGER)),
                StructField("map", MapType(STRING, INTEGER)),
            )
        )
    ),
)


def test_columns_of_plain_types_are_found_by_their_paths() -> None:
    assert sorted_by(TABLE, ["K", "s.`a b`"], CLUSTER_BY) == (("k",), ("s", "a b"))


@pytest.mark.parametrize("name", ["list", "map", "s"])
def test_no_file_is_sorted_by_a_list_a_map_or_a_struct(name: str) -> None:
    kinds = {
        CLUSTER_BY: "DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED",
        "zOrderBy": "DELTA_ZORDERING_ON_COLUMN_WITHOUT_STATS",
    }
    for purpose, error_class in kinds.items():
        with pytest.raises(InvalidRequest, match=f"'{name}' is no column of a plain") as caught:
            sorted_by(TABLE, [name], purpose)
        assert caught.value.error_class == error_class


def test_each_request_has_the_error_classes_of_delta_spark() -> None:
    uncounted = TABLE.with_(configuration={"delta.dataSkippingNumIndexedCols": "0"})
    cases = [
        (TABLE, "z", CLUSTER_BY, "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"),
        (TABLE, "z", "zOrderBy", "DELTA_ZORDERING_COLUMN_DOES_NOT_EXIST"),
        (uncounted, "k", CLUSTER_BY, "DELTA_CLUSTERING_COLUMN_MISSING_STATS"),
        (uncounted, "k", "zOrderBy", "DELTA_ZORDERING_ON_COLUMN_WITHOUT_STATS"),
    ]
    for metadata, name, purpose, error_class in cases:
        with pytest.raises(InvalidRequest) as caught:
            sorted_by(metadata, [name], purpose)
        assert caught.value.error_class == error_class
