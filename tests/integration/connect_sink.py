"""Kafka Connect with a connector of Debezium's, and the PostgreSQL beside it, as processes."""

import json
import shutil
import socket
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from tidegate_local.kafka_jars import cache_folder, java_command

KAFKA: Final = "4.1.1"
DEBEZIUM: Final = "3.3.1.Final"
Plugin = Literal["jdbc", "postgres"]
APICURIO: Final = "2.6.13.Final"
REGISTRY: Final = f"io.apicurio:apicurio-registry-app:{APICURIO}:tar.gz:all"
START_S: Final = 180.0
DATABASE: Final = "sink"

_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>judges</groupId><artifactId>judges</artifactId><version>1</version><dependencies>{}
</dependencies></project>"""
_DEPENDENCY: Final = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
)


class JarsMissing(Exception):
    """Maven's repository does not give what was asked for."""


def maven_jars(name: str, *artifacts: str) -> Path:
    """Return a folder with artifacts (`group:name:version`) and all that they need.

    Skips the test where Maven is not installed. Raises: JarsMissing.
    """
    folder = cache_folder() / "judges" / name
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        needed = "".join(_DEPENDENCY.format(*artifact.split(":")) for artifact in artifacts)
        (folder / "pom.xml").write_text(_POM.format(needed))
        goal = f"-DoutputDirectory={folder}"
        _maven("dependency:copy-dependencies", goal, "-f", str(folder / "pom.xml"))
        (folder / "complete").touch()
    return folder


def debezium_plugin(name: Plugin) -> Path:
    """Return the folder that holds a connector of Debezium's, as `plugin.path` wants it: `jdbc` is
    its sink, `postgres` a source.
    """
    folder = cache_folder() / "judges" / f"debezium-{name}-{DEBEZIUM}"
    connector = f"debezium-connector-{name}"
    if not (folder / connector).exists():
        folder.mkdir(parents=True, exist_ok=True)
        artifact = f"io.debezium:{connector}:{DEBEZIUM}:tar.gz:plugin"
        _maven("dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}")
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as content:
            content.extractall(folder, filter="data")
    return folder


def registry_jar() -> Path:
    """Return the program of Apicurio's registry, which speaks Confluent's protocol, too."""
    folder = cache_folder() / "judges" / f"apicurio-{APICURIO}"
    program = folder / f"apicurio-registry-app-{APICURIO}-runner.jar"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _maven("dependency:copy", f"-Dartifact={REGISTRY}", f"-DoutputDirectory={folder}")
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as content:
            content.extractall(folder, filter="data")
    return program


@contextmanager
def registry(folder: Path) -> Iterator[str]:
    """Start a registry in memory; yield its URL for Confluent's clients."""
    folder.mkdir(parents=True)
    program, port, log = registry_jar(), free_port(), folder / "log"
    argv = [java_command(), "-Xmx512m", f"-Dquarkus.http.port={port}", "-jar", str(program)]
    with log.open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, cwd=program.parent)
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    until_s = time.monotonic() + START_S
    try:
        while True:
            try:
                urllib.request.urlopen(f"{url}/subjects", timeout=5).close()
                break
            except OSError:
                assert process.poll() is None, log.read_text()[-4000:]
                assert time.monotonic() < until_s, log.read_text()[-4000:]
                time.sleep(0.5)
        yield url
    finally:
        process.kill()
        process.wait()


def _maven(*arguments: str) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip("Maven is not installed: its repository has the clients")
    done = subprocess.run(
        [maven, "-q", "-B", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise JarsMissing(done.stdout[-2000:])


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Postgres:
    """A PostgreSQL of the test's own."""

    bin: Path
    port: int

    def query(self, sql: str) -> str:
        """Return what psql prints, without headers and alignment."""
        argv = [str(self.bin / "psql"), "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres"]
        done = subprocess.run(
            [*argv, "-d", DATABASE, "-qAt", "-v", "ON_ERROR_STOP=1", "-c", sql],
            capture_output=True,
            text=True,
            check=False,
            env={"PGTZ": "UTC"},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return a table's rows: numbers exact, times as ISO texts in UTC, bytes as hex."""
        known = self.query(f"SELECT to_regclass('\"{table}\"')").strip()
        if not known:
            return []
        result = self.query(f'SELECT to_jsonb(t) FROM "{table}" t').splitlines()
        return [json.loads(line, parse_float=Decimal) for line in result]


@contextmanager
def postgres(folder: Path, **settings: str) -> Iterator[Postgres]:
    """Start PostgreSQL on a folder of its own. Skips the test where it is not installed."""
    result = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not result:
        pytest.skip("PostgreSQL's server is not installed")
    server = Postgres(result[-1].parent, free_port())
    data = folder / "data"
    folder.mkdir(parents=True)
    as_user: list[str] = []
    if Path("/").owner() == "root" and shutil.which("runuser"):
        # The server refuses to run as root.
        shutil.chown(folder, "postgres")
        for above in folder.parents:
            if above.stat().st_mode & 0o005 != 0o005 and above.owner() == "root":
                above.chmod(above.stat().st_mode | 0o055)
        as_user = ["runuser", "-u", "postgres", "--"]
    run = [*as_user, str(server.bin / "initdb"), "-D", str(data), "-A", "trust", "-U", "postgres"]
    subprocess.run(run, check=True, capture_output=True)
    options = f"-p {server.port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    options += "".join(f" -c {name}={value}" for name, value in settings.items())
    log = str(folder / "log")
    control = [*as_user, str(server.bin / "pg_ctl"), "-D", str(data), "-w", "-l", log]
    subprocess.run([*control, "-o", options, "start"], check=True, capture_output=True)
    try:
        there = ["-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres"]
        argv = [str(server.bin / "createdb"), *there, DATABASE]
        subprocess.run(argv, check=True, capture_output=True)
        yield server
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=False, capture_output=True)


@dataclass(frozen=True)
class Connect:
    """A standalone worker of Kafka Connect."""

    process: subprocess.Popen[bytes]
    log: Path
    rest: int

    def check(self) -> None:
        """Fail with the trace of a task that failed, or if the worker ended."""
        assert self.process.poll() is None, self.log.read_text()[-4000:]
        for name in self._get("/connectors"):
            status = self._get(f"/connectors/{name}/status")
            for task in status["tasks"]:
                assert task["state"] != "FAILED", task["trace"]

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.rest}{path}", timeout=30) as answer:
            return json.load(answer)


@contextmanager
def connect(
    bootstrap: str,
    folder: Path,
    connector: Mapping[str, str],
    worker: Mapping[str, str],
    plugin: Plugin = "jdbc",
) -> Iterator[Connect]:
    """Start a worker with one connector; wait until it answers."""
    folder.mkdir(parents=True)
    jars = maven_jars(
        f"connect-{KAFKA}",
        f"org.apache.kafka:connect-runtime:{KAFKA}",
        f"org.apache.kafka:connect-transforms:{KAFKA}",
    )
    rest = free_port()
    settings = {
        "bootstrap.servers": bootstrap,
        "offset.storage.file.filename": str(folder / "offsets"),
        "plugin.path": str(debezium_plugin(plugin)),
        "listeners": f"http://127.0.0.1:{rest}",
        "consumer.isolation.level": "read_committed",
        "consumer.auto.offset.reset": "earliest",
        "offset.flush.interval.ms": "1000",
        **worker,
    }
    for name, content in (("worker", settings), ("connector", connector)):
        lines = "".join(f"{key}={value}\n" for key, value in content.items())
        (folder / f"{name}.properties").write_text(lines)
    log = folder / "log"
    argv = [java_command(), "-Xmx512m", "-cp", f"{jars}/*"]
    argv += ["org.apache.kafka.connect.cli.ConnectStandalone"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*argv, str(folder / "worker.properties"), str(folder / "connector.properties")],
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    worker_of = Connect(process, log, rest)
    try:
        _wait_for(worker_of)
        yield worker_of
    finally:
        process.kill()
        process.wait()


def _wait_for(worker: Connect) -> None:
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s:
        try:
            worker.check()
        except OSError:
            time.sleep(0.5)
        else:
            return
    pytest.fail(f"Kafka Connect did not start:\n{worker.log.read_text()[-4000:]}")
