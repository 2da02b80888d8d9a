"""Fixtures: a broker for the session, topics for each test, services as processes."""

import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling, LoadScopeScheduling

from tests.integration.kafka_container import kafka_container
from tidegate_local.child_processes import (
    Child,
    Command,
    ServiceProcess,
    service_argv,
    service_process,
)
from tidegate_local.embedded_kafka import EmbeddedKafka
from tidegate_runtime.failpoints import VARIABLE
from tidegate_runtime.kafka.settings import KafkaSettings
from tidegate_runtime.kafka.topic_admin import create_topics

SESSION_TIMEOUT_MS = 2_000

SPARK = (
    "test_spark_batch.py",
    "test_spark_stream.py",
    "test_spark_changes.py",
    "test_spark_options.py",
    "test_spark_misuses.py",
    "test_serial_equivalence.py",
    "test_ingest_rows.py",
)
"""Files that run on one worker, one after another, because they share its Spark session: to start
one, and the Python processes of its first write, takes twenty seconds of a core."""

FIRST = (
    *SPARK,
    "test_cdc_publisher.py",
    "test_committer_processes.py",
    "test_mixed_writers.py",
    "test_topic_admin.py",  # short: xdist puts it behind a file of one test
    "test_stream_writers.py",
    "test_blows.py",
    "test_follower.py",
    "test_checkpointer.py",
)
"""The longest files run first; started last, one of them would occupy one core alone."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the longest files to the front; keep the order of the others and within files."""
    gone = [name for name in FIRST if not Path(__file__).with_name(name).exists()]
    assert not gone, f"renamed, or gone: {gone}"
    order = {name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda one: order.get(one.path.name, len(FIRST)))


class FilesScheduling(LoadFileScheduling):  # type: ignore[misc] # it ships no types
    """Runs a file on one worker, and all files of SPARK on one."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "spark" if Path(file).name in SPARK else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """Return what shares the tests out among workers; None for xdist's own."""
    return FilesScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def free_port() -> int:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        return port


@dataclass(frozen=True)
class Broker:
    """The session's Kafka; `child` is its process if it is ours."""

    bootstrap: str
    child: Child | None = None

    def check(self, when: str) -> None:
        """Fail if it has died: then a test's result says nothing about the code."""
        if self.child is None or self.child.is_alive():
            return
        pytest.fail(
            f"the session's Kafka died {when}, with exit status {self.child.exit_status()} (-9: "
            "killed, by the machine's memory limit or by hand); every test that needs it fails "
            f"from here on. {self.child.log} ends:\n{self.child.tail()}",
            pytrace=False,
        )


@pytest.fixture(scope="session")
def session_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """Yield a real Kafka: the embedded one, or with `--containers` one in a container."""
    if request.config.getoption("--containers"):
        with kafka_container() as bootstrap:
            yield Broker(bootstrap)
        return
    with EmbeddedKafka(tmp_path_factory.mktemp("kafka")) as embedded:
        yield Broker(embedded.bootstrap, embedded.child)


@pytest.fixture
def broker(session_broker: Broker) -> Iterator[str]:
    """Yield the address of the session's Kafka, and check that it is alive before and after."""
    session_broker.check("before this test")
    yield session_broker.bootstrap
    session_broker.check("during this test")


@pytest.fixture
def kafka(broker: str) -> KafkaSettings:
    """Return settings with topics created for this test only."""
    return own_topics(broker)


def own_topics(broker: str, partitions: int = 1) -> KafkaSettings:
    """Create topics with unique names, and return the settings that name them."""
    settings = KafkaSettings(
        bootstrap_servers=broker,
        topic_prefix=f"t{secrets.token_hex(4)}.",
        session_timeout_ms=SESSION_TIMEOUT_MS,
        partitions=partitions,
    )
    create_topics(settings, settings.topics.declared())
    return settings


@dataclass
class Line:
    """The services of one test: processes on temporary folders, stopped with the test."""

    kafka: KafkaSettings
    folder: Path
    tables: Path
    _started: list[ServiceProcess] = field(default_factory=list)

    @property
    def settings(self) -> dict[str, str]:
        """Settings common to all services, as `--set` takes them."""
        return {
            "kafka.bootstrap_servers": self.kafka.bootstrap_servers,
            "kafka.topic_prefix": self.kafka.topic_prefix,
            "kafka.session_timeout_ms": str(self.kafka.session_timeout_ms),
        }

    @property
    def spark_options(self) -> dict[str, str]:
        """The options by which Spark reaches the committer."""
        return {
            "kafka.bootstrap.servers": self.kafka.bootstrap_servers,
            "topicPrefix": self.kafka.topic_prefix,
            "outcomeTimeout": "60s",
        }

    def service(
        self, module: str, name: str = "", failpoint: str = "", **sections: Mapping[str, str]
    ) -> ServiceProcess:
        """Return a service, not started: `service("committer", committer={"roots": …})`."""
        own = {f"{s}.{key}": value for s, keys in sections.items() for key, value in keys.items()}
        if module == "committer":
            own.setdefault("committer.roots", self.tables.as_uri())
        environ = {VARIABLE: failpoint, "TIDEGATE__LOG__FORMAT": "json"}
        argv = service_argv(module, overrides={**self.settings, **own})
        service = service_process(Command(name or module, argv, environ), self.folder)
        self._started.append(service)
        return service

    def started(self, module: str, name: str = "", **sections: Mapping[str, str]) -> ServiceProcess:
        """Start a service and return it when it is ready."""
        service = self.service(module, name, "", **sections)
        service.start()
        service.wait_ready()
        return service

    def stop(self) -> None:
        """Stop all services that were started."""
        for service in reversed(self._started):
            service.child.stop()


@contextmanager
def services(kafka: KafkaSettings, folder: Path) -> Iterator[Line]:
    """Yield the means to start services, which are stopped at the end."""
    tables = folder / "tables"
    tables.mkdir(parents=True)
    line = Line(kafka, folder / "services", tables)
    try:
        yield line
    finally:
        line.stop()


@pytest.fixture
def line(kafka: KafkaSettings, tmp_path: Path) -> Iterator[Line]:
    """Yield the means to start services; tables are in `line.tables`."""
    with services(kafka, tmp_path) as line:
        yield line


@pytest.fixture
def fragile(tmp_path: Path) -> Iterator[EmbeddedKafka]:
    """Yield a broker that a test may kill and restart at the same address."""
    broker = EmbeddedKafka(tmp_path / "kafka", free_port())
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def fragile_line(fragile: EmbeddedKafka, tmp_path: Path) -> Iterator[Line]:
    with services(own_topics(fragile.bootstrap), tmp_path) as line:
        yield line


@pytest.fixture(scope="module")
def shared_line(session_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """Yield the same as `line`, once for all tests of a file, whose tables have other names."""
    session_broker.check("before these tests")
    with services(own_topics(session_broker.bootstrap), tmp_path_factory.mktemp("line")) as line:
        yield line
    session_broker.check("during these tests")


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Callable[[Command], ServiceProcess]]:
    """Yield a way to start any program as a service process; it is stopped with the test."""
    started: list[ServiceProcess] = []

    def start(command: Command) -> ServiceProcess:
        service = service_process(command, tmp_path / "processes")
        started.append(service)
        service.start()
        return service

    yield start
    for service in reversed(started):
        service.child.stop()
