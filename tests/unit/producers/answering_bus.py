"""An in-memory bus on which a test's function answers proposals."""

from collections.abc import Callable, Iterable
from uuid import UUID

from tests.fakes.memory_bus import MemoryBus
from tests.fakes.memory_clients import MemoryProducer
from tidegate_delta.log.commit import sha256
from tidegate_messages.codec import decode, encode, headers
from tidegate_messages.outcome import Outcome, Rejection
from tidegate_messages.proposal import Proposal
from tidegate_messages.published_records import TableRecord
from tidegate_messages.topics import Topics
from tidegate_runtime.kafka.client_protocols import Headers, TopicPartition

TABLE = UUID("0192aaaa-0000-7000-8000-000000000001")
ROOT = "memory://t"

Answers = Callable[[Proposal, str], Iterable[Outcome]]
"""Returns the outcomes of a proposal with this SHA-256, each time it arrives."""


class ManualClock:
    """A clock that advances only when read or slept on."""

    def __init__(self, step_s: float = 0.1) -> None:
        self.at_s = 1_000.0
        self.step_s = step_s

    def now_ms(self) -> int:
        return round(self.at_s * 1000)

    def boot_s(self) -> float:
        self.at_s += self.step_s
        return self.at_s

    def sleep(self, seconds: float) -> None:
        self.at_s += seconds


class Gate(MemoryBus):
    """A bus that answers proposals at once, on the topic partition where they arrived."""

    def __init__(self, topics: Topics, answers: Answers) -> None:
        super().__init__(topics.declared())
        self.topics = topics
        self.answers = answers
        self.sent: list[tuple[TopicPartition, bytes]] = []

    def producer(self) -> MemoryProducer:
        return _Answered(self)

    def register(
        self, partition: int = 0, root: str = ROOT, name: str = "t", reason: str | None = None
    ) -> TableRecord:
        """Publish a table's registration."""
        record = TableRecord(
            table=TABLE,
            table_root=root,
            name=name,
            proposals_topic=self.topics.proposals,
            topic_partition=partition,
            reason=reason,
        )
        topic_partition = TopicPartition(self.topics.table_state, partition)
        self.append(topic_partition, str(TABLE).encode(), encode(record), headers(record))
        return record

    def publish_outcome(self, partition: int, outcome: Outcome) -> None:
        """Publish an outcome."""
        topic_partition = TopicPartition(self.topics.outcomes, partition)
        self.append(
            topic_partition, str(outcome.proposal_id).encode(), encode(outcome), headers(outcome)
        )


class _Answered(MemoryProducer):
    def __init__(self, gate: Gate) -> None:
        super().__init__(gate)
        self._gate = gate

    def publish(
        self,
        topic_partition: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
    ) -> None:
        super().publish(topic_partition, key, value, headers)
        if topic_partition.topic == self._gate.topics.proposals:
            assert value is not None
            self._gate.sent.append((topic_partition, value))
            proposal = decode(Proposal, value)
            for outcome in self._gate.answers(proposal, sha256(value)):
                self._gate.publish_outcome(topic_partition.partition, outcome)


def committed(proposal: Proposal, digest: str, version: int = 1) -> Outcome:
    """Return a `committed` outcome."""
    return Outcome(
        proposal_id=proposal.proposal_id,
        proposal_sha256=digest,
        table=proposal.table,
        status="committed",
        version=version,
    )


def rejected(proposal: Proposal, digest: str, rejection: Rejection) -> Outcome:
    """Return a `rejected` outcome."""
    outcome = committed(proposal, digest).model_copy(update={"version": None})
    return outcome.model_copy(update={"status": "rejected", "rejection": rejection})
