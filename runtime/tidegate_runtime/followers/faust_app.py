"""Faust's settings and threads; and partitions, offsets and errors converted from Faust's.

`SkippedRecords` detects records of `commits` that Faust never delivers. When its group's generation
changes during a fetch, Faust may skip the fetched records, or never fetch again, without an error.
So this module asks the brokers: a record between the group's committed offset and the topic
partition's end has not been delivered.
"""

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import faust
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError, KafkaError
from faust.types import TP
from faust.types.auth import CredentialsT
from mode.threads import WorkerThread

from tidegate_delta.errors import Misconfigured, TidegateError, Unavailable
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.settings import (
    LOOK_FOR_LEADERS_MS,
    KafkaSecurity,
    KafkaSettings,
    current_token,
    password,
    ssl_context,
)


def for_faust(settings: KafkaSettings) -> CredentialsT | None:
    """Return Faust's credentials, or None for a plain connection.

    Raises: OSError, for a certificate or key that is missing or unusable; Misconfigured, for a file
        of a secret.
    """
    security = settings.security
    context = None
    if security.uses_tls:
        context = RenewedTls(ssl.PROTOCOL_TLS_CLIENT)
        context.read(security)
    if security.uses_oauth:
        return faust.OAuthCredentials(oauth_cb=TokenProvider(security), ssl_context=context)
    if security.uses_sasl:
        return faust.SASLCredentials(
            username=security.username,
            password=password(security),
            ssl_context=context,
            mechanism=security.mechanism,
        )
    return None if context is None else faust.SSLCredentials(context)


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka is untyped
    """Gives aiokafka a token for each connection."""

    def __init__(self, security: KafkaSecurity) -> None:
        self._security = security

    async def token(self) -> str:
        """Return a token. Raises: KafkaConnectionError, after which aiokafka connects again."""
        try:
            token = await asyncio.to_thread(current_token, self._security)
        except TidegateError as error:
            raise KafkaConnectionError(str(error)) from error
        return token.value


class RenewedTls(ssl.SSLContext):
    """A TLS context that reads its certificates again for each connection.

    Their files are replaced while the service runs, and the brokers then refuse the old ones.
    """

    _security: KafkaSecurity
    _last: ssl.SSLContext

    def read(self, security: KafkaSecurity) -> None:
        """Read the files that are configured. Raises: OSError."""
        context = ssl_context(security)
        assert context is not None, "it is asked for where there is TLS"
        self._security, self._last = security, context

    def wrap_bio(self, *buffers: Any, **options: Any) -> ssl.SSLObject:
        """Return a connection's TLS object; if a file can't be read just then, use the last."""
        with suppress(OSError, Misconfigured):
            self.read(self._security)
        return self._last.wrap_bio(*buffers, **options)


_COMMIT_INTERVAL_S: Final = 0.5
_ANSWER_S: Final = 10.0
_BESIDES_S: Final = 5.0


class DaemonWorkerThread(WorkerThread):
    """A daemon thread for Faust, which does not keep the process alive.

    While Faust joins its group, it may not end in time after a stop. It then holds nothing but its
    group membership, which ends with its session.
    """

    def __init__(self, service: Any, **kwargs: Any) -> None:
        super().__init__(service, **kwargs)
        self.daemon = True
        # The follower handles the crash and logs its cause; Faust would print it as well.
        service.on_crash = lambda *_, **__: None

    def run(self) -> None:
        """Run the service, and report its end also after a cancellation.

        While brokers do not answer it ends by a cancellation, which Faust does not report: the
        caller that stops it would wait for a minute.
        """
        try:
            super().run()
        except asyncio.CancelledError:
            # The waiting caller may have ended, and its event loop with it.
            with suppress(RuntimeError):
                self.service.set_shutdown()


def app_settings(name: str, kafka: KafkaSettings, folder: Path) -> dict[str, Any]:
    """Return the settings of the Faust app. Those that differ from its defaults were measured.

    Raises: Misconfigured, for a file of `kafka.security` that can't be used.
    """
    session_s = kafka.session_timeout_ms / 1000
    rebalance_s = max(session_s, 10.0)
    try:
        credentials = for_faust(kafka)
    except OSError as error:
        raise Misconfigured(f"kafka.security: a file cannot be used: {error}") from error
    return {
        "id": f"{kafka.topic_prefix}{name}",
        # With the driver `confluent://` Faust silently joins no group.
        "broker": ";".join(
            f"aiokafka://{server.strip()}" for server in kafka.bootstrap_servers.split(",")
        ),
        "broker_credentials": credentials,
        "broker_client_id": f"tidegate-{name}",
        "consumer_group_instance_id": kafka.client.get("group.instance.id"),
        "consumer_auto_offset_reset": "earliest",
        "broker_session_timeout": session_s,
        "broker_heartbeat_interval": session_s / 3,
        "broker_rebalance_timeout": rebalance_s,
        # A broker that hangs is given up after this time. A join may have to wait for the whole
        # rebalance.
        "broker_request_timeout": rebalance_s + _BESIDES_S,
        "consumer_metadata_max_age_ms": LOOK_FOR_LEADERS_MS,
        # Effectively off: `/healthz` checks progress, and a full buffer is no failure.
        "broker_max_poll_interval": 3600.0,
        "broker_commit_interval": _COMMIT_INTERVAL_S,
        "processing_guarantee": "at_least_once",
        "topic_disable_leader": True,
        "topic_allow_declare": False,
        "stream_wait_empty": False,
        "web_enabled": False,
        "autodiscover": False,
        "store": "memory://",
        "datadir": str(folder),
        "loghandlers": [],
    }


async def unread(app: faust.App) -> int:
    """Return how many records of our partitions have not been fetched yet."""
    waiting = 0
    for topic_partition in app.consumer.assignment():
        end = app.consumer.highwater(topic_partition)
        position = await app.consumer.position(topic_partition)
        waiting += max(0, (end or 0) - (position or 0))
    return waiting


async def ends(app: faust.App) -> dict[TopicPartition, int] | None:
    """Return the end offsets of our partitions; None if the brokers do not answer."""
    try:
        async with asyncio.timeout(_ANSWER_S):
            assigned = app.consumer.assignment()
            end_offsets = await app.consumer.highwaters(*assigned) if assigned else {}
    except (TimeoutError, KafkaError):
        return None
    return {partition(topic_partition): end for topic_partition, end in end_offsets.items()}


def partition(topic_partition: TP) -> TopicPartition:
    """Convert Faust's topic partition to ours."""
    return TopicPartition(topic_partition.topic, topic_partition.partition)


def translated_error(error: BaseException) -> BaseException:
    """Return Unavailable for errors of aiokafka and of connections, and other errors unchanged."""
    if isinstance(error, TidegateError):
        return error
    if type(error).__module__.startswith("aiokafka") or isinstance(error, ConnectionError):
        description = f"{type(error).__name__}: {error}"
        unavailable = Unavailable(
            f"the brokers do not answer ({description}); check that they run, and "
            "kafka.bootstrap_servers"
        )
        unavailable.__cause__ = error
        return unavailable
    return error


FOUND_MAX: Final = 2
"""Consecutive checks that must find waiting records, with none delivered in between."""


class SkippedRecords:
    """Tracks which offsets were delivered, and counts the checks that found records waiting.

    Law: a record delivered after a check began makes that check's result void.
    """

    def __init__(self) -> None:
        self._next: dict[TopicPartition, int] = {}
        self._found = 0
        self._heard = 0

    def assigned(self) -> None:
        """Reset after a rebalance: delivery begins at the group's committed offsets."""
        self._next.clear()
        self._found = 0

    def heard(self, topic_partition: TopicPartition, offset: int) -> None:
        """Note a record that was delivered."""
        self._next[topic_partition] = offset + 1
        self._found = 0
        self._heard += 1

    def with_undelivered(self, ends: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Return the partitions whose end lies beyond the last delivered record."""
        return [
            topic_partition
            for topic_partition, end in ends.items()
            if end > self._next.get(topic_partition, 0)
        ]

    @property
    def moment(self) -> int:
        """A number that changes with every record delivered; read it before a check."""
        return self._heard

    def found(self, bounds: Mapping[TopicPartition, tuple[int, int]], moment: int) -> int:
        """Record the result of a check begun at `moment`: committed offsets and ends.

        Returns how many records wait, once `FOUND_MAX` checks in a row found some; else 0.
        """
        if moment != self._heard:
            return 0
        for topic_partition, (position, _) in bounds.items():
            self._next[topic_partition] = position
        waiting = sum(end - position for position, end in bounds.values())
        self._found = self._found + 1 if waiting else 0
        return waiting if self._found >= FOUND_MAX else 0


def ask(
    kafka: KafkaSettings, group: str, suspects: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the group's committed offset, or the first one if later, and the end of partitions.

    It blocks, and does not join the group. Raises: Unavailable; Misconfigured for a missing topic.
    """
    bus = KafkaBus(kafka, group)
    bounds: dict[TopicPartition, tuple[int, int]] = {}
    with closing(bus.consumer(group, [])) as member, closing(bus.reader()) as reader:
        for topic_partition in suspects:
            first, end = reader.bounds(topic_partition)
            bounds[topic_partition] = (
                max(first, min(end, member.committed(topic_partition) or 0)),
                end,
            )
    return bounds
