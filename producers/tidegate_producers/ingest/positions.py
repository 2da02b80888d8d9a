"""How far a table is in its source partitions, as its log says, and what follows from that. Pure.

A topic's id is part of the application's name: a topic that is made anew counts from 0 again, and
is another source.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidegate_delta.errors import InvalidRequest, UnsupportedFeature
from tidegate_producers.ingest.settings import OnDataLoss, OnRestore, Start
from tidegate_runtime.kafka.client_protocols import TopicPartition

NEVER: Final = -1
"""The position of a partition that the table has never seen."""

_APPLICATION: Final = re.compile(r"ingest/([\w.-]+)@([\w-]+)/(\d+)")


class SourcePartition(NamedTuple):
    """A partition of a topic, with the id that Kafka gave the topic when it was made."""

    topic: str
    topic_id: str
    partition: int

    @property
    def app_id(self) -> str:
        """The application whose version in the table is the last offset that the table has."""
        return f"ingest/{self.topic}@{self.topic_id}/{self.partition}"

    def replay_app_id(self, topic: str) -> str:
        """Return the application whose version is the offset of the last dead letter of a topic
        that was replayed, if this is the partition of dead letters.
        """
        return f"ingest-replay/{topic}/{self.topic}@{self.topic_id}/{self.partition}"

    @property
    def place(self) -> TopicPartition:
        """The partition as Kafka's clients name it."""
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


def source_of(app_id: str) -> SourcePartition | None:
    """Return the source partition whose position an application's version is, or None.

    Law: source_of(source.app_id) == source
    """
    match = _APPLICATION.fullmatch(app_id)
    return None if match is None else SourcePartition(match[1], match[2], int(match[3]))


OffsetsBySource = Mapping[SourcePartition, int]
"""An offset of each source partition; of positions, the last that the table has."""


class Bounds(NamedTuple):
    """The first offset that a partition still has, and the one that its next record will get."""

    first: int
    end: int


def ends_of_batch(text: str) -> Mapping[tuple[str, int], int]:
    """Return the offsets before which a batch of a Kafka source ends, by topic and partition.

    `text` is what Spark has in a checkpoint's `offsets` for the batch: a line with the version of
    that form, which later versions of Spark read, too, one about the query, and one of the source.
    Raises: UnsupportedFeature, for another form.
    """
    version, _, *sources = text.splitlines()
    if version != "v1" or len(sources) != 1:
        raise UnsupportedFeature(
            f"Spark's checkpoint has offsets of form {version!r} for {len(sources)} sources, where "
            "v1 for one is known: set ingest.spark.spark.sql.streaming.offsetLog.formatVersion=1",
            feature="offset log",
        )
    ends = json.loads(sources[0])
    return {
        (topic, int(partition)): end
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
    }


def batch_ends(
    begins: OffsetsBySource, bounds: Mapping[SourcePartition, Bounds], records_max: int
) -> OffsetsBySource:
    """Return the offsets before which the next batch ends, of the partitions that have records.

    Each has an equal share of `records_max`, and one offset at least; what a short one leaves of
    its share goes to the others.
    Law: the batch has at most max(records_max, partitions with records) offsets.
    Shape: `bounds` has the partitions of `begins`.
    """
    there = {source: bounds[source].end - begin for source, begin in begins.items()}
    waiting = sorted((count, source) for source, count in there.items() if count > 0)
    ends: dict[SourcePartition, int] = {}
    left = records_max
    for number, (count, source) in enumerate(waiting):
        taken = min(count, max(1, left // (len(waiting) - number)))
        ends[source] = begins[source] + taken
        left -= taken
    return ends


@dataclass(frozen=True)
class Beginning:
    """Where a query begins in each partition, and the positions to note in the table before.

    A start other than the earliest is noted, because it would be another one after a restart.
    """

    offsets: OffsetsBySource
    noted: OffsetsBySource = field(default_factory=dict)


def beginning(
    positions: OffsetsBySource,
    bounds: Mapping[SourcePartition, Bounds],
    start: Start,
    looked_up: OffsetsBySource,
    after_data_loss: OnDataLoss,
) -> Beginning:
    """Return where a query begins: behind the table's positions, or where it has none, at a start.

    `looked_up` has, for a start by time, the first offset at that time, and for one behind another
    application, the one behind its position.
    Raises: InvalidRequest, naming partitions and offsets, for records that the topic has lost.
    """
    offsets: dict[SourcePartition, int] = {}
    noted: dict[SourcePartition, int] = {}
    faults: list[str] = []
    for source, (first, end) in sorted(bounds.items()):
        position = positions.get(source, NEVER)
        if position == NEVER:
            offset = _first_of(source, Bounds(first, end), start, looked_up)
            offsets[source] = offset
            if start.at != "earliest" and offset > 0:
                noted[source] = offset - 1
            continue
        offsets[source] = position + 1
        if position + 1 < first:
            offsets[source] = first
            if after_data_loss == "stop":
                faults.append(
                    f"{source}: offsets {position + 1} to {first - 1} are no longer in the topic, "
                    "and not in the table"
                )
        elif position + 1 > end:
            faults.append(
                f"{source}: the table has it up to offset {position}, and the topic ends at {end}: "
                "its brokers have lost records that the table has"
            )
    if faults:
        raise InvalidRequest(
            f"{'; '.join(faults)}. Lengthen the topic's retention; --after-data-loss skip goes on "
            "behind what retention has deleted. Where brokers lost the topic's end, make the topic "
            "anew: it is another source then. Nothing was committed",
            error_class="KAFKA_DATA_LOSS",
        )
    return Beginning(offsets, noted)


def _first_of(
    source: SourcePartition, bounds: Bounds, start: Start, looked_up: OffsetsBySource
) -> int:
    match start.at:
        case "latest":
            return bounds.end
        case "timestamp":
            return looked_up.get(source, bounds.end)
        case "offsets" | "application":
            given = start.offsets or {}
            keys = ((source.topic, source.partition), ("", source.partition))
            offset = next((given[key] for key in keys if key in given), bounds.first)
            offset = looked_up.get(source, offset)
            if not bounds.first <= offset <= bounds.end:
                raise InvalidRequest(
                    f"start: {source} has the offsets {bounds.first} to {bounds.end}, and not "
                    f"{offset}: give one of these; nothing was committed",
                    error_class="DELTA_ILLEGAL_OPTION",
                )
            return offset
        case _:
            return bounds.first


def behind(
    known: OffsetsBySource, current: OffsetsBySource
) -> Iterator[tuple[SourcePartition, int, int]]:
    """Yield each partition in which the table is before the position that this job has committed,
    with the job's position and the table's.
    """
    for source, position in sorted(known.items()):
        if current[source] < position:
            yield source, position, current[source]


def check_not_behind(
    known: OffsetsBySource, current: OffsetsBySource, root: str, after_restore: OnRestore
) -> None:
    """Check that a table has what this job committed to it, or that `after_restore` decides.

    Raises: InvalidRequest, naming the partitions with both positions, and the option.
    """
    back = list(behind(known, current))
    if not back or after_restore != "stop":
        return
    places = "; ".join(
        f"{source}: this job committed offset {own}, and the table has "
        f"{'none' if now == NEVER else now}"
        for source, own, now in back
    )
    remedy = "a job that is started again copies the records between again"
    if all(now == NEVER for _, _, now in back):
        starts = ",".join(f"{s.topic}:{s.partition}:{own + 1}" for s, own, _ in back)
        remedy += f". To leave them out, start it with --start {starts}"
    raise InvalidRequest(
        f"{root} was put back to an earlier state, or made anew: {places}. Decide before you start "
        f"it: {remedy}. A job with --after-restore again or skip decides so by itself while it "
        "runs; nothing was committed",
        error_class="TableRestored",
    )
