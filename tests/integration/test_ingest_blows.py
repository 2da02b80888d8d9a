"""Two jobs of `tidegate ingest` under random kills, at night: each record of the topic once.

`--blows` sets the number of blows; before each 50,000 records are sent. The checker is delta-rs and
a plain consumer.
"""

import json
import logging
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable

from tests.integration.conftest import Line
from tests.integration.test_ingest import WAIT_S, IngestProcess, Source, dead_letters, versions
from tests.integration.waiting import until
from tidegate_local.embedded_kafka import EmbeddedKafka

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.nightly]

RECORDS: Final = 50_000
PARTITIONS_MAX: Final = 6
SEED: Final = 43

_log = logging.getLogger(__name__)


class Siege:
    """Two jobs that copy one topic, and what can befall them."""

    def __init__(self, line: Line, broker: EmbeddedKafka, folder: Path) -> None:
        self.line, self.broker = line, broker
        brokers, prefix = line.kafka.bootstrap_servers, line.kafka.topic_prefix
        self.committer = line.started("committer")
        self.source = Source(brokers, f"{prefix}orders", {"enable.idempotence": True})
        self.table = line.tables / "orders"
        self.jobs = [
            IngestProcess(line, self.source.topic, self.table, folder / f"{name}.log")
            for name in ("first", "second")
        ]
        self.dice = random.Random(SEED)
        for job in self.jobs:
            job.start()

    def blows(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield blows for ever, each with its name; every kind is among each six."""
        kinds: dict[str, Callable[[], None]] = {
            "a job is killed": self._kill_a_job,
            "both jobs are killed": self._kill_both,
            "Python of an executor is killed": self._kill_python,
            "the committer is killed": self._kill_committer,
            "the broker is killed": self._kill_broker,
            "the topic grows": self._grow,
        }
        while True:
            for name in self.dice.sample(sorted(kinds), len(kinds)):
                yield name, kinds[name]

    def _kill_a_job(self) -> None:
        job = self.dice.choice(self.jobs)
        job.kill()
        job.start()

    def _kill_both(self) -> None:
        for job in self.jobs:
            job.kill()
        for job in self.jobs:
            job.start()

    def _kill_python(self) -> None:
        """Kill the processes that Spark has started for Python: what they do is done again."""
        until(lambda: bool(self._python()), "a job writes, by Python of its executors")
        for pid in self._python():
            # A worker ends with its daemon.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _python(self) -> list[int]:
        """Return the processes of both jobs that run Python for executors."""
        children = [job.child for job in self.jobs if job.child is not None]
        return [pid for child in children for pid in workers_of(child.pid)]

    def _kill_committer(self) -> None:
        self.committer.child.kill()
        self.committer.start()

    def _kill_broker(self) -> None:
        self.broker.kill()
        time.sleep(self.dice.random() * 5)
        self.broker.start()

    def _grow(self) -> None:
        """Add a partition; once there are enough, a field."""
        if self.source.partitions < PARTITIONS_MAX:
            self.source.add_partition()
        else:
            self.source.fields += 1

    def revive(self) -> None:
        """Start jobs anew that a blow to others has ended: a supervisor's part."""
        for job in self.jobs:
            if job.child is None or not job.child.is_alive():
                job.start()

    def wait_for_progress(self) -> None:
        """Wait until a version more is there."""
        begun, until_s = versions(self.table), time.monotonic() + WAIT_S
        while versions(self.table) <= begun:
            self.revive()
            assert time.monotonic() < until_s, "it hangs"
            time.sleep(0.2)

    def wait_for_all(self) -> None:
        """Wait until the table has as many rows as are to be there."""
        until_s = time.monotonic() + 4 * WAIT_S
        while rows_by_metadata(self.table) < len(self.source.rows):
            self.revive()
            assert time.monotonic() < until_s, "it hangs"
            time.sleep(1.0)


def workers_of(session: int) -> list[int]:
    """Return the processes of a session that run Spark's Python daemon or its workers, which have
    a process group of their own.
    """
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            argv = (folder / "cmdline").read_bytes()
            if b"pyspark.daemon" in argv and os.getsid(int(folder.name)) == session:
                found.append(int(folder.name))
        except (OSError, ValueError):
            continue
    return found


def rows_by_metadata(table: Path) -> int:
    """Return how many rows a table's files have."""
    adds = DeltaTable(str(table)).get_add_actions(flatten=True)
    return sum(adds["num_records"].to_pylist())


def sent(brokers: str, source: Source) -> Counter[int]:
    """Return the rows of the topic, as a consumer of nobody's finds them."""
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "checker"})
    found: Counter[int] = Counter()
    for number in range(source.partitions):
        place = TopicPartition(source.topic, number, 0)
        _, end = consumer.get_watermark_offsets(place)
        consumer.assign([place])
        while end and consumer.position([place])[0].offset < end:
            for message in consumer.consume(10_000, 1.0):
                found[json.loads(message.key() or b"")] += 1
    consumer.close()
    return found


@pytest.mark.timeout(24_000)
def test_no_record_is_lost_or_doubled_under_blows(
    fragile: EmbeddedKafka, fragile_line: Line, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    wanted: int = pytestconfig.getoption("blows")
    siege = Siege(fragile_line, fragile, tmp_path)
    source, brokers = siege.source, fragile_line.kafka.bootstrap_servers
    try:
        source.add(RECORDS)
        siege.wait_for_progress()
        for number, (name, fall) in zip(range(1, wanted + 1), siege.blows(), strict=False):
            source.add(RECORDS)
            _log.info("blow %d of %d: %s", number, wanted, name)
            fall()
            siege.wait_for_progress()
        siege.wait_for_all()
    finally:
        for job in siege.jobs:
            job.kill()
    rows = DeltaTable(str(siege.table)).to_pyarrow_table(columns=["id"])["id"].to_pylist()
    topic = sent(brokers, source)
    assert sorted(topic.elements()) == sorted([*source.rows, *source.bad])
    assert sorted(rows) == source.rows
    letters = dead_letters(brokers, f"{fragile_line.kafka.topic_prefix}ingest-dead-letters")
    assert sorted(int(key) for _, key in letters) == source.bad
