"""The state of an installation, read from Kafka: services, tables, change streams, dead letters.

Nothing here needs a service to answer: it is what the brokers and the topics say.

`attention` lists what needs somebody, and what to do about each.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Literal, TypeVar
from uuid import UUID

from tidegate_cdc_publisher.transactional_producer import read_positions
from tidegate_delta.errors import TidegateError, Unavailable
from tidegate_messages.published_records import FollowerRecord, TableRecord
from tidegate_messages.stream_position import Positions
from tidegate_messages.topics import Topics
from tidegate_producers.history.outcome_log import DeadLetters, newest_letters
from tidegate_runtime.clock import Clock, SystemClock
from tidegate_runtime.followers.quarantine import read_follower_state
from tidegate_runtime.followers.stream_status import StreamStatus, statuses
from tidegate_runtime.kafka.client_protocols import Offset, Record, TopicPartition
from tidegate_runtime.kafka.cluster_state import (
    ClusterSize,
    ClusterState,
    GroupState,
    Member,
    patiently,
)
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.settings import KafkaSettings
from tidegate_runtime.table_registry import RegistryReader

V = TypeVar("V")
W = TypeVar("W")

CLIENT_ID: Final = "tidegate-console"
LETTERS: Final = 50
"""How many of the newest dead letters are read."""

_OLDEST_S: Final = 2.0
_NO_LETTERS: Final = DeadLetters(0, ())


@dataclass(frozen=True)
class ServiceState:
    """A service as its consumer group shows it.

    `waiting` counts the offsets of its topic that it has not committed yet. `oldest_ms` is the age
    of the first record among them, or None: offsets may hold no record that can be read, such as
    the mark of a Kafka transaction.
    """

    service: str
    topic: str
    members: tuple[Member, ...]
    topic_partitions: int
    waiting: int
    oldest_ms: int | None = None

    @property
    def active(self) -> tuple[Member, ...]:
        """The members that own topic partitions."""
        return tuple(member for member in self.members if member.partitions)

    @property
    def standby(self) -> tuple[Member, ...]:
        """The members that would take over."""
        return tuple(member for member in self.members if not member.partitions)

    @property
    def owned(self) -> int:
        """How many partitions of its topic have an owner."""
        return len(
            {
                topic_partition
                for member in self.members
                for topic_partition in member.partitions
                if topic_partition.topic == self.topic
            }
        )


@dataclass(frozen=True)
class Overview:
    """What was read at `at_ms`. `unread` says which parts could not be read, and why."""

    at_ms: int
    bootstrap_servers: str
    topics: Topics
    cluster: ClusterSize | None
    services: Mapping[str, ServiceState]
    tables: Mapping[UUID, TableRecord]
    quarantined: Mapping[UUID, Sequence[FollowerRecord]]
    streams: Sequence[StreamStatus]
    letters: DeadLetters
    unread: Mapping[str, str]


class OverviewReader:
    """Reads overviews of one installation; each reading of the registry goes on from the last."""

    def __init__(self, kafka: KafkaSettings, clock: Clock | None = None) -> None:
        self._kafka, self._clock = kafka, clock or SystemClock()
        self._bus = KafkaBus(kafka, CLIENT_ID)
        self._state = ClusterState(kafka, CLIENT_ID)
        self._registry = RegistryReader(self._bus, kafka.topics)

    def read(self) -> Overview:
        """Return the present state.

        A part without the right to read it is left out, and named in `unread`.
        Raises: Unavailable, if the brokers do not answer.
        """
        topics = self._kafka.topics
        unread: dict[str, str] = {}
        with ThreadPoolExecutor(max_workers=6, thread_name_prefix="overview") as pool:
            cluster = pool.submit(self._state.size)
            services = pool.submit(self._services)
            registry = pool.submit(self._registry.read)
            followers = pool.submit(read_follower_state, self._bus, topics)
            positions = pool.submit(self._positions)
            letters = pool.submit(newest_letters, self._bus, topics, LETTERS)
        tables = _part(unread, "tables", registry, dict[UUID, TableRecord])
        quarantined = list(
            _part(unread, "followers", followers, dict[bytes, FollowerRecord]).values()
        )
        places = _part(unread, "change streams", positions, lambda: None)
        found_services, missing = _part(unread, "services", services, lambda: ({}, {}))
        return Overview(
            at_ms=self._clock.now_ms(),
            bootstrap_servers=self._kafka.bootstrap_servers,
            topics=topics,
            cluster=_part(unread, "cluster", cluster, lambda: None),
            services=found_services,
            tables=tables,
            quarantined={
                table: [record for record in quarantined if record.table == table]
                for table in {record.table for record in quarantined}
            },
            streams=() if places is None else tuple(statuses(tables.values(), places, quarantined)),
            letters=_part(unread, "dead letters", letters, lambda: _NO_LETTERS),
            unread=unread | missing,
        )

    def _positions(self) -> Positions:
        return patiently(lambda: read_positions(self._kafka))

    def _services(self) -> tuple[dict[str, ServiceState], dict[str, str]]:
        topics, prefix = self._kafka.topics, self._kafka.topic_prefix
        followed = {
            "committer": topics.proposals,
            "checkpointer": topics.commits,
            "cdc-publisher": topics.commits,
        }
        groups = self._state.groups([f"{prefix}{service}" for service in followed])
        partitions = {
            topic: [TopicPartition(topic, number) for number in range(self._bus.partitions(topic))]
            for topic in set(followed.values())
        }
        ends = self._state.ends(
            [topic_partition for every in partitions.values() for topic_partition in every]
        )
        states, missing = {}, {}
        for service, topic in followed.items():
            group = groups[f"{prefix}{service}"]
            if isinstance(group, Unavailable):
                raise group
            if isinstance(group, TidegateError):
                missing[service] = str(group)
                continue
            states[service] = self._service(service, group, partitions[topic], ends)
        return states, missing

    def _service(
        self,
        service: str,
        group: GroupState,
        partitions: Sequence[TopicPartition],
        ends: Mapping[TopicPartition, Offset],
    ) -> ServiceState:
        committed = self._state.committed(group.name, partitions)
        lagging = {
            topic_partition: offset
            for topic_partition, offset in committed.items()
            if offset < ends[topic_partition]
        }
        waiting = sum(ends[topic_partition] - offset for topic_partition, offset in lagging.items())
        oldest_ms = self._oldest_ms(lagging) if lagging else None
        topic = partitions[0].topic
        return ServiceState(service, topic, group.members, len(partitions), waiting, oldest_ms)

    def _oldest_ms(self, starts: Mapping[TopicPartition, Offset]) -> int | None:
        """Return the age of the oldest of the first records from these offsets on, or None."""
        reader, firsts = self._bus.reader(), dict[TopicPartition, Record]()
        try:
            for record in reader.read_several(dict(starts), _OLDEST_S):
                firsts.setdefault(record.at, record)
        finally:
            reader.close()
        ages = [self._clock.now_ms() - record.timestamp_ms for record in firsts.values()]
        return max(0, *ages) if ages else None


def _part(
    unread: dict[str, str], part: str, answer: "Future[V]", otherwise: Callable[[], W]
) -> V | W:
    """Return a part that was read or, without the right to, its empty form.

    Raises: Unavailable.
    """
    try:
        return answer.result()
    except Unavailable:
        raise
    except TidegateError as error:
        unread[part] = str(error)
        return otherwise()


WAITS_MAX_MS: Final = 60_000
"""Past this age of the oldest waiting proposal somebody should look (`TidegateWritersWait`)."""

DAY_MS: Final = 24 * 60 * 60 * 1000
Level = Literal["problem", "note"]


@dataclass(frozen=True)
class Attention:
    """Something to look at. A `problem` needs somebody to act, a `note` may be intended.

    `guide` is the part of the documents that tells more.
    """

    level: Level
    about: str
    what: str
    do: str
    guide: str


def attention(overview: Overview) -> list[Attention]:
    """Return what needs attention, problems first."""
    items = [
        *_services(overview),
        *_tables(overview),
        *_followers(overview),
        *_streams(overview),
        *_letters(overview),
        *_unread(overview),
    ]
    return sorted(items, key=lambda item: item.level != "problem")


def _services(overview: Overview) -> Iterator[Attention]:
    for service, state in overview.services.items():
        yield from _of_service(service, state)


def _of_service(service: str, state: ServiceState) -> Iterator[Attention]:
    effect, late = {
        "committer": ("proposals wait, nothing is lost", "runbook.md#tidegatewriterswait"),
        "checkpointer": (
            "readers replay more and more commits",
            "runbook.md#tidegatecheckpointslate",
        ),
        "cdc-publisher": ("subscribers fall behind", "runbook.md#tidegatechangeslate"),
    }[service]
    guide = "operations.md#start-and-stop"
    if not state.members:
        yield Attention(
            "problem", service, f"none runs: {effect}", f"start one: `tidegate {service}`", guide
        )
    elif state.owned < state.topic_partitions:
        yield Attention(
            "problem",
            service,
            f"{state.topic_partitions - state.owned} of {state.topic_partitions} partitions of "
            f"{state.topic} have no owner: {effect}",
            "wait some seconds for the rebalance; then look at `/readyz` of its processes",
            "committer.md#states-of-the-loop",
        )
    if state.oldest_ms is not None and state.oldest_ms > WAITS_MAX_MS:
        yield Attention(
            "problem",
            service,
            f"{state.waiting} records wait, the oldest for {state.oldest_ms // 1000} s: {effect}",
            "look at its log, and at the tables that are halted or rest",
            late,
        )
    if service == "committer" and len(state.members) == 1:
        yield Attention(
            "note",
            service,
            "there is no standby: if this one dies, writers wait until another is started",
            "run two",
            guide,
        )


def _tables(overview: Overview) -> Iterator[Attention]:
    for table in sorted(overview.tables.values(), key=lambda record: record.name):
        if table.status == "halted":
            yield _halted(table)
        elif table.status == "open" and table.reason is not None:
            do = "mend what the reason names; it goes on by itself"
            guide = "committer.md#halting-and-healing"
            yield Attention("problem", table.name, table.reason, do, guide)


def _halted(table: TableRecord) -> Attention:
    if table.halted_by_hand is not None:
        return Attention(
            "note",
            table.name,
            f"is halted by hand: {table.halted_by_hand}",
            f"when it is over: `tidegate table reopen {table.name}`",
            "committer.md#halting-and-healing",
        )
    return Attention(
        "problem",
        table.name,
        f"is halted: {table.reason}",
        f"repair what the reason names; then `tidegate table retry {table.name}`",
        "committer.md#halting-and-healing",
    )


def _followers(overview: Overview) -> Iterator[Attention]:
    for records in overview.quarantined.values():
        for record in records:
            yield Attention(
                "problem",
                record.name,
                f"{record.service} has set it aside, after {record.attempts} attempts: "
                f"{record.reason}",
                f"repair what the reason names; then `tidegate table retry {record.name}`",
                "changes.md#when-a-table-stops"
                if record.service == "cdc-publisher"
                else "operations.md#errors",
            )


def _streams(overview: Overview) -> Iterator[Attention]:
    quarantined = {record.name for records in overview.quarantined.values() for record in records}
    for stream in overview.streams:
        if stream.state == "stopped" and stream.table not in quarantined:
            yield Attention(
                "problem",
                stream.table,
                f"its change stream has stopped: {stream.reason}",
                f"repair what the reason names; then `tidegate table retry {stream.table}`",
                "changes.md#when-a-table-stops",
            )


def _letters(overview: Overview) -> Iterator[Attention]:
    lately = [
        letter for letter in overview.letters.newest if letter.at_ms > overview.at_ms - DAY_MS
    ]
    if lately:
        newest = lately[0]
        count = f"{len(lately)}{' or more' if len(lately) == len(overview.letters.newest) else ''}"
        yield Attention(
            "note",
            "dead letters",
            f"{count} in the last day; the newest, of {newest.source}: {newest.reason}",
            "find the program that sends them: its name is in the header `producer`",
            "runbook.md#tidegatedeadletters",
        )


def _unread(overview: Overview) -> Iterator[Attention]:
    for part, reason in overview.unread.items():
        yield Attention(
            "problem",
            part,
            f"could not be read: {reason}",
            "`tidegate doctor` says what is missing",
            "operations.md#rights-in-kafka",
        )
