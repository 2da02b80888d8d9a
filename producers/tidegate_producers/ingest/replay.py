"""Reads the dead letters of a table again, after its schema or the route was corrected: once.

The position of the replay is in the commit, as that of a source is: the offset of the last dead
letter that was considered. What is no row this time either is sent again, as the next attempt.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame, Row, SparkSession

from tidegate_delta.errors import InvalidRequest
from tidegate_producers.cached_clients import client_for
from tidegate_producers.ingest.dead_letters import DeadLetter, read_all
from tidegate_producers.ingest.positions import NEVER, OffsetsBySource, SourcePartition
from tidegate_producers.ingest.route_batches import (
    RERUNS_MAX,
    CopyAgain,
    Progress,
    RouteBatches,
    RouteDependencies,
    contended,
)
from tidegate_producers.ingest.settings import RECORD_PARTS
from tidegate_producers.ingest.target_table import TargetTable, opened
from tidegate_producers.writing.once import Positions
from tidegate_runtime.client.client import Rejected
from tidegate_runtime.kafka.client_protocols import Reader

LETTERS_MAX: Final = 10_000
"""How many dead letters are read again in one commit."""

_SCHEMA: Final = ", ".join(
    f"{name} {kind}" for name, kind in {**RECORD_PARTS, "value": "BINARY"}.items()
)


class ReplayBatch(RouteBatches):
    """A batch of dead letters: its records have the places that they had in their own topics."""

    def __init__(
        self,
        dependencies: RouteDependencies,
        target: TargetTable,
        move: tuple[str, int, int],
        letters: Mapping[str, DeadLetter],
    ) -> None:
        known = {letter.source: letter.offset - 1 for letter in letters.values()}
        super().__init__(dependencies, target, known, Progress())
        self._move = move
        self._letters = letters

    def _moves(self, last: OffsetsBySource) -> Positions:
        app_id, expected, version = self._move
        return {app_id: (expected, version)}

    def _check_topics(self, last: OffsetsBySource) -> None:
        """The topics of the records may be gone: their bytes are here."""

    def _letter(self, row: Row) -> DeadLetter:
        letter = self._letters[f"{row['topic']}/{row['partition']}@{row['offset']}"]
        return replace(letter, reason=row["reason"], field=row["field"], attempt=letter.attempt + 1)

    def _answer(self, rejected: Rejected, last: OffsetsBySource) -> bool:
        raise InvalidRequest(
            f"another replay or commit came first ({rejected}): run the replay again, which "
            "begins behind it; nothing was committed by this one",
            error_class=rejected.error_class,
        ) from rejected


def replayed(
    spark: SparkSession,
    dependencies: RouteDependencies,
    reader: Reader,
    letters_in: SourcePartition,
) -> Progress:
    """Read the dead letters of a route again, and return what became of them.

    Raises: as a batch of a route; InvalidRequest, if another replay is faster.
    """
    write, route = dependencies.write, dependencies.route
    root, end = write.place.root, reader.bounds(letters_in.place)[1]
    by_topic: dict[str, list[tuple[int, DeadLetter]]] = {}
    attempts: dict[tuple[SourcePartition, int], int] = {}
    for offset, letter in read_all(reader, letters_in.topic):
        topic = letter.source.topic
        if offset < end and letter.table_root == root and route.takes(topic):
            by_topic.setdefault(topic, []).append((offset, letter))
            attempts[letter.source, letter.offset] = letter.attempt
    app_ids = {topic: letters_in.replay_app_id(topic) for topic in by_topic}
    total = Progress()
    if not by_topic:
        return total
    client = client_for(write.kafka)
    positions = client.app_versions(root, list(app_ids.values()), write.outcome_timeout_s)
    for topic, letters in sorted(by_topic.items()):
        position = positions[app_ids[topic]]
        for part in _parts([each for each in letters if each[0] > position]):
            # Of a record that failed twice the last attempt counts: its earlier one was a replay's
            # that may have died before its commit.
            by_place = {
                letter.place: letter
                for _, letter in part
                if letter.attempt == attempts[letter.source, letter.offset]
            }
            if not by_place:
                continue
            move = (app_ids[topic], position, part[-1][0])
            _add(total, _committed(spark, dependencies, move, by_place))
            position = part[-1][0]
    return total


def _committed(
    spark: SparkSession,
    dependencies: RouteDependencies,
    move: tuple[str, int, int],
    letters: Mapping[str, DeadLetter],
) -> Progress:
    """Commit letters, as rows for the table as it is, and return what became of them."""
    records, root = _frame(spark, list(letters.values())), dependencies.write.place.root
    last: dict[SourcePartition, int] = {}
    for letter in letters.values():
        last[letter.source] = max(letter.offset, last.get(letter.source, NEVER))
    for _ in range(RERUNS_MAX):
        target = opened(dependencies.write.place)
        if target is None:
            raise InvalidRequest(
                f"{root} is no table any more; nothing was committed",
                error_class="DELTA_TABLE_NOT_FOUND",
            )
        batch = ReplayBatch(dependencies, target, move, letters)
        try:
            batch.commit(dependencies.rows(records, target), last)
        except CopyAgain:
            continue
        return batch.progress
    raise contended(root)


def _parts(
    letters: Sequence[tuple[int, DeadLetter]],
) -> Iterator[Sequence[tuple[int, DeadLetter]]]:
    """Yield dead letters as they are committed: those of one topic, as it was made, at a time."""
    for _, group in itertools.groupby(letters, lambda each: each[1].source.topic_id):
        of_one = list(group)
        for begin in range(0, len(of_one), LETTERS_MAX):
            yield of_one[begin : begin + LETTERS_MAX]


def _add(total: Progress, done: Progress) -> None:
    total.rows += done.rows
    total.records += done.records
    total.dead_letters += done.dead_letters
    total.version = total.version if done.version is None else done.version


def _frame(spark: SparkSession, letters: Sequence[DeadLetter]) -> DataFrame:
    rows = [
        (
            letter.key,
            [(name, value) for name, value in letter.headers],
            None,
            letter.source.topic,
            letter.source.partition,
            letter.offset,
            letter.value,
        )
        for letter in letters
    ]
    return spark.createDataFrame(rows, _SCHEMA)
