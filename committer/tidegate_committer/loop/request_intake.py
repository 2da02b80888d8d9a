"""The intake of operators' requests: a topic partition beside that of the proposals.

A request is never held back: it is routed as soon as it is read, before or after any proposal. A
record that kills the process is not looked for here: who may write this topic may drop every table,
and its records are small.
"""

from dataclasses import dataclass, replace

from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_reader import DeadLetter, read_record
from tidegate_committer.loop.outcome_publisher import OutcomePublisher
from tidegate_committer.policy import Policy
from tidegate_messages.topics import REQUEST_BYTES_MAX
from tidegate_runtime.kafka.client_protocols import Offset, Record, TopicPartition

_LIMITS = Policy(record_bytes_max=REQUEST_BYTES_MAX)


@dataclass
class RequestIntake:
    """The operators' requests of one topic partition.

    Offsets: `read_to` is the next to read, `committed` the last one committed to the group.
    """

    at: TopicPartition
    publisher: OutcomePublisher
    read_to: int = 0
    position: Offset | None = None
    committed: Offset | None = None

    def take(self, record: Record) -> Candidate | DeadLetter:
        """Read a request, and count it as one without an outcome."""
        self.position = Offset(record.offset + 1)
        self.publisher.requests[record.offset] = None
        sent_ms = record.timestamp_ms if record.timestamp_ms > 0 else None
        read = read_record(record.value, record.offset, _LIMITS, record.headers, sent_ms)
        return read if isinstance(read, DeadLetter) else replace(read, is_admin=True)

    @property
    def unsettled(self) -> int:
        """How many requests have no outcome yet."""
        return len(self.publisher.requests)

    @property
    def due(self) -> Offset | None:
        """The offset to commit, once outcomes are durable; None if it has not advanced."""
        first = next(iter(self.publisher.requests), None)
        safe = self.position if first is None else Offset(first)
        return safe if safe != self.committed else None
