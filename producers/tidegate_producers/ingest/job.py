"""Runs the routes of a job: a streaming query each, begun anew where the table's positions say."""

import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from tidegate_delta.constraints.row_constraints import WriteRequirements
from tidegate_delta.errors import InvalidRequest, TidegateError, Unavailable
from tidegate_producers.cached_clients import CLIENT_ID, client_for
from tidegate_producers.ingest.dead_letters import DeadLetter, send
from tidegate_producers.ingest.positions import Beginning, OffsetsBySource, beginning
from tidegate_producers.ingest.preview import Preview, preview_of
from tidegate_producers.ingest.record_decoding import SAMPLE_RECORDS, columns_of, inferred
from tidegate_producers.ingest.route_batches import (
    CopyAgain,
    Progress,
    RouteBatches,
    RouteDependencies,
    rows_of,
)
from tidegate_producers.ingest.settings import IngestSettings, Route
from tidegate_producers.ingest.target_table import TargetTable, columns_made, created, opened
from tidegate_producers.ingest.topic_source import (
    TopicSource,
    reading_options,
    starting_offsets,
)
from tidegate_producers.options import TableLocation, as_options
from tidegate_producers.writing.once import moving
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.service.runner import PAUSE_MAX_S, PAUSE_MIN_S, Running

LOST: Final = ("KAFKA_DATA_LOSS", "OffsetOutOfRange", "data may have been lost")
"""What Spark's Kafka source says where offsets are gone that it was to read."""

PASSING: Final = (
    "TimeoutException",
    "DisconnectException",
    "NetworkException",
    "RetriableException",
    "NotLeaderOrFollower",
    "BrokerNotAvailable",
)
"""Exceptions of Kafka's Java client that pass by themselves."""

_POLL_S: Final = 0.5
_STOP_S: Final = 60.0

_log = logging.getLogger(__name__)


@dataclass
class RouteRun:
    """A route as it runs: its query, and when it is to begin again."""

    name: str
    route: Route
    place: TableLocation
    progress: Progress = field(default_factory=Progress)
    query: StreamingQuery | None = None
    batches: RouteBatches | None = None
    checkpoint: Path | None = None
    pause_s: float = PAUSE_MIN_S
    again_at_s: float = 0.0
    is_over: bool = False
    failure: TidegateError | None = None


class RouteRunner:
    """The routes of one process, in one Spark session."""

    def __init__(
        self,
        spark: SparkSession,
        settings: IngestSettings,
        places: Mapping[str, TableLocation],
        *,
        once: bool,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._once = once
        self._source: dict[str, TopicSource] = {}
        self._producer = KafkaBus(settings.kafka, CLIENT_ID).producer()
        self.runs = [
            RouteRun(name, route, places[name]) for name, route in settings.ingest.routes.items()
        ]

    def run(self, running: Running, report: Callable[[RouteRun], None]) -> None:
        """Run all routes until the job is stopped, or with `once` until all is copied.

        A route that fails for good does not stop the others.
        Raises: the error of the first route that failed, once no route runs any more.
        """
        clock = running.clock
        try:
            while not running.stopping.is_set():
                for run in self.runs:
                    self._advance(run, clock.boot_s())
                    report(run)
                if all(run.is_over for run in self.runs):
                    break
                running.health.ready(any(run.query is not None for run in self.runs))
                running.stopping.wait(_POLL_S)
        finally:
            for run in self.runs:
                self._stop(run)
            for source in self._source.values():
                source.close()
            self._producer.close()
        for run in self.runs:
            if run.failure is not None:
                raise run.failure

    def _advance(self, run: RouteRun, now_s: float) -> None:
        """Begin a route that is due, and look after one that has ended."""
        if run.is_over or now_s < run.again_at_s:
            return
        try:
            if run.query is None:
                self._begin(run)
            elif not run.query.isActive:
                self._check(run)
                run.is_over = self._once
        except CopyAgain as error:
            log_event(_log, "copying_again", route=run.name, why=error)
            self._stop(run)
        except TidegateError as error:
            self._stop(run)
            if error.advice == "retry":
                log_event(
                    _log,
                    "retrying",
                    level=logging.WARNING,
                    route=run.name,
                    after_s=run.pause_s,
                    why=error,
                )
                run.again_at_s = now_s + run.pause_s
                run.pause_s = min(2 * run.pause_s, PAUSE_MAX_S)
                return
            log_event(_log, "route_stopped", level=logging.ERROR, route=run.name, why=error)
            run.failure, run.is_over = error, True

    def _check(self, run: RouteRun) -> None:
        """Raise what ended a query, as an error of ours."""
        assert run.query is not None, "it has run"
        error = run.query.exception()
        batches = run.batches
        if error is None:
            return
        if batches is not None and batches.failure is not None:
            raise batches.failure
        raise _translated(error, run)

    def _begin(self, run: RouteRun) -> None:
        """Start the query of a route, behind the positions that the table has."""
        source = self._source_of(run)
        job = self.dependencies(run)
        start = self._beginning(source, run, {})
        if opened(run.place) is None:
            self._create(run, start)
        positions = self._positions(source, job)
        start = self._beginning(source, run, positions)
        self._note(job, positions, start)
        known = {**positions, **start.noted}
        run.batches = RouteBatches(job, known, run.progress)
        run.checkpoint = Path(tempfile.mkdtemp(prefix="tidegate-ingest-"))
        records = (
            self._spark.readStream.format("kafka")
            .options(**reading_options(self._settings.kafka, run.route))
            .option("startingOffsets", starting_offsets(start.offsets))
            .option("maxOffsetsPerTrigger", run.route.batch_records_max)
            .load()
        )
        writer = records.writeStream.foreachBatch(run.batches).queryName(run.name)
        writer = writer.option("checkpointLocation", run.checkpoint.as_uri())
        if self._once:
            writer = writer.trigger(availableNow=True)
        else:
            millis = round(run.route.max_latency_s * 1000)
            writer = writer.trigger(processingTime=f"{millis} milliseconds")
        run.query = writer.start()
        log_event(
            _log,
            "copying",
            route=run.name,
            table=run.place.root,
            behind=", ".join(f"{s}@{offset - 1}" for s, offset in sorted(start.offsets.items())),
        )

    def dependencies(self, run: RouteRun) -> RouteDependencies:
        """Return what the batches of a route need."""
        options = {**as_options(self._settings.kafka, run.place.storage), "path": run.place.root}
        return RouteDependencies(run.route, options, self._source_of(run).topic_ids, self._send)

    def _source_of(self, run: RouteRun) -> TopicSource:
        if run.name not in self._source:
            self._source[run.name] = TopicSource(self._settings.kafka, run.route)
        return self._source[run.name]

    def _beginning(
        self, source: TopicSource, run: RouteRun, positions: OffsetsBySource
    ) -> Beginning:
        partitions = source.partitions()
        start = run.route.begins
        at_time = source.at_time(partitions, start.timestamp_ms) if start.at == "timestamp" else {}
        bounds = source.bounds(partitions)
        return beginning(positions, bounds, start, at_time, run.route.after_data_loss)

    def _positions(self, source: TopicSource, job: RouteDependencies) -> OffsetsBySource:
        write = job.write
        partitions = source.partitions()
        app_ids = [partition.app_id for partition in partitions]
        answer = client_for(write.kafka).app_versions(write.place.root, app_ids)
        return {partition: answer[partition.app_id] for partition in partitions}

    def _note(self, job: RouteDependencies, positions: OffsetsBySource, start: Beginning) -> None:
        """Commit where partitions begin that the table has never seen, unless earliest."""
        if start.noted:
            moves = {
                source.app_id: (positions[source], offset) for source, offset in start.noted.items()
            }
            moving(client_for(job.write.kafka), job.write, moves, "INGEST START", lambda _: None)

    def _create(self, run: RouteRun, start: Beginning) -> None:
        values = self._values(run, start.offsets)
        log_event(_log, "columns", route=run.name, columns=values.simpleString())
        options = as_options(self._settings.kafka, run.place.storage)
        created(self._spark, run.place, run.route, values, options)

    def _values(self, run: RouteRun, offsets: OffsetsBySource) -> StructType:
        """Return the columns of values that the route names, or that a sample has."""
        text = run.route.schema_text()
        if text is None:
            return inferred(self._spark, self.sample(run, offsets))
        return _columns(text)

    def sample(self, run: RouteRun, offsets: OffsetsBySource) -> Sequence[bytes]:
        """Return values of the first records of each partition, from some offsets on.

        Raises: InvalidRequest, if there are none.
        """
        values = self._first(run, offsets).select("value").where("value IS NOT NULL")
        rows = values.limit(SAMPLE_RECORDS).collect()
        if not rows:
            topics = ", ".join(sorted({source.topic for source in offsets}))
            raise InvalidRequest(
                f"{run.place.root} is no table yet, and {topics} has no record from which "
                "to infer its columns: give value_schema, or send a record; nothing was committed",
                error_class="DELTA_SCHEMA_NOT_PROVIDED",
            )
        return [bytes(row["value"]) for row in rows]

    def _first(self, run: RouteRun, offsets: OffsetsBySource) -> DataFrame:
        """Return the first records of each partition, from some offsets on."""
        share = max(1, SAMPLE_RECORDS // max(1, len(offsets)))
        bounds = self._source_of(run).bounds(list(offsets))
        ends = {
            source: min(offset + share, bounds[source].end) for source, offset in offsets.items()
        }
        return (
            self._spark.read.format("kafka")
            .options(**reading_options(self._settings.kafka, run.route))
            .option("startingOffsets", starting_offsets(offsets))
            .option("endingOffsets", starting_offsets(ends))
            .load()
        )

    def previews(self) -> Iterator[Preview]:
        """Yield for each route what it would do, and write nothing.

        Raises: as the beginning of a route.
        """
        for run in self.runs:
            source, target = self._source_of(run), opened(run.place)
            is_there = target is not None
            positions = self._positions(source, self.dependencies(run)) if is_there else {}
            offsets = self._beginning(source, run, positions).offsets
            if target is None:
                columns = columns_made(self._spark, self._values(run, offsets), run.route)
                target = TargetTable(run.place, columns, WriteRequirements())
            rows = rows_of(self._first(run, offsets), target, run.route)
            yield preview_of(run.name, target, rows, offsets, is_there=is_there)

    def _send(self, letters: Sequence[DeadLetter]) -> int:
        return send(self._producer, self._settings.kafka.topics.ingest_dead_letters, letters)

    def _stop(self, run: RouteRun) -> None:
        if run.query is not None:
            run.query.stop()
            run.query = None
        if run.checkpoint is not None:
            shutil.rmtree(run.checkpoint, ignore_errors=True)
            run.checkpoint = None


def _columns(text: str) -> StructType:
    """Return the columns that DDL names. Raises: InvalidRequest, with what Spark says of it."""
    try:
        return columns_of(text)
    except PySparkException as error:
        first, *_ = str(error).strip().splitlines()
        raise InvalidRequest(
            f"value_schema {text[:80]!r} is no DDL, such as `id BIGINT, at TIMESTAMP`: {first}; "
            "nothing was committed",
            error_class="PARSE_SYNTAX_ERROR",
        ) from error


def _translated(error: PySparkException, run: RouteRun) -> TidegateError:
    """Return our error for one with which Spark ended a query."""
    text = str(error)
    cause = next((line for line in text.splitlines() if line.strip()), text)
    if any(name in text for name in (*LOST, *PASSING)):
        # What is lost, if anything, the next beginning finds out, and says with offsets.
        return Unavailable(f"{run.place.root}: Kafka's client in Spark says: {cause}")
    return InvalidRequest(
        f"{run.place.root}: Spark could not run a batch of route {run.name}: {cause}; nothing of "
        "it was committed",
        error_class="StreamingQueryException",
    )
