"""Timestamps without a zone are read in the session's zone."""

from unittest import mock

import pytest

from tidegate_delta.errors import InvalidRequest
from tidegate_producers.table import Table, table
from tidegate_runtime.conditions.sql_condition import in_zone


@pytest.mark.parametrize(
    ("text", "zone", "told"),
    [
        ("2024-07-01 12:00:00", "Europe/Zurich", "2024-07-01T10:00:00.000000Z"),
        ("2024-01-01", "Europe/Zurich", "2023-12-31T23:00:00.000000Z"),
        ("2024-01-01 00:00:00.5", "UTC", "2024-01-01T00:00:00.500000Z"),
        ("2024-07-01 12:00:00", "+05:30", "2024-07-01T06:30:00.000000Z"),
        ("2024-07-01T12:00:00Z", "Europe/Zurich", "2024-07-01T12:00:00Z"),
        ("2024-07-01 12:00:00+02:00", "Asia/Tokyo", "2024-07-01 12:00:00+02:00"),
        ("yesterday", "Europe/Zurich", "yesterday"),
        ("", "Europe/Zurich", ""),
    ],
)
def test_a_time_that_names_no_zone_is_by_the_sessions(text: str, zone: str, told: str) -> None:
    assert in_zone(text, zone) == told


def test_a_zone_that_is_not_known_is_named() -> None:
    with pytest.raises(InvalidRequest, match="Mars/Olympus"):
        in_zone("2024-01-01", "Mars/Olympus")


def test_time_travel_of_a_table_is_by_the_sessions_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    spark, open_snapshot = mock.MagicMock(), mock.MagicMock()
    spark.conf.get.return_value = "Europe/Zurich"
    monkeypatch.setattr(table, "store_for", mock.MagicMock())
    monkeypatch.setattr(table, "open_snapshot", open_snapshot)
    monkeypatch.setattr(table, "table_frame", mock.MagicMock())
    Table(spark, "memory://tables/t").to_df(timestamp="2024-07-01 12:00:00")
    [(_, version, at_ms)] = [call.args for call in open_snapshot.call_args_list]
    assert (version, at_ms) == (None, 1_719_828_000_000), "10:00 in UTC"
