"""Where a query begins, and what follows when a table has other positions than expected."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate_delta.errors import InvalidRequest, UnsupportedFeature
from tidegate_producers.ingest.positions import (
    Bounds,
    SourcePartition,
    beginning,
    check_not_behind,
    ends_of_batch,
    source_of,
)
from tidegate_producers.ingest.settings import Route, start_of
from tidegate_producers.ingest.topic_source import starting_offsets

A, B = SourcePartition("orders", "Xy_-9", 0), SourcePartition("orders", "Xy_-9", 1)
BOUNDS = {A: Bounds(0, 100), B: Bounds(50, 80)}


@given(
    topic=st.text("abcXYZ019._-", min_size=1),
    topic_id=st.text("abcXYZ019_-", min_size=1),
    partition=st.integers(0, 10_000),
)
def test_an_application_says_which_partition_it_is_of(
    topic: str, topic_id: str, partition: int
) -> None:
    source = SourcePartition(topic, topic_id, partition)
    assert source_of(source.app_id) == source


@pytest.mark.parametrize("app_id", ["orders/0", "tidegate/x/0", "ingest/orders/0", "ingest/a@b/x"])
def test_other_applications_are_no_sources(app_id: str) -> None:
    assert source_of(app_id) is None


def test_a_topic_made_anew_is_another_source() -> None:
    assert A.app_id != A._replace(topic_id="other").app_id


@pytest.mark.parametrize(
    ("start", "offsets", "noted"),
    [
        ("earliest", {A: 0, B: 50}, {}),
        ("latest", {A: 100, B: 80}, {A: 99, B: 79}),
        ("2026-01-01T00:00:00Z", {A: 7, B: 80}, {A: 6, B: 79}),
        ("0:3,1:60", {A: 3, B: 60}, {A: 2, B: 59}),
        ("orders:0:0", {A: 0, B: 50}, {B: 49}),
        ("kafka-delta-ingest:old", {A: 7, B: 50}, {A: 6, B: 49}),
    ],
)
def test_partitions_that_the_table_never_saw_begin_at_the_start(
    start: str, offsets: dict[SourcePartition, int], noted: dict[SourcePartition, int]
) -> None:
    looked_up = {A: 7} if start.startswith(("2026", "kafka")) else {}
    result = beginning({}, BOUNDS, start_of(start), looked_up, "stop")
    assert (result.offsets, result.noted) == (offsets, noted)


def test_others_begin_behind_their_positions_whatever_the_start() -> None:
    result = beginning({A: 41, B: 79}, BOUNDS, start_of("latest"), {}, "stop")
    assert result.offsets == {A: 42, B: 80}
    assert not result.noted


def test_a_partition_that_was_added_begins_at_the_start_and_the_others_behind() -> None:
    result = beginning({A: 41, B: -1}, BOUNDS, start_of("earliest"), {}, "stop")
    assert result.offsets == {A: 42, B: 50}


def test_records_that_retention_took_are_named_and_skipped_only_when_asked() -> None:
    with pytest.raises(InvalidRequest, match=r"orders/1: offsets 20 to 49 .*--after-data-loss"):
        beginning({A: 41, B: 19}, BOUNDS, start_of("earliest"), {}, "stop")
    result = beginning({A: 41, B: 19}, BOUNDS, start_of("earliest"), {}, "skip")
    assert result.offsets == {A: 42, B: 50}


@pytest.mark.parametrize("after", ["stop", "skip"])
def test_a_topic_that_ends_before_the_position_is_never_passed_over(after: str) -> None:
    with pytest.raises(InvalidRequest, match="up to offset 120, and the topic ends at 100"):
        beginning({A: 120}, BOUNDS, start_of("earliest"), {}, after)  # type: ignore[arg-type] # each


def test_an_offset_that_the_topic_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="50 to 80, and not 10"):
        beginning({}, BOUNDS, start_of("1:10"), {}, "stop")


def test_a_table_that_was_put_back_is_named_with_both_positions_and_the_option() -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_not_behind({A: 41, B: 60}, {A: 41, B: 10}, "file:///t", "stop")
    text = str(caught.value)
    assert "orders/1: this job committed offset 60, and the table has 10" in text
    assert "orders/0" not in text
    assert "--after-restore" in text
    assert "--start" not in text, "it is for partitions without a position"


def test_a_table_that_was_made_anew_is_named_with_the_start_that_leaves_records_out() -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_not_behind({A: 41, B: 60}, {A: -1, B: -1}, "file:///t", "stop")
    text = str(caught.value)
    assert "this job committed offset 41, and the table has none" in text
    [start] = re.findall(r"--start (\S+)\.", text)
    assert start_of(start).offsets == {("orders", 0): 42, ("orders", 1): 61}


@pytest.mark.parametrize("current", [{A: 41}, {A: 90}])
def test_a_table_that_is_as_far_or_further_was_not_put_back(
    current: dict[SourcePartition, int],
) -> None:
    check_not_behind({A: 41}, current, "file:///t", "stop")


def test_what_was_put_back_is_no_fault_where_the_route_decides() -> None:
    check_not_behind({A: 41}, {A: 3}, "file:///t", "again")
    check_not_behind({A: 41}, {A: 3}, "file:///t", "skip")


def test_a_batch_ends_before_the_offsets_that_spark_has_noted() -> None:
    noted = 'v1\n{"batchWatermarkMs":0}\n{"orders":{"1":7,"0":5},"more":{"0":1}}'
    assert ends_of_batch(noted) == {("orders", 1): 7, ("orders", 0): 5, ("more", 0): 1}


@pytest.mark.parametrize("noted", ["v2\n{}\n{}", "v1\n{}\n{}\n{}", "v1\n{}"])
def test_another_form_of_sparks_notes_names_the_setting(noted: str) -> None:
    with pytest.raises(UnsupportedFeature, match=r"ingest\.spark\..*formatVersion=1"):
        ends_of_batch(noted)


def test_spark_gets_offsets_by_topic_and_partition() -> None:
    assert json.loads(starting_offsets({B: 5, A: 3})) == {"orders": {"0": 3, "1": 5}}


def test_a_start_may_name_topics_that_a_pattern_takes() -> None:
    route = Route(topic_pattern="or.*", table="/t", start="orders:0:5")
    assert route.begins.offsets == {("orders", 0): 5}
    with pytest.raises(ValueError, match="start names 'clicks', which is not among the topics"):
        Route(topic_pattern="or.*", table="/t", start="clicks:0:5")
    with pytest.raises(ValueError, match="is no regular expression"):
        Route(topic_pattern="or(", table="/t", start="orders:0:5")
