"""Three brokers of which one is killed, hangs, is cut off, restarts or has a full disk, under load.

Each round has topics and a table of its own: writers append, create tables and compete for one
file, a fault strikes a leader, everything heals, and then log, topics, rows and the writers'
memories have to agree. The first test plays the quickest fault, the second one all of them.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from subprocess import CalledProcessError
from typing import Final

import orjson
import pytest

from tests.integration import run_audit
from tests.integration.broker_faults import DISK, FAULTS, NETWORK, Fault, killed
from tests.integration.conftest import Line, own_topics, services
from tests.integration.kafka_cluster import Cluster, Network, small_disks
from tests.integration.proposers import TIMEOUT_S, all_outcomes, create_table, read_topic
from tests.integration.test_blows import RIVALS, WRITERS, Front
from tests.integration.test_committer_processes import folder_of
from tests.integration.waiting import until
from tests.linearizability.run_record import Key
from tidegate_local.child_processes import ServiceProcess
from tidegate_runtime.kafka.client_protocols import Record, TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]

SEED: Final = 20_261
TIMES: Final = 3
"""How often the night plays each fault."""

SENT_AGAIN: Final = 30
OFFSETS: Final = "__consumer_offsets"
"""Kafka's topic whose leader coordinates the committers' group."""

_log = logging.getLogger(__name__)


@dataclass
class Round:
    """One round on a cluster that is well when it begins, and again when it ends."""

    cluster: Cluster
    line: Line
    dice: Random
    committers: list[ServiceProcess] = field(default_factory=list)

    def play(self, faults: Sequence[Fault], committers: int) -> str:
        """Let faults strike under load; fail unless all agrees; return what happened, in words."""
        names = [f"committer-{number}" for number in range(committers)]
        self.committers = [self.line.started("committer", name) for name in names]
        table = create_table(self.line.kafka, self.line.tables / "t")
        with ThreadPoolExecutor(RIVALS + 1) as pool:
            front = Front(self.line, table, pool)
            try:
                self._await_outcomes(front, "before any fault")
                struck = [self._strike(fault, front) for fault in faults]
            finally:
                front.enough.set()
            for proposer in front.proposers:
                proposer.join(TIMEOUT_S)
            for rival in front.contended:
                rival.result(TIMEOUT_S)
            front.founding.result(TIMEOUT_S)
            self._send_again()
            front.check()
        self._check_memories(front)
        outcomes = all_outcomes(front.proposers)
        slowest_s = max(proposer.slowest_s for proposer in front.proposers)
        return (
            f"{', '.join(struck)}: {len(outcomes)} appends, {front.baton.passes} replacements and "
            f"{front.baton.losses} refused; the slowest append took {slowest_s:.1f} s"
        )

    def _strike(self, fault: Fault, front: Front) -> str:
        """Let a fault strike the leader of some topic, and heal; writers go on after it."""
        topics = self.line.kafka.topics
        topic = self.dice.choice(
            (topics.proposals, topics.outcomes, topics.commits, topics.table_state, OFFSETS)
        )
        node = self.cluster.leader(topic)
        fault(self.cluster, node, self.dice)
        before = _digests(folder_of(front.table))
        self.cluster.heal()
        what = f"{fault.__name__} (broker {node.number}, leads {topic.rpartition('.')[2]})"
        self._await_outcomes(front, f"after {what}")
        after = _digests(folder_of(front.table))
        changed = [name for name, digest in before.items() if after.get(name) != digest]
        assert not changed, f"versions that are other bytes after {what}: {changed}"
        return what

    def _await_outcomes(self, front: Front, when: str) -> None:
        """Wait until every writer must have had an outcome of a proposal that it sent just now."""
        enough = front.heard() + 3 * (WRITERS + RIVALS)
        until(lambda: front.heard() >= enough, f"outcomes {when}")
        for committer in self.committers:
            assert committer.child.is_alive(), f"{when}: {committer.child.tail()}"

    def _send_again(self) -> None:
        """Send some proposals again, byte for byte: a second answer is that of the first time."""
        kafka = self.line.kafka
        at = TopicPartition(kafka.topics.proposals, 0)
        first = self._answers(0)
        sent = [record for record in read_topic(kafka, at.topic) if _key(record) in first]
        chosen = self.dice.sample(sent, min(SENT_AGAIN, len(sent)))
        wanted = {_key(record) for record in chosen}
        end = 1 + max(record.offset for record in read_topic(kafka, kafka.topics.outcomes))
        producer = KafkaBus(kafka, "again").producer()
        for record in chosen:
            producer.publish(at, record.key, record.value, record.headers)
        producer.flush(60.0)
        until(lambda: wanted <= self._answers(end).keys(), "a second outcome of each")
        second = self._answers(end)
        other = {key: (first[key], second[key]) for key in wanted if first[key] != second[key]}
        assert not other, f"another outcome for the same bytes: {other}"

    def _answers(self, start: int) -> dict[Key, tuple[str, int | None]]:
        """Return the promises among the outcomes from an offset on, the first of each proposal."""
        kafka = self.line.kafka
        found: dict[Key, tuple[str, int | None]] = {}
        for record in read_topic(kafka, kafka.topics.outcomes, start=start):
            body = orjson.loads(record.value or b"{}")
            if body.get("status") in ("committed", "rejected"):
                key = str(body["proposal_id"]), str(body["proposal_sha256"])
                found.setdefault(key, (body["status"], body.get("version")))
        return found

    def _check_memories(self, front: Front) -> None:
        """Fail unless what writers received as committed is in the version that they received."""
        versions = run_audit.accepted(run_audit.entries(folder_of(front.table)))
        for outcome in all_outcomes(front.proposers):
            assert versions.get(str(outcome.proposal_id)) == outcome.version, outcome


def _key(record: Record) -> Key:
    assert record.value is not None, "proposals are never deleted by a tombstone"
    identity = orjson.loads(record.value)["proposal_id"]
    return str(identity), hashlib.sha256(record.value).hexdigest()


def _digests(table: Path) -> dict[str, str]:
    """Return the SHA-256 of every version's file."""
    files = (table / "_delta_log").glob("0*.json")
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@contextmanager
def running(folder: Path, network: Network | None = None) -> Iterator[Cluster]:
    """Yield a cluster that runs, and end its brokers."""
    cluster = Cluster(folder, network)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def test_a_leader_is_killed_and_nothing_is_lost_doubled_or_contradicted(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with (
        running(tmp_path / "kafka") as cluster,
        services(own_topics(cluster.bootstrap), tmp_path / "line") as line,
    ):
        result = Round(cluster, line, Random(SEED)).play([killed], committers=1)
    _log.info(result)
    record_property("round", result)


@dataclass(frozen=True)
class Machine:
    """A cluster for the night, and why the machine does not allow what some faults need."""

    cluster: Cluster
    lacks: dict[str, str]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Yield brokers in namespaces and on small disks of their own, as far as the machine allows."""
    folder = tmp_path_factory.mktemp("kafka")
    lacks: dict[str, str] = {}
    with ExitStack() as stack:
        network = Network()
        try:
            network.create()
            stack.callback(network.remove)
        except (OSError, CalledProcessError) as error:
            lacks[NETWORK] = _reason("network namespaces", error)
        cluster = Cluster(folder, None if NETWORK in lacks else network)
        try:
            stack.enter_context(small_disks([node.disk for node in cluster.nodes]))
        except (OSError, CalledProcessError) as error:
            lacks[DISK] = _reason("a tmpfs to mount", error)
        stack.callback(cluster.stop)
        cluster.start()
        yield Machine(cluster, lacks)


def _reason(what: str, error: OSError | CalledProcessError) -> str:
    detail = error.stderr.decode().strip() if isinstance(error, CalledProcessError) else error
    return f"this machine does not allow {what}: {detail}"


def _night() -> list[tuple[int, Fault]]:
    """Return the rounds of the night: every fault TIMES times, in the order of the seed."""
    faults = [*FAULTS] * TIMES
    return list(enumerate(Random(SEED).sample(faults, len(faults)), start=1))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("number", "fault"), _night(), ids=lambda item: getattr(item, "__name__", str(item))
)
def test_whatever_strikes_a_broker_nothing_is_lost_doubled_or_contradicted(
    machine: Machine,
    number: int,
    fault: Fault,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    if (need := FAULTS[fault]) in machine.lacks:
        pytest.skip(machine.lacks[need])
    machine.cluster.heal()
    kafka = own_topics(machine.cluster.bootstrap)
    with services(kafka, tmp_path) as line:
        dice = Random(SEED + number)
        result = Round(machine.cluster, line, dice).play([fault], committers=2)
    machine.cluster.delete_topics(kafka.topic_prefix)
    _log.info("round %d: %s", number, result)
    record_property("round", result)
