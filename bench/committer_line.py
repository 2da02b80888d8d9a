"""What the committer's figures are measured on: a broker, a committer process, a slow store.

No checkpointer and no CDC publisher run: they are other services, for other machines.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Self

from bench import gate_writers, host
from bench.slow_store import BUCKET, SlowStore
from tidegate_local.child_processes import Command, ServiceProcess, service_argv, service_process
from tidegate_local.embedded_kafka import EmbeddedKafka
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.kafka.settings import KafkaSettings
from tidegate_runtime.kafka.topic_admin import create_topics

READY_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 15.0
SESSION_S: Final = 6.0
UNGROUPED: Final = {"committer.group_members_max": "1"}
NO_OVERRIDES: Final[Mapping[str, str]] = {}


class Gate:
    """Committer processes with topics of their own, one process for each topic partition."""

    def __init__(
        self, services: Sequence[ServiceProcess], kafka: KafkaSettings, store: SlowStore
    ) -> None:
        self.services = services
        self.kafka = kafka
        self.store = store

    def table(self, root: str) -> TableRecord:
        """Create an empty table."""
        return gate_writers.create_at(self.kafka, root)

    @property
    def service(self) -> ServiceProcess:
        """The first committer process, mostly the only one."""
        return self.services[0]

    @property
    def cpu_s(self) -> float:
        """CPU time of the committer processes so far."""
        return sum(host.cpu_s(service.child.pid) for service in self.services)


class CommitterLine:
    """The broker, the slow store, and two committers: one groups proposals, the other does not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with self._stack:
            self.store = self._stack.enter_context(SlowStore())
            broker = EmbeddedKafka(self.folder / "kafka")
            self._stack.enter_context(broker)
            kafka = KafkaSettings(
                bootstrap_servers=broker.bootstrap, session_timeout_ms=round(1000 * SESSION_S)
            )
            self.gate = self._gate("grouping", kafka, NO_OVERRIDES)
            self.ungrouped = self._gate("ungrouped", kafka, UNGROUPED)
            self._kafka = kafka
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def slow_root(self, name: str) -> str:
        """Return the root of a table on the slow store."""
        return f"s3://{BUCKET}/{name}"

    def local_root(self, name: str) -> str:
        """Return the root of a table on the local file system."""
        return (self.folder / "tables" / name).as_uri()

    @contextmanager
    def pair(self) -> Iterator[Gate]:
        """Yield two committers, with a topic partition each, for the time of the `with` block."""
        with self._running("pair", self._kafka, NO_OVERRIDES, 2) as gate:
            yield gate

    def _gate(self, name: str, kafka: KafkaSettings, overrides: Mapping[str, str]) -> Gate:
        return self._stack.enter_context(self._running(name, kafka, overrides, 1))

    @contextmanager
    def _running(
        self, name: str, kafka: KafkaSettings, overrides: Mapping[str, str], committers: int
    ) -> Iterator[Gate]:
        own = {"topic_prefix": f"{name}.", "partitions": committers}
        gate_kafka = kafka.model_copy(update=own)
        create_topics(gate_kafka, gate_kafka.topics.declared())
        settings = {
            "kafka.bootstrap_servers": gate_kafka.bootstrap_servers,
            "kafka.topic_prefix": gate_kafka.topic_prefix,
            "kafka.partitions": str(committers),
            "kafka.session_timeout_ms": str(gate_kafka.session_timeout_ms),
            "committer.roots": f'["s3://{BUCKET}","{(self.folder / "tables").as_uri()}"]',
            **{f"storage.{option}": value for option, value in self.store.ours.items()},
            **overrides,
        }
        with ExitStack() as running:
            services = []
            for number in range(committers):
                argv = service_argv("committer", None, settings)
                command = Command(f"{name}-{number}", argv)
                service = service_process(command, self.folder / "services")
                service.start()
                running.callback(service.child.stop, STOP_TIMEOUT_S)
                services.append(service)
            for service in services:
                service.wait_ready(READY_TIMEOUT_S)
            yield Gate(services, gate_kafka, self.store)
