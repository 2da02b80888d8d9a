"""The drills of `docs/drills.md`, played: partitions are added; registry, offsets, all is lost.

Each runs the manual's own commands, in the manual's order.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not declared so
    AdminClient,
    NewPartitions,
)

from tests.integration.conftest import Line
from tests.integration.proposers import Proposer, all_outcomes, append_with, create_table
from tests.integration.test_all_services_killed import PROPERTIES, changes_in, replayed, started
from tests.integration.test_committer_processes import WAIT_S, rows_of
from tests.integration.waiting import until
from tidegate_local.embedded_kafka import EmbeddedKafka
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.client.client import Client
from tidegate_runtime.kafka.confluent_bus import KafkaBus

pytestmark = [pytest.mark.broker, pytest.mark.nightly, pytest.mark.timeout(600)]

ROWS = 20
WRITERS = 3
TIDEGATE = Path(sys.executable).with_name("tidegate")


@pytest.fixture
def line(fragile_line: Line) -> Line:
    """Return services on a broker of the test's own, which it may break."""
    return fragile_line


def tidegate(line: Line, *words: str) -> str:
    """Run a command of the manual, and return what it printed."""
    settings = ("kafka.bootstrap_servers", "kafka.topic_prefix")
    given = [f"--set={name}={line.settings[name]}" for name in settings]
    done = subprocess.run(
        [TIDEGATE, *words, *given], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def client(line: Line) -> Client:
    return Client(KafkaBus(line.kafka, "drill"), line.kafka.topics, patience_s=3.0)


def write(line: Line, table: TableRecord, when: str) -> list[tuple[str, int]]:
    """Append rows with some writers, until all have their outcomes; return the rows."""
    names = [f"{when}{number}" for number in range(WRITERS)]
    proposers = [Proposer(line.kafka, table, name, ROWS) for name in names]
    for proposer in proposers:
        proposer.start()
    for proposer in proposers:
        proposer.join(WAIT_S)
    assert {outcome.status for outcome in all_outcomes(proposers)} == {"committed"}
    return sorted((name, number) for name in names for number in range(ROWS))


def widen(line: Line, topic: str) -> None:
    """Give a topic two partitions, as `kafka-topics --alter` does."""
    admin = AdminClient({"bootstrap.servers": line.kafka.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)


def test_topic_partitions_are_added_under_load(line: Line) -> None:
    first = line.started("committer")
    old = create_table(line.kafka, line.tables / "old")
    proposers = append_with(line.kafka, old, WRITERS, 3 * ROWS)
    until(lambda: len(all_outcomes(proposers)) >= WRITERS, "the first outcomes")
    topics = line.kafka.topics
    for topic in (topics.admin, topics.outcomes, topics.commits, topics.table_state):
        widen(line, topic)
    widen(line, topics.proposals)
    assert "kafka.partitions" not in tidegate(line, "topics", "plan", "--set=kafka.partitions=2")

    line.kafka = line.kafka.model_copy(update={"partitions": 2})
    second = line.started("committer", "second")
    homes: dict[int, TableRecord] = {}
    for number in range(20):
        if len(homes) == 2:
            break
        table = create_table(line.kafka, line.tables / f"new{number}")
        homes[table.topic_partition] = table
    assert homes.keys() == {0, 1}, "new tables use both"
    for table in homes.values():
        assert write(line, table, "w") == rows_of(table)
    for proposer in proposers:
        proposer.join(WAIT_S)
    assert rows_of(old) == sorted((f"w{w}", n) for w in range(WRITERS) for n in range(3 * ROWS))
    with client(line) as asking:
        assert asking.require(old.table_root).topic_partition == old.topic_partition, "it stays"
    assert first.child.is_alive()
    assert second.child.is_alive()


def test_the_registry_is_lost(line: Line) -> None:
    committer = line.started("committer")
    table = create_table(line.kafka, line.tables / "t")
    before = write(line, table, "before")
    kept = tidegate(line, "table", "list", "--json")
    assert table.table_root in kept
    topic = line.kafka.topics.table_state
    admin = AdminClient({"bootstrap.servers": line.kafka.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(30)
    committer.child.stop()

    assert f"created {topic}" in tidegate(line, "topics", "apply")
    committer.start()
    committer.wait_ready()
    with client(line) as asking:
        assert asking.table(table.table_root, 30.0) is None
    tidegate(line, "table", "register", table.table_root, "--name", "t")
    with client(line) as asking:
        again = asking.require(table.table_root)
    assert again.table != table.table, "a new registration"
    assert again.table_id == table.table_id
    after = write(line, again, "after")
    assert rows_of(table) == sorted(before + after), "nothing doubled, nothing lost"


def test_the_offsets_are_lost(line: Line) -> None:
    committer = line.started("committer")
    table = create_table(line.kafka, line.tables / "t")
    before = write(line, table, "before")
    committer.child.stop()
    group = f"{line.kafka.topic_prefix}committer"

    admin = AdminClient({"bootstrap.servers": line.kafka.bootstrap_servers})

    def deleted() -> bool:
        return admin.delete_consumer_groups([group])[group].exception(30) is None

    until(deleted, "the group is empty, and gone")
    committer.start()
    committer.wait_ready()
    after = write(line, table, "after")
    assert rows_of(table) == sorted(before + after), "each proposal once"


def test_the_whole_kafka_is_lost_and_the_tables_are_left(
    broker: EmbeddedKafka, line: Line, tmp_path: Path
) -> None:
    services = started(line)
    table = create_table(line.kafka, line.tables / "t", PROPERTIES)
    before = write(line, table, "before")
    kept = tidegate(line, "table", "list", "--json")
    assert table.table_root in kept
    for service in services.values():
        service.child.stop()
    broker.kill()
    shutil.rmtree(tmp_path / "kafka" / "data")
    broker.start()

    assert "created t.proposals" in tidegate(line, "topics", "apply")
    for service in services.values():
        service.start()
    for service in services.values():
        service.wait_ready()
    tidegate(line, "table", "register", table.table_root, "--name", "t")
    with client(line) as asking:
        again = asking.require(table.table_root)
    assert rows_of(table) == before
    after = write(line, again, "after")
    rows = rows_of(table)
    assert rows == sorted(before + after)
    changes = line.kafka.topics.changes("t")
    # The stream begins anew with the rows that the table holds.
    until(lambda: len(changes_in(line, changes)) >= len(rows), "every change")
    assert replayed(changes_in(line, changes)) == rows
