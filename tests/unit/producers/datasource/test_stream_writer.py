"""Options that a stream refuses, and that no table is read as a stream."""

from pathlib import Path

import pytest

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.schema.types import LONG, StructField, StructType
from tidegate_producers.datasource.stream_writer import StreamWriter
from tidegate_producers.options import for_writing

SCHEMA = StructType((StructField("k", LONG),))


@pytest.mark.parametrize(
    "given", [{"txnAppId": "a", "txnVersion": "1"}, {"readVersion": "3"}], ids=str
)
def test_what_holds_for_one_write_is_no_option_of_a_stream(given: dict[str, str]) -> None:
    options = for_writing({"path": "memory://t", **given})
    with pytest.raises(InvalidRequest, match=list(given)[-1]):
        StreamWriter(options, SCHEMA, "append")


def test_a_stream_that_creates_a_table_sets_its_partitioning(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="partitionBy: name the columns"):
        StreamWriter(for_writing({"path": str(tmp_path / "t")}), SCHEMA, "append")
    StreamWriter(
        for_writing({"path": str(tmp_path / "t"), "partitionColumns": ""}), SCHEMA, "append"
    )
