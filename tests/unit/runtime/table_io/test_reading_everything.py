"""Values of old and foreign files, read in the table's types."""

import json
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests import builders
from tests.builders import add, to_bytes
from tests.fakes.memory_store import MemoryStore
from tests.support.refusals import refused
from tests.support.table_files import parquet, protocol_listing
from tests.unit.runtime.table_io.two_level_lists import ROWS, file_with_two_level_lists
from tidegate_delta.errors import BrokenLog, UnsupportedFeature
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_runtime.table_io.data_file_reader import read_table
from tidegate_runtime.table_io.open_table import open_snapshot

FEATURES = ("timestampNtz", "timestampNanos")


def table_of(
    columns: dict[str, Any], content: bytes, partition: dict[str, str | None] | None = None
) -> MemoryStore:
    about = builders.metadata()["metaData"]
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in columns.items()
    ]
    about["schemaString"] = json.dumps({"type": "struct", "fields": fields})
    about["partitionColumns"] = list(partition or {})
    rows = [
        protocol_listing(*FEATURES),
        {"metaData": about},
        add("a", partitionValues=partition or {}),
    ]
    store = MemoryStore()
    store.files = {"a": content, in_log(commit_name(0)): to_bytes(rows)}
    return store


def read(store: MemoryStore) -> pa.Table:
    return read_table(store, open_snapshot(store))


@pytest.mark.parametrize("as_integers", [True, False])
def test_decimals_of_every_width_are_read(as_integers: object) -> None:
    values, columns = {}, {}
    for precision in range(1, 39):
        scale = precision // 2
        name = f"d{precision}"
        greatest = Decimal(10**precision - 1).scaleb(-scale, Context(prec=38))
        kind = pa.decimal128(precision, scale)
        values[name] = pa.array([greatest, None, Decimal(0).scaleb(-scale)], kind)
        columns[name] = f"decimal({precision},{scale})"
    held = pa.table(values)
    content = parquet(held, store_decimal_as_integer=as_integers)
    assert read(table_of(columns, content)).equals(held)


def test_lists_of_two_levels_are_read() -> None:
    kind = {"type": "array", "elementType": "integer", "containsNull": True}
    result = read(table_of({"l": kind}, file_with_two_level_lists()))
    assert result["l"].to_pylist() == list(ROWS)


def test_what_is_void_is_null_wherever_it_stands() -> None:
    columns = {
        "v": "void",
        "s": {
            "type": "struct",
            "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}}
                       for name, kind in (("x", "long"), ("v", "void"))],
        },
        "l": {"type": "array", "elementType": "void", "containsNull": True},
    }  # fmt: skip
    content = parquet(pa.table({"s": [{"x": 1}, None], "l": pa.nulls(2)}))
    result = read(table_of(columns, content))
    assert result["v"].to_pylist() == [None, None]
    assert result["s"].to_pylist() == [{"x": 1, "v": None}, None]
    assert result["l"].to_pylist() == [None, None]


@pytest.mark.parametrize("as_int96", [True, False])
def test_moments_before_1582_and_after_2262_are_read_nested_too(as_int96: object) -> None:
    moments = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)]
    utc = pa.timestamp("us", "UTC")
    held = pa.table(
        {
            "t": pa.array(moments, utc),
            "l": pa.array([moments, None], pa.list_(utc)),
            "day": pa.array([date(1, 1, 1), date(9999, 12, 31)]),
        }
    )
    content = parquet(held, use_deprecated_int96_timestamps=as_int96)
    list_of = {"type": "array", "elementType": "timestamp", "containsNull": True}
    result = read(table_of({"t": "timestamp", "l": list_of, "day": "date"}, content))
    assert result.to_pylist() == held.to_pylist()


def test_nanoseconds_are_read() -> None:
    moments = pa.array([1, -1, None], pa.timestamp("ns", "UTC"))
    held = pa.table({"n": moments, "z": moments.cast(pa.timestamp("ns"))})
    kinds = {"n": "timestamp_nanos", "z": "timestamp_nanos_ntz", "p": "timestamp_nanos"}
    at = "2024-02-29T12:00:00.000000001Z"
    result = read(table_of(kinds, parquet(held), {"p": at}))
    assert result.select(["n", "z"]).equals(held)
    assert result["p"].cast(pa.int64()).to_pylist() == [1709208000000000001] * 3


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("date", "0001-01-01", date(1, 1, 1)),
        ("date", "1582-10-10", date(1582, 10, 10)),
        ("timestamp", "0001-01-01 00:00:00", datetime(1, 1, 1, tzinfo=UTC)),
        ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
        ("decimal(38,38)", "-0." + "9" * 38, Decimal("-0." + "9" * 38)),
        ("double", "-Infinity", float("-inf")),
        ("string", "\u65e5\u672c %25", "\u65e5\u672c %25"),
    ],
)
def test_partition_values_at_their_edges_are_read(kind: str, text: str, value: Any) -> None:
    content = parquet(pa.table({"x": [1]}))
    result = read(table_of({"x": "long", "p": kind}, content, {"p": text}))
    assert result["p"].to_pylist() == [value]


def test_days_past_the_year_9999_are_read_from_partitions_and_allowed_in_statistics() -> None:
    days = pa.array([2_932_897], pa.int32()).cast(pa.date32())
    store = table_of(
        {"d": "date", "p": "date"}, parquet(pa.table({"d": days})), {"p": "+10000-01-01"}
    )
    result = read(store)
    assert result["d"].cast(pa.int32()).to_pylist() == result["p"].cast(pa.int32()).to_pylist()
    late = {"op": ">", "column": ["p"], "value": "9999-12-31", "type": "date"}
    head = open_snapshot(store)
    assert read_table(store, head, ["d"], late).num_rows == 1


@pytest.mark.parametrize(("kind", "text"), [("date", "+9999999-01-01"), ("long", str(2**63))])
def test_partition_values_past_their_type_are_refused(kind: str, text: str) -> None:
    store = table_of({"x": "long", "p": kind}, parquet(pa.table({"x": [1]})), {"p": text})
    with refused(BrokenLog, "CorruptDataFile", match=r"'a' of table memory://t can't be read"):
        read(store)


def test_a_condition_on_a_column_with_a_collation_is_refused_and_not_guessed() -> None:
    store = table_of({"s": "string"}, parquet(pa.table({"s": ["a", "A"]})))
    path = in_log(commit_name(0))
    text = store.files[path].decode()
    collated = json.dumps({"__COLLATIONS": {"s": "spark.UTF8_LCASE"}}).replace('"', '\\"')
    store.files[path] = text.replace('\\"metadata\\": {}', f'\\"metadata\\": {collated}').encode()
    snapshot = open_snapshot(store)
    assert read_table(store, snapshot).num_rows == 2
    condition = {"op": "=", "column": ["s"], "value": "a", "type": "string"}
    with pytest.raises(UnsupportedFeature, match="'s'") as raised:
        read_table(store, snapshot, predicate=condition)
    assert raised.value.feature == "collations"
    nulls = {"op": "is_not_null", "column": ["s"]}
    assert read_table(store, snapshot, predicate=nulls).num_rows == 2
