"""Files written in the hybrid Julian calendar are read with the dates that people wrote."""

import json
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from tests.builders import add, metadata, table_in_memory
from tests.support.refusals import refused
from tests.support.table_files import parquet, protocol_listing
from tidegate_delta.errors import BrokenLog
from tidegate_runtime.table_io.data_file_reader import read_table
from tidegate_runtime.table_io.open_table import open_snapshot

NEW, OLD = {"org.apache.spark.version": "4.2.0"}, {"org.apache.spark.version": "2.4.6"}
MARKED = {**NEW, "org.apache.spark.legacyDateTime": ""}
MARKED_96 = {**NEW, "org.apache.spark.legacyINT96": ""}
DAY_US = 86_400_000_000

# Days since the epoch in the Julian calendar, and the Gregorian day with the same date.
DAYS = {
    -719_164: date(1, 1, 1),
    -354_285: date(999, 12, 27),
    -171_597: date(1500, 2, 28),
    -171_596: date(1500, 3, 1),  # 29 February, missing in the Gregorian 1500
    -171_595: date(1500, 3, 1),
    -141_428: date(1582, 10, 4),
    -141_427: date(1582, 10, 15),
    19_782: date(2024, 2, 29),
}


def days(*counts: int | None) -> pa.Array:
    return pa.array(counts, pa.int32()).cast(pa.date32())


def moments(*counts: int | None) -> pa.Array:
    return pa.array(counts, pa.int64()).cast(pa.timestamp("us", "UTC"))


def read(
    columns: dict[str, pa.Array], kinds: dict[str, Any], told: dict[str, str], **options: Any
) -> pa.Table:
    rows = pa.table(columns).replace_schema_metadata(told)
    about = metadata()
    fields = [{"name": n, "type": k, "nullable": True, "metadata": {}} for n, k in kinds.items()]
    about["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": fields})
    store = table_in_memory([protocol_listing("timestampNtz"), about, add("a")])
    store.files["a"] = parquet(rows, **options)
    return read_table(store, open_snapshot(store))


@pytest.mark.parametrize("told", [OLD, MARKED])
def test_days_are_those_that_people_wrote(told: dict[str, str]) -> None:
    result = read({"d": days(*DAYS, None)}, {"d": "date"}, told)
    assert result["d"].to_pylist() == [*DAYS.values(), None]


@pytest.mark.parametrize("told", [NEW, {}, {"org.apache.spark.legacyDateTime": ""}])
def test_days_of_other_files_are_as_they_are_counted(told: dict[str, str]) -> None:
    result = read({"d": days(-719_162, -141_428)}, {"d": "date"}, told)
    assert result["d"].to_pylist() == [date(1, 1, 1), date(1582, 10, 14)]


@pytest.mark.parametrize(("told", "as_int96"), [(MARKED, False), (MARKED_96, True), (OLD, True)])
def test_moments_are_too_where_their_kind_is_marked(told: dict[str, str], as_int96: object) -> None:
    noon = DAY_US // 2
    held = moments(-719_164 * DAY_US + noon, -141_428 * DAY_US + 1, 7, None)
    options = {"use_deprecated_int96_timestamps": as_int96}
    result = read({"t": held}, {"t": "timestamp"}, told, **options)
    assert result["t"].to_pylist() == [
        datetime(1, 1, 1, 12, tzinfo=UTC),
        datetime(1582, 10, 4, 0, 0, 0, 1, UTC),
        datetime(1970, 1, 1, 0, 0, 0, 7, UTC),
        None,
    ]


@pytest.mark.parametrize(("told", "as_int96"), [(MARKED, True), (MARKED_96, False)])
def test_moments_of_the_kind_that_is_not_marked_are_as_they_are_counted(
    told: dict[str, str], as_int96: object
) -> None:
    held = moments(-719_162 * DAY_US)
    options = {"use_deprecated_int96_timestamps": as_int96}
    result = read({"t": held}, {"t": "timestamp"}, told, **options)
    assert result["t"].to_pylist() == [datetime(1, 1, 1, tzinfo=UTC)]


def test_times_without_a_zone_were_never_counted_so() -> None:
    at = pa.array([-719_162 * DAY_US], pa.int64()).cast(pa.timestamp("us"))
    result = read({"t": at}, {"t": "timestamp_ntz"}, MARKED)
    assert result["t"].cast(pa.int64()).to_pylist() == [-719_162 * DAY_US]


def test_before_1900_a_zone_had_no_mean_time_of_its_own() -> None:
    """The old calendar takes Los Angeles as -8:00 then; its local mean time was -7:52:58."""
    result = {**MARKED, "org.apache.spark.timeZone": "America/Los_Angeles"}
    noon = (-36_525 + 8 / 24 + 0.5) * DAY_US
    twice = (-31_455 + 8 / 24 + 0.5) * DAY_US
    found = read({"t": moments(round(noon), round(twice), 0)}, {"t": "timestamp"}, result)
    assert found["t"].to_pylist() == [
        datetime(1869, 12, 31, 19, 52, 58, tzinfo=UTC),
        datetime(1883, 11, 18, 20, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
    ]


def test_a_zone_that_nobody_knows_is_refused_where_it_matters() -> None:
    result = {**MARKED, "org.apache.spark.timeZone": "Atlantis/Old_Town"}
    assert read({"t": moments(0)}, {"t": "timestamp"}, result).num_rows == 1
    with refused(BrokenLog, "CorruptDataFile", match="Atlantis/Old_Town"):
        read({"t": moments(-719_164 * DAY_US)}, {"t": "timestamp"}, result)


def test_days_inside_other_columns_are_too() -> None:
    inner = days(-719_164, None, -141_427)
    columns = {
        "s": pa.StructArray.from_arrays([inner], ["d"]),
        "l": pa.ListArray.from_arrays([0, 1, 1, 3], inner),
        "m": pa.MapArray.from_arrays([0, 1, 2, 3], days(-719_164, 0, 1), inner),
    }
    date_of = {"name": "d", "type": "date", "nullable": True, "metadata": {}}
    kinds: dict[str, Any] = {
        "s": {"type": "struct", "fields": [date_of]},
        "l": {"type": "array", "elementType": "date", "containsNull": True},
        "m": {"type": "map", "keyType": "date", "valueType": "date", "valueContainsNull": True},
    }
    first, last = date(1, 1, 1), date(1582, 10, 15)
    result = read(columns, kinds, OLD)
    assert result["s"].to_pylist() == [{"d": first}, {"d": None}, {"d": last}]
    assert result["l"].to_pylist() == [[first], [], [None, last]]
    assert [pairs[0][1] for pairs in result["m"].to_pylist()] == [first, None, last]
    assert result["m"].to_pylist()[0][0][0] == first
