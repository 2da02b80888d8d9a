"""What the brokers say of consumer groups and of the caller's own rights. It only reads.

Find out why brokers don't answer: name, address, port, TLS, login. It sends no records.
"""

import socket
import ssl
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not declared so
    AclOperation,
    AdminClient,
)

from tidegate_delta.errors import Misconfigured, TidegateError, Unavailable
from tidegate_runtime.kafka.client_protocols import ANSWER_S, Offset, TopicPartition
from tidegate_runtime.kafka.librdkafka import (
    LATEST,
    LIBRARY,
    find_leaders,
    from_librdkafka,
    make_client,
    offset_of,
    to_librdkafka,
    translated,
)
from tidegate_runtime.kafka.settings import (
    KafkaSecurity,
    KafkaSettings,
    current_token,
    for_librdkafka,
    ssl_context,
)

V = TypeVar("V")

FIRST_S: Final = 4.0
"""How long the first request about a group may take."""

SETTLES_S: Final = 5.0
"""How long a topic that was just created may lack a leader."""

_PAUSE_S: Final = 0.2


@dataclass(frozen=True)
class Member:
    """A member of a consumer group. `partitions` are those that it owns; a standby has none."""

    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True)
class GroupState:
    """A consumer group."""

    name: str
    state: str
    members: tuple[Member, ...]


@dataclass(frozen=True)
class ClusterSize:
    """The id of a cluster, and the addresses of its brokers."""

    cluster_id: str
    brokers: tuple[str, ...]


def patiently(work: Callable[[], V], timeout_s: float = SETTLES_S) -> V:
    """Return what `work` returns; while brokers send it away, try again until the time is up.

    Raises: as `work`.
    """
    until_s = time.monotonic() + timeout_s
    while True:
        try:
            return work()
        except Unavailable:
            if time.monotonic() > until_s:
                raise
            time.sleep(_PAUSE_S)


class ClusterState:
    """Reads the state of one cluster, as its brokers report it to this client."""

    def __init__(self, settings: KafkaSettings, client_id: str) -> None:
        config: dict[str, Any] = {
            "client.id": client_id,
            "logger": LIBRARY,
            **for_librdkafka(settings),
        }
        self._config = config
        self._servers = settings.bootstrap_servers
        self._admin: AdminClient = make_client(AdminClient, config)

    def size(self) -> ClusterSize:
        """Return the cluster's id and brokers. Raises: Unavailable, Misconfigured."""
        cluster = self._answer(
            self._admin.describe_cluster(request_timeout=ANSWER_S), "describe the cluster"
        )
        brokers = tuple(f"{node.host}:{node.port}" for node in cluster.nodes)
        return ClusterSize(str(cluster.cluster_id), brokers)

    def groups(self, names: Collection[str]) -> dict[str, GroupState | TidegateError]:
        """Return each group, or why it can't be described: a missing right, silent brokers.

        A group that does not exist has the state `dead`, and no members.
        """
        groups = self._groups(names, FIRST_S)
        # In a new cluster the first request creates the topic of offsets, and is not answered.
        if any(isinstance(group, Unavailable) for group in groups.values()):
            groups = self._groups(names, ANSWER_S)
        return groups

    def _groups(
        self, names: Collection[str], timeout_s: float
    ) -> dict[str, GroupState | TidegateError]:
        # All requests are under way before the first answer is awaited.
        described = {
            name: self._admin.describe_consumer_groups([name], request_timeout=timeout_s)[name]
            for name in names
        }
        groups: dict[str, GroupState | TidegateError] = {}
        for name, answer in described.items():
            try:
                groups[name] = _group(name, self._answer(answer, f"describe group {name!r}"))
            except TidegateError as error:
                groups[name] = error
        return groups

    def committed(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Offset]:
        """Return the offsets that a group has committed; partitions without one are left out.

        Raises: Unavailable; Misconfigured, without the right to describe the group.
        """
        # librdkafka's admin client crashes when a coordinator has moved; its consumer does not.
        consumer = make_client(
            Consumer, {**self._config, "group.id": group, "enable.auto.commit": False}
        )
        try:
            positions = consumer.committed(
                [to_librdkafka(topic_partition) for topic_partition in partitions], timeout=ANSWER_S
            )
        except KafkaException as error:
            raise translated(error, f"look up the position of group {group!r}") from error
        finally:
            consumer.close()
        return {
            TopicPartition(committed.topic, committed.partition): Offset(committed.offset)
            for committed in positions
            if committed.error is None and committed.offset >= 0
        }

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Return the end offset of each partition: the high watermark.

        Raises: Unavailable; Misconfigured, for a missing topic or right.
        """
        return patiently(lambda: self._ends(partitions)) if partitions else {}

    def _ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        offset_specs = {to_librdkafka(topic_partition): LATEST for topic_partition in partitions}
        topics = {each.topic for each in partitions}
        with self._answering(f"look up the leaders of {', '.join(sorted(topics))}"):
            find_leaders(self._admin, topics, ANSWER_S)
        answers = self._admin.list_offsets(offset_specs, request_timeout=ANSWER_S)
        ends = {}
        for topic_partition, answer in answers.items():
            at = TopicPartition(topic_partition.topic, topic_partition.partition)
            with self._answering(f"look up the end of {at}"):
                ends[at] = offset_of(answer, ANSWER_S)
        return ends

    def rights_on_topics(self, names: Collection[str]) -> dict[str, frozenset[str] | None]:
        """Return the operations that this client may do on each topic; None for a missing topic.

        A topic that it may not describe has none. Brokers without ACLs allow everything.
        Raises: Unavailable.
        """
        if not names:
            return {}
        answers = self._admin.describe_topics(
            TopicCollection(list(names)),
            include_authorized_operations=True,
            request_timeout=ANSWER_S,
        )
        return {name: self._rights(answer, f"topic {name!r}") for name, answer in answers.items()}

    def rights_on_groups(self, names: Collection[str]) -> dict[str, frozenset[str] | None]:
        """Return the operations that this client may do on each group. Raises: Unavailable."""
        return {name: patiently(partial(self._rights_on_group, name)) for name in names}

    def _rights_on_group(self, name: str) -> frozenset[str] | None:
        answers = self._admin.describe_consumer_groups(
            [name], include_authorized_operations=True, request_timeout=ANSWER_S
        )
        return self._rights(answers[name], f"group {name!r}")

    def _rights(self, answer: "Future[Any]", resource: str) -> frozenset[str] | None:
        try:
            description = self._answer(answer, f"look up the rights on {resource}")
        except Misconfigured as error:
            is_missing = "UNKNOWN_TOPIC" in str(error)
            return None if is_missing else frozenset()
        return frozenset(
            _operation(operation) for operation in description.authorized_operations or ()
        )

    def _answer(self, answer: "Future[V]", doing: str) -> V:
        with self._answering(doing):
            return answer.result(ANSWER_S)

    @contextmanager
    def _answering(self, doing: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise translated(error, doing) from error
        except TimeoutError as error:
            raise Unavailable(
                f"no answer from {self._servers} within {ANSWER_S} s; look whether the brokers run"
            ) from error


def _group(name: str, description: Any) -> GroupState:
    members = tuple(
        Member(member.client_id, member.host.lstrip("/"), tuple(_owned(member)))
        for member in description.members
    )
    return GroupState(name, description.state.name.lower(), members)


def _owned(member: Any) -> list[TopicPartition]:
    assignment = member.assignment
    return from_librdkafka(assignment.topic_partitions) if assignment else []


def _operation(operation: AclOperation) -> str:
    """Return an operation as Kafka's tools write it: `DescribeConfigs`."""
    return "".join(word.capitalize() for word in operation.name.split("_"))


CONNECT_S: Final = 3.0
LOGIN_S: Final = 10.0
_TICK_S: Final = 0.2
_SILENT: Final = 0
"""librdkafka's log level: the error is returned."""

_SETTLED: Final = frozenset(
    {KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED}
)
"""Errors that another attempt does not cure."""


def fault_of_server(server: str, security: KafkaSecurity) -> str | None:
    """Return what is wrong with the way to one broker, with the remedy, or None.

    It connects, and shakes hands if TLS is configured. Otherwise a broker that speaks TLS on this
    port is found, too.
    """
    host, _, port = server.strip().rpartition(":")
    if not host or not port.isdigit():
        return f"{server!r} is no address: write host:port in `kafka.bootstrap_servers`"
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_S) as plain:
            return _fault_of_tls(plain, host.strip("[]"), security)
    except socket.gaierror as error:
        return f"the name {host} is not known here ({error.strerror}): correct it, or look at DNS"
    except TimeoutError:
        return f"no answer within {CONNECT_S:g} s: a firewall or a network policy drops packets"
    except OSError as error:
        reason = error.strerror or str(error)
        return f"{reason}: start the broker, or correct the address and the port"


def login_error(settings: KafkaSettings, timeout_s: float = LOGIN_S) -> TidegateError | None:
    """Return why the brokers let this client not in, or None if they do."""
    errors: list[KafkaError] = []
    config: dict[str, Any] = {
        "logger": LIBRARY,
        **for_librdkafka(settings),
        "log_level": _SILENT,
        "error_cb": errors.append,
    }
    try:
        if settings.security.uses_oauth:
            # The library waits for ten seconds before it says that it has no token.
            current_token(settings.security)
        admin = make_client(AdminClient, config)
    except TidegateError as error:
        return error
    until_s = time.monotonic() + timeout_s
    while True:
        admin.poll(0)
        final = next((error for error in errors if error.code() in _SETTLED), None)
        if final is not None:
            return translated(final, f"log in at {settings.bootstrap_servers}")
        try:
            admin.list_topics(timeout=_TICK_S)
        except KafkaException as error:
            if time.monotonic() > until_s:
                return translated(error, f"list the topics at {settings.bootstrap_servers}")
        else:
            return None


def _fault_of_tls(plain: socket.socket, host: str, security: KafkaSecurity) -> str | None:
    if not security.uses_tls:
        return None
    try:
        context = ssl_context(security)
        assert context is not None, "TLS is used"
        with context.wrap_socket(plain, server_hostname=host):
            return None
    except ssl.SSLCertVerificationError as error:
        return (
            f"its certificate is refused ({error.verify_message}): check `ca_location`, the name "
            "in the address, and the certificate's dates"
        )
    except ssl.SSLError as error:
        return (
            f"the TLS handshake fails ({error.reason or error}): does this port speak TLS, and "
            "does the broker ask for a certificate of the client?"
        )


def speaks_tls(server: str) -> bool:
    """Return whether a broker's port answers a TLS handshake, whatever its certificate."""
    host, _, port = server.strip().rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_S) as plain,
            context.wrap_socket(plain, server_hostname=host.strip("[]")),
        ):
            return True
    except (OSError, ValueError):
        return False
