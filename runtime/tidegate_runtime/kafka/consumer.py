"""Consumers on confluent-kafka: a group's member, and a reader of partitions outside any group.

A member gets rebalances as values, and commits offsets explicitly.
"""

import json
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import TimeoutError as NoAnswer
from typing import Any, Final

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
)
from confluent_kafka import TopicPartition as RdPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not declared so
    AdminClient,
    OffsetSpec,
)

from tidegate_delta.errors import Fenced, TidegateError, Unavailable
from tidegate_runtime.kafka.client_protocols import (
    ANSWER_S,
    NO_NOTES,
    HeldBack,
    Notes,
    Offset,
    Polled,
    Record,
    Starts,
    TopicPartition,
)
from tidegate_runtime.kafka.librdkafka import (
    EARLIEST,
    LATEST,
    find_leaders,
    from_librdkafka,
    is_retriable,
    make_client,
    offset_of,
    records,
    to_librdkafka,
    translated,
)

_SLICE_S: Final = 0.05
"""How long one call into librdkafka may last, so that a rebalance is reported soon."""
_LEADERS_S: Final = 300.0
"""How long leaders count as known: librdkafka forgets them after `metadata.max.age.ms`, 900 s."""
_TICK_S: Final = 0.001

_REBALANCING: Final = frozenset({KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS})
"""What brokers answer to a commit that crosses a rebalance. The member keeps its partitions until
a callback takes them away, and commits again in the next generation.
"""


class KafkaConsumer:
    """A group member. Callbacks collect rebalances, and `poll` returns them.

    A rebalance takes only those partitions away that get another owner; the others are read and
    committed meanwhile. `_held` are the partitions that it reads, those of `beside` among them.

    The group does not know the topics in `beside`: what it assigns decides what is read of them, so
    both always have the same owner, whatever other members subscribe to.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        group: str,
        topics: Sequence[str],
        beside: Sequence[str] = (),
    ) -> None:
        callbacks = {"on_commit": self._on_commit, "stats_cb": self._on_statistics}
        self._consumer = make_client(Consumer, {**config, **callbacks})
        self._group = group
        self._topics = list(topics)
        self._beside = list(beside)
        self._subscribed = False
        self._is_member = False
        self._revoked: list[TopicPartition] = []
        self._lost: list[TopicPartition] = []
        self._assigned: list[TopicPartition] = []
        self._held: set[TopicPartition] = set()
        self._next: dict[TopicPartition, Offset] = {}
        self._recorded: dict[TopicPartition, RdPartition] = {}
        self._must_repeat = False
        self._parting: dict[TopicPartition, str] = {}
        self._not_recorded: TidegateError | None = None
        self._held_back: dict[TopicPartition, HeldBack] = {}

    def poll(self, records_max: int, timeout_s: float) -> Polled:
        """Return what came within the timeout; a rebalance is returned without records.

        Raises: Unavailable, Fenced; Misconfigured for a missing topic.
        """
        self._join()
        ends = time.monotonic() + timeout_s
        while True:
            left = max(0.0, ends - time.monotonic())
            # librdkafka counts in whole ms, and would return at once for less than one.
            first = self._consumer.poll(min(_SLICE_S, max(_TICK_S, left) if left else 0.0))
            more = self._consumer.consume(records_max - 1, 0) if first and records_max > 1 else []
            if self._revoked or self._lost or self._assigned:
                self._put_back([first, *more])
                return self._rebalanced()
            if first is not None:
                read = records([first, *more], f"read as a member of group {self._group!r}")
                self._next |= {record.at: Offset(record.offset + 1) for record in read}
                if read:
                    return Polled(records=read)
            if left == 0.0:
                return Polled()

    def committed(self, topic_partition: TopicPartition) -> Offset | None:
        """Return the offset that the group committed, or None. Raises: Unavailable."""
        return self.noted(topic_partition)[0]

    def noted(self, topic_partition: TopicPartition) -> tuple[Offset | None, str]:
        """Return the offset that the group committed, and its note. Raises: Unavailable."""
        doing = f"look up the position of group {self._group!r} in {topic_partition}"
        try:
            [committed] = self._consumer.committed(
                [to_librdkafka(topic_partition)], timeout=ANSWER_S
            )
        except KafkaException as error:
            raise translated(error, doing) from error
        if committed.error is not None:
            raise translated(committed.error, doing)
        offset = None if committed.offset == OFFSET_INVALID else Offset(committed.offset)
        return offset, committed.metadata or ""

    def seek(self, topic_partition: TopicPartition, offset: Offset) -> None:
        """Continue reading at an offset. Raises: Unavailable, Fenced."""
        ends = time.monotonic() + ANSWER_S
        while True:
            try:
                self._consumer.seek(to_librdkafka(topic_partition, offset))
            except KafkaException as error:
                # A partition that has just been assigned is not being fetched yet.
                starting = error.args[0].code() == KafkaError._STATE
                if not starting or time.monotonic() > ends:
                    raise translated(
                        error, f"read {topic_partition} from offset {offset}"
                    ) from error
                time.sleep(_SLICE_S)
            else:
                self._next[topic_partition] = offset
                return

    def pause(self, topic_partition: TopicPartition) -> None:
        """Keep the partition, but fetch nothing from it until `resume`."""
        self._consumer.pause([to_librdkafka(topic_partition)])

    def resume(self, topic_partition: TopicPartition) -> None:
        """Fetch again from a paused partition."""
        self._consumer.resume([to_librdkafka(topic_partition)])
        # librdkafka's thread may sleep for a second after a pause; a seek wakes it.
        if topic_partition in self._next:
            self.seek(topic_partition, self._next[topic_partition])

    def commit(
        self, next_offsets: Mapping[TopicPartition, Offset], notes: Notes = NO_NOTES
    ) -> None:
        """Commit the group's next offsets to read, each with its note if given, and wait for it.

        Raises: Unavailable, Fenced.
        """
        if not next_offsets:
            return
        offsets = _with_notes(next_offsets, notes)
        ends = time.monotonic() + ANSWER_S
        while (error := self._failure_of(list(offsets.values()))) is not None:
            if error.code() not in _REBALANCING:
                raise translated(error, self._committing)
            if time.monotonic() > ends:
                raise Unavailable(
                    f"cannot {self._committing}: the group has rebalanced for {ANSWER_S:.0f} s "
                    f"({error.name()}); look whether its other members answer"
                )
            time.sleep(_SLICE_S)
        self._recorded |= offsets

    def commit_soon(
        self, next_offsets: Mapping[TopicPartition, Offset], notes: Notes = NO_NOTES
    ) -> None:
        """Commit as `commit` does, but don't wait; the next call raises the error of this one.

        Raises: Unavailable, Fenced.
        """
        failure, self._not_recorded = self._not_recorded, None
        if isinstance(failure, Fenced):
            # librdkafka repeats a commit after an outage, in the name of the member that we were
            # then. Whether we are one now, only another commit tells.
            self.commit(next_offsets, notes)
            return
        if failure is not None:
            raise failure
        if not next_offsets:
            return
        offsets = _with_notes(next_offsets, notes)
        try:
            self._consumer.commit(offsets=list(offsets.values()), asynchronous=True)
        except KafkaException as error:
            raise translated(error, self._committing) from error
        self._recorded |= offsets

    def note_on_revoke(self, topic_partition: TopicPartition, note: str) -> None:
        """Set the note to commit when a rebalance takes the partition from us."""
        self._parting[topic_partition] = note

    @property
    def is_member(self) -> bool:
        """Whether it has joined the group, by the last rebalance that a poll returned."""
        return self._is_member

    @property
    def held_back(self) -> Mapping[TopicPartition, HeldBack]:
        """The assigned partitions that were read up to an open Kafka transaction, as last seen."""
        return self._held_back

    def close(self) -> None:
        """Leave the group."""
        self._is_member = False
        self._parting.clear()
        self._consumer.close()

    def _failure_of(self, offsets: list[RdPartition]) -> KafkaError | None:
        """Commit offsets, wait for the brokers, and return their error."""
        try:
            results = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            failure = error.args[0]
            assert isinstance(failure, KafkaError)
            return failure
        failures = (partition.error for partition in results or ())
        return next((failure for failure in failures if failure is not None), None)

    @property
    def _committing(self) -> str:
        return f"commit the position of group {self._group!r}"

    def _join(self) -> None:
        if not self._subscribed:
            self._subscribed = True
            self._consumer.subscribe(
                self._topics,
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )

    def _put_back(self, messages: Sequence[Message | None]) -> None:
        """Rewind to before records that came with a rebalance: the caller may seek first."""
        firsts: dict[TopicPartition, Offset] = {}
        for record in records(
            [message for message in messages if message is not None], "read what is assigned"
        ):
            firsts.setdefault(record.at, record.offset)
        for topic_partition, offset in firsts.items():
            if topic_partition in self._held:
                self.seek(topic_partition, offset)

    def _rebalanced(self) -> Polled:
        polled = Polled(tuple(self._revoked), tuple(self._lost), tuple(self._assigned))
        self._revoked, self._lost, self._assigned = [], [], []
        return polled

    def _on_commit(self, error: KafkaError | None, partitions: list[RdPartition]) -> None:
        """Keep the error of an asynchronous commit, for the next `commit_soon` to raise."""
        for failure in (error, *(topic_partition.error for topic_partition in partitions)):
            if failure is None or failure.code() == KafkaError._NO_OFFSET:
                continue
            if failure.code() in _REBALANCING:
                self._must_repeat = True
            else:
                self._not_recorded = translated(failure, self._committing)

    def _on_statistics(self, text: str) -> None:
        """Take the state of open transactions from librdkafka's statistics of its fetches."""
        topics = json.loads(text)["topics"]
        self._held_back = {
            TopicPartition(topic, int(partition)): held
            for topic in self._topics
            for partition, statistics in topics.get(topic, {}).get("partitions", {}).items()
            if (held := _held_back(statistics)) is not None
        }

    def _on_assign(self, consumer: Consumer, partitions: list[RdPartition]) -> None:
        """Read what was given to us; called at the end of each rebalance, also without any."""
        given = self._with_beside(partitions)
        consumer.incremental_assign(given)
        # librdkafka keeps a paused partition paused across assignments.
        consumer.resume(given)
        if self._must_repeat and self._recorded:
            consumer.commit(offsets=list(self._recorded.values()), asynchronous=True)
        self._must_repeat = False
        self._is_member = True
        self._held.update(from_librdkafka(given))
        self._assigned += from_librdkafka(partitions)

    def _on_revoke(self, consumer: Consumer, partitions: list[RdPartition]) -> None:
        noted = [
            to_librdkafka(
                topic_partition,
                Offset(self._recorded[topic_partition].offset),
                self._parting[topic_partition],
            )
            for topic_partition in from_librdkafka(partitions)
            if topic_partition in self._recorded and topic_partition in self._parting
        ]
        if noted:
            # It is sent before the member rejoins; nothing depends on its arrival.
            consumer.commit(offsets=noted, asynchronous=True)
        # The member rejoins, and no callback reports if the group does not admit it.
        self._is_member = False
        self._revoked += self._release(consumer, partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[RdPartition]) -> None:
        self._is_member = False
        self._not_recorded = None
        self._lost += self._release(consumer, partitions)

    def _with_beside(self, partitions: list[RdPartition]) -> list[RdPartition]:
        """Return partitions that the group gives or takes, and those of `beside` with them."""
        numbers = sorted({partition.partition for partition in partitions})
        more = [RdPartition(topic, number) for topic in self._beside for number in numbers]
        return [*partitions, *more]

    def _release(self, consumer: Consumer, partitions: list[RdPartition]) -> list[TopicPartition]:
        """Stop fetching, and return the partitions whose assignment a poll has returned."""
        taken = self._with_beside(partitions)
        consumer.incremental_unassign(taken)
        for topic_partition in from_librdkafka(taken):
            self._held.discard(topic_partition)
            self._next.pop(topic_partition, None)
            self._recorded.pop(topic_partition, None)
            self._parting.pop(topic_partition, None)
            self._held_back.pop(topic_partition, None)
        given = from_librdkafka(partitions)
        unreported = {*self._assigned}
        self._assigned = [kept for kept in self._assigned if kept not in given]
        return [topic_partition for topic_partition in given if topic_partition not in unreported]


def _with_notes(
    next_offsets: Mapping[TopicPartition, Offset], notes: Notes
) -> dict[TopicPartition, RdPartition]:
    return {
        topic_partition: to_librdkafka(topic_partition, offset, notes.get(topic_partition, ""))
        for topic_partition, offset in next_offsets.items()
    }


def _held_back(statistics: Mapping[str, Any]) -> HeldBack | None:
    """Return the open transaction that a partition's statistics show.

    Return None if there is none, or if records before it are still to be fetched. Unknown offsets
    are negative in the statistics.
    """
    stable, offsets = statistics["ls_offset"], statistics["hi_offset"] - statistics["ls_offset"]
    if stable < 0 or offsets <= 0 or statistics["next_offset"] < stable:
        return None
    return HeldBack(Offset(stable), offsets)


_PAUSE_S: Final = 0.1
_READ_AT_ONCE: Final = 1_000


class KafkaReader:
    """Reads partitions outside any group. Any offset but the next one makes it assign again.

    It looks up offsets by the bus's connection: by a new one, librdkafka often needs 0.7 s to find
    the first leader, and later each lookup would wait for the fetch under way. Its own connection
    begins with the first read: a client that has partitions at once fetches within milliseconds,
    another one only when it next looks for leaders.
    """

    def __init__(
        self, connect: Callable[[], Consumer], administration: Callable[[], AdminClient]
    ) -> None:
        self._connect = connect
        self._connected: Consumer | None = None
        self._administration = administration
        self._leaders_found_s: dict[str, float] = {}
        self._next: dict[TopicPartition, Offset] = {}
        self._ends_seen: dict[TopicPartition, Offset] = {}

    def bounds(
        self, topic_partition: TopicPartition, timeout_s: float = ANSWER_S
    ) -> tuple[Offset, Offset]:
        """Return the first offset and the end offset. Raises: as `bounds_of`."""
        return self.bounds_of([topic_partition], timeout_s)[topic_partition]

    def bounds_of(
        self, topic_partitions: Sequence[TopicPartition], timeout_s: float = ANSWER_S
    ) -> Mapping[TopicPartition, tuple[Offset, Offset]]:
        """Return each partition's first and end offset; ask again while brokers do not answer.

        Raises: Unavailable, when the time is up; Misconfigured for a missing topic.
        """
        names = ", ".join(map(str, topic_partitions))
        first, end = self._offsets_of(
            topic_partitions,
            (EARLIEST, LATEST),
            f"look up the bounds of {names}",
            timeout_s,
        )
        return {each: (first[each], end[each]) for each in topic_partitions}

    def at_time(
        self, topic_partitions: Sequence[TopicPartition], timestamp_ms: int
    ) -> Mapping[TopicPartition, Offset]:
        """Return each partition's first offset at or behind a time; partitions without are left
        out. Raises: Unavailable; Misconfigured for a missing topic.
        """
        spec = OffsetSpec.for_timestamp(timestamp_ms)
        doing = "look up offsets by time"
        [found] = self._offsets_of(topic_partitions, (spec,), doing, ANSWER_S)
        return {each: offset for each, offset in found.items() if offset >= 0}

    def _offsets_of(
        self,
        topic_partitions: Sequence[TopicPartition],
        specs: Sequence[Any],
        doing: str,
        timeout_s: float,
    ) -> list[dict[TopicPartition, Offset]]:
        ends = time.monotonic() + timeout_s
        while (left_s := ends - time.monotonic()) > 0:
            try:
                return self._list_offsets(topic_partitions, specs, left_s)
            except KafkaException as error:
                for topic in {each.topic for each in topic_partitions}:
                    self._check_topic(topic, doing, max(_PAUSE_S, ends - time.monotonic()))
                if not is_retriable(error.args[0]) or time.monotonic() + _PAUSE_S > ends:
                    raise translated(error, doing) from error
                time.sleep(_PAUSE_S)
            except NoAnswer:
                break
        raise Unavailable(f"cannot {doing} within {timeout_s:g} s; look at the brokers")

    def _list_offsets(
        self,
        topic_partitions: Sequence[TopicPartition],
        specs: Sequence[Any],
        timeout_s: float,
    ) -> list[dict[TopicPartition, Offset]]:
        """Return the offsets by each of some specifications, which are requested at once."""
        if not topic_partitions:
            return [{} for _ in specs]
        administration, ends = self._administration(), time.monotonic() + timeout_s
        self._find_leaders(administration, {each.topic for each in topic_partitions}, timeout_s)
        requested = [
            administration.list_offsets(
                {to_librdkafka(each): spec for each in topic_partitions},
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=timeout_s,
            )
            for spec in specs
        ]
        return [
            {
                TopicPartition(at.topic, at.partition): offset_of(
                    answer, max(0.0, ends - time.monotonic()) + _PAUSE_S
                )
                for at, answer in answers.items()
            }
            for answers in requested
        ]

    def _find_leaders(
        self, administration: AdminClient, topics: Collection[str], timeout_s: float
    ) -> None:
        """Have leaders of topics looked up that librdkafka may have forgotten."""
        now_s = time.monotonic()
        for topic in topics:
            if now_s - self._leaders_found_s.get(topic, -math.inf) > _LEADERS_S:
                find_leaders(administration, [topic], timeout_s)
                self._leaders_found_s[topic] = now_s

    def read(
        self, topic_partition: TopicPartition, start: Offset, timeout_s: float
    ) -> Sequence[Record]:
        """Return records from `start` on, in order; none if none came within the timeout.

        Raises: Unavailable; Misconfigured for a missing topic.
        """
        return self.read_several({topic_partition: start}, timeout_s)

    def read_several(self, starts: Starts, timeout_s: float) -> Sequence[Record]:
        """Return records of several partitions, each in order; otherwise as `read`.

        Raises: as `read`; then nothing counts as read, and the same starts give the same records.
        """
        if starts != self._next:
            self._next, self._ends_seen = {}, {}
            self._consumer.assign(
                [to_librdkafka(topic_partition, start) for topic_partition, start in starts.items()]
            )
            self._next = dict(starts)
        ends = time.monotonic() + timeout_s
        while True:
            left_s = max(0.0, ends - time.monotonic())
            first = self._consumer.poll(left_s)
            if first is not None:
                found_records = self._records_from(
                    [first, *self._consumer.consume(_READ_AT_ONCE, 0)]
                )
                if found_records:
                    return found_records
            if left_s == 0.0:
                return []

    def end_seen(self, topic_partition: TopicPartition) -> Offset:
        """Return the end at which the last read arrived, 0 if it arrived at none.

        It may lie behind the last record: a transaction ends with a marker that nobody is given.
        """
        return self._ends_seen.get(topic_partition, Offset(0))

    def close(self) -> None:
        """Close the connection."""
        if self._connected is not None:
            self._connected.close()

    @property
    def _consumer(self) -> Consumer:
        if self._connected is None:
            self._connected = self._connect()
        return self._connected

    def _records_from(self, messages: Sequence[Message]) -> Sequence[Record]:
        starts = self._next
        try:
            read = records(
                [message for message in messages if not self._is_end(message)],
                f"read {', '.join(sorted({topic_partition.topic for topic_partition in starts}))}",
            )
        except TidegateError:
            # librdkafka's position is past the records that came with the error: assign again.
            self._next = {}
            raise
        new_records = [record for record in read if record.offset >= starts[record.at]]
        for record in new_records:
            self._next[record.at] = Offset(record.offset + 1)
        return new_records

    def _is_end(self, message: Message) -> bool:
        """Return whether a message says that a partition's end is reached, and note where it is."""
        error = message.error()
        if error is None or error.code() != KafkaError._PARTITION_EOF:
            return False
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None, "an end has a topic"
        assert partition is not None, "an end has a partition"
        assert offset is not None, "an end has an offset"
        self._ends_seen[TopicPartition(topic, partition)] = Offset(offset)
        return True

    def _check_topic(self, topic: str, doing: str, timeout_s: float) -> None:
        """Raise for a missing topic, which librdkafka reports only as a missing leader."""
        try:
            error = self._administration().list_topics(topic, timeout=timeout_s).topics[topic].error
        except KafkaException as unanswered:
            error = unanswered.args[0]
        if error is not None and not is_retriable(error):
            raise translated(error, doing)
