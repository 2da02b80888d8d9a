"""Jobs of delta-spark that know nothing of Tidegate commit through the gate, by a log store.

Each driver is a process: the class path of a JVM that has one session can't be changed.
"""

import json
import os
import re
import secrets
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from bench.door import S3A
from tests.integration import door_program
from tests.integration.conftest import Line
from tests.integration.moto_server import moto_server
from tests.integration.proposers import values
from tests.integration.waiting import until
from tidegate import Client
from tidegate_local.child_processes import ServiceProcess
from tidegate_local.kafka_jars import java_command
from tidegate_producers.history.outcome_log import versions_past_the_gate
from tidegate_producers.log_store import JAR
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.settings import KafkaSettings

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(1_800)]


NO_SETTINGS: Final[Mapping[str, str]] = {}


class Failed(Exception):
    """A driver's job ended with an error."""


class Driver:
    """A process with a Spark session."""

    def __init__(
        self, kafka: KafkaSettings, warehouse: Path, settings: Mapping[str, str] = NO_SETTINGS
    ) -> None:
        own = json.dumps(dict(settings))
        arguments = [kafka.bootstrap_servers, kafka.topic_prefix, str(warehouse), own]
        self._log = warehouse.with_suffix(".log").open("w", encoding="utf-8")
        self._process = subprocess.Popen(
            [sys.executable, door_program.__file__, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._lock = threading.Lock()

    def ready(self) -> "Driver":
        """Wait until it has a session; skip where delta-spark's jar can't be had."""
        try:
            self._answer()
        except Failed:
            if self._process.wait() == door_program.NO_JAR:
                pytest.skip("delta-spark's jar can't be had: no Maven repository answers")
            raise
        return self

    def run(self, code: str) -> Any:
        """Run Python code in it, and return what it left in `result`. Raises: Failed."""
        with self._lock:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(code) + "\n")
            self._process.stdin.flush()
            return self._answer()

    def sql(self, *statements: str) -> Any:
        """Run SQL statements, and return the rows of the last one."""
        lines = [f"rows = spark.sql({statement!r})" for statement in statements]
        return self.run("\n".join([*lines, "result = [list(row) for row in rows.collect()]"]))

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()
        self._log.close()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Failed("the driver has ended")
        answer: Mapping[str, Any] = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer["result"]


@pytest.fixture(scope="module")
def committer(shared_line: Line) -> ServiceProcess:
    if not JAR.is_file():
        pytest.skip(f"{JAR.name} is not there: {java_command()} has no compiler")
    return shared_line.started("committer")


@pytest.fixture(scope="module")
def door(shared_line: Line, committer: ServiceProcess) -> Iterator[Driver]:
    driver = Driver(shared_line.kafka, shared_line.tables / "warehouse")
    yield driver.ready()
    driver.kill()


def published(line: Line, name: str) -> list[int]:
    """Return the versions of a table that were published."""
    records = values(line.kafka, line.kafka.topics.commits)
    return sorted({record["version"] for record in records if record["name"] == name})


def past_the_gate(committer: ServiceProcess) -> set[tuple[str, int]]:
    """Return the versions, by table, that the committer has found and nobody proposed."""
    lines = map(json.loads, committer.child.log.read_text("utf-8").splitlines())
    return {(one["table"], one["version"]) for one in lines if one["event"] == "external"}


VERBS: Final = (
    "CREATE TABLE {t} (id BIGINT, name STRING) USING delta TBLPROPERTIES "
    "('delta.enableDeletionVectors' = 'true', 'delta.enableInCommitTimestamps' = 'true')",
    "INSERT INTO {t} VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')",
    "UPDATE {t} SET name = 'B' WHERE id = 2",
    "DELETE FROM {t} WHERE id = 3",
    "MERGE INTO {t} AS t USING (SELECT 4 AS id, 'D' AS name UNION ALL SELECT 5, 'e') AS s "
    "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "ALTER TABLE {t} ADD COLUMNS (day DATE)",
    "OPTIMIZE {t}",
    "INSERT OVERWRITE {t} VALUES (9, 'z', DATE '2026-01-01')",
    "RESTORE TABLE {t} TO VERSION AS OF 4",
    "CREATE OR REPLACE TABLE {t} USING delta AS SELECT 7 AS id, 'g' AS name",
    "INSERT INTO {t} VALUES (8, 'h')",
)


def test_sql_of_an_unmodified_job_goes_through_the_gate(
    door: Driver, committer: ServiceProcess, shared_line: Line
) -> None:
    table = f"delta.`{shared_line.tables / 'orders'}`"
    for verb in VERBS:
        door.sql(verb.format(t=table))
    assert door.sql(f"SELECT * FROM {table} ORDER BY id") == [[7, "g"], [8, "h"]]
    before = door.sql(f"SELECT id, name FROM {table} VERSION AS OF 4 ORDER BY id")
    assert before == [[1, "a"], [2, "B"], [4, "D"], [5, "e"]]
    history = door.sql(f"DESCRIBE HISTORY {table}")
    assert len(history) >= len(VERBS) - 1
    assert published(shared_line, "orders") == list(range(len(history)))
    assert past_the_gate(committer) == set()


MANAGED: Final = (
    "CREATE TABLE catalogued (id BIGINT, day DATE, name STRING) USING delta PARTITIONED BY (day)",
    "INSERT INTO catalogued VALUES (1, DATE '2026-01-01', 'a'), (2, NULL, 'b')",
    "CREATE TABLE copied USING delta AS SELECT * FROM catalogued",
    "INSERT INTO copied SELECT id + 10, day, name FROM catalogued",
)


def test_tables_of_the_catalog_frames_and_streams_go_through_the_gate(
    door: Driver, committer: ServiceProcess, shared_line: Line
) -> None:
    assert door.sql(*MANAGED, "SELECT id FROM copied ORDER BY id") == [[1], [2], [11], [12]]
    door.run(
        "spark.range(3).write.format('delta').saveAsTable('saved')\n"
        "spark.range(3, 5).writeTo('saved').append()\n"
        "from delta import DeltaTable\n"
        "DeltaTable.forName(spark, 'saved').delete('id = 0')\n"
        "query = (spark.readStream.table('saved').writeStream.format('delta')"
        f".option('checkpointLocation', {str(shared_line.folder / 'checkpoint')!r})"
        ".option('skipChangeCommits', 'true').trigger(availableNow=True).toTable('streamed'))\n"
        "query.awaitTermination()\n"
    )
    assert door.sql("SELECT count(*) FROM saved") == [[4]]
    assert door.sql("SELECT count(*) FROM streamed")[0][0] in (4, 5)
    for name in ("catalogued", "copied", "saved", "streamed"):
        assert published(shared_line, name), name
    assert past_the_gate(committer) == set()


def test_our_writers_and_the_job_share_a_table(door: Driver, shared_line: Line) -> None:
    folder = shared_line.tables / "sha red"
    door.sql(f"CREATE TABLE delta.`{folder}` (id BIGINT) USING delta")
    options = {"topicPrefix": shared_line.kafka.topic_prefix}
    with Client(shared_line.kafka.bootstrap_servers, options) as client:
        for number in range(0, 10, 2):
            client.append(str(folder), pa.table({"id": [number]}))
            door.sql(f"INSERT INTO delta.`{folder}` VALUES ({number + 1})")
        client.delete(str(folder), "id = 3")
    rows = door.sql(f"SELECT id FROM delta.`{folder}` ORDER BY id")
    assert rows == [[id_] for id_ in (0, 1, 2, 4, 5, 6, 7, 8, 9)]


def test_a_table_that_nobody_knows_is_registered_at_its_first_commit(
    door: Driver, shared_line: Line
) -> None:
    folder = shared_line.tables / "found"
    write_deltalake(str(folder), pa.table({"id": [1]}))
    door.run("spark.conf.set('spark.tidegate.register', 'false')")
    with pytest.raises(Failed, match=r"no table is registered at .*register"):
        door.sql(f"INSERT INTO delta.`{folder}` VALUES (2)")
    door.run("spark.conf.unset('spark.tidegate.register')")
    door.sql(f"INSERT INTO delta.`{folder}` VALUES (3)")
    assert door.sql(f"SELECT id FROM delta.`{folder}` ORDER BY id") == [[1], [3]]
    assert published(shared_line, "found") == [1]


def test_a_folder_that_was_removed_is_named_and_served_again_after_a_drop(
    door: Driver, shared_line: Line
) -> None:
    door.sql("CREATE TABLE fleeting (id BIGINT) USING delta", "INSERT INTO fleeting VALUES (1)")
    door.run("spark.sql('DROP TABLE fleeting')")
    with pytest.raises(Failed, match=r"it was removed or made anew\. Run `tidegate table drop"):
        door.sql("CREATE TABLE fleeting (id BIGINT) USING delta")
    root = (shared_line.tables / "warehouse" / "fleeting").as_uri()
    settings = [part for pair in shared_line.settings.items() for part in ("--set", "=".join(pair))]
    main = "from tidegate_runtime.cli.main import main; main()"
    subprocess.run(
        [sys.executable, "-c", main, "table", "drop", root, "--yes", *settings], check=True
    )
    door.sql("CREATE TABLE fleeting (id BIGINT) USING delta", "INSERT INTO fleeting VALUES (2)")
    assert door.sql("SELECT id FROM fleeting") == [[2]]


WRONG: Final = {
    "spark.tidegate.kafka.bootstrap.servers": {
        "": "bootstrap.servers is not set",
        "nowhere.invalid:9092": "spark.tidegate.kafka.bootstrap.servers",
        "127.0.0.1:1": "Kafka at 127.0.0.1:1 did not answer",
        "a b": "spark.tidegate.kafka.bootstrap.servers",
    },
    "spark.tidegate.topic.prefix": {
        "nobody.": "there is no topic nobody.",
        "a b": "spark.tidegate.topic.prefix",
    },
    "spark.tidegate.timeout.seconds": {
        "0": "whole seconds",
        "-1": "whole seconds",
        "5m": "whole seconds",
        "1.5": "whole seconds",
        "": "whole seconds",
        "10000000": "whole seconds",
    },
    "spark.tidegate.register": {"yes": "true or false", "True": "true or false", "": "true or"},
    "spark.tidegate.kafka.security.protocol": {
        "TLS": "security.protocol",
        "SASL_PLAINTEXT": "spark.tidegate.kafka.",
    },
    "spark.tidegate.kafka.sasl.username": {"me": "sasl.password.location belong together"},
    "spark.tidegate.kafka.sasl.password.location": {
        "/nowhere": "/nowhere cannot be read",
        "/etc/hostname": "sasl.username",
    },
    "spark.tidegate.kafka.ssl.ca.location": {
        "/nowhere": "ssl.ca.location: /nowhere cannot be read"
    },
    "spark.tidegate.kafka.ssl.certificate.location": {"/nowhere": "cannot be read"},
    "spark.tidegate.kafka.ssl.key.location": {"/nowhere": "cannot be read"},
    "spark.tidegate.kafka.ssl.key.password.location": {"/nowhere": "cannot be read"},
    "spark.tidegate.kafka.max.block.ms": {"soon": "max.block.ms"},
}


def test_a_wrong_setting_fails_at_the_first_commit_by_its_name(
    door: Driver, shared_line: Line
) -> None:
    table = f"delta.`{shared_line.tables / 'misused'}`"
    door.sql(f"CREATE TABLE {table} (id BIGINT) USING delta")
    patience = "spark.tidegate.kafka.default.api.timeout.ms"  # of brokers that never answer
    door.run(f"spark.conf.set({patience!r}, '3000')")
    wrong = []
    for setting, cases in WRONG.items():
        for value, message in cases.items():
            door.run(
                f"before = spark.conf.get({setting!r}, None)\n"
                f"spark.conf.set({setting!r}, {value!r})\n"
                f"try: spark.sql('INSERT INTO {table} VALUES (1)'); result = 'it was committed'\n"
                "except Exception as error: result = str(error)\n"
                f"if before is None: spark.conf.unset({setting!r})\n"
                f"else: spark.conf.set({setting!r}, before)\n"
                "SAID.append(result)"
            )
            said = door.run("result = SAID.pop()")
            if message not in said:
                wrong.append((setting, value, said[:300]))
    door.run(f"spark.conf.unset({patience!r})")
    assert not wrong, wrong
    assert door.sql(f"SELECT * FROM {table}") == [], "nothing was written past the gate"


def test_a_committer_that_is_away_is_named_when_the_time_is_over(
    door: Driver, committer: ServiceProcess, shared_line: Line
) -> None:
    table = f"delta.`{shared_line.tables / 'waited'}`"
    door.sql(f"CREATE TABLE {table} (id BIGINT) USING delta")
    committer.child.kill()
    door.run("spark.conf.set('spark.tidegate.timeout.seconds', '2')")
    awaited = r"partition 0 of .*proposals .* did not decide within \d+ s .*proposals show "
    try:
        with pytest.raises(Failed, match=awaited):
            door.sql(f"INSERT INTO {table} VALUES (1)")
    finally:
        door.run("spark.conf.unset('spark.tidegate.timeout.seconds')")
        committer.start()
        committer.wait_ready()
    door.sql(f"INSERT INTO {table} VALUES (2)")
    assert door.sql(f"SELECT id FROM {table} ORDER BY id") == [[1], [2]], "it came after all"


JOBS: Final = """
import threading, time

def job(name, kind):
    with open(JOURNAL, "a+", buffering=1) as journal:
        journal.seek(0)  # a driver that was killed has left its lines
        number = max((one[2] for one in map(json.loads, journal) if one[0] == name), default=0)
        while not STOP.exists():
            number += 1
            journal.write(json.dumps([name, kind, number, "begun"]) + "\\n")
            try:
                spark.sql(VERBS[kind].format(name=name, number=number))
                said = "done"
            except Exception as error:
                said = str(error)[:2000]
            journal.write(json.dumps([name, kind, number, said]) + "\\n")

for one in NAMED:
    if one[1] != "stream":
        threading.Thread(target=job, args=one, daemon=True).start()
        continue
    rows = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
    rows = rows.selectExpr(f"'{one[0]}' AS writer", "value AS number")
    writer = rows.writeStream.format("delta").option("checkpointLocation", f"{JOURNAL}-checkpoint")
    query = writer.partitionBy("writer").trigger(processingTime="1 second").start(ROOT)
"""
JOB_VERBS: Final = {
    "append": "INSERT INTO {table} VALUES ('{{name}}', {{number}})",
    "update": "UPDATE {table} SET number = number + 1 WHERE writer = '{{name}}'",
    "merge": "MERGE INTO {table} t USING (SELECT '{{name}}' AS writer, {{number}} AS number) s "
    "ON t.writer = '{{name}}' AND t.writer = s.writer AND t.number = s.number "
    "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *",
    "optimize": "OPTIMIZE {table}",
}


def start_jobs(driver: Driver, place: Path, root: str, jobs: list[tuple[str, str]]) -> Path:
    """Start jobs in a driver, each in a thread of its own; return their journal."""
    journal = place / f"{jobs[0][0]}.journal"
    verbs = {kind: verb.format(table=f"delta.`{root}`") for kind, verb in JOB_VERBS.items()}
    head = (
        f"import json\nfrom pathlib import Path\nJOURNAL = {str(journal)!r}\n"
        f"STOP = Path({str(place / 'stop')!r})\nVERBS = {verbs!r}\nNAMED = {jobs!r}\n"
        f"ROOT = {root!r}\n"
    )
    driver.run(head + JOBS)
    return journal


def ends(journals: list[Path]) -> list[tuple[str, str, int, str]]:
    """Return what the jobs have ended: name, kind, number, and `done` or the error."""
    lines = [json.loads(line) for one in journals for line in one.read_text().splitlines()]
    return [tuple(line) for line in lines if line[-1] != "begun"]


def ended(journals: list[Path]) -> bool:
    """Return whether each job that has begun something has ended it."""
    return all(not open_ends(journal) for journal in journals)


def open_ends(journal: Path) -> set[tuple[str, int]]:
    """Return what was begun and has no end: name and number."""
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    begun = {(name, number) for name, _, number, said in lines if said == "begun"}
    return begun - {(name, number) for name, _, number, said in lines if said != "begun"}


CONFLICT: Final = re.compile("DELTA_CONCURRENT_|Concurrent[A-Za-z]*Exception")


def test_killed_committers_and_drivers_lose_nothing_and_double_nothing(
    door: Driver,
    committer: ServiceProcess,
    shared_line: Line,
    pytestconfig: pytest.Config,
) -> None:
    """Eight jobs in two drivers and a writer of ours, on one table."""
    kills = max(2, pytestconfig.getoption("blows") // 10)

    def other() -> Driver:
        return Driver(shared_line.kafka, shared_line.tables / "other").ready()

    contest(shared_line, committer, (door, other), str(shared_line.tables / "contested"), kills)
    assert past_the_gate(committer) == set()
    kafka = shared_line.kafka
    assert versions_past_the_gate(KafkaBus(kafka, "test"), kafka.topics) == []


def contest(
    line: Line,
    committer: ServiceProcess,
    drivers: tuple[Driver, Callable[[], Driver]],
    root: str,
    kills: int,
    options: Mapping[str, str] = NO_SETTINGS,
) -> None:
    """Have eight jobs in two drivers, our appends and row deletes on one table while the committer
    is killed so many times, and the second driver each tenth time and at last; then check every
    row.
    """
    place, dice, (door, start_other) = line.folder / "jobs", Random(20_261), drivers
    other = start_other()
    place.mkdir()
    path = root.replace("s3://", "s3a://")
    table = f"delta.`{path}`"
    door.sql(
        f"CREATE TABLE {table} (writer STRING, number BIGINT) USING delta PARTITIONED BY (writer)"
        " TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    mine = [("a1", "append"), ("u1", "update"), ("m1", "merge"), ("o1", "optimize")]
    theirs = [("a2", "append"), ("u2", "update"), ("m2", "merge"), ("s2", "stream")]
    door.sql(f"INSERT INTO {table} VALUES ('u1', 0), ('u2', 0)")
    journals = [start_jobs(door, place, path, mine), start_jobs(other, place, path, theirs)]
    names = {name for name, kind in (*mine, *theirs) if kind != "stream"}
    until(lambda: {one[0] for one in ends(journals)} >= names, "a first end of each job", 300.0)
    appended, own = 0, {"topicPrefix": line.kafka.topic_prefix, **options}
    with Client(line.kafka.bootstrap_servers, own) as client:
        for number in range(kills):
            until_s = time.monotonic() + dice.uniform(1.0, 4.0)
            while time.monotonic() < until_s:
                client.append(root, pa.table({"writer": ["own"], "number": [appended]}))
                if appended % 5 == 4:
                    client.delete(root, f"writer = 'own' AND number = {appended - 2}")
                appended += 1
                time.sleep(0.1)
            committer.child.kill()
            committer.start()
            committer.wait_ready()
            if number == kills - 1 or number % 10 == 9:
                other.kill()
            if number % 10 == 9 and number < kills - 1:
                other = start_other()
                start_jobs(other, place, path, theirs)
    (place / "stop").touch()
    until(lambda: ended(journals[:1]), "the end of each job", 300.0)
    check_rows(door.sql(f"SELECT writer, number FROM {table}"), appended, journals)


def check_rows(rows: list[list[Any]], appended: int, journals: list[Path]) -> None:
    """Fail if a row is lost or doubled, or something was refused that delta-spark's rules allow."""
    assert max(Counter(map(tuple, rows)).values()) == 1, "a row is there twice"
    there = {(name, number) for name, number in rows}
    own = {number for number in range(appended) if number % 5 != 2 or number + 2 >= appended}
    assert {number for name, number in there if name == "own"} == own
    streamed = {number for name, number in there if name == "s2"}
    assert streamed == set(range(len(streamed))), "a stream's rows are in order, from 0"
    unknown = set().union(*map(open_ends, journals))
    done = Counter(name for name, _, _, said in ends(journals) if said == "done")
    for name, kind, number, said in ends(journals):
        assert said == "done" or CONFLICT.search(said), (name, kind, number, said)
        if kind in ("append", "merge"):
            assert ((name, number) in there) == (said == "done"), (name, kind, number, said)
    for name in ("u1", "u2"):
        [reached] = [number for writer, number in there if writer == name]
        assert done[name] <= reached <= done[name] + sum(one[0] == name for one in unknown), name


@pytest.mark.nightly
def test_two_drivers_on_s3_lose_nothing_and_double_nothing(line: Line) -> None:
    with moto_server() as port:
        storage = {
            "endpoint_url": f"http://127.0.0.1:{port}",
            "region": "us-east-1",
            "access_key_id": "any",
            "secret_access_key": "any",
        }
        own = {"roots": '["s3://bucket/tables"]', "store_contests": "0"}
        committer = line.started("committer", committer=own, storage=storage)
        s3a = {**S3A, "spark.hadoop.fs.s3a.endpoint": storage["endpoint_url"]}
        # One after the other: the first may have to fetch the packages.
        one = Driver(line.kafka, line.folder / "one", s3a).ready()
        root = f"s3://bucket/tables/{secrets.token_hex(6)}"
        options = {f"storage.{name}": value for name, value in storage.items()}

        def other() -> Driver:
            return Driver(line.kafka, line.folder / "other", s3a).ready()

        contest(line, committer, (one, other), root, 3, options)
        assert past_the_gate(committer) == set()
        one.kill()


OLDER: Final = (("4.0.1", "4.0.0"), ("3.5.6", "3.3.2"))
"""Releases of Spark and delta-spark before ours."""


@pytest.mark.nightly
@pytest.mark.parametrize(("spark", "delta"), OLDER, ids=[f"delta-{delta}" for _, delta in OLDER])
def test_older_releases_commit_through_the_gate(
    spark: str, delta: str, committer: ServiceProcess, shared_line: Line, tmp_path: Path
) -> None:
    python = older_spark(tmp_path / "env", spark, delta)
    root = shared_line.tables / f"older-{delta}"
    settings = {"spark.ui.enabled": "false", **door_program.door_settings(shared_line.kafka)}
    # By itself delta-spark 3.3 replaces no table by its path.
    verbs = [verb for verb in VERBS if not verb.startswith("CREATE OR REPLACE")]
    statements = [*verbs, "SELECT * FROM {t} ORDER BY id"]
    program = Path(door_program.__file__).with_name("older_spark_program.py")
    arguments = [json.dumps(settings), str(root), json.dumps(statements)]
    ours = ("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(
        [python, program, *arguments],
        env={**environment, "PYSPARK_PYTHON": str(python)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = json.loads(done.stdout.splitlines()[-1])
    assert rows == [[1, "a"], [2, "B"], [4, "D"], [5, "e"], [8, "h"]]
    versions = sorted(int(one.stem) for one in (root / "_delta_log").glob("[0-9]*.json"))
    assert published(shared_line, root.name) == versions == list(range(len(versions)))
    assert past_the_gate(committer) == set()


def older_spark(folder: Path, spark: str, delta: str) -> Path:
    """Return the interpreter of an environment with a Spark; skip where it can't be had."""
    uv = Path(sys.executable).with_name("uv")
    if not uv.is_file():
        pytest.skip("uv is not installed")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    python = folder / "bin" / "python"
    packages = [f"pyspark=={spark}", f"delta-spark=={delta}", "setuptools<80"]
    done = subprocess.run(
        [uv, "pip", "install", "--quiet", "--python", python, *packages],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"PySpark {spark} with delta-spark {delta} can't be had: {done.stderr[-300:]}")
    return python
