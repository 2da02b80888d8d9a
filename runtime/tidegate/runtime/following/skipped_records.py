"""Records of `commits` that wait while nothing is at work: Faust leaves some behind.

When its group's generation changes while Faust fetches, it may skip what it fetched, or never
fetch again, and says nothing. Whether that happened is asked of the brokers, not of Faust: what
lies within the topic and behind the group's own position has not been heard.
"""

from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Final

from tidegate.runtime.bus import TopicPartition
from tidegate.runtime.kafka.bus import KafkaBus
from tidegate.runtime.kafka.settings import KafkaSettings

FOUND_MAX: Final = 2
"""Found so often, and nothing heard between: these records would never come."""


class SkippedRecords:
    """What a member of a group has heard of its partitions, and what it seems to be left without.

    Law: what was heard since a question was put takes back what its answer found.
    """

    def __init__(self) -> None:
        self._next: dict[TopicPartition, int] = {}
        self._found = 0
        self._heard = 0

    def assigned(self) -> None:
        """Forget all: what comes from now on begins at the group's position."""
        self._next.clear()
        self._found = 0

    def heard(self, at: TopicPartition, offset: int) -> None:
        """Note a record that came."""
        self._next[at] = offset + 1
        self._found = 0
        self._heard += 1

    def beyond(self, ends: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Return the partitions whose end lies beyond what was heard."""
        return [at for at, end in ends.items() if end > self._next.get(at, 0)]

    @property
    def moment(self) -> int:
        """What changes whenever something is heard."""
        return self._heard

    def found(self, bounds: Mapping[TopicPartition, tuple[int, int]], moment: int) -> int:
        """Note positions and ends that were asked for since `moment`.

        Returns how many records are left behind, once that was found `FOUND_MAX` times; else 0.
        """
        if moment != self._heard:
            return 0
        for at, (position, _) in bounds.items():
            self._next[at] = position
        waiting = sum(end - position for position, end in bounds.values())
        self._found = self._found + 1 if waiting else 0
        return waiting if self._found >= FOUND_MAX else 0


def ask(
    kafka: KafkaSettings, group: str, suspects: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the position of a group, at least the first record's, and the end of partitions.

    It blocks, and joins nothing. Raises: Unavailable; Misconfigured for a missing topic.
    """
    bus = KafkaBus(kafka, group)
    found: dict[TopicPartition, tuple[int, int]] = {}
    with closing(bus.consumer(group, [])) as member, closing(bus.reader()) as reader:
        for at in suspects:
            first, end = reader.bounds(at)
            found[at] = max(first, min(end, member.committed(at) or 0)), end
    return found
