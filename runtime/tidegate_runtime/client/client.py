"""`Client`: send a proposal, wait for its outcome, cancel one. No Spark or consumer group needed.

It notes the end offset of `outcomes` on the table's topic partition, produces the proposal, and
reads from that offset until a record answers its id. If none comes, it sends the same bytes again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self
from uuid import UUID

from tidegate_delta.errors import (
    InvalidRequest,
    Misconfigured,
    OutcomeUnknown,
    TidegateError,
    Unavailable,
)
from tidegate_delta.log.commit import sha256
from tidegate_messages.codec import PRODUCER, PRODUCER_BYTES_MAX, decode, encode, headers
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import OPERATOR_REQUESTS, Proposal
from tidegate_messages.published_records import TableRecord
from tidegate_messages.record_headers import TRACEPARENT
from tidegate_messages.refusals import REFUSALS
from tidegate_messages.table_home import Home, home_of
from tidegate_messages.topics import Topics
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.clock import Clock, SystemClock, new_id
from tidegate_runtime.kafka.client_protocols import (
    ANSWER_S,
    Bus,
    Headers,
    Offset,
    Producer,
    Reader,
    Record,
    TopicPartition,
)
from tidegate_runtime.observability.tracing import client_span
from tidegate_runtime.table_registry import RegistryReader, find_table, read_registry

TIMEOUT_S: Final = 120.0
"""How long a writer waits for an outcome by default."""

PATIENCE_S: Final = 10.0
"""How long to wait for an outcome before the same bytes are sent again."""

FRESH_S: Final = 10.0
"""How long the next proposal may read on from where `outcomes` was last read, without asking the
broker for the topic partition's end.
"""

REGISTRATION_S: Final = 10.0
"""How long a table's registration may come after its version 0, which any reader of the log sees:
the committer that makes a table registers it once it is there.
"""

_PAUSE_S: Final = 1.0
_PAUSE_MAX_S: Final = 8.0

APP_TXN_SEEN: Final = "app_txn_seen"
"""The rule that rejects an app transaction whose version is in the table already."""

TABLE_EXISTS: Final = "table_exists"
"""The rule that rejects creating a table that already exists."""


class Rejected(TidegateError):
    """The proposal was rejected or denied; `outcome` names the rule and, in a conflict, the winner.

    `error_class` is delta-spark's exception (`ConcurrentAppendException`, ...) if it has one, else
    the rule.
    """

    advice = "fix"

    def __init__(self, outcome: Outcome) -> None:
        rejection = outcome.rejection
        rule = rejection.rule if rejection else outcome.status
        named = (rejection.exception or rejection.error_class) if rejection else None
        super().__init__(_describe(outcome), error_class=named or rule)
        self.outcome = outcome
        self.rule = rule

    def __reduce__(self) -> tuple[type["Rejected"], tuple[Outcome]]:
        return Rejected, (self.outcome,)


@dataclass(frozen=True)
class ProposalRoute:
    """The topic partitions to which a table's proposals go and from which its outcomes come."""

    proposals: TopicPartition
    outcomes: TopicPartition


class Client:
    """Sends proposals and waits for their outcomes. Not thread-safe: use one for each thread.

    `patience_s` is how long it waits for an outcome before it sends the proposal again. `producer`
    is the name under which the committer serves its writers fairly: the same for all clients of one
    job makes them share one turn. Without it each client has a random one.
    """

    def __init__(
        self,
        bus: Bus,
        topics: Topics,
        clock: Clock | None = None,
        patience_s: float = PATIENCE_S,
        producer: str | None = None,
    ) -> None:
        self.topics = topics
        self.clock: Clock = clock or SystemClock()
        self._bus = bus
        self._patience_s = patience_s
        if producer is not None and not 0 < len(producer.encode()) <= PRODUCER_BYTES_MAX:
            raise InvalidRequest(
                f"producer: {len(producer.encode())} bytes; give a name of 1 to "
                f"{PRODUCER_BYTES_MAX} bytes, or none",
                error_class="BadProducerName",
            )
        self._name = (producer or str(new_id(self.clock))).encode()
        self._producer: Producer | None = None
        self._reader: Reader | None = None
        self._registry_reader = RegistryReader(bus, topics)
        self._registry: Mapping[UUID, TableRecord] = {}
        self._read_to: dict[TopicPartition, tuple[Offset, float]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the broker; a later call opens new ones."""
        if self._producer is not None:
            self._producer.close()
        if self._reader is not None:
            self._reader.close()
        self._producer = self._reader = None

    def new_id(self) -> UUID:
        """Return a fresh id for a proposal or a table: a UUIDv7."""
        return new_id(self.clock)

    def tables(self, timeout_s: float = ANSWER_S) -> Mapping[UUID, TableRecord]:
        """Read the registry and return every registered table by its id. Raises: Unavailable."""
        wait_s = min(timeout_s, ANSWER_S)
        # Most programs read once, and need not look up the topic's id to read on from there.
        if not self._registry:
            self._registry = read_registry(self._bus, self.topics, wait_s)
        else:
            self._registry = self._registry_reader.read(wait_s)
        return self._registry

    def table(self, root_or_name: str, timeout_s: float = ANSWER_S) -> TableRecord | None:
        """Return the table registered under a root, name or id, or None. Raises: Unavailable."""
        known = find_table(self._registry, root_or_name)
        return known or find_table(self.tables(timeout_s), root_or_name)

    def require(self, root_or_name: str, timeout_s: float = ANSWER_S) -> TableRecord:
        """Return the table registered under a root, name or id.

        A root may belong to a table that another writer is creating, so its registration is awaited
        for `REGISTRATION_S` at most.
        Raises: InvalidRequest (`TableNotRegistered`), explaining how to register it; Unavailable.
        """
        record = self.table(root_or_name, timeout_s)
        wait_s = min(timeout_s, REGISTRATION_S) if "/" in root_or_name else 0.0
        until_s = self.clock.boot_s() + wait_s
        while record is None and self.clock.boot_s() < until_s:
            self.clock.sleep(_PAUSE_S / 4)
            record = self.table(root_or_name, timeout_s)
        if record is None:
            root = root_or_name if "/" in root_or_name else "ROOT"
            raise InvalidRequest(
                f"no table {root_or_name} is registered with the gate; `tidegate table list` shows "
                f"those that are, `tidegate table register {root}` adds one that exists",
                error_class="TableNotRegistered",
            )
        return record

    def propose(self, proposal: Proposal, timeout_s: float = TIMEOUT_S) -> Outcome:
        """Send a proposal, wait for its outcome and return it, also a rejection; see `result`.

        The same bytes may be proposed any number of times, by any program: they are committed at
        most once, and every outcome is the same. The trace in which the program is, or the
        environment's TRACEPARENT, goes into a header.
        If the table belongs to another topic partition, the outcome says so, and the same bytes are
        sent there.
        Raises: OutcomeUnknown, when no outcome came in time; when nothing was sent, Unavailable, or
        Misconfigured for a missing topic.
        """
        about = {
            "tidegate.table": proposal.table_root,
            "tidegate.proposal": str(proposal.proposal_id),
            "tidegate.kind": proposal.kind,
        }
        with client_span("tidegate.propose", about) as trace:
            return self._propose(proposal, timeout_s, trace)

    def _propose(self, proposal: Proposal, timeout_s: float, trace: str) -> Outcome:
        value = encode(proposal)
        named = headers(proposal, [(PRODUCER, self._name), (TRACEPARENT, trace.encode())])
        deadline_s = self.clock.boot_s() + timeout_s
        self._sender()  # It asks the brokers for its id while the registry is read.
        route = self._route(proposal, timeout_s)
        start = self._start_of(route.outcomes, deadline_s)
        waited = _Waiting(proposal.proposal_id, sha256(value), start)
        silence: TidegateError | None = None
        elsewhere: Outcome | None = None
        is_sent, visited = False, {route}
        while (now_s := self.clock.boot_s()) < deadline_s:
            until_s = min(now_s + self._patience_s, deadline_s)
            elsewhere = None
            try:
                self._send(route.proposals, value, named, until_s - now_s)
                is_sent = True
                outcome = self._await(route.outcomes, waited, until_s)
                if outcome is None:
                    self._go_back(route.outcomes, waited)
            except (Unavailable, Misconfigured) as error:
                is_sent = is_sent or isinstance(error, OutcomeUnknown)
                if isinstance(error, Misconfigured) and not is_sent:
                    raise
                silence, outcome = error, None
                self.clock.sleep(min(_PAUSE_S, max(0.0, until_s - self.clock.boot_s())))
            if outcome is not None:
                self._read_to[route.outcomes] = (waited.offset, self.clock.boot_s())
                home = self._home_named(outcome, proposal, route, deadline_s)
                if home is None:
                    return outcome
                # For a moment a committer may see another number of partitions.
                self.clock.sleep(_PAUSE_S if home in visited else 0.0)
                visited.add(route := home)
                start = self._start_of(route.outcomes, deadline_s)
                waited, elsewhere = _Waiting(proposal.proposal_id, sha256(value), start), outcome
        if elsewhere is not None:
            return elsewhere
        message = f"{_no_outcome(proposal, timeout_s)}{self._why_none(proposal)}"
        raise OutcomeUnknown(message, error_class="OutcomeUnknown") from silence

    def insist(self, proposal: Proposal, timeout_s: float = TIMEOUT_S) -> Outcome:
        """Send a proposal, again while it is denied for a passing reason; return its outcome.

        Passing reasons (advice `retry`) are a halted table, a table that is just being created, a
        store that does not answer: the same bytes may be accepted later. After the timeout the last
        denial is returned.
        Raises: as `propose`.
        """
        deadline_s, pause_s = self.clock.boot_s() + timeout_s, _PAUSE_S
        while True:
            outcome = self.propose(proposal, max(0.0, deadline_s - self.clock.boot_s()))
            may_pass = outcome.rejection is not None and outcome.rejection.advice == "retry"
            is_over = self.clock.boot_s() + pause_s >= deadline_s
            if outcome.status != "denied" or not may_pass or is_over:
                return outcome
            self.clock.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    def cancel(self, proposal: Proposal, timeout_s: float = TIMEOUT_S) -> Outcome:
        """Cancel a proposal, and return the outcome of the cancel.

        `rejected`: the proposal will never be in the table. `committed`: too late, it is in the
        table, at the outcome's version.
        Raises: OutcomeUnknown; Unavailable.
        """
        stamp = proposal_builders.Stamp(self.new_id(), self.clock.now_ms())
        return self.propose(proposal_builders.cancel(proposal, stamp), timeout_s)

    def app_versions(
        self, root_or_name: str, app_ids: Sequence[str], timeout_s: float = TIMEOUT_S
    ) -> Mapping[str, int]:
        """Return the table's version of each application, -1 for one that it has not seen.

        What this client proposed before is in the answer. What others, or a former process, sent
        just before may be decided after it: `expected` in their proposals guards against that.
        Raises: InvalidRequest (`TableNotRegistered`); Rejected, by a halted table; OutcomeUnknown;
        Unavailable.
        """
        record = self.require(root_or_name, timeout_s)
        target = proposal_builders.Target(record.table, record.table_root)
        stamp = proposal_builders.Stamp(self.new_id(), self.clock.now_ms())
        outcome = self.insist(proposal_builders.app_versions(target, stamp, app_ids), timeout_s)
        if outcome.app_versions is None:
            raise Rejected(outcome)
        return outcome.app_versions

    def _route(self, proposal: Proposal, timeout_s: float) -> ProposalRoute:
        table, topic = proposal.table, self.topics.proposals
        registry = self._registry if table in self._registry else self.tables(timeout_s)
        record, count = registry.get(table), 1
        if record is None or record.status == "staged":
            count = self._bus.partitions(topic, min(timeout_s, ANSWER_S))
        return self._route_of(home_of(table, registry, topic, count), proposal)

    def _route_of(self, home: Home, proposal: Proposal) -> ProposalRoute:
        topic = self.topics.admin if proposal.kind in OPERATOR_REQUESTS else home.topic
        topic_partition = TopicPartition(topic, home.partition)
        return ProposalRoute(topic_partition, TopicPartition(self.topics.outcomes, home.partition))

    def _home_named(
        self, outcome: Outcome, proposal: Proposal, route: ProposalRoute, deadline_s: float
    ) -> ProposalRoute | None:
        """Return the route that an outcome names, if the proposal went to a wrong partition.

        Return None if it names none, or the time is up.
        """
        number = outcome.rejection.topic_partition if outcome.rejection else None
        left_s = deadline_s - self.clock.boot_s()
        if number is None or left_s <= 0:
            return None
        record = self.tables(left_s).get(outcome.table)
        topic = record.proposals_topic if record is not None else self.topics.proposals
        home = self._route_of(Home(topic, number), proposal)
        return home if home != route else None

    def _start_of(self, outcomes: TopicPartition, deadline_s: float) -> Offset:
        """Return the offset from which on a new proposal's outcome can appear.

        If this client stopped reading a moment ago, that position is used, which saves asking the
        broker for the end. Brokers that do not answer are asked again until the deadline.
        """
        offset, at_s = self._read_to.get(outcomes, (None, 0.0))
        if offset is not None and self.clock.boot_s() - at_s <= FRESH_S:
            return offset
        while True:
            left_s = max(0.0, deadline_s - self.clock.boot_s())
            try:
                return self._readers().bounds(outcomes, min(left_s, ANSWER_S))[1]
            except Unavailable:
                if self.clock.boot_s() + _PAUSE_S > deadline_s:
                    raise
                self.clock.sleep(_PAUSE_S)

    def _why_none(self, proposal: Proposal) -> str:
        """Return what the registry says of why a table gives no outcomes; empty if it says none."""
        try:
            record = self.tables(ANSWER_S).get(proposal.table)
        except Unavailable:
            return ""
        return f". The table {record.reason}" if record is not None and record.reason else ""

    def _readers(self) -> Reader:
        if self._reader is None:
            self._reader = self._bus.reader()
        return self._reader

    def _sender(self) -> Producer:
        if self._producer is None:
            self._producer = self._bus.producer()
        return self._producer

    def _send(
        self, topic_partition: TopicPartition, value: bytes, named: Headers, timeout_s: float
    ) -> None:
        producer = self._sender()
        try:
            producer.publish(topic_partition, dict(named)["table"], value, named)
            producer.flush(timeout_s)
        except Unavailable:
            # After some failures a librdkafka producer accepts no more records.
            self._producer = None
            raise

    def _await(
        self, topic_partition: TopicPartition, waited: "_Waiting", until_s: float
    ) -> Outcome | None:
        while (left_s := until_s - self.clock.boot_s()) > 0:
            for record in self._readers().read(topic_partition, waited.offset, left_s):
                waited.offset = Offset(record.offset + 1)
                outcome = waited.recognise(record)
                if outcome is not None:
                    return outcome
        return None

    def _go_back(self, topic_partition: TopicPartition, waited: "_Waiting") -> None:
        """Continue from the partition's end if it lies before the position already read.

        Then the topic was recreated, or truncated by its brokers, and the outcome of the repeated
        proposal will be written there.
        """
        end = self._readers().bounds(topic_partition)[1]
        waited.offset = min(waited.offset, end)


def result(outcome: Outcome) -> Outcome:
    """Return an outcome that is `committed`, and raise for any other.

    Raises: Rejected for `rejected` and `denied`; OutcomeUnknown for `expired`, which says only that
    the log no longer reaches back to the proposal's read version.
    """
    if outcome.status == "committed":
        return outcome
    if outcome.status == "expired":
        raise OutcomeUnknown(_describe(outcome), error_class="expired")
    raise Rejected(outcome)


class _Waiting:
    """The id and bytes whose outcome is awaited, and the next offset of `outcomes` to read."""

    def __init__(self, proposal_id: UUID, digest: str, offset: Offset) -> None:
        self._key = str(proposal_id).encode()
        self._digest = digest
        self.offset = offset

    def recognise(self, record: Record) -> Outcome | None:
        """Return the outcome in a record if it answers our id and exactly our bytes, else None."""
        if record.key != self._key or record.value is None:
            return None
        outcome = decode(Outcome, record.value)
        return outcome if outcome.proposal_sha256 == self._digest else None


def _describe(outcome: Outcome) -> str:
    rejection = outcome.rejection
    head = f"proposal {outcome.proposal_id} for table {outcome.table} was {outcome.status}"
    if rejection is None:
        return f"{head}; `tidegate proposals show {outcome.proposal_id}` tells more"
    # Spark passes on only the text of a writer's error, so the text must have delta-spark's name.
    named = rejection.exception or rejection.error_class
    rule = f"{rejection.rule} ({named})" if named else rejection.rule
    parts = [f"{head} by the rule {rule}: {rejection.reason}"]
    if rejection.winner_version is not None:
        parts.append(f"the winner is version {rejection.winner_version}")
    if rejection.path is not None and rejection.path not in rejection.reason:
        parts.append(f"file {rejection.path}")
    # The reason of a conflict says what the winner did, not how to resolve it.
    known = REFUSALS.get(rejection.rule) if rejection.winner_version is not None else None
    return "; ".join([*parts, known.remedy if known else _REMEDIES[rejection.advice]])


_REMEDIES: Final = {
    "retry": "send the same proposal again later",
    "resend": "send the same proposal to where the answer says that it belongs",
    "rebase": "propose the same files again on the newest version",
    "rerun": "run the operation again: it will see the newest version",
    "fix": "correct the request before trying again",
    "skip": "go on with the application's next version",
}


def _no_outcome(proposal: Proposal, timeout_s: float) -> str:
    return (
        f"no outcome of proposal {proposal.proposal_id} for table {proposal.table_root} within "
        f"{timeout_s:g} s: it may yet be committed; see `tidegate proposals show "
        f"{proposal.proposal_id}`, propose the same bytes again, or cancel it, before you write "
        "the same rows again"
    )
