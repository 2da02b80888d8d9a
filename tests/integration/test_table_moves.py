"""A table moves between topic partitions, served by real committers, while its writers write."""

import itertools
import json
import logging
import threading
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.integration.conftest import Line, own_topics, services
from tests.integration.proposers import all_outcomes, append_with, create_table, read_topic
from tests.integration.test_producer_cli import Terminal
from tests.integration.waiting import until
from tidegate_messages.codec import decode
from tidegate_messages.published_records import CommitRecord, TableRecord
from tidegate_producers.cli import table_commands
from tidegate_producers.writing.table_moves import move
from tidegate_runtime.client.client import Client
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.settings import KafkaSettings
from tidegate_runtime.table_registry import read_registry

pytestmark = pytest.mark.broker

WRITERS = 4
ROWS_MAX = 100_000
WAIT_S = 120.0
_log = logging.getLogger(__name__)


def versions(table: TableRecord) -> list[Path]:
    log = Path(table.table_root.removeprefix("file://"), "_delta_log")
    return sorted(path for path in log.glob("*.json") if path.stem.isdigit())


def goes_on(table: TableRecord) -> None:
    """Wait until there are some more versions."""
    begun = len(versions(table))
    until(lambda: len(versions(table)) > begun + 3, "the writers go on")


def pauses_ms(table: TableRecord, first: int) -> list[int]:
    """Return the times between consecutive versions, from a version on."""
    stamps = [
        next(json.loads(line)["commitInfo"]["timestamp"] for line in path.open())
        for path in versions(table)[first:]
    ]
    return [later - earlier for earlier, later in itertools.pairwise(stamps)]


def published(kafka: KafkaSettings) -> set[int]:
    """Return the versions that were published on either partition of `commits`."""
    return {
        decode(CommitRecord, record.value).version
        for number in (0, 1)
        for record in read_topic(kafka, kafka.topics.commits, number)
    }


def moved(line: Line, table: TableRecord, to: int) -> None:
    with Client(KafkaBus(line.kafka, "operator"), line.kafka.topics, patience_s=3.0) as client:
        move(client, table.table_root, to, WAIT_S)


def test_writers_go_on_while_a_table_moves_and_committers_are_killed(
    broker: str, tmp_path: Path
) -> None:
    dice = Random(7)
    with services(own_topics(broker, 2), tmp_path) as line:
        committers = [line.service("committer", name) for name in ("one", "two")]
        for committer in committers:
            committer.start()
        # Without checkpoints the new owner would read all versions.
        line.service("checkpointer").start()
        table = create_table(line.kafka, line.tables / "t")
        home, enough = table.topic_partition, threading.Event()
        proposers = append_with(line.kafka, table, WRITERS, ROWS_MAX, enough)
        goes_on(table)
        first = len(versions(table))
        for to in (1 - home, home):
            moved(line, table, to)
            goes_on(table)
        _log.info("the longest time without a version: %d ms", max(pauses_ms(table, first)))

        for committer in committers:
            home = 1 - home
            asked = threading.Thread(target=moved, args=(line, table, home))
            asked.start()
            threading.Event().wait(dice.uniform(0.0, 0.2))
            committer.child.kill()
            committer.start()
            asked.join(WAIT_S)
            assert not asked.is_alive(), "the move has no answer"
            goes_on(table)
        enough.set()
        for proposer in proposers:
            proposer.join(WAIT_S)

        outcomes = all_outcomes(proposers)
        assert {outcome.status for outcome in outcomes} == {"committed"}
        result = QueryBuilder().register("t", DeltaTable(table.table_root))
        rows = pa.table(result.execute("select * from t").read_all()).to_pylist()
        expected = [(each.name, number) for each in proposers for number in each.outcomes]
        assert sorted((row["writer"], row["number"]) for row in rows) == sorted(expected)
        registry = read_registry(KafkaBus(line.kafka, "test"), line.kafka.topics)
        assert registry[table.table].topic_partition == home
        head = len(versions(table)) - 1
        until(lambda: published(line.kafka) >= set(range(head + 1)), "all versions are published")


def test_an_operator_sees_which_moves_even_out_the_load_and_applies_them(
    broker: str, tmp_path: Path
) -> None:
    with services(own_topics(broker, 2), tmp_path) as line:
        line.started("committer")
        tables = [create_table(line.kafka, line.tables / name) for name in ("a", "b", "idle")]
        terminal = Terminal(line)
        for table in tables:
            arguments = ("move", table.name, "--to-partition", "0")
            terminal.json(table_commands.app, *arguments)
        writers = [each for t in tables[:2] for each in append_with(line.kafka, t, 1, 20)]
        for writer in writers:
            writer.join(WAIT_S)
        shown = terminal.json(table_commands.app, "move", "--balance")
        [planned] = shown["moves"]
        assert not shown["applied"]
        assert (planned["from"], planned["to"]) == (0, 1)
        assert planned["name"] in ("a", "b"), "who writes nothing stays"
        assert _homes(line) == {"a": 0, "b": 0, "idle": 0}
        applied = terminal.json(table_commands.app, "move", "--balance", "--apply")
        assert applied == {**shown, "applied": True}
        assert _homes(line) == {"a": 0, "b": 0, "idle": 0} | {planned["name"]: 1}
        assert terminal.json(table_commands.app, "move", "--balance")["moves"] == []
        [again] = append_with(line.kafka, tables[0], 1, 1)
        again.join(WAIT_S)
        assert {outcome.status for outcome in all_outcomes([*writers, again])} == {"committed"}


def _homes(line: Line) -> dict[str, int]:
    registry = read_registry(KafkaBus(line.kafka, "test"), line.kafka.topics)
    return {record.name: record.topic_partition for record in registry.values()}
