"""The committer's loop: poll proposals, decide them, publish outcomes, then commit the offsets.

Each topic partition that the consumer group assigns has a `PartitionWorker`, each table in it a
`TableCommitter`. Safety rests on the tables' logs: offsets and the registry only say where a new
owner starts to read. One thread takes one step at a time, so a simulation can drive the same code.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from tidegate_committer.dependencies import Dependencies, reach
from tidegate_committer.group_commit.entry_encoding import EntryWriter
from tidegate_committer.loop import read_ahead
from tidegate_committer.loop.gauges import Gauges, observe, stranded
from tidegate_committer.loop.held_back_proposals import OpenTransactions
from tidegate_committer.loop.operator_requests import RequestIntake
from tidegate_committer.loop.outcome_publisher import OutcomePublisher
from tidegate_committer.loop.partition_worker import PartitionWorker
from tidegate_committer.loop.poison_records import SuspectNote, note_text, take_over
from tidegate_committer.loop.served_tables import ServedTables
from tidegate_committer.loop.table_router import TableRouter
from tidegate_committer.policy import Policy
from tidegate_delta.errors import Fenced, Misconfigured, Unavailable
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.kafka.client_protocols import (
    Consumer,
    Notes,
    Offset,
    Polled,
    Producer,
    Record,
    TopicPartition,
)
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.observability.metrics import PROPOSAL_PICKUP
from tidegate_runtime.service.runner import Running
from tidegate_runtime.table_registry import RegistryReader

POLLED_MAX: Final = 10_000
"""The most records that one poll returns, so that a flood does not hide later records for long."""

HANDLED_MAX: Final = Policy.group_members_max
"""The most records that one step handles: one entry's worth, so that the next poll comes soon."""

DURABLE_S: Final = 0.2
"""How long flush, registry and offset commits may lag, so that one round trip serves many outcomes.
"""

IDLE_S: Final = 0.25
"""How long a poll waits for records when nothing else is due."""

PUT_WAIT_MIN_S: Final = 0.001
PUT_WAIT_MAX_S: Final = 0.005
PUT_WAIT_SHARE: Final = 0.1
"""How long a step waits for a PUT in flight: a share of a PUT's usual duration, within bounds."""

LANDING_S: Final = 1.0
"""How long a clean stop waits for PUTs in flight. The next owner finds later ones in the log."""

OUTSIDE_S: Final = 600.0
"""How long the loop may be outside the group. A rebalance with a hanging member takes half as long.
"""

STEP_SPARE_S: Final = 30.0
"""How much longer than a PUT's deadline one step may take before the loop counts as stuck."""
OffsetCommit = Callable[[Mapping[TopicPartition, Offset], Notes], None]
"""Either `Consumer.commit`, which waits for the brokers, or `Consumer.commit_soon`, which does not.
"""

_log = logging.getLogger(__name__)


@dataclass
class CommitterLoop:
    """A member of the committers' consumer group, with a worker for each assigned topic partition.

    `lags_since_s` is when the oldest record that is not yet durable was published.
    `outside_since_s` is when the loop was last in the group. `process` identifies the operating
    system process.
    Units: by `Clock.boot_s`.
    """

    dependencies: Dependencies
    consumer: Consumer = field(init=False)
    producer: Producer = field(init=False)
    registry_reader: RegistryReader = field(init=False)
    workers: dict[TopicPartition, PartitionWorker] = field(default_factory=dict)
    paused: set[TopicPartition] = field(default_factory=set)
    lags_since_s: float | None = None
    gauges: Gauges = field(default_factory=Gauges)
    transactions: OpenTransactions = field(default_factory=OpenTransactions)
    is_busy: bool = False
    outside_since_s: float = field(init=False)
    process: str = field(init=False)

    def __post_init__(self) -> None:
        topics = self.dependencies.topics
        self.consumer = self.dependencies.bus.consumer(
            f"{topics.prefix}committer", [topics.proposals], [topics.admin]
        )
        self.producer = self.dependencies.bus.producer()
        self.registry_reader = RegistryReader(self.dependencies.bus, topics)
        self.outside_since_s = self.dependencies.clock.boot_s()
        self.process = self.dependencies.process or self.dependencies.new_id().hex

    def step(self, timeout_s: float = IDLE_S) -> bool:
        """Poll once and let every partition worker work; return whether more work is due at once.

        Raises: Unavailable, Misconfigured, Fenced: it is unknown whether published records are
        durable, so the caller drops this loop and starts a new one from the logs.
        """
        in_flight = any(worker.has_put_in_flight for worker in self.workers.values())
        polled = self.consumer.poll(POLLED_MAX, 0.0 if in_flight else self._poll_wait_s(timeout_s))
        self._rebalance(polled)
        self._check_membership()
        if polled.records:
            age_ms = self.dependencies.clock.now_ms() - polled.records[0].timestamp_ms
            PROPOSAL_PICKUP.observe(max(0, age_ms) / 1000)
        self._note_judging(polled)
        records_left, requests = HANDLED_MAX, list[Record]()
        for record in polled.records:
            if record.at.topic == self.dependencies.topics.admin:
                requests.append(record)
            else:
                records_left -= self._take(record, may_handle=records_left > 0)
        # Kafka has no order between two topics: a drop comes after the proposals read with it.
        for record in requests:
            self._take(record, may_handle=True)
        for worker in self.workers.values():
            worker.handle_held(records_left // len(self.workers) + 1)
        handled = [self._handle_suspect(topic_partition) for topic_partition in list(self.workers)]
        busy = [worker.work() for worker in self.workers.values()]
        self.is_busy = any((*busy, *handled))
        is_quiet = not (polled.records or self.is_busy)
        if in_flight and is_quiet:
            self.dependencies.puts.wait(self._put_wait_s())
        self._make_durable_if_due()
        if polled.records or self.paused:
            self._pause_or_resume()
        if self.gauges.set_if_due(self.workers.values(), len(self.paused), self.dependencies.clock):
            self._observe_transactions()
        is_idle = is_quiet and not self.pending
        self.dependencies.tidy(is_idle or (is_quiet and in_flight), is_idle)
        return self.is_busy

    @property
    def readiness(self) -> tuple[bool, str]:
        """The answer to `/readyz`: whether the loop is ready, and what it does, in a sentence."""
        if self.workers:
            transactions = self.transactions.summary(self.dependencies.clock.boot_s())
            return True, f"active: {len(self.workers)} topic partitions{transactions}"
        if self.consumer.is_member:
            return True, "standby: every topic partition has another owner"
        return False, "joining: the group has not let it in"

    @property
    def pending(self) -> int:
        """How many records were read and have no outcome yet."""
        return sum(worker.pending for worker in self.workers.values())

    @property
    def movable(self) -> int:
        """How many of these the loop could decide: all but those that wait for a store."""
        return self.pending - stranded(self.workers.values(), self.dependencies.clock.boot_s())

    def finish(self) -> None:
        """Stop cleanly: wait for PUTs in flight, flush, commit offsets. Raises: as `step`."""
        ends_s = self.dependencies.clock.boot_s() + LANDING_S
        while any(worker.has_put_in_flight for worker in self.workers.values()):
            self.dependencies.puts.wait(PUT_WAIT_MIN_S)
            for worker in self.workers.values():
                worker.land()
            if self.dependencies.clock.boot_s() > ends_s:
                break
        self._make_durable(self.consumer.commit)
        self._note_clean_stop()
        self.producer.close()

    def leave(self) -> None:
        """Leave the group, so that the next owner need not wait for the session timeout."""
        observe((), 0, self.dependencies.clock.boot_s())
        self.transactions.observe((), {}, self.dependencies.clock.boot_s())
        # First, since the next owner waits for it. A PUT that begins meanwhile is found in the log.
        self.consumer.close()
        self.dependencies.close()

    def _take(self, record: Record, *, may_handle: bool) -> bool:
        """Hand a record to its partition worker; return whether it was handled."""
        topics = self.dependencies.topics
        worker = self.workers.get(TopicPartition(topics.proposals, record.at.partition))
        if worker is None:
            return False
        taker = worker.requests if record.at.topic == topics.admin else worker
        if record.offset < taker.read_to:
            # Offsets count within one topic, and Kafka does not report that a topic was deleted and
            # another created under its name.
            raise Unavailable(
                f"{record.at} comes from offset {record.offset} on, and was read to "
                f"{taker.read_to}: it was recreated, or cut by its brokers; the loop starts over"
            )
        taker.read_to = record.offset + 1
        if taker is worker:
            return worker.take(record, may_handle=may_handle)
        worker.take_request(record)
        return True

    def _observe_transactions(self) -> None:
        """Record what open transactions hold back. Paused topic partitions are left out: they are
        not fetched, so nothing is known about them.
        """
        transactions = {
            topic_partition: held_back
            for topic_partition, held_back in self.consumer.held_back.items()
            if topic_partition not in self.paused
        }
        self.transactions.observe(self.workers, transactions, self.dependencies.clock.boot_s())

    def _poll_wait_s(self, timeout_s: float) -> float:
        """Return how long the next poll may wait for records: until something else is due."""
        if self.is_busy:
            return 0.0
        now_s = self.dependencies.clock.boot_s()
        waits = [
            until for worker in self.workers.values() if (until := worker.waits_until_s) is not None
        ]
        if self.lags_since_s is not None:
            waits.append(self.lags_since_s + DURABLE_S)
        return max(0.0, min([timeout_s, *(until - now_s for until in waits)]))

    def _put_wait_s(self) -> float:
        """Return how long to wait for a PUT in flight: a share of the shortest one's duration."""
        puts_s = [worker.put_s for worker in self.workers.values() if worker.has_put_in_flight]
        return min(PUT_WAIT_MAX_S, max(PUT_WAIT_MIN_S, PUT_WAIT_SHARE * min(puts_s, default=0.0)))

    def _rebalance(self, polled: Polled) -> None:
        for topic_partition in (*polled.revoked, *polled.lost):
            if worker := self.workers.pop(topic_partition, None):
                self.paused -= {topic_partition, worker.requests.at}
            log_event(_log, "revoked", partition=topic_partition.partition)
        # Read it once for all assigned partitions: it holds the tables of every topic partition.
        registry = self.registry_reader.read() if polled.assigned else {}
        for topic_partition in polled.assigned:
            worker = self.workers[topic_partition] = self._worker(topic_partition, registry)
            log_event(
                _log,
                "assigned",
                partition=topic_partition.partition,
                tables=len(worker.tables.committers),
            )
            if not self._begin(topic_partition, worker.suspects.note):
                return

    def _check_membership(self) -> None:
        """Start over after too long outside the group: a new client reads certificates again."""
        now_s = self.dependencies.clock.boot_s()
        if self.workers or self.consumer.is_member:
            self.outside_since_s = now_s
        elif now_s - self.outside_since_s > OUTSIDE_S:
            raise Unavailable(
                f"the group has not let it in for {OUTSIDE_S:.0f} s: look at the brokers, and at "
                "the lines `librdkafka`; the loop starts over"
            )

    def _begin(self, topic_partition: TopicPartition, note: SuspectNote) -> bool:
        """Write our process id into the note beside the offset; return whether the group took
        it.
        """
        if note.deaths or note.alone:
            fields = {"deaths": note.deaths, "until": note.until, "alone": note.alone}
            log_event(
                _log,
                "owner_died",
                level=logging.WARNING,
                partition=topic_partition.partition,
                **fields,
            )
        self.consumer.note_on_revoke(topic_partition, note_text(note.clean()))
        return self._record({topic_partition: self.workers[topic_partition].suspects.recorded})

    def _note_judging(self, polled: Polled) -> None:
        """After a death was recorded, write into the note that records are handled from here on."""
        owing = [
            topic_partition
            for topic_partition, worker in self.workers.items()
            if worker.suspects.must_note_judging
        ]
        for topic_partition in owing if polled.records else ():
            if topic_partition in self.workers and any(
                record.at == topic_partition for record in polled.records
            ):
                self.workers[topic_partition].suspects.note_judging()
                self._record({topic_partition: self.workers[topic_partition].suspects.recorded})

    def _handle_suspect(self, topic_partition: TopicPartition) -> bool:
        """Handle the next suspected record once the note names it; return whether there was one."""
        worker = self.workers.get(topic_partition)
        record = worker.next_suspect() if worker else None
        if (
            worker is None
            or record is None
            or not self._record({topic_partition: worker.suspects.recorded})
        ):
            return False
        worker.handle(record)
        return True

    def _worker(
        self, topic_partition: TopicPartition, registry: Mapping[UUID, TableRecord]
    ) -> PartitionWorker:
        bus, topics = self.dependencies.bus, self.dependencies.topics
        identity = bus.identity([topic_partition.topic, topics.admin])
        topic_id, admin_id = (
            identity.topic_ids[topic_partition.topic],
            identity.topic_ids[topics.admin],
        )
        if bus.partitions(topics.admin) <= topic_partition.partition:
            raise Misconfigured(
                f"{topics.admin} has no partition {topic_partition.partition}; give it as many "
                f"partitions as {topic_partition.topic} has (`tidegate topics plan`)"
            )
        origin = EntryWriter(
            epoch=self.dependencies.new_id(),
            stream=f"{identity.cluster_id}/{topic_id}/{topic_partition.partition}",
            app_id=f"tidegate/{topic_id}/{topic_partition.partition}",
            engine=self.dependencies.engine,
        )
        publisher = OutcomePublisher(
            self.producer,
            topics,
            topic_partition.partition,
            self.dependencies.clock,
            replies=self.dependencies.replies,
        )
        requests_stream = f"{identity.cluster_id}/{admin_id}/{topic_partition.partition}"
        tables = ServedTables(
            topic_partition,
            self.dependencies,
            publisher,
            origin,
            self.registry_reader,
            requests_stream,
        )
        tables.serve_all(registry, bus.partitions(topic_partition.topic))
        router = TableRouter(tables)
        router.registrar.withdraw_claims()
        suspects = take_over(bus, self.consumer, topic_partition, self.process, topic_id)
        requests = RequestIntake(TopicPartition(topics.admin, topic_partition.partition), publisher)
        return PartitionWorker(self.dependencies, router, suspects, requests)

    def _make_durable_if_due(self) -> None:
        """Flush and commit offsets `DURABLE_S` after the first record that is not yet durable."""
        if not any(worker.lags for worker in self.workers.values()):
            self.lags_since_s = None
            return
        now_s = self.dependencies.clock.boot_s()
        if self.lags_since_s is None:
            self.lags_since_s = now_s
        elif now_s - self.lags_since_s >= DURABLE_S:
            self._make_durable(self.consumer.commit_soon)

    def _make_durable(self, record: OffsetCommit) -> None:
        """Flush outcomes and versions, then the registry; then commit the offsets."""
        self.lags_since_s = None
        safe = {
            topic_partition: offset
            for topic_partition, worker in self.workers.items()
            if (offset := worker.make_durable()) is not None
        }
        answered = {
            intake.at: (intake, offset)
            for intake in (worker.requests for worker in self.workers.values())
            if (offset := intake.due) is not None
        }
        if not (safe or answered):
            return
        reach("before_offsets")
        if not self._record(
            safe | {topic_partition: offset for topic_partition, (_, offset) in answered.items()},
            record,
        ):
            return
        reach("after_offsets")
        for topic_partition, offset in safe.items():
            self.workers[topic_partition].committed = offset
        for intake, offset in answered.values():
            intake.committed = offset

    def _record(
        self, offsets: Mapping[TopicPartition, Offset], record: OffsetCommit | None = None
    ) -> bool:
        """Commit offsets, those of proposals with their notes; return False if the group has fenced
        us.

        Raises: Unavailable.
        """
        proposal_offsets = {
            topic_partition: offset
            for topic_partition, offset in offsets.items()
            if topic_partition in self.workers
        }
        notes = {
            topic_partition: self.workers[topic_partition].suspects.note_at(offset)
            for topic_partition, offset in proposal_offsets.items()
        }
        try:
            (record or self.consumer.commit)(offsets, notes)
        except Fenced as error:
            # The new owners read the logs; the next polls report what was revoked.
            log_event(_log, "fenced", level=logging.WARNING, why=error)
            self.workers.clear()
            self.paused.clear()
            return False
        for topic_partition, offset in proposal_offsets.items():
            self.workers[topic_partition].suspects.recorded = offset
        return True

    def _note_clean_stop(self) -> None:
        """Write into the notes that the process stopped cleanly, and did not die over a record."""
        for worker in self.workers.values():
            worker.suspects.note = worker.suspects.note.clean()
        if self.workers:
            self._record(
                {
                    topic_partition: worker.suspects.recorded
                    for topic_partition, worker in self.workers.items()
                }
            )

    def _pause_or_resume(self) -> None:
        """Pause a topic partition with too many records without an outcome; resume it at half.

        Requests count by themselves: operators can halt or drop a table whose writers press on.
        """
        for topic_partition, worker in self.workers.items():
            by_count = worker.pending / read_ahead.RECORDS_MAX
            by_size = worker.pending_bytes / read_ahead.BYTES_MAX
            requests = worker.requests.pending / read_ahead.RECORDS_MAX
            for at, fullness in (
                (topic_partition, max(by_count, by_size)),
                (worker.requests.at, requests),
            ):
                if fullness > 1 and at not in self.paused:
                    self.consumer.pause(at)
                    self.paused.add(at)
                elif fullness <= 1 / 2 and at in self.paused:
                    self.consumer.resume(at)
                    self.paused.discard(at)


def serve(loop: CommitterLoop, running: Running) -> None:
    """Run the loop until the service is stopped; then, or on a failure, leave the group."""
    running.health.expect("loop", loop.dependencies.settings.put_deadline_s + STEP_SPARE_S)
    try:
        while not running.stopping.is_set():
            before = loop.pending
            loop.step()
            running.health.progress("loop")
            running.health.work("proposals", loop.movable)
            if loop.pending != before:
                running.health.progress("proposals")
            running.health.ready(*loop.readiness)
        loop.finish()
    finally:
        loop.leave()
