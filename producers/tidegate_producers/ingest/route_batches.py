"""Commits the micro-batches of one route: rows and positions in one version, or neither.

The position that the table has decides, not Spark's checkpoint: a batch whose records are in the
table already, in part or whole, brings the others alone.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, Row
from pyspark.sql import functions as F  # noqa: N812

from tidegate_delta.errors import InvalidRequest, TidegateError
from tidegate_delta.schema.field_paths import dotted
from tidegate_delta.schema.types import DataType
from tidegate_producers.cached_clients import client_for
from tidegate_producers.datasource.outcome_logging import log_outcome
from tidegate_producers.ingest.column_evolution import NewField, new_fields, wider_types
from tidegate_producers.ingest.dead_letters import DeadLetter
from tidegate_producers.ingest.positions import (
    NEVER,
    OffsetsBySource,
    SourcePartition,
    check_not_behind,
)
from tidegate_producers.ingest.record_decoding import (
    EVOLVING,
    FIELD,
    IS_IN,
    REASON,
    UNKNOWN,
    JsonValues,
    Selection,
    row_text,
)
from tidegate_producers.ingest.record_texts import MISSING, TEXT, RecordTexts
from tidegate_producers.ingest.settings import OWN_PREFIX, Route
from tidegate_producers.ingest.target_table import TargetTable, fitted, opened
from tidegate_producers.ingest.upsert import upserted
from tidegate_producers.options import WriteOptions, for_writing
from tidegate_producers.table.new_files import append
from tidegate_producers.table.table import Table
from tidegate_producers.table.target_frame import quoted
from tidegate_producers.writing.once import OF_POSITIONS, Positions, moving
from tidegate_runtime.client.client import Rejected

_log = logging.getLogger(__name__)

SHARE_FROM: Final = 100
"""From how many records on the share of a batch's dead letters counts."""

RERUNS_MAX: Final = 20
"""How often a batch is written again because another commit changed the table meanwhile."""

RECORD_BYTES: Final = 1024
"""How large the value of a record is taken to be until a batch has shown it."""

ONE_TASK_RECORDS_MAX: Final = 20_000
"""How many records one task reads and writes sooner than several read them and one writes."""

SENT: Final = "it was a dead letter before the job was started with other options: replay it"

PLACE: Final = ("topic", "partition", "offset")
_KEPT: Final = (*PLACE, "key", "value", "headers")


class CopyAgain(Exception):
    """The query must begin anew, at the positions that the table has: its plan is for other columns
    or schemas than there are now, the topic was made anew, or the table is behind, and the route
    says that records are copied again.
    """


@dataclass
class Progress:
    """What a run of a route has done, for its line in the terminal and its metrics."""

    version: int | None = None
    records: int = 0
    rows: int = 0
    dead_letters: int = 0
    batches: int = 0
    positions: dict[SourcePartition, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Summary:
    """What Spark has seen while it read a batch.

    How many records, rows, dead letters and bytes of values there are, the names of fields that
    have no column, and those of schemas that were not known when the query was planned.
    """

    records: int
    rows: int
    dead_letters: int
    value_bytes: int
    unknown: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @classmethod
    def of(cls, observation: Observation) -> "Summary":
        """Return what was seen of observed rows, which have been read."""
        seen = observation.get
        names = ("unknown", "missing")
        return cls(**{**seen, **{name: tuple(sorted(seen[name])) for name in names}})


def observed(rows: DataFrame, observation: Observation) -> DataFrame:
    """Return rows that are counted as they are read, whatever reads them."""
    is_dead = F.col(REASON).isNotNull()
    return rows.observe(
        observation,
        F.count("*").alias("records"),
        F.count_if(~is_dead & F.col(IS_IN)).alias("rows"),
        F.count_if(is_dead).alias("dead_letters"),
        F.coalesce(F.sum(f"{OWN_PREFIX}bytes"), F.lit(0)).alias("value_bytes"),
        F.array_distinct(F.flatten(F.collect_set(UNKNOWN))).alias("unknown"),
        F.array_distinct(F.flatten(F.collect_set(MISSING))).alias("missing"),
    )


@dataclass(frozen=True)
class RouteDependencies:
    """What the batches of a route need: the route, its table's options, how its records become
    text, and the means to look up topics and to send dead letters, which return how many were sent.
    """

    route: Route
    options: Mapping[str, str]
    texts: RecordTexts
    topic_ids: Callable[[Sequence[str]], Mapping[str, str]]
    send: Callable[[Sequence[DeadLetter]], int]

    @property
    def write(self) -> WriteOptions:
        """The options of the table."""
        return for_writing({**self.options})

    def rows(self, records: DataFrame, target: TargetTable, sent: Sequence[str] = ()) -> DataFrame:
        """Return what records are for a table as it is; `sent` are places of dead letters.

        Raises: Spark's errors, for an expression of the route that it refuses.
        """
        return rows_of(self.texts.read(records), target, self.route, sent)


class RouteBatches:
    """What `foreachBatch` calls with rows that `RouteDependencies.rows` made for a table as it was.
    `known` are the positions that the table has, as far as known.

    The first batch that can't be committed is kept as `failure`, and those behind it are left
    alone, until the query is begun anew.
    """

    def __init__(
        self,
        job: RouteDependencies,
        target: TargetTable,
        known: OffsetsBySource,
        progress: Progress,
    ) -> None:
        self._job = job
        self._target = target
        self._known = dict(known)
        self._ids = {source.topic: source.topic_id for source in known}
        self._write = job.write
        self._root = self._write.place.root
        self._skipped: dict[SourcePartition, int] = {}
        self._record_bytes = float(RECORD_BYTES)
        self.progress = progress
        self.failure: Exception | None = None
        self.lock = threading.Lock()

    def __call__(self, rows: DataFrame, noted: Callable[[], Mapping[tuple[str, int], int]]) -> None:
        """Commit a batch, or keep why not: a CopyAgain, TidegateError, or error of Spark's.
        `noted` returns the offsets before which the batch ends, by topic and partition.

        Spark does not see it: it would print Java's stack for a change of columns, too.
        """
        if self.failure is not None:
            return
        try:
            self.commit(rows, {self._source(*place): end - 1 for place, end in noted().items()})
        except (CopyAgain, TidegateError, PySparkException, Py4JError) as error:
            self.failure = error

    def commit(self, rows: DataFrame, last: OffsetsBySource) -> None:
        """Commit a batch, of which each partition has these last offsets.

        Raises: CopyAgain; TidegateError; Spark's errors.
        """
        for _ in range(RERUNS_MAX):
            behind = {s: at for s, at in last.items() if at > self._known.get(s, NEVER)}
            if not behind:
                # Those of a topic that was made anew may be behind the old one's.
                self._check_topics(last)
                return
            if self._is_copied(rows, behind):
                return
        raise contended(self._root)

    def _is_copied(self, rows: DataFrame, last: OffsetsBySource) -> bool:
        """Commit a batch, and return whether it is done; False if it must be written again."""
        if self._is_beyond(last):
            return False
        self._check_target()
        return self._is_committed(self._new(rows), last)

    def _check_target(self) -> None:
        """Check that rows are made for the table as it is. Raises: CopyAgain."""
        now = opened(self._write.place)
        if now is None:
            raise CopyAgain(f"{self._root} is gone")
        if not now.is_as(self._target):
            raise CopyAgain(f"the columns or constraints of {self._root} have changed")

    def _new(self, rows: DataFrame) -> DataFrame:
        """Return the rows behind the positions of which it is known that the table has them."""
        if not self._skipped:
            return rows
        positions = F.create_map(
            *(
                each
                for source, position in self._skipped.items()
                for each in (F.lit(str(source)), F.lit(position))
            )
        )
        topic, partition, offset = (F.col(f"{OWN_PREFIX}{name}") for name in PLACE)
        place = F.concat_ws("/", topic, partition.cast("string"))
        return rows.where(offset > F.coalesce(positions[place], F.lit(NEVER)))

    def _source(self, topic: str, partition: int) -> SourcePartition:
        if topic not in self._ids:
            self._ids |= self._job.topic_ids([topic])
        return SourcePartition(topic, self._ids[topic], partition)

    def _check_topics(self, last: OffsetsBySource) -> None:
        """Check that the topics are still those that the batch was read from. Raises: CopyAgain."""
        topics = sorted({source.topic for source in last})
        ids = self._job.topic_ids(topics)
        for topic in topics:
            if ids[topic] != self._ids[topic]:
                raise CopyAgain(f"topic {topic} was made anew")

    def _send_dead_letters(self, rows: DataFrame, summary: Summary) -> None:
        if not summary.dead_letters:
            return
        dead = rows.where(F.col(REASON).isNotNull())
        self._check_limits(dead, summary)
        letters = [self._letter(row) for row in dead.select(*_letter_columns()).collect()]
        self._job.send(letters)

    def _letter(self, row: Row) -> DeadLetter:
        headers = tuple(
            (header["key"], bytes(header["value"] or b"")) for header in row["headers"] or ()
        )
        return DeadLetter(
            table_root=self._root,
            source=self._source(row["topic"], row["partition"]),
            offset=row["offset"],
            reason=row["reason"],
            field=row["field"],
            key=None if row["key"] is None else bytes(row["key"]),
            value=None if row["value"] is None else bytes(row["value"]),
            headers=headers,
        )

    def _check_limits(self, dead: DataFrame, summary: Summary) -> None:
        route, count = self._job.route, summary.dead_letters
        total = self.progress.dead_letters + count
        share = count / summary.records
        limit = None
        if total > route.dead_letters_max:
            limit = (
                f"{total} dead letters are more than --dead-letters-max {route.dead_letters_max}"
            )
        elif summary.records >= SHARE_FROM and share > route.dead_letters_share_max:
            limit = (
                f"{count} of {summary.records} records are no rows, more than "
                f"--dead-letters-share-max {route.dead_letters_share_max:g}"
            )
        if limit is None:
            return
        first = self._letter(dead.select(*_letter_columns()).head(1)[0])
        raise InvalidRequest(
            f"{self._root}: {limit}. The first is {first.place}: {first.reason}. Correct the "
            "format, value_schema or the table's columns, or allow more; nothing of this batch was "
            "committed or sent to the dead letters",
            error_class="TooManyDeadLetters",
        )

    def _is_committed(self, rows: DataFrame, last: OffsetsBySource) -> bool:
        """Write rows, with positions; return whether that is done, False for the rest to be tried.

        Raises: CopyAgain, TidegateError and Spark's errors, and nothing is committed.
        """
        is_merged = self._job.route.mode == "upsert"
        # An upsert reads its rows more than once.
        rows = rows.persist() if is_merged else rows
        try:
            summary, version = self._merged(rows, last) if is_merged else self._appended(rows, last)
        except Rejected as rejected:
            return self._answer(rejected, last)
        finally:
            if is_merged:
                rows.unpersist()
        self._done(summary, last, version)
        return True

    def _merged(self, rows: DataFrame, last: OffsetsBySource) -> tuple[Summary, int | None]:
        observation = Observation()
        observed(rows, observation).write.format("noop").mode("overwrite").save()
        summary = self._ready(rows, observation, last)
        table = Table(rows.sparkSession, self._root, _table_options(self._job.options))
        table = table.moving(self._moves(last))
        names = self._target.given.names
        return summary, upserted(table, good_rows(rows), names, self._job.route)

    def _appended(self, rows: DataFrame, last: OffsetsBySource) -> tuple[Summary, int | None]:
        """Append rows in one pass: they are read, counted and written, and then proposed."""
        route, positions = self._job.route, self._moves(last)
        # Offsets may have gaps, and the first ones may be gone.
        offsets = sum(version - known for known, version in positions.values())
        records = min(offsets, route.batch_records_max)
        files = max(1, -(-round(records * self._record_bytes) // route.target_file_bytes))
        observation, summaries = Observation(), list[Summary]()
        good = good_rows(observed(rows, observation)).select(
            *(F.col(quoted(name)) for name in self._target.given.names)
        )
        is_small = records <= ONE_TASK_RECORDS_MAX
        good = good.coalesce(files) if is_small else good.repartition(files)
        outcome = moving(
            client_for(self._write.kafka),
            self._write,
            positions,
            "WRITE",
            partial(
                append,
                good,
                self._write,
                ready=lambda: summaries.append(self._ready(rows, observation, last)),
            ),
        )
        log_outcome(self._root, outcome)
        [summary] = summaries
        return summary, None if outcome is None else outcome.version

    def _ready(self, rows: DataFrame, observation: Observation, last: OffsetsBySource) -> Summary:
        """Do what comes between a batch's reading and its proposal; return what was seen in it.

        Raises: CopyAgain, for schemas or columns that it needs, and for a topic that was made anew
        until it was read; as `_send_dead_letters`.
        """
        self._check_topics(last)
        summary = Summary.of(observation)
        if summary.records:
            self._record_bytes = summary.value_bytes / summary.records
        if self._job.texts.learn(summary.missing):
            raise CopyAgain("records have schemas that were not known")
        self._evolve(rows, summary)
        self._send_dead_letters(rows, summary)
        return summary

    def _evolve(self, rows: DataFrame, summary: Summary) -> None:
        """Add columns, and fields inside them, for fields that have none, and widen types, as the
        route says.

        A field that is null in every record of the sample gets none yet: it has no type.
        Raises: CopyAgain, once they are there; Rejected.
        """
        route, columns = self._job.route, self._target.columns
        added: Sequence[NewField] = ()
        wider: dict[str, DataType] = {}
        if summary.unknown and route.schema_evolution in ("add", "widen"):
            types = self._job.texts.types()
            added = new_fields(rows, summary.unknown, self._target, route, types)
        if summary.dead_letters and route.schema_evolution == "widen":
            wider = wider_types(rows, columns)
        if not added and not wider:
            return
        table = Table(rows.sparkSession, self._root, _table_options(self._job.options))
        changes = [new.change for new in added]
        changes += [
            {"op": "change_type", "path": [name], "type": str(kind)} for name, kind in wider.items()
        ]
        try:
            table.alter(changes=changes)
        except Rejected:
            # Another job may have done the same.
            self._check_target()
            raise
        names = [*(dotted(new.path) for new in added), *wider]
        raise CopyAgain(f"columns of {self._root} have changed: {', '.join(names)}")

    def _moves(self, last: OffsetsBySource) -> Positions:
        """Return the positions that a batch moves, each from the one that the table has."""
        return {source.app_id: (self._known[source], at) for source, at in last.items()}

    def _is_beyond(self, last: OffsetsBySource) -> bool:
        """Ask for the positions of partitions that were added since the query began; return whether
        the table has records of them, which are then left out.
        """
        added = [source for source in last if source not in self._known]
        if not added:
            return False
        current = self._ask(added)
        self._known |= current
        begun = {source: position for source, position in current.items() if position != NEVER}
        self._skipped |= begun
        return bool(begun)

    def _ask(self, sources: Sequence[SourcePartition]) -> dict[SourcePartition, int]:
        client = client_for(self._write.kafka)
        app_ids = [source.app_id for source in sources]
        answer = client.app_versions(self._root, app_ids, self._write.outcome_timeout_s)
        return {source: answer[source.app_id] for source in sources}

    def _answer(self, rejected: Rejected, last: OffsetsBySource) -> bool:
        """Return whether a batch that was refused is in the table; False if the rest must be tried.

        Raises: Rejected, for what trying again can't help; CopyAgain; InvalidRequest, for a table
        that was put back.
        """
        if rejected.rule not in OF_POSITIONS:
            rejection = rejected.outcome.rejection
            if rejection is None or rejection.advice not in ("rerun", "rebase"):
                raise rejected
            return False
        known = dict(self._known)
        current = self._ask(list(known))
        after_restore = self._job.route.after_restore
        check_not_behind(known, current, self._root, after_restore)
        if any(current[source] < known[source] for source in current) and after_restore == "again":
            raise CopyAgain(f"{self._root} was put back to an earlier state")
        self._known |= current
        self._skipped |= {source: at for source, at in current.items() if at > known[source]}
        return all(current[source] >= at for source, at in last.items())

    def _done(self, summary: Summary, last: OffsetsBySource, version: int | None) -> None:
        self._known |= last
        # Where another job is further, records up to its position are still to be left out.
        self._skipped = {s: at for s, at in self._skipped.items() if self._known[s] == at}
        with self.lock:
            progress = self.progress
            progress.version = progress.version if version is None else version
            progress.records += summary.records
            progress.rows += summary.rows
            progress.dead_letters += summary.dead_letters
            progress.batches += 1
            progress.positions |= last


def contended(root: str) -> InvalidRequest:
    """Return the error for a batch that was written too often."""
    return InvalidRequest(
        f"{root}: other commits changed the table each of {RERUNS_MAX} times that a batch was "
        "written: find who changes it all the time; nothing was committed",
        error_class="Contended",
    )


def rows_of(
    records: DataFrame, target: TargetTable, route: Route, sent: Sequence[str] = ()
) -> DataFrame:
    """Return what records, which have their texts, are for a table: rows or why none, with places.

    Those that are none have their bytes; those for which columns may change, the text of their row.
    `sent` are the places of some that are none.
    """
    fields = target.value_fields(route)
    decoded = JsonValues(fields, route, target.takes_any_name).decoded(records)
    kept = [F.col(name).alias(f"{OWN_PREFIX}{name}") for name in _KEPT]
    kept += [F.col(MISSING), F.col(TEXT).alias(EVOLVING)]
    rows = fitted(Selection.of(route).rows(decoded, kept), target, route)
    if filled := sorted(set(_lower(target.columns.names)) - set(_lower(fields.names))):
        rows = rows.withColumn(REASON, F.coalesce(REASON, _doubly_filled(filled)))
    if sent:
        own = [F.col(f"{OWN_PREFIX}{name}") for name in PLACE]
        place = F.format_string("%s/%d@%d", *own)
        rows = rows.withColumn(REASON, F.coalesce(REASON, F.when(place.isin(*sent), F.lit(SENT))))
    is_dead = F.col(REASON).isNotNull()
    value = F.col(f"{OWN_PREFIX}value")
    raw = {
        f"{OWN_PREFIX}{name}": F.when(is_dead, F.col(f"{OWN_PREFIX}{name}"))
        for name in ("key", "value", "headers")
    }
    is_evolving = ~is_dead & (F.size(UNKNOWN) > 0)
    if route.schema_evolution == "widen":
        is_evolving = is_evolving | (is_dead & F.col(FIELD).isNotNull())
    raw[EVOLVING] = F.when(is_evolving, row_text(F.col(EVOLVING), route))
    return rows.withColumn(f"{OWN_PREFIX}bytes", F.length(value)).withColumns(raw)


def _doubly_filled(names: Sequence[str]) -> Column:
    """Return why a record is no row that has fields for columns which come from elsewhere."""
    lower = F.split(F.lower(F.array_join(UNKNOWN, "\0")), "\0")
    strangers = F.array_intersect(lower, F.array(*map(F.lit, names)).cast("array<string>"))
    reason = F.concat(
        F.lit("the table computes, or the route fills by `columns`, what the value has, too: "),
        F.array_join(strangers, ", "),
        F.lit(". Choose fields by select, or leave those without a column out by ignore"),
    )
    return F.when(F.col(IS_IN) & (F.size(UNKNOWN) > 0) & (F.size(strangers) > 0), reason)


def _lower(names: Sequence[str]) -> list[str]:
    return [name.lower() for name in names]


def good_rows(rows: DataFrame) -> DataFrame:
    """Return the rows that come into the table."""
    return rows.where(F.col(REASON).isNull() & F.col(IS_IN))


def _letter_columns() -> list[Column]:
    own = [F.col(f"{OWN_PREFIX}{name}").alias(name) for name in _KEPT]
    return [*own, F.col(REASON).alias("reason"), F.col(FIELD).alias("field")]


def _table_options(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if name != "path"}
