"""The embedded broker: one node of Apache Kafka as a child process, with its data in a folder.

It is a real broker for laptops and tests: it listens on loopback only, and has no replicas and
small buffers.
"""

import base64
import secrets
import shutil
import socket
import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from tidegate_delta.errors import Misconfigured, Unavailable
from tidegate_local.child_processes import Child, Command
from tidegate_local.kafka_jars import ShowProgress, ensure_jars, java_command, pyspark_jars
from tidegate_runtime.kafka.settings import KafkaSettings
from tidegate_runtime.kafka.topic_admin import missing_topics

HOST: Final = "127.0.0.1"
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 15.0
STARTS_MAX: Final = 3
SPACE_MIN_BYTES: Final = 512 * 1024 * 1024
_JVM: Final = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LOG4J: Final = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""


@dataclass(frozen=True)
class Ports:
    """The ports for clients and for the controller."""

    clients: int
    controller: int


def make_folder(folder: Path) -> None:
    """Create a folder unless it exists. Raises: Misconfigured."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise Misconfigured(
            f"the folder {folder} cannot be made ({reason}); choose another"
        ) from error


class EmbeddedKafka:
    """A broker whose data stays in its folder when it stops; port 0 takes a free port.

    A detached broker outlives the process that started it; a tethered one ends with the thread that
    started it.
    """

    def __init__(self, folder: Path, port: int = 0, *, detached: bool = False) -> None:
        self._folder = folder.absolute()
        self._port = port
        self._detached = detached
        self._child: Child | None = None
        self._ports = Ports(port, 0)

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return f"{HOST}:{self._ports.clients}"

    @property
    def child(self) -> Child:
        """The broker's process."""
        assert self._child is not None, "started"
        return self._child

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, show_progress: ShowProgress = lambda _: None) -> None:
        """Start the broker, and wait until it answers.

        Raises: Misconfigured, for no Java, no disk space or a taken port; Unavailable, with the end
            of its log, if it does not answer in time.
        """
        make_folder(self._folder)
        java, jars = java_command(), ensure_jars(show_progress)
        _check_space(self._folder)
        if self._port and not _is_free(self._port):
            raise Misconfigured(
                f"port {self._port} on {HOST} is taken; stop what listens there (an earlier "
                "broker: `tidegate down`) or choose another port, 0 for any free one"
            )
        for attempt in range(1, STARTS_MAX + 1):
            self._ports = Ports(self._port or _free_port(), _free_port())
            show_progress(f"starting Kafka on {self.bootstrap}")
            with ExitStack() as on_failure:
                on_failure.callback(self.stop)
                self._launch(java, jars)
                try:
                    self._wait(START_TIMEOUT_S)
                except Unavailable:
                    # Another process may take the free port between the choice and the start.
                    if attempt == STARTS_MAX or "Address already in use" not in self.child.tail(
                        200
                    ):
                        raise
                else:
                    on_failure.pop_all()
                    return

    def stop(self) -> None:
        """Stop the broker; its data stays."""
        if self._child is not None:
            self._child.stop(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """Kill the broker with SIGKILL, as a crash of the machine would."""
        if self._child is not None:
            self._child.kill()

    def _launch(self, java: str, jars: Path) -> None:
        classpath, options = self._logging(jars)
        properties = self._folder / "server.properties"
        properties.write_text(
            "".join(f"{name}={value}\n" for name, value in self._properties().items()),
            encoding="utf-8",
        )
        jvm = [java, *_JVM, *options, "-cp", classpath]
        log = self._folder / "kafka.log"
        if not (self._folder / "data" / "meta.properties").exists():
            self._format(jvm, properties)
        command = Command(
            "kafka", [*jvm, "kafka.Kafka", str(properties)], tethered=not self._detached
        )
        self._child = Child(command, log)
        self._child.start()

    def _format(self, jvm: list[str], properties: Path) -> None:
        shutil.rmtree(self._folder / "data", ignore_errors=True)
        process = subprocess.run(
            [*jvm, "kafka.tools.StorageTool", "format", "-t", _new_id(), "-c", str(properties)],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if process.returncode != 0:
            raise Misconfigured(
                f"Kafka cannot use {self._folder}: "
                f"{(process.stderr or process.stdout).strip()[-500:]}"
            )

    def _logging(self, jars: Path) -> tuple[str, list[str]]:
        """Return class path and logging options; Kafka lacks a log binding, and PySpark has one."""
        spark = pyspark_jars()
        binding = sorted(spark.glob("log4j-slf4j2-impl-*.jar")) if spark else []
        if spark is None or not binding:
            return str(jars / "*"), []
        names = ("slf4j-api-*.jar", "log4j-api-*.jar", "log4j-core-*.jar")
        above = [*binding, *(jar for name in names for jar in sorted(spark.glob(name)))]
        config = self._folder / "log4j2.properties"
        config.write_text(_LOG4J, encoding="utf-8")
        options = [f"-Dlog4j2.configurationFile={config}"]
        return ":".join(str(jar) for jar in (*above, jars / "*")), options

    def _properties(self) -> dict[str, str | int]:
        controller = f"{HOST}:{self._ports.controller}"
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self._folder / "data"),
            "auto.create.topics.enable": "false",
            "num.network.threads": 2,
            "num.io.threads": 4,
            "background.threads": 2,
            "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
            "log.segment.bytes": 64 * 1024 * 1024,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 2,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 2,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "share.coordinator.state.topic.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            # The default refuses session timeouts under six seconds.
            "group.min.session.timeout.ms": 1000,
        }

    def _wait(self, timeout_s: float) -> None:
        until_s = time.monotonic() + timeout_s
        while time.monotonic() < until_s:
            if not self.child.is_alive():
                raise Unavailable(
                    f"Kafka ended with exit status {self.child.exit_status()}; see "
                    f"{self.child.log}, which ends:\n{self.child.tail()}"
                )
            if _answers(self.bootstrap):
                return
            time.sleep(0.1)
        raise Unavailable(
            f"Kafka did not answer on {self.bootstrap} within {timeout_s:g} s; see "
            f"{self.child.log}, which ends:\n{self.child.tail()}"
        )


def _answers(bootstrap: str) -> bool:
    host, _, port = bootstrap.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    try:
        missing_topics(KafkaSettings(bootstrap_servers=bootstrap), ())
    except Unavailable:
        return False
    return True


def _new_id() -> str:
    """Return a new cluster id; one that starts with `-` would be parsed as an option."""
    while (text := base64.urlsafe_b64encode(secrets.token_bytes(16)).decode()[:22])[0] == "-":
        continue
    return text


def _check_space(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < SPACE_MIN_BYTES:
        raise Misconfigured(
            f"{folder} has {free // 2**20} MiB free, the broker needs "
            f"{SPACE_MIN_BYTES // 2**20} MiB; make room or choose another folder"
        )


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((HOST, port))
        except OSError:
            return False
    return True
