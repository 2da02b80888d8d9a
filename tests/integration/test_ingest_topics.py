"""Which topics `tidegate ingest` reads, and how it goes on in a table that was put back."""

import json
from pathlib import Path

import deltalake
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not declared so
    AdminClient,
    NewTopic,
)
from pyspark.sql import SparkSession

from tests.integration.conftest import Line
from tests.integration.ingest_job import IngestThread, ids_of, session_of_ingest
from tidegate_producers.ingest import job as ingest_job
from tidegate_producers.ingest.positions import OffsetsBySource
from tidegate_producers.ingest.topic_source import starting_offsets
from tidegate_producers.options import TableLocation
from tidegate_producers.table import Table
from tidegate_producers.writing.table_requests import serve_anew
from tidegate_runtime.client.client import Client
from tidegate_runtime.kafka.confluent_bus import KafkaBus

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.nightly]


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return session_of_ingest()


class Topics:
    """Topics whose records have an id each, beside a committer."""

    def __init__(self, line: Line, spark: SparkSession) -> None:
        self.line, self.spark = line, spark
        self.committer = line.started("committer")
        self._brokers = line.kafka.bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": self._brokers})

    def name(self, topic: str) -> str:
        return f"{self.line.kafka.topic_prefix}{topic}"

    def make(self, topic: str, *ids: int, partitions: int = 1) -> None:
        named = NewTopic(self.name(topic), num_partitions=partitions)
        self.admin.create_topics([named])[named.topic].result()
        self.send(topic, *ids)

    def send(self, topic: str, *ids: int) -> None:
        producer = Producer({"bootstrap.servers": self._brokers})
        for number in ids:
            producer.produce(self.name(topic), json.dumps({"id": number}), str(number))
        producer.flush()

    def job(self, *, once: bool = False, **routes: dict[str, str]) -> IngestThread:
        """Return a job of routes into tables of their names."""
        with_tables = {
            name: {"table": str(self.line.tables / name), **route} for name, route in routes.items()
        }
        return IngestThread(self.spark, self.line.settings, with_tables, once=once)

    def copied(self, **routes: dict[str, str]) -> dict[str, list[int]]:
        """Copy what the topics have, and return the ids in each table."""
        with self.job(once=True, **routes) as job:
            assert job.wait_for_end() is None
        return {name: ids_of(self.line.tables / name) for name in routes}


@pytest.fixture
def topics(line: Line, spark: SparkSession) -> Topics:
    return Topics(line, spark)


def test_topics_of_a_pattern_may_come_and_go(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.make("events.a", *range(5), partitions=2)
    topics.make("events.b", *range(5, 8))
    # Kafka's own topics are not for readers, whatever the pattern.
    topics.make("__consumer_offsets_of_ours", 8)
    prefix = topics.name("").replace(".", "[.]")
    route = {"topic_pattern": f"{prefix}events[.].*|{prefix}__consumer.*|__consumer.*"}
    table = topics.line.tables / "events"
    with topics.job(events=route) as job:
        job.wait_for_rows(table, list(range(9)))
        topics.make("events.c", 9, 10, partitions=2)
        job.wait_for_rows(table, list(range(11)))
        topics.admin.delete_topics([topics.name("events.b")])[topics.name("events.b")].result()
        topics.send("events.a", 11)
        job.wait_for_rows(table, list(range(12)))
    topics.make("events.d", 12)
    late = iter(["events.e"])

    def racing(offsets: OffsetsBySource) -> str:
        """Make a topic between this job's look at the topics and Spark's."""
        for topic in late:
            topics.make(topic, 13)
        return starting_offsets(offsets)

    monkeypatch.setattr(ingest_job, "starting_offsets", racing)
    assert topics.copied(events=route) == {"events": list(range(14))}


def test_several_topics_fill_a_table_and_one_several(topics: Topics) -> None:
    topics.make("first", *range(4), partitions=2)
    topics.make("second", *range(4, 8))
    first, second = topics.name("first"), topics.name("second")
    copied = topics.copied(
        both={"topics": f"{first},{second}"},
        behind={"topics": f"{first},{second}", "start": f"{second}:0:2"},
        even={"topics": first, "where": "id % 2 = 0"},
        odd={"topics": first, "where": "id % 2 = 1", "columns": "topic,offset"},
    )
    assert copied == {
        "both": list(range(8)),
        "behind": [0, 1, 2, 3, 6, 7],
        "even": [0, 2],
        "odd": [1, 3],
    }


@pytest.mark.parametrize("who", ["tidegate", "delta-rs"])
def test_a_restored_table_goes_on_at_its_positions(topics: Topics, who: str) -> None:
    route = {"topics": topics.name("orders")}
    topics.make("orders", 0, 1)
    for more in ((2, 3), (4, 5)):
        topics.copied(restored=route)
        topics.send("orders", *more)
    topics.copied(restored=route)
    root = str(topics.line.tables / "restored")
    if who == "tidegate":
        Table(topics.spark, root, topics.line.spark_options).restoreToVersion(2)
    else:
        deltalake.DeltaTable(root).restore(2)
    topics.send("orders", 6)
    assert topics.copied(restored=route) == {"restored": [0, 1, 2, 3, 6]}


@pytest.mark.parametrize(
    ("decision", "expected"),
    [("stop", [0, 1, 2]), ("again", [0, 0, 1, 1, 2, 2, 3, 4, 5, 6]), ("skip", [0, 1, 2, 5, 6])],
)
def test_a_table_that_is_made_anew_under_a_job_has_what_the_option_says(
    topics: Topics, tmp_path: Path, decision: str, expected: list[int]
) -> None:
    """Another table is in the folder, with three of the rows, as a copy of an older version is."""
    topics.make("orders", 0, 1, 2)
    table, name = topics.line.tables / "orders", topics.name("orders")
    route = {"topics": name, "after_restore": decision}
    with topics.job(orders=route) as job:
        job.wait_for_rows(table, [0, 1, 2])
        rows = deltalake.DeltaTable(str(table)).to_pyarrow_table()
        topics.send("orders", 3, 4)
        job.wait_for_rows(table, [0, 1, 2, 3, 4])
        table.rename(tmp_path / "older")
        deltalake.write_deltalake(str(table), rows)
        with Client(KafkaBus(topics.line.kafka, "operator"), topics.line.kafka.topics) as client:
            serve_anew(client, TableLocation(table.as_uri(), {}), 60.0)
        topics.send("orders", 5, 6)
        if decision == "stop":
            failure = job.wait_for_end()
            assert f"{name}/0: this job committed offset 4, and the table has none" in str(failure)
            assert f"--start {name}:0:5." in str(failure)
        else:
            job.wait_for_rows(table, expected)
    assert ids_of(table) == expected
    if decision == "stop":
        # As the message says: what was copied before is left out, and nothing else is.
        route["start"], expected = f"{name}:0:5", [0, 1, 2, 5, 6]
    assert topics.copied(orders=route) == {"orders": expected}
