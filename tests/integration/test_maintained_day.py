"""A day of a maintained table in an hour, at night; in CI the same for 45 s with fewer writers.

Appenders, deleters of single rows, a stream of upserts and, at night, a delta-spark writer past the
gate; a change subscriber; readers of pinned versions, with a lease and within the retention. All
services are killed in turn. A day is simulated by the table's properties and the maintainer's
settings: files are kept for seconds or minutes, and pauses are as short.

What is checked does not come from the product's own reading: delta-rs reads the table, the writers'
ledger says which rows belong there, and the log's bytes are read as JSON.
"""

import itertools
import json
import logging
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.integration import delta_spark_writer, run_audit
from tests.integration.conftest import Line
from tests.integration.ledger_writers import SCHEMA, Ledger, Row, Writers
from tests.integration.proposers import CLOCK, read_topic, values
from tests.integration.test_cdc_publisher import committed
from tests.integration.test_mixed_writers import DELTA_SPARK, END_S, Foreign, Start, started
from tests.integration.waiting import PATIENCE_S, until
from tidegate import Client
from tidegate_checkpointer.cli.health_command import facts_of
from tidegate_delta.snapshots.table_health import assess
from tidegate_local.child_processes import ServiceProcess, probe
from tidegate_messages.published_records import LeaseRecord
from tidegate_runtime.followers.version_gates import give_back_lease, take_lease
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.storage.local_store import LocalStore

pytestmark = pytest.mark.broker

NAME = "day"
LESSEE = "lessee"
HEALTH_MIN = 95
AMPLIFICATION_MAX = 2.0
FREED_MIN = 0.99
WARM = 1 / 6
"""The share of the day after which the table is to be healthy: ten minutes of an hour."""

STEP_S = 2.0
HOUR_MS = 3_600_000
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Day:
    """How long it is, who writes, and how long removed files are kept. Units: seconds.

    `pause_s` is that of an appender between two writes; deleters and upserts follow it. With
    `rest_every_s` a delta-spark writer appends too, for which the others rest so often: between its
    reading and its PUT others commit several versions, so that it would always lose.
    """

    length_s: float
    appenders: int
    deleters: int
    pause_s: float
    retention_s: int
    kill_every_s: float
    rest_every_s: float | None = None
    interval: int = 100

    @classmethod
    def of(cls, minutes: float) -> "Day":
        """Return the day of the night, as long as is given."""
        length_s = 60 * minutes
        retention_s = max(15, round(length_s / 30))
        return cls(length_s, 64, 16, 10.0, retention_s, min(30.0, length_s / 12), 60.0)

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the table."""
        return {
            "delta.enableDeletionVectors": "true",
            "delta.deletedFileRetentionDuration": f"interval {self.retention_s} seconds",
            "delta.checkpointInterval": str(self.interval),
            "tidegate.cdc.keyColumns": "writer,number",
        }


SHORT = Day(45.0, 8, 6, 0.5, 15, 7.0, interval=120)
"""The day in CI. Without a maintainer its 500 files would leave 70 points."""


def rows_at(root: Path, version: int | None = None) -> list[Row]:
    """Return a table's rows as delta-rs reads them, sorted."""
    table = DeltaTable(root, version=version)
    found = QueryBuilder().register("t", table).execute("SELECT * FROM t")
    columns = pa.table(found.read_all()).select(SCHEMA.names).to_pydict().values()
    return sorted(zip(*columns, strict=True))


def services_of(line: Line, day: Day) -> dict[str, ServiceProcess]:
    """Return the services, started and ready."""
    pause = {"file_age_s": "0", "pause_s": "0.5", "vacuum_interval_s": str(day.retention_s / 2)}
    services = {
        "committer": line.service("committer", committer={"external_probe_s": "0.5"}),
        "checkpointer": line.service("checkpointer", checkpointer={"look_s": "0.5"}),
        "cdc_publisher": line.service("cdc_publisher", cdc={"look_s": "0.5"}),
        "maintain": line.service("producers.maintenance", "maintain", maintain=pause),
    }
    for service in services.values():
        service.start()
    for service in services.values():
        service.wait_ready()
    return services


def score_of(store: LocalStore) -> int:
    """Return what `tidegate table health` shows; a command's output can't be taken beside
    threads.
    """
    return assess(facts_of(store, None)).score


def is_ready(service: ServiceProcess) -> bool:
    """Return whether a service has started and says that it is ready."""
    address = service.address()
    return address is not None and probe(f"{address}/readyz")[0] == 200


@dataclass
class Reader:
    """Reads a pinned version again and again, and pins another after `hold_s`.

    Removed files are kept for `kept_s`; with a lease it may hold a version for longer.
    """

    line: Line
    root: Path
    table: UUID
    hold_s: float
    kept_s: float
    holder: str | None = None
    reads: int = 0

    def run(self, over: threading.Event) -> None:
        """Read until it is over; rows of a version that differ from those read first are raised."""
        while not over.is_set():
            version, pinned_s = self._pin(), time.monotonic()
            first = rows_at(self.root, version)
            while time.monotonic() - pinned_s < self.hold_s and not over.wait(self.hold_s / 8):
                try:
                    again = rows_at(self.root, version)
                except Exception:  # delta-rs has no class for a file that is gone
                    if self.holder is None and time.monotonic() - pinned_s > self.kept_s:
                        break  # the machine was too busy: it read on after the retention
                    raise
                assert again == first, f"version {version} has changed"
                self.reads += 1

    def _pin(self) -> int:
        version = DeltaTable(self.root).version()
        if self.holder is not None:
            bus, until_ms = KafkaBus(self.line.kafka, self.holder), CLOCK.now_ms() + HOUR_MS
            lease = LeaseRecord(
                table=self.table, holder=self.holder, needed_from=version, until_ms=until_ms
            )
            take_lease(bus, self.line.kafka.topics, lease)
        return version


@dataclass
class Course:
    """A day as it runs: its services and writers, the health that was seen, and the kills."""

    line: Line
    day: Day
    root: Path
    services: dict[str, ServiceProcess]
    spark: Foreign | None = None
    ledger: Ledger = field(default_factory=Ledger)
    over: threading.Event = field(default_factory=threading.Event)
    may_write: threading.Event = field(default_factory=threading.Event)
    scores: list[tuple[float, int]] = field(default_factory=list)
    kills: int = 0

    def run(self, table: UUID) -> None:
        """Let writers and readers work until the day is over."""
        day = self.day
        writers = Writers(self.line, str(self.root), self.ledger, self.over, self.may_write)
        readers = [
            Reader(self.line, self.root, table, 1.5 * day.retention_s, day.retention_s, LESSEE),
            Reader(self.line, self.root, table, 0.4 * day.retention_s, day.retention_s),
        ]
        self.may_write.set()
        with ThreadPoolExecutor(day.appenders + day.deleters + 3) as pool:
            work = [
                *(
                    pool.submit(writers.append, f"a{n:02}", day.pause_s)
                    for n in range(day.appenders)
                ),
                *(
                    pool.submit(writers.delete, f"d{n:02}", day.pause_s)
                    for n in range(day.deleters)
                ),
                pool.submit(writers.upsert, "upserts", day.pause_s),
                *(pool.submit(reader.run, self.over) for reader in readers),
            ]
            try:
                self._watch(work)
            finally:
                self.over.set()
                self.may_write.set()
            for each in work:
                each.result()
        assert all(reader.reads for reader in readers), "each has read"
        give_back_lease(KafkaBus(self.line.kafka, "test"), self.line.kafka.topics, LESSEE, table)

    def _watch(self, work: Sequence[Future[None]]) -> None:
        """Kill each service in turn, and watch the table's health, until the day is over."""
        day, began_s, store = self.day, time.monotonic(), LocalStore(self.root.as_uri())
        victims, next_kill_s = itertools.cycle(self.services), day.kill_every_s
        next_rest_s, killed, pace = day.rest_every_s, None, threading.Event()
        while (now_s := time.monotonic() - began_s) < day.length_s or self._has_kills_left():
            for each in work:
                if each.done():
                    each.result()
            self._check_alive()
            self.scores.append((now_s, score_of(store)))
            _log.info("%3.0f s: health %d", *self.scores[-1])
            if now_s >= next_kill_s and (killed is None or is_ready(self.services[killed])):
                self._kill(killed := next(victims))
                next_kill_s = now_s + day.kill_every_s
            if next_rest_s is not None and now_s >= next_rest_s:
                self._rest()
                next_rest_s = now_s + (day.rest_every_s or 0)
            pace.wait(STEP_S)

    def _rest(self) -> None:
        """Let nobody else write until delta-spark has."""
        spark = self.spark
        assert spark is not None, "the others rest for it"
        before = len(spark.results("append"))
        self.may_write.clear()
        until(lambda: len(spark.results("append")) > before, "delta-spark's turn")
        self.may_write.set()

    def _has_kills_left(self) -> bool:
        return self.kills < len(self.services)

    def _kill(self, name: str) -> None:
        self.services[name].child.kill()
        self.services[name].start()
        self.kills += 1
        _log.info("kill %d: %s", self.kills, name)

    def _check_alive(self) -> None:
        running = {**self.services, **({DELTA_SPARK: self.spark.process} if self.spark else {})}
        for name, service in running.items():
            assert service.child.is_alive(), f"{name} died:\n{service.child.tail()}"


@dataclass(frozen=True)
class Bytes:
    """What a table's log says of data files. Units: bytes.

    `written` came with rows of writers, `rewritten` without; `read` are files that a rewrite
    replaced, and `removed` all that were removed by anybody.
    """

    written: int
    rewritten: int
    read: int
    removed: int
    live: frozenset[str]

    @classmethod
    def of(cls, log: Sequence[list[dict[str, Any]]]) -> "Bytes":
        """Return the bytes of all versions; a file that comes again with a vector counts once."""
        sizes: dict[str, int] = {}
        live: set[str] = set()
        written = rewritten = read = removed = 0
        for rows in log:
            gone = {row["remove"]["path"]: row["remove"] for row in rows if "remove" in row}
            adds = {row["add"]["path"]: row["add"] for row in rows if "add" in row}
            for path in gone.keys() - adds.keys():
                removed += sizes[path]
                read += 0 if gone[path]["dataChange"] else sizes[path]
            live = (live - gone.keys()) | adds.keys()
            for path in adds.keys() - sizes.keys():
                sizes[path] = adds[path]["size"]
                written += sizes[path] if adds[path]["dataChange"] else 0
                rewritten += 0 if adds[path]["dataChange"] else sizes[path]
        return cls(written, rewritten, read, removed, frozenset(live))


def refused_by_maintenance(line: Line, log: Sequence[list[dict[str, Any]]]) -> list[str]:
    """Return the refusals of users' proposals that maintenance caused, or that nobody did.

    It has caused one over a file into which it packed rows after the proposal had read the table,
    too, whoever changed rows of that file. Overwrites of rows are left out there: they conflict
    with any change of rows in a file that may hold theirs.
    """
    topics = line.kafka.topics
    outcomes = values(line.kafka, topics.outcomes)
    sent = {value["proposal_id"]: value for value in values(line.kafka, topics.proposals)}
    producers: dict[str, str] = {}
    for record in read_topic(line.kafka, topics.proposals):
        headers = dict(record.headers)
        producers[headers["proposal_id"].decode()] = headers["producer"].decode()
    packed_in = {
        row["add"]["path"]: version
        for version, rows in reversed(list(enumerate(log)))
        for row in rows
        if "add" in row and not row["add"]["dataChange"]
    }
    found = []
    for outcome in outcomes:
        rejection, one = outcome.get("rejection") or {}, outcome["proposal_id"]
        if outcome["status"] == "committed" or producers[one] == "maintain":
            continue
        winner, version = rejection.get("winner_proposal_id"), rejection.get("winner_version")
        accepted = () if version is None else run_audit.provenance(log[version]).get("accepted", ())
        named = [winner] if winner else [item["id"] for item in accepted]
        is_packed_since = packed_in.get(rejection.get("path"), -1) > sent[one]["read_version"]
        if (
            version is None
            or any(producers.get(each) == "maintain" for each in named)
            or (is_packed_since and producers[one].startswith("d"))
        ):
            found.append(f"{producers[one]}: {outcome}")
    return found


def replayed(line: Line) -> list[Row]:
    """Return the rows that the change topic adds up to, asserting that it has each change once."""
    rows: dict[bytes, dict[str, Any]] = {}
    last = (-1, -1)
    for message in committed(line, line.kafka.topics.changes(NAME)):
        key, value = message.key() or b"", message.value()
        if value is None:
            continue
        change = json.loads(value)
        version, index = (int(part) for part in json.loads(change["source"]["sequence"]))
        assert (version, index) > last, f"{key!r} at {version} after {last}"
        last = (version, index)
        former = rows.pop(key, None)
        assert change["op"] == "r" or change["before"] == former, f"{key!r} in {version}: {former}"
        if change["after"] is not None:
            rows[key] = change["after"]
    return sorted((row["writer"], row["number"], row["value"]) for row in rows.values())


def on_disk(root: Path) -> Iterator[Path]:
    """Yield a table's files that are no part of its log."""
    return (path for path in root.rglob("*") if path.is_file() and "_delta_log" not in path.parts)


def left_bytes(root: Path, live: frozenset[str]) -> int:
    """Return the bytes of data files on disk that are not live."""
    return sum(
        path.stat().st_size
        for path in on_disk(root)
        if path.suffix == ".parquet" and str(path.relative_to(root)) not in live
    )


def begun(line: Line, day: Day) -> tuple[Course, UUID]:
    """Start the services and create the table; return the day that follows, and the table."""
    root, services = line.tables / NAME, services_of(line, day)
    options = {"topicPrefix": line.kafka.topic_prefix}
    with Client(line.kafka.bootstrap_servers, options) as client:
        client.create(str(root), SCHEMA, properties=day.properties, name=NAME)
        return Course(line, day, root, services), client.require(str(root)).table


def check(course: Course) -> None:
    """Check rows, refusals, bytes and health, once nobody writes any more."""
    line, root = course.line, course.root
    rows = rows_at(root)
    check_rows(rows, course)
    until(lambda: replayed(line) == rows, "the change topic has all")

    def is_freed() -> bool:
        now = Bytes.of(run_audit.entries(root))
        return left_bytes(root, now.live) <= (1 - FREED_MIN) * now.removed

    until(is_freed, "a vacuum of all that nobody needs", PATIENCE_S + 3 * course.day.retention_s)
    assert rows_at(root) == rows
    log = run_audit.entries(root)
    total = Bytes.of(log)
    warm = [each for each in course.scores if each[0] >= WARM * course.day.length_s]
    low = [each for each in warm if each[1] < HEALTH_MIN]
    _log.info(
        "%d writes, %d versions, %d kills; bytes written %d, rewritten %d (of %d), removed %d, "
        "left %d; %d live files; health at least %d, low %d times of %d",
        *(course.ledger.writes, len(log), course.kills),
        *(total.written, total.rewritten, total.read, total.removed),
        *(left_bytes(root, total.live), len(total.live)),
        *(min(score for _, score in warm), len(low), len(warm)),
    )
    assert refused_by_maintenance(line, log) == []
    assert total.rewritten <= AMPLIFICATION_MAX * total.written
    assert total.rewritten, "it was maintained"
    if course.day == SHORT:
        # Other tests run beside it, so now and then the maintainer is slower than the writers.
        store = LocalStore(root.as_uri())
        until(lambda: score_of(store) >= HEALTH_MIN, "a healthy table")
    else:
        assert low == []


def check_rows(rows: Sequence[Row], course: Course) -> None:
    """Fail unless a table has exactly the rows that its writers have committed.

    A row of delta-spark's whose append failed may be there: it may have failed after its commit.
    """
    found, wanted = Counter(rows), Counter(course.ledger.rows)
    may_be = set[Row]()
    if course.spark is not None:
        wanted |= Counter((DELTA_SPARK, n, None) for n in course.spark.done("append"))
        may_be = {(DELTA_SPARK, n, None) for n in course.spark.open_ends()}
    assert not wanted - found, f"lost: {(wanted - found).most_common(20)}"
    extra = found - wanted
    assert extra.keys() <= may_be, f"nobody's, or doubled: {extra.most_common(20)}"
    assert not extra or max(extra.values()) == 1, f"doubled: {extra.most_common(20)}"


@pytest.mark.timeout(0)
def test_a_maintained_day_in_45_s_costs_no_user_anything(line: Line) -> None:
    course, table = begun(line, SHORT)
    course.run(table)
    check(course)


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.skipif(shutil.which("java") is None, reason="no Java: delta-spark can't write")
@pytest.mark.timeout(0)
def test_a_maintained_day_in_an_hour_costs_no_user_anything(
    line: Line, process: Start, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    course, table = begun(line, Day.of(pytestconfig.getoption("minutes")))
    spark = started(process, delta_spark_writer.__file__, DELTA_SPARK, course.root, tmp_path)
    until(
        lambda: spark.account.exists() or not spark.process.child.is_alive(), "delta-spark's start"
    )
    if spark.process.child.exit_status() == delta_spark_writer.NO_JAR:
        pytest.skip("delta-spark's jar can't be had: no Maven repository answers")
    course.spark = spark
    course.run(table)
    (tmp_path / "stop").touch()
    assert spark.process.child.wait(END_S) == 0, spark.process.child.tail()
    assert spark.done("append"), "delta-spark took part"
    check(course)
