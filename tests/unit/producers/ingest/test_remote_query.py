"""On Spark Connect a job plans its batches: fair shares, new partitions, and an end."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from tidegate_delta.errors import Misconfigured, Unavailable
from tidegate_producers.ingest.positions import (
    Bounds,
    OffsetsBySource,
    SourcePartition,
    batch_ends,
)
from tidegate_producers.ingest.progress_report import lag_of
from tidegate_producers.ingest.remote_query import RemoteQuery
from tidegate_producers.ingest.route_batches import CopyAgain, RouteBatches
from tidegate_producers.ingest.settings import Route
from tidegate_producers.ingest.topic_source import TopicSource

SOURCES = [SourcePartition("orders", "Xy_-9", number) for number in range(5)]
A, B, C = SOURCES[:3]
COUNTS = st.lists(st.integers(0, 1_000), max_size=5)


@given(counts=COUNTS, records_max=st.integers(1, 2_000))
def test_each_partition_with_records_has_a_fair_share_of_a_batch(
    counts: list[int], records_max: int
) -> None:
    there = dict(zip(SOURCES, counts, strict=False))
    begins = {source: 10 for source in there}
    bounds = {source: Bounds(0, 10 + count) for source, count in there.items()}
    ends = batch_ends(begins, bounds, records_max)
    taken = {source: end - begins[source] for source, end in ends.items()}
    waiting = [source for source, count in there.items() if count]
    assert sorted(taken) == sorted(waiting)
    assert all(0 < count <= there[source] for source, count in taken.items())
    assert sum(taken.values()) <= max(records_max, len(waiting))
    if records_max >= len(waiting):
        assert sum(taken.values()) == min(records_max, sum(counts))
    # A partition that is cut short has as much as any other.
    short = [count for source, count in taken.items() if count < there[source]]
    assert all(count >= max(taken.values()) - 1 for count in short)


def test_a_partition_with_little_leaves_its_share_to_the_others() -> None:
    bounds = {A: Bounds(0, 3), B: Bounds(0, 90), C: Bounds(0, 90)}
    assert batch_ends({A: 0, B: 0, C: 50}, bounds, 63) == {A: 3, B: 30, C: 80}


class Topics:
    """The partitions of a topic and their bounds, each look by the next entry; the last one stays.

    An exception is raised.
    """

    def __init__(self, *looks: Mapping[SourcePartition, Bounds] | Exception) -> None:
        self._looks = list(looks)
        self.is_closed = False

    def partitions(self) -> Sequence[SourcePartition]:
        look = self._looks[0]
        if isinstance(look, Exception):
            raise look
        return list(look)

    def bounds(self, _: Sequence[SourcePartition]) -> Mapping[SourcePartition, Bounds]:
        look = self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]
        assert not isinstance(look, Exception)
        return look

    def close(self) -> None:
        self.is_closed = True


class Batches:
    """Takes what a batch is; the one with this number fails."""

    def __init__(self, failing: int = -1) -> None:
        self.failure: Exception | None = None
        self.ends: list[Mapping[tuple[str, int], int]] = []
        self._failing = failing
        self.on_batch: Callable[[], object] = lambda: None

    def __call__(self, rows: DataFrame, noted: Callable[[], Mapping[tuple[str, int], int]]) -> None:
        self.ends.append(noted())
        self.on_batch()
        if len(self.ends) - 1 == self._failing:
            self.failure = Unavailable("it failed")


class Session:
    def addTag(self, tag: str) -> None:  # noqa: N802 - Spark's
        self.tag = tag

    def interruptTag(self, tag: str) -> None:  # noqa: N802 - Spark's
        assert tag == self.tag


ROUTE = Route.model_validate(
    {"topics": ["orders"], "table": "/t", "max_latency_s": 0, "batch_records_max": 10}
)


def query_of(
    topics: Topics, batches: Batches, reads: list[tuple[OffsetsBySource, OffsetsBySource]]
) -> RemoteQuery:
    def read(begins: OffsetsBySource, ends: OffsetsBySource) -> Any:
        reads.append((begins, ends))

    return RemoteQuery(
        cast(SparkSession, Session()),
        ROUTE,
        cast(TopicSource, topics),
        read,
        cast(RouteBatches, batches),
    )


def waited_for(query: RemoteQuery) -> Exception | None:
    assert query._thread is not None
    query._thread.join(30.0)
    assert not query.isActive
    return query.exception()


def test_once_copies_up_to_the_ends_that_were_there_at_its_start() -> None:
    topics = Topics({A: Bounds(0, 15), B: Bounds(5, 7)}, {A: Bounds(0, 99), B: Bounds(5, 99)})
    batches, reads = Batches(), list[tuple[OffsetsBySource, OffsetsBySource]]()
    query = query_of(topics, batches, reads).start({A: 0, B: 5}, once=True)
    assert waited_for(query) is None
    assert reads == [({A: 0, B: 5}, {A: 8, B: 7}), ({A: 8}, {A: 15})]
    assert batches.ends == [{("orders", 0): 8, ("orders", 1): 7}, {("orders", 0): 15}]
    assert lag_of(query) == {"orders/0": 0, "orders/1": 0}
    assert topics.is_closed


def test_without_records_nothing_is_read() -> None:
    batches, reads = Batches(), list[tuple[OffsetsBySource, OffsetsBySource]]()
    query = query_of(Topics({A: Bounds(0, 3)}), batches, reads).start({A: 3}, once=True)
    assert waited_for(query) is None
    assert (reads, batches.ends) == ([], [])


def test_partitions_that_are_added_are_read_from_their_first_record() -> None:
    topics = Topics({A: Bounds(0, 1)}, {A: Bounds(0, 1), B: Bounds(4, 6)})
    batches, reads = Batches(failing=1), list[tuple[OffsetsBySource, OffsetsBySource]]()
    query = query_of(topics, batches, reads).start({A: 0}, once=False)
    assert waited_for(query) is None
    assert reads == [({A: 0}, {A: 1}), ({B: 4}, {B: 6})]


def test_a_batch_that_fails_is_the_last_one() -> None:
    batches = Batches(failing=0)
    query = query_of(Topics({A: Bounds(0, 99)}), batches, []).start({A: 0}, once=False)
    assert waited_for(query) is None
    assert len(batches.ends) == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fault_of_ours_is_no_end_of_all_records() -> None:
    batches, fault = Batches(), RuntimeError("a fault")

    def fail() -> None:
        raise fault

    batches.on_batch = fail
    query = query_of(Topics({A: Bounds(0, 9)}), batches, []).start({A: 0}, once=True)
    assert waited_for(query) is fault


def test_it_is_stopped_between_batches() -> None:
    query = query_of(Topics({A: Bounds(0, 3)}), Batches(), []).start({A: 3}, once=False)
    assert query.isActive
    query.stop()
    assert not query.isActive
    assert query.exception() is None


@pytest.mark.parametrize(
    ("later", "kind", "said"),
    [
        ({A._replace(topic_id="new"): Bounds(0, 9)}, CopyAgain, "orders was made anew"),
        ({A: Bounds(5, 9)}, Unavailable, "orders/0 has the offsets 5 to 9, and no more 3"),
        ({A: Bounds(0, 2)}, Unavailable, "orders/0 has the offsets 0 to 2, and no more 3"),
        (Misconfigured("there is no topic 'orders'"), Unavailable, "not there any more"),
        (Unavailable("no answer"), Unavailable, "no answer"),
    ],
)
def test_what_the_next_beginning_must_decide_ends_it(
    later: Mapping[SourcePartition, Bounds] | Exception, kind: type[Exception], said: str
) -> None:
    topics, batches = Topics({A: Bounds(0, 3)}, later), Batches()
    query = query_of(topics, batches, []).start({A: 0}, once=False)
    error = waited_for(query)
    assert type(error) is kind
    assert said in str(error)
    assert batches.ends == [{("orders", 0): 3}]
    assert topics.is_closed
