"""Three real brokers in KRaft mode as processes, whose machines, networks and disks may fail.

Each is broker and controller. With a `Network` each has a network namespace of its own, with
`on_small_disks` a file system of its own.
"""

import errno
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not declared so
    AdminClient,
    ClusterMetadata,
)

from tests.integration.conftest import free_port
from tests.integration.waiting import until
from tidegate_local.embedded_kafka import HOST, EmbeddedKafka, Ports
from tidegate_local.kafka_jars import ensure_jars, java_command

SIZE: Final = 3
SESSION_S: Final = 4.0
"""After so long without a heartbeat the controller gives a broker up (`broker.session.timeout.ms`);
Kafka's own default is nine seconds.
"""

DISK_MIB: Final = 128
_ANSWER_S: Final = 5.0
_PAUSE_S: Final = 0.2
_CLIENTS: Final = 9092
_CONTROLLERS: Final = 9093
_MIB: Final = bytes(2**20)
_NOBODY: Final = "02:00:00:00:00:01"
"""A hardware address that no broker has: what is sent there is lost."""


class Network:
    """A namespace for each broker, on a bridge that this process reaches. It needs root's rights.

    Raises: OSError, CalledProcessError, where the machine does not allow it.
    """

    def __init__(self) -> None:
        self._name = f"tg{os.getpid()}"
        self._subnet = f"10.213.{os.getpid() % 256}"
        self._undo = ExitStack()

    def address(self, number: int) -> str:
        """Return the address of a broker."""
        return f"{self._subnet}.{number}"

    def command(self, number: int) -> list[str]:
        """Return what a command line begins with that runs in a broker's namespace."""
        return ["nsenter", f"--net=/run/netns/{self._namespace(number)}"]

    def create(self) -> None:
        """Create the bridge and the namespaces; nothing is left if that fails."""
        bridge = f"{self._name}b"
        with ExitStack() as undo:
            _run("ip", "link", "add", bridge, "type", "bridge")
            undo.callback(_run, "ip", "link", "del", bridge)
            _run("ip", "address", "add", f"{self._subnet}.254/24", "dev", bridge)
            _run("ip", "link", "set", bridge, "up")
            for number in range(1, SIZE + 1):
                space, cable = self._namespace(number), self._cable(number)
                _run("ip", "netns", "add", space)
                undo.callback(_run, "ip", "netns", "del", space)
                peer = ["peer", "name", "eth0", "netns", space]
                _run("ip", "link", "add", cable, "type", "veth", *peer)
                undo.callback(_run, "ip", "link", "del", cable)
                _run("ip", "link", "set", cable, "master", bridge, "up")
                address = f"{self.address(number)}/24"
                _run("ip", "-n", space, "address", "add", address, "dev", "eth0")
                _run("ip", "-n", space, "link", "set", "lo", "up")
                _run("ip", "-n", space, "link", "set", "eth0", "up")
                _run(*self.command(number), "true")
            self._undo = undo.pop_all()

    def remove(self) -> None:
        """Remove links, namespaces and the bridge."""
        self._undo.close()

    def unplug(self, number: int) -> None:
        """Cut a broker off from everybody."""
        _run("ip", "link", "set", self._cable(number), "down")

    def cut(self, one: int, other: int) -> None:
        """Lose what two brokers send each other, unnoticed; both still reach everybody else."""
        for here, there in ((one, other), (other, one)):
            to = [self.address(there), "lladdr", _NOBODY, "dev", "eth0", "nud", "permanent"]
            _run("ip", "-n", self._namespace(here), "neighbour", "replace", *to)

    def restore(self) -> None:
        """Let everybody reach everybody."""
        for number in range(1, SIZE + 1):
            _run("ip", "link", "set", self._cable(number), "up")
            lost = ["dev", "eth0", "nud", "permanent"]
            _run("ip", "-n", self._namespace(number), "neighbour", "flush", *lost)

    def _namespace(self, number: int) -> str:
        return f"{self._name}n{number}"

    def _cable(self, number: int) -> str:
        return f"{self._name}v{number}"


@contextmanager
def small_disks(folders: Sequence[Path]) -> Iterator[None]:
    """Mount a file system of DISK_MIB at each folder while the block runs. It needs root's rights.

    Raises: OSError, CalledProcessError, where the machine does not allow it.
    """
    with ExitStack() as undo:
        for folder in folders:
            folder.mkdir(parents=True)
            _run("mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(folder))
            undo.callback(_run, "umount", "-l", str(folder))
        yield


class Node(EmbeddedKafka):
    """One broker of a cluster. `peers` is filled with all nodes, itself included, before a start.

    `launch` does not wait, because a broker answers only when a majority runs.
    """

    def __init__(self, folder: Path, number: int, network: Network | None) -> None:
        super().__init__(folder)
        self.number = number
        self.peers: list[Node] = []
        self._network = network
        self._host = network.address(number) if network else HOST
        self._ports = Ports(*((_CLIENTS, _CONTROLLERS) if network else (free_port(), free_port())))
        self._filler = self.disk / "filler"

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return f"{self._host}:{self._ports.clients}"

    @property
    def disk(self) -> Path:
        """The folder of its data, which may be a file system of its own."""
        return self._folder / "data"

    @property
    def voter(self) -> str:
        """Its entry among the voters for the controller."""
        return f"{self.number}@{self._host}:{self._ports.controller}"

    def launch(self) -> None:
        """Start the process, or start it again with its data."""
        self._folder.mkdir(parents=True, exist_ok=True)
        java = java_command()
        if self._network is not None:
            script = self._folder / "java"
            begin = " ".join([*self._network.command(self.number), java])
            script.write_text(f'#!/bin/sh\nexec {begin} "$@"\n', encoding="utf-8")
            script.chmod(0o755)
            java = str(script)
        self._launch(java, ensure_jars(lambda _: None))

    def suspend(self) -> None:
        """Suspend the process, as a machine that hangs does."""
        self.child.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a suspended process go on."""
        self.child.signal(signal.SIGCONT)

    def fill_disk(self) -> None:
        """Leave no byte on its disk, which has to be a small one."""
        with self._filler.open("ab", buffering=0) as filler:
            piece = _MIB
            while piece:
                try:
                    filler.write(piece)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    piece = piece[: len(piece) // 2]

    def empty_disk(self) -> None:
        """Take back what `fill_disk` wrote."""
        self._filler.unlink(missing_ok=True)

    def _format(self, jvm: list[str], properties: Path) -> None:
        """Format the first broker's folder, and copy it for the others: one JVM instead of three.

        They are copied before it runs, because from then on the folder holds its votes.
        """
        super()._format(jvm, properties)
        for peer in self.peers:
            if peer is not self:
                peer.copy_format(self.disk)

    def copy_format(self, source: Path) -> None:
        """Take over another broker's empty folder under this one's number."""
        shutil.copytree(source, self.disk, dirs_exist_ok=True)
        meta = self.disk / "meta.properties"
        lines = meta.read_text(encoding="utf-8").splitlines()
        shared = [line for line in lines if not line.startswith(("node.id", "directory.id"))]
        meta.write_text("\n".join([*shared, f"node.id={self.number}", ""]), encoding="utf-8")

    def _logging(self, jars: Path) -> tuple[str, list[str]]:
        classpath, options = super()._logging(jars)
        small = ("-Xmx224m", f"-XX:ErrorFile={self._folder}/crash.log")
        return classpath, [*options, *small]

    def _properties(self) -> dict[str, str | int]:
        plain = super()._properties()
        controller = f"{self._host}:{self._ports.controller}"
        return {
            **plain,
            "node.id": self.number,
            "controller.quorum.voters": ",".join(node.voter for node in self.peers),
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "broker.heartbeat.interval.ms": 500,
            "broker.session.timeout.ms": int(SESSION_S * 1000),
            "replica.lag.time.max.ms": 5_000,
            "default.replication.factor": SIZE,
            "min.insync.replicas": 2,
            "unclean.leader.election.enable": "false",
            "offsets.topic.replication.factor": SIZE,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": SIZE,
            "transaction.state.log.min.isr": 2,
        }


class Cluster:
    """Three brokers that a test may kill, suspend, cut off and restart."""

    def __init__(self, folder: Path, network: Network | None = None) -> None:
        self.network = network
        self.nodes = [Node(folder / f"broker-{n}", n, network) for n in range(1, SIZE + 1)]
        for node in self.nodes:
            node.peers = self.nodes
        self.bootstrap = ",".join(node.bootstrap for node in self.nodes)
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def start(self) -> None:
        """Start all brokers and wait until each is known to the others."""
        for node in self.nodes:
            node.launch()
        self.wait_in_sync()

    def stop(self) -> None:
        """End all brokers at once; their data is of no use any more."""
        for node in self.nodes:
            node.kill()

    def leader(self, topic: str) -> Node:
        """Return the broker that leads partition 0 of a topic."""
        found: list[int] = []

        def is_known() -> bool:
            metadata = self._metadata(topic)
            if metadata is not None:
                found[:] = [item.leader for item in metadata.topics[topic].partitions.values()]
            return bool(found) and found[0] > 0

        until(is_known, f"a leader of {topic}")
        return self.nodes[found[0] - 1]

    def others(self, node: Node) -> list[Node]:
        """Return all brokers but one."""
        return [other for other in self.nodes if other is not node]

    def heal(self) -> None:
        """Undo every fault, start what is dead, and wait until all copies are in sync."""
        if self.network is not None:
            self.network.restore()
        for node in self.nodes:
            node.empty_disk()
            node.resume()
            if not node.child.is_alive():
                node.launch()
        self.wait_in_sync()

    def wait_in_sync(self) -> None:
        """Wait until three brokers answer, and every partition has all of its copies in sync."""
        until(self._is_in_sync, "three brokers with all copies in sync")

    def delete_topics(self, prefix: str) -> None:
        """Delete the topics of a round."""
        metadata = self._metadata()
        names = [name for name in metadata.topics if name.startswith(prefix)] if metadata else []
        for done in self._admin.delete_topics(names).values():
            done.result(2 * _ANSWER_S)

    def _is_in_sync(self) -> bool:
        dead = [node for node in self.nodes if not node.child.is_alive()]
        assert not dead, f"broker {dead[0].number} ended:\n{dead[0].child.tail()}"
        metadata = self._metadata()
        if metadata is not None and len(metadata.brokers) == SIZE:
            partitions = [
                p for topic in metadata.topics.values() for p in topic.partitions.values()
            ]
            if all(p.leader > 0 and set(p.isrs) == set(p.replicas) for p in partitions):
                return True
        time.sleep(_PAUSE_S)
        return False

    def _metadata(self, topic: str | None = None) -> ClusterMetadata | None:
        """Return what some broker knows; None while none answers."""
        try:
            if topic is None:
                return self._admin.list_topics(timeout=_ANSWER_S)
            return self._admin.list_topics(topic, timeout=_ANSWER_S)
        except KafkaException:
            return None


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)
