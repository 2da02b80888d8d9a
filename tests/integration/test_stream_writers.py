"""The programs of docs/stream-writers.md are killed again and again; each row is committed once.

They know of Tidegate only its topics. A kill comes after a few further commits, at once after a
proposal was sent, at some time after a start, and once while no committer runs.
"""

import atexit
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.integration.conftest import Line
from tests.integration.test_producer_cli import Terminal
from tidegate_local.child_processes import Child, Command, ServiceProcess
from tidegate_local.kafka_jars import ensure_jars, java_command, pyspark_jars
from tidegate_messages.topics import Topic
from tidegate_producers.cli import table_commands
from tidegate_runtime.client.client import Client
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.settings import KafkaSettings
from tidegate_runtime.kafka.topic_admin import create_topics

pytestmark = pytest.mark.broker

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
PYTHON_PROGRAM, JAVA_PROGRAM = EXAMPLES / "stream_writer.py", EXAMPLES / "StreamWriter.java"
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
PARTITIONS = 3
BATCH_ROWS = 20
ROWS_A_RUN = 6 * BATCH_ROWS
"""More than a run commits before it is killed, so that every run has work."""

CONTESTS = 3
SEED = 20_261
PATIENCE_S = 2
WAIT_S = 400.0
"""A guard against what hangs; nothing is measured."""

JARS = (
    *("kafka-clients-*", "jackson-core-2*", "jackson-databind-*", "jackson-annotations-*"),
    *("slf4j-api-*", "snappy-java-*", "zstd-jni-*", "lz4-java-*"),
)
MORE_JARS = ("parquet-*", "hadoop-client-*", "jts-core-*")


@dataclass
class Source:
    """A topic of rows with the ids 0, 1, 2, ... in partitions chosen at random."""

    kafka: KafkaSettings
    rng: Random
    rows: int = 0
    topic: str = field(init=False)

    def __post_init__(self) -> None:
        self.topic = f"{self.kafka.topic_prefix}orders"
        create_topics(self.kafka, [Topic(self.topic, "id", PARTITIONS, "delete", -1)])
        self._producer = KafkaBus(self.kafka, "source").producer()

    def add(self, count: int) -> None:
        for number in range(self.rows, self.rows + count):
            row = json.dumps({"id": number, "text": f"order {number}"}).encode()
            at = TopicPartition(self.topic, self.rng.randrange(PARTITIONS))
            self._producer.publish(at, str(number).encode(), row)
        self._producer.flush(WAIT_S)
        self.rows += count

    @property
    def app_ids(self) -> list[str]:
        return [f"{self.topic}/{number}" for number in range(PARTITIONS)]


class Writer:
    """One instance of a program: started, watched by what it prints, killed."""

    def __init__(self, name: str, argv: list[str], folder: Path) -> None:
        self.child = Child(Command(name, argv), folder / f"{name}.log")
        self._before = 0

    def start(self) -> None:
        """Start it; `lines` are those of this run from now on."""
        self._before = self.child.log.stat().st_size if self.child.log.exists() else 0
        self.child.start()

    def lines(self, beginning: str = "") -> list[str]:
        """Return the whole lines that this run has printed, those that begin so."""
        with self.child.log.open("rb") as log:
            log.seek(self._before)
            whole = log.read().decode().rpartition("\n")[0]
        return [line for line in whole.splitlines() if line.startswith(beginning)]

    def wait_for(self, beginning: str, count: int = 1) -> None:
        """Wait until this run has printed so many lines that begin so."""
        until(lambda: len(self.lines(beginning)) >= count or not self.child.is_alive())
        assert self.child.is_alive(), f"it ended by itself:\n{self.child.tail()}"

    def rows_known_at_first(self) -> int | None:
        """Return how many rows the table had when this run asked; None if it had no answer."""
        return next((_rows(line) for line in self.lines("positions ")), None)

    def rows_known_at_last(self) -> int | None:
        """Return how many rows this run knew to be in the table when it was killed."""
        known = None
        for line in self.lines():
            if line.startswith("positions "):
                known = _rows(line)
            elif (
                rows := re.match(r"(?:committed|skipped) (\d+) rows", line)
            ) and known is not None:
                known += int(rows[1])
        return known


def _rows(line: str) -> int:
    return sum(last + 1 for last in json.loads(line.partition(" ")[2]).values())


def until(is_true: Callable[[], bool]) -> None:
    """Wait until it is true."""
    ends = time.monotonic() + WAIT_S
    while not is_true():
        assert time.monotonic() < ends, "it hangs"
        time.sleep(0.01)


@dataclass
class Stream:
    """A source, the table to which it is copied, a committer, and the programs that copy."""

    line: Line
    committer: ServiceProcess
    folder: Path
    source: Source
    table: Path
    writers: list[Writer] = field(default_factory=list)

    def writer(self, language: str, name: str = "") -> Writer:
        """Return an instance of a program, not started."""
        kafka = self.line.kafka
        where = [kafka.bootstrap_servers, self.source.topic, str(self.table)]
        if language == "python":
            size = ["--batch-rows", str(BATCH_ROWS), "--patience", str(PATIENCE_S)]
            program = [sys.executable, str(PYTHON_PROGRAM)]
            argv = [*program, *where, "--prefix", kafka.topic_prefix, *size]
        else:
            size = [f"-DbatchRows={BATCH_ROWS}", f"-DpatienceMs={PATIENCE_S * 1_000}"]
            quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", compiled()]
            program = [java_command(), f"-Dprefix={kafka.topic_prefix}", *size, *quick]
            argv = [*program, "StreamWriter", *where]
        self.writers.append(Writer(name or language, argv, self.folder))
        return self.writers[-1]

    def wait_until_all_is_copied(self) -> None:
        """Wait until the table's positions are the ends of the source."""
        table = DeltaTable(self.table)

        def is_copied() -> bool:
            table.update_incremental()
            lasts = [table.transaction_version(app_id) for app_id in self.source.app_ids]
            return sum((-1 if last is None else last) + 1 for last in lasts) == self.source.rows

        until(is_copied)

    def check_rows(self) -> None:
        """Fail unless each row of the source is in the table once, as delta-rs reads it."""
        with Client(KafkaBus(self.line.kafka, "test"), self.line.kafka.topics) as client:
            # The answer comes behind whatever the dead have sent.
            client.app_versions(self.table.as_uri(), self.source.app_ids)
        ids = sorted(DeltaTable(self.table).to_pyarrow_table()["id"].to_pylist())
        assert ids == list(range(self.source.rows))


@cache
def compiled() -> str:
    """Compile the Java program and return the class path with which it runs."""
    spark = pyspark_jars()
    assert spark is not None, "the environment of the tests has PySpark"
    kafka = ensure_jars(lambda line: None)
    globs = [*((kafka, name) for name in JARS), *((spark, name) for name in MORE_JARS)]
    jars = [str(jar) for folder, name in globs for jar in sorted(folder.glob(f"{name}.jar"))]
    classes = tempfile.mkdtemp(prefix="stream-writer-")
    atexit.register(shutil.rmtree, classes, ignore_errors=True)
    compiler = [java_command(), "-m", "jdk.compiler/com.sun.tools.javac.Main"]
    argv = [*compiler, "-Xlint:all", "-d", classes, "-cp", ":".join(jars), f"{JAVA_PROGRAM}"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if "Module jdk.compiler not found" in done.stderr:
        pytest.skip("this Java is a JRE, which compiles nothing")
    assert done.returncode == 0, done.stderr
    return ":".join([classes, *jars])


@pytest.fixture
def stream(line: Line, tmp_path: Path) -> Iterator[Stream]:
    """Yield a stream from an empty source to an empty table that delta-rs has created."""
    # The second is the folder's URI, as languages' libraries write it.
    table, other = line.tables / "or ders", line.tables / "or%20ders"
    committer = line.started("committer")
    for folder in (table, other):
        DeltaTable.create(str(folder), SCHEMA)
        Terminal(line).json(table_commands.app, "register", str(folder))
    source = Source(line.kafka, Random(SEED))
    stream = Stream(line, committer, tmp_path / "programs", source, table)
    yield stream
    for writer in stream.writers:
        writer.child.kill()


@pytest.mark.parametrize(("language", "kills"), [("python", 20), ("java", 8)])
def test_each_row_is_there_once_however_often_the_program_is_killed(
    stream: Stream, language: str, kills: int
) -> None:
    rng, writer = Random(SEED), stream.writer(language)
    resumed, unheard, known = 0, 0, 0
    for number in range(kills):
        stream.source.add(ROWS_A_RUN)
        writer.start()
        if number == kills // 2:
            die_without_a_committer(stream, writer)
        else:
            live_for_a_while(writer, rng)
        writer.child.kill()
        result = writer.rows_known_at_first()
        if result is not None:
            assert result >= known, "what was committed is there"
            resumed += result > 0
            unheard += result > known
            known = writer.rows_known_at_last() or result
    writer.start()
    stream.wait_until_all_is_copied()
    assert writer.child.is_alive(), writer.child.tail()
    writer.child.kill()
    stream.check_rows()
    unheard += (writer.rows_known_at_first() or 0) > known
    sys.stdout.write(f"{kills} kills, {resumed} runs resumed, {unheard} died unheard\n")
    assert resumed >= kills // 3, "the kills hit programs at work"
    assert unheard, "a program died when its rows were committed and it did not know"


def live_for_a_while(writer: Writer, rng: Random) -> None:
    """Return at the moment at which a program shall die: all are in its work, or its start."""
    moment = rng.choice(["committed ", "proposed ", "start"])
    if moment == "start":
        time.sleep(rng.uniform(0.0, 1.5))
        return
    # Its first proposal is the question.
    writer.wait_for(moment, rng.randint(2, 5) if moment == "proposed " else rng.randint(1, 4))
    if moment == "committed ":
        time.sleep(rng.uniform(0.0, 0.05))


def die_without_a_committer(stream: Stream, writer: Writer) -> None:
    """Leave the program with a proposal in Kafka that nobody decides before it dies."""
    writer.wait_for("committed ")
    stream.committer.child.stop()
    writer.wait_for("no outcome in time", len(writer.lines("no outcome in time")) + 1)
    writer.child.kill()
    stream.committer.start()
    stream.committer.wait_ready()


def test_two_instances_of_the_program_copy_each_row_once(stream: Stream) -> None:
    rng = Random(SEED)
    both = [stream.writer("python", f"instance-{number}") for number in range(2)]
    for writer in both:
        writer.start()
    for _ in range(4):
        stream.source.add(ROWS_A_RUN)
        victim = rng.choice(both)
        victim.wait_for("positions ")
        time.sleep(rng.uniform(0.0, 0.3))
        victim.child.kill()
        victim.start()
    for writer in both:
        writer.wait_for("positions ")

    def have_met() -> bool:
        stream.source.add(BATCH_ROWS)
        time.sleep(0.1)
        lines = [line for writer in both for line in writer.lines()]
        return sum(line.startswith(("asking", "skipped")) for line in lines) >= CONTESTS

    until(have_met)
    stream.wait_until_all_is_copied()
    for writer in both:
        assert writer.child.is_alive(), writer.child.tail()
        writer.child.kill()
    stream.check_rows()
