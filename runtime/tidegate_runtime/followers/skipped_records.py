"""Detect records of `commits` that Faust never delivers.

When its group's generation changes during a fetch, Faust may skip the fetched records, or never
fetch again, without an error. So this module asks the brokers: a record between the group's
committed offset and the topic partition's end has not been delivered.
"""

from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Final

from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.settings import KafkaSettings

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

    def beyond(self, ends: Mapping[TopicPartition, int]) -> list[TopicPartition]:
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
