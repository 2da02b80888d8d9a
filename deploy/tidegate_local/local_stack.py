"""Runs Kafka, its topics and every service on one machine, as processes with one data folder.

They are tethered to the process that starts them (the demo), or detached (`tidegate up`). If
detached, a file records what runs, for `tidegate down` and for people.
"""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from tidegate_delta.errors import Misconfigured
from tidegate_local.child_processes import (
    Child,
    Command,
    ServiceProcess,
    end_process,
    service_argv,
    service_process,
    start_time_of,
)
from tidegate_local.embedded_kafka import EmbeddedKafka, make_folder
from tidegate_local.kafka_jars import ShowProgress
from tidegate_runtime.kafka.settings import KafkaSettings
from tidegate_runtime.kafka.topic_admin import create_topics

SERVICES: Final = {
    "committer": "committer",
    "checkpointer": "checkpointer",
    "cdc_publisher": "cdc-publisher",
    "producers.maintenance": "maintain",
}
"""The module of each service, and the name of its command."""

SESSION_TIMEOUT_MS: Final = 2_000
READY_TIMEOUT_S: Final = 90.0
STOP_TIMEOUT_S: Final = 15.0
_STATE: Final = "state.json"
_BROKER: Final = "kafka"


@dataclass(frozen=True)
class StackSettings:
    """What to start. `overrides` are given to every service; each uses those of its own sections.

    `kafka` names a running cluster; without it a broker is started on `port`, or on a free port if
    that is 0, and `embedded` are the other settings of its topics and clients.
    """

    folder: Path
    roots: Sequence[str]
    port: int = 0
    kafka: KafkaSettings | None = None
    embedded: KafkaSettings = field(default_factory=KafkaSettings)
    config: Path | None = None
    detached: bool = False
    overrides: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Started:
    """A process that outlives the one that started it. `address` is that of its probes.

    `argv` starts a service again; a broker is started from its folder.
    """

    name: str
    pid: int
    birth: str
    log: str
    address: str | None = None
    argv: tuple[str, ...] = ()


@dataclass(frozen=True)
class StackState:
    """The processes of a detached stack, in the order in which they were started."""

    bootstrap_servers: str
    topic_prefix: str
    roots: tuple[str, ...]
    processes: tuple[Started, ...]

    def running(self) -> tuple[Started, ...]:
        """Return the processes that still run."""
        return tuple(
            process for process in self.processes if start_time_of(process.pid) == process.birth
        )


class LocalStack:
    """Kafka and all services, started and stopped together."""

    def __init__(
        self, settings: StackSettings, show_progress: ShowProgress = lambda _: None
    ) -> None:
        self._settings = settings
        self._tell = show_progress
        self._broker: EmbeddedKafka | None = None
        self.services: dict[str, ServiceProcess] = {}

    @property
    def kafka(self) -> KafkaSettings:
        """The settings by which clients reach the topics."""
        if self._settings.kafka is not None:
            return self._settings.kafka
        assert self._broker is not None, "started"
        settings, update = self._settings.embedded, {"bootstrap_servers": self._broker.bootstrap}
        if "session_timeout_ms" in settings.model_fields_set:
            return settings.model_copy(update=update)
        return settings.model_copy(update={**update, "session_timeout_ms": SESSION_TIMEOUT_MS})

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything and wait until it is ready; on a failure stop what was started.

        Raises: Misconfigured, Unavailable.
        """
        make_folder(self._settings.folder)
        with ExitStack() as on_failure:
            on_failure.callback(self.stop)
            self._start()
            on_failure.pop_all()

    def kill_and_start(self, module: str) -> None:
        """Kill a service with SIGKILL and restart it; `down` finds the new process.

        Raises: Unavailable.
        """
        service = self.services[module]
        service.child.kill()
        service.start()
        self._remember()
        service.wait_ready()
        self._remember()

    def stop(self) -> None:
        """Stop the services, then the broker; data, logs and tables stay."""
        for service in reversed(self.services.values()):
            if service.child.is_alive():
                self._tell(f"stopping {service.child.name}")
                service.child.stop(STOP_TIMEOUT_S)
        if self._broker is not None:
            self._tell("stopping Kafka")
            self._broker.stop()
        (self._settings.folder / _STATE).unlink(missing_ok=True)

    def _start(self) -> None:
        settings = self._settings
        if settings.kafka is None:
            self._broker = EmbeddedKafka(
                settings.folder / "kafka", settings.port, detached=settings.detached
            )
            self._broker.start(self._tell)
            self._remember()
        created = create_topics(self.kafka, self.kafka.topics.declared())
        self._tell(f"topics: {len(created)} created, prefix {self.kafka.topic_prefix!r}")
        for module in SERVICES:
            service = self._service(module)
            self.services[module] = service
            self._tell(f"starting {service.child.name}")
            service.start()
            self._remember()
        for service in self.services.values():
            service.wait_ready(READY_TIMEOUT_S)
            self._tell(f"{service.child.name} is ready at {service.address()}")
        self._remember()

    def _service(self, module: str) -> ServiceProcess:
        kafka = self.kafka
        overrides = {
            "kafka.bootstrap_servers": kafka.bootstrap_servers,
            "kafka.topic_prefix": kafka.topic_prefix,
            "kafka.session_timeout_ms": str(kafka.session_timeout_ms),
            "kafka.partitions": str(kafka.partitions),
            "committer.roots": json.dumps(list(self._settings.roots)),
            **self._settings.overrides,
        }
        command = Command(
            SERVICES[module],
            service_argv(module, self._settings.config, overrides),
            tethered=not self._settings.detached,
        )
        return service_process(command, self._settings.folder / "services")

    def _remember(self) -> None:
        """Record the running processes for `down`, even if this process is killed later."""
        if not self._settings.detached:
            return
        processes = [_started(self._broker.child)] if self._broker else []
        processes += [
            _started(service.child, service.address()) for service in self.services.values()
        ]
        state = StackState(
            self.kafka.bootstrap_servers,
            self.kafka.topic_prefix,
            tuple(self._settings.roots),
            tuple(processes),
        )
        _write_state(self._settings.folder, state)


def state_folder() -> Path:
    """Return the default folder for the data of `up`."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "tidegate"


def read_state(folder: Path) -> StackState | None:
    """Return the state of the detached stack in this folder, or None if there is none.

    Raises: Misconfigured, for a file that can't be read.
    """
    file = folder / _STATE
    if not file.exists():
        return None
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
        processes = tuple(
            Started(**{**process, "argv": tuple(process.get("argv", ()))})
            for process in body.pop("processes")
        )
        return StackState(**{**body, "roots": tuple(body["roots"])}, processes=processes)
    except (ValueError, KeyError, TypeError) as error:
        raise Misconfigured(f"{file} cannot be read ({error}); remove it") from error


def start_ended(folder: Path, state: StackState, show_progress: ShowProgress) -> StackState:
    """Start what has ended of a detached stack, as it was started; return the new state.

    What runs is kept. Raises: Misconfigured; Unavailable.
    """
    processes, running, started = list(state.processes), state.running(), list[ServiceProcess]()
    for place, process in enumerate(state.processes):
        if process in running:
            continue
        show_progress(f"{process.name} has ended, its log is {process.log}: starting it again")
        if process.name == _BROKER:
            port = int(state.bootstrap_servers.rpartition(":")[2])
            broker = EmbeddedKafka(folder / "kafka", port, detached=True)
            broker.start(show_progress)
            processes[place] = _started(broker.child)
        else:
            command = Command(process.name, process.argv, tethered=False)
            service = service_process(command, folder / "services")
            service.start()
            started.append(service)
            processes[place] = _started(service.child)
        _write_state(folder, replace(state, processes=tuple(processes)))
    addresses = {}
    for service in started:
        service.wait_ready(READY_TIMEOUT_S)
        addresses[service.child.name] = service.address()
    ready = (replace(one, address=addresses.get(one.name, one.address)) for one in processes)
    new_state = replace(state, processes=tuple(ready))
    _write_state(folder, new_state)
    return new_state


def _started(child: Child, address: str | None = None) -> Started:
    birth = start_time_of(child.pid) or ""
    return Started(child.name, child.pid, birth, str(child.log), address, child.argv)


def _write_state(folder: Path, state: StackState) -> None:
    part = folder / f"{_STATE}.part"
    part.write_text(json.dumps(asdict(state), indent=2), encoding="utf-8")
    part.replace(folder / _STATE)


def stop_detached(folder: Path, show_progress: ShowProgress) -> list[str]:
    """End a detached stack's processes, newest first; return the names of those that ran."""
    state = read_state(folder)
    if state is None:
        return []
    ended = []
    for process in reversed(state.processes):
        if start_time_of(process.pid) == process.birth:
            show_progress(f"stopping {process.name}")
            end_process(process.pid, process.birth, STOP_TIMEOUT_S)
            ended.append(process.name)
    (folder / _STATE).unlink(missing_ok=True)
    return ended
