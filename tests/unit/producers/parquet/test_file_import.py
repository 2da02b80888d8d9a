"""Parquet files of other engines that become data files of a table, as they are."""

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fakes.memory_store import MemoryStore
from tidegate_delta.schema.column_mapping import ColumnMappingMode
from tidegate_delta.schema.types import (
    BINARY,
    INTEGER,
    STRING,
    TIMESTAMP,
    StructField,
    StructType,
    parse_schema,
)
from tidegate_producers.parquet.file_import import described
from tidegate_runtime.table_io.data_file_reader import read_rows


def imported(rows: pa.Table, **how: Any) -> tuple[StructType, dict[str, Any], pa.Table]:
    """Return the columns, the statistics and the rows of a file that another engine wrote."""
    store, out = MemoryStore(), pa.BufferOutputStream()
    pq.write_table(rows, out, **how)
    store.put("f.parquet", out.getvalue().to_pybytes())
    schema, stats = described(store, "f.parquet", "f.parquet", ())
    columns = parse_schema(schema)
    batches = read_rows(store, "f.parquet", columns.fields, {}, ColumnMappingMode.NONE)
    return columns, json.loads(stats), pa.Table.from_batches(list(batches))


def test_int96_is_an_instant_at_every_depth() -> None:
    at = datetime(2024, 1, 1, tzinfo=UTC).replace(tzinfo=None)
    kind = pa.struct([("n", pa.int32()), ("at", pa.timestamp("us"))])
    rows = pa.table(
        {
            "s": pa.array([{"n": 1, "at": at}], kind),
            "n": pa.array([2], pa.int32()),
            "list": pa.array([[{"n": 3, "at": at}]], pa.list_(kind)),
            "map": pa.array([[("k", at)]], pa.map_(pa.string(), pa.timestamp("us"))),
            "at": pa.array([at], pa.timestamp("us")),
        }
    )
    columns, _, read = imported(rows, use_deprecated_int96_timestamps=True, store_schema=False)
    inner = StructType((StructField("n", INTEGER), StructField("at", TIMESTAMP)))
    assert [str(field.kind) for field in columns] == [
        str(inner),
        "integer",
        f"array<{inner}>",
        "map<string,timestamp>",
        "timestamp",
    ]
    assert read["s"][0]["at"].as_py() == at.replace(tzinfo=UTC)
    assert read["map"].to_pylist() == [[("k", at.replace(tzinfo=UTC))]]


def test_text_in_json_and_uuids_are_what_is_stored() -> None:
    text = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}', None]))
    unique = pa.ExtensionArray.from_storage(
        pa.uuid(), pa.array([b"0123456789abcdef", None], pa.binary(16))
    )
    nested = pa.StructArray.from_arrays([text], names=["j"])
    for stores in (True, False):
        rows = pa.table({"j": text, "u": unique, "s": nested})
        columns, stats, read = imported(rows, store_schema=stores)
        kinds = (STRING, BINARY, StructType((StructField("j", STRING),)))
        assert tuple(field.kind for field in columns) == kinds
        assert stats["minValues"]["j"] == '{"a": 1}'
        assert read["j"].to_pylist() == ['{"a": 1}', None]
        assert read["u"].to_pylist() == [b"0123456789abcdef", None]
        assert read["s"].to_pylist() == [{"j": '{"a": 1}'}, {"j": None}]
