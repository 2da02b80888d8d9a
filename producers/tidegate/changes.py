"""Follow a table's change stream: `from tidegate import changes`.

with changes.follow("flights", KafkaSettings(bootstrap_servers="…"), position) as stream:
    for change in stream.changes(quiet_s=10):
        copy.apply(change)
    save(copy, stream.position)
"""

from collections.abc import Mapping
from typing import Any, Final

from tidegate_runtime.client.change_stream import (
    Change,
    ChangeStream,
    Gap,
    NewSchema,
    TableCopy,
    WholeVersion,
)
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.settings import KafkaSettings

__all__ = ["Change", "ChangeStream", "Gap", "NewSchema", "TableCopy", "WholeVersion", "follow"]

CLIENT_ID: Final = "tidegate-changes"


def follow(
    table: str,
    kafka: KafkaSettings,
    position: Mapping[str, Any] | None = None,
    *,
    topic: str | None = None,
    storage: Mapping[str, str] | None = None,
) -> ChangeStream:
    """Return the change stream of a registered table, by its name or root.

    `topic` is its topic, if the publisher's setting `cdc.topic` gives it another name. `storage`
    are options of the table's store, from which rows come that were too large for the topic.
    `position` is `ChangeStream.position` of a former run; None begins with the oldest change.
    Raises: InvalidRequest (`TableNotRegistered`, `ChangesGone`, `WrongPosition`); Misconfigured,
    for a table that no publisher publishes; Unavailable.
    """
    bus = KafkaBus(kafka, CLIENT_ID)
    return ChangeStream.of_table(bus, kafka.topics, table, position, topic=topic, storage=storage)
