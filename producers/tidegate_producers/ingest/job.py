"""Runs the routes of a job: a query each, begun anew where the table's positions say.

It is a query of Structured Streaming, or on Spark Connect one of ours.
"""

import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

from tidegate_delta.constraints.row_constraints import WriteRequirements
from tidegate_delta.errors import InvalidRequest, Misconfigured, TidegateError, Unavailable
from tidegate_producers.cached_clients import CLIENT_ID, client_for
from tidegate_producers.ingest.dead_letters import DeadLetter, send, sent_ahead
from tidegate_producers.ingest.positions import (
    NEVER,
    Beginning,
    OffsetsBySource,
    SourcePartition,
    beginning,
    ends_of_batch,
)
from tidegate_producers.ingest.preview import Preview, preview_of
from tidegate_producers.ingest.record_decoding import (
    SAMPLE_RECORDS,
    columns_of,
    columns_of_sample,
)
from tidegate_producers.ingest.record_texts import AvroTexts, JsonTexts, RecordTexts, Schemas
from tidegate_producers.ingest.remote_query import RemoteQuery
from tidegate_producers.ingest.route_batches import (
    CopyAgain,
    Progress,
    RouteBatches,
    RouteDependencies,
    rows_of,
)
from tidegate_producers.ingest.settings import Format, IngestSettings, Route
from tidegate_producers.ingest.spark_errors import (
    errors_of_spark,
    is_session_lost,
    translated,
)
from tidegate_producers.ingest.target_table import (
    TargetTable,
    check_may_widen,
    columns_made,
    created,
    opened,
)
from tidegate_producers.ingest.topic_source import (
    TopicSource,
    range_options,
    reading_options,
    starting_offsets,
)
from tidegate_producers.options import TableLocation, as_options
from tidegate_producers.writing.once import moving
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.service.runner import PAUSE_MAX_S, PAUSE_MIN_S, Running

_REGISTRY: Final = "--registry and ingest.registry_properties"
_POLL_S: Final = 0.5

RowsOf = Callable[[DataFrame], DataFrame]
"""Returns what records are for the table of a route."""

_log = logging.getLogger(__name__)


@dataclass
class RouteRun:
    """A route as it runs: its query, and when it is to begin again."""

    name: str
    route: Route
    place: TableLocation
    progress: Progress = field(default_factory=Progress)
    query: StreamingQuery | RemoteQuery | None = None
    batches: RouteBatches | None = None
    texts: RecordTexts | None = None
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
        self._is_session_lost = False
        self._source: dict[str, TopicSource] = {}
        bus = KafkaBus(settings.kafka, CLIENT_ID)
        self._dead_letters = settings.kafka.topics.ingest_dead_letters
        self._producer, self._reader = bus.producer(), bus.reader()
        self.runs = [
            RouteRun(name, route, places[name]) for name, route in settings.ingest.routes.items()
        ]

    def run(self, running: Running, report: Callable[[RouteRun], None]) -> None:
        """Run all routes until the job is stopped, or with `once` until all is copied.

        A route that fails for good does not stop the others.
        Raises: the error of the first route that failed, once no route runs any more; Unavailable,
        for a session that Spark Connect has lost.
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
            self._reader.close()
            if self._is_session_lost:
                # Otherwise Spark takes it for the session of this thread.
                self._spark.stop()
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
            else:
                self._check(run)
        except CopyAgain as error:
            log_event(_log, "copying_again", route=run.name, why=error)
            self._stop(run)
        except (TidegateError, PySparkException, Py4JError) as raised:
            failure = (
                raised
                if isinstance(raised, TidegateError)
                else translated(raised, run.name, run.place.root)
            )
            self._stop(run)
            if is_session_lost(raised):
                # Of a new one the whole job must begin anew.
                self._is_session_lost = True
                raise failure from raised
            if failure.advice == "retry":
                log_event(
                    _log,
                    "retrying",
                    level=logging.WARNING,
                    route=run.name,
                    after_s=run.pause_s,
                    why=failure,
                )
                run.again_at_s = now_s + run.pause_s
                run.pause_s = min(2 * run.pause_s, PAUSE_MAX_S)
                return
            log_event(_log, "route_stopped", level=logging.ERROR, route=run.name, why=failure)
            run.failure, run.is_over = failure, True

    def _check(self, run: RouteRun) -> None:
        """Raise what a batch could not do, or what ended the query."""
        assert run.query is not None, "it has begun"
        assert run.batches is not None, "it has begun"
        is_active = run.query.isActive
        if run.batches.failure is not None:
            raise run.batches.failure
        if is_active:
            return
        if (error := run.query.exception()) is not None:
            raise error
        if not self._once:
            raise Unavailable(f"{run.place.root}: Spark ended the query of route {run.name}")
        run.is_over = True

    def _begin(self, run: RouteRun) -> None:
        """Start the query of a route, behind the positions that the table has."""
        source = self._source_of(run)
        job = self.dependencies(run)
        if (target := opened(run.place)) is None:
            self._create(run, self._beginning(source, run, {}))
            target = opened(run.place)
        if target is None:
            raise CopyAgain(f"{run.place.root} is gone")
        check_may_widen(target, run.route)
        positions = self._positions(source, job)
        start = self._beginning(source, run, positions)
        self._note(job, positions, start)
        known = {**positions, **start.noted}
        sent = sent_ahead(self._reader, self._dead_letters, job.write.place.root, positions)
        run.batches = RouteBatches(job, target, known, run.progress)
        rows = partial(job.rows, target=target, sent=sent)
        if is_remote():
            run.query = self._remote_query(run, run.batches, rows, start)
        else:
            run.query = self._streaming_query(run, run.batches, rows, start)
        log_event(
            _log,
            "copying",
            route=run.name,
            table=run.place.root,
            behind=", ".join(f"{s}@{offset - 1}" for s, offset in sorted(start.offsets.items())),
        )

    def _streaming_query(
        self, run: RouteRun, batches: RouteBatches, rows: RowsOf, start: Beginning
    ) -> StreamingQuery:
        """Return a started query of Structured Streaming, with a temporary checkpoint."""
        run.checkpoint = Path(tempfile.mkdtemp(prefix="tidegate-ingest-"))
        records = (
            self._spark.readStream.format("kafka")
            .options(**reading_options(self._settings.kafka, run.route))
            .option("startingOffsets", starting_offsets(start.offsets))
            .option("maxOffsetsPerTrigger", run.route.batch_records_max)
            .load()
        )
        on_batch = _with_ends(batches, run.checkpoint)
        # Rows are part of the query, which Spark plans once, and not of each of its batches.
        writer = rows(records).writeStream.foreachBatch(on_batch).queryName(run.name)
        writer = writer.option("checkpointLocation", run.checkpoint.as_uri())
        if self._once:
            writer = writer.trigger(availableNow=True)
        else:
            millis = round(run.route.max_latency_s * 1000)
            writer = writer.trigger(processingTime=f"{millis} milliseconds")
        return writer.start()

    def _remote_query(
        self, run: RouteRun, batches: RouteBatches, rows: RowsOf, start: Beginning
    ) -> RemoteQuery:
        """Return a started query whose batches this process plans, for Spark Connect."""

        def read(begins: OffsetsBySource, ends: OffsetsBySource) -> DataFrame:
            return rows(self._between(run, begins, ends))

        source = TopicSource(self._settings.kafka, run.route)
        query = RemoteQuery(self._spark, run.route, source, read, batches)
        return query.start(start.offsets, once=self._once)

    def dependencies(self, run: RouteRun) -> RouteDependencies:
        """Return what the batches of a route need."""
        options = {**as_options(self._settings.kafka, run.place.storage), "path": run.place.root}
        texts, source = self._texts_of(run), self._source_of(run)
        return RouteDependencies(run.route, options, texts, source.topic_ids, self._send)

    def _texts_of(self, run: RouteRun) -> RecordTexts:
        """Return how the records of a route become text. Raises: Misconfigured."""
        if run.texts is None:
            route, properties = run.route, self._settings.ingest.registry_properties
            if route.registry is None:
                run.texts = RecordTexts()
            else:
                schemas = registered(route.registry, properties)
                run.texts = read_by(self._spark, route.format, schemas)
        return run.texts

    def _source_of(self, run: RouteRun) -> TopicSource:
        if run.name not in self._source:
            self._source[run.name] = TopicSource(self._settings.kafka, run.route)
        return self._source[run.name]

    def _beginning(
        self, source: TopicSource, run: RouteRun, positions: OffsetsBySource
    ) -> Beginning:
        partitions = source.partitions()
        start = run.route.begins
        new = [each for each in partitions if positions.get(each, NEVER) == NEVER]
        looked_up: OffsetsBySource = {}
        if start.at == "timestamp":
            looked_up = source.at_time(new, start.timestamp_ms)
        elif start.at == "application":
            looked_up = self._behind(run, start.application, new)
            if not looked_up and new == list(partitions):
                raise InvalidRequest(
                    f"start: {run.place.root} has no position of a kafka-delta-ingest with the "
                    f"app_id {start.application!r}: give the --app_id that it was started with; "
                    "nothing was committed",
                    error_class="DELTA_ILLEGAL_OPTION",
                )
        bounds = source.bounds(partitions)
        return beginning(positions, bounds, start, looked_up, run.route.after_data_loss)

    def _behind(
        self, run: RouteRun, application: str, partitions: Sequence[SourcePartition]
    ) -> OffsetsBySource:
        """Return the offsets behind those that a kafka-delta-ingest has copied into the table."""
        if opened(run.place) is None or not partitions:
            return {}
        names = {source: f"{application}-{source.partition}" for source in partitions}
        client = client_for(self._settings.kafka)
        answer = client.app_versions(run.place.root, list(names.values()))
        return {source: answer[name] + 1 for source, name in names.items() if answer[name] >= 0}

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
        """Return the columns of values that the route names, or that a sample has.

        Raises: InvalidRequest, if there are no records.
        """
        text = run.route.schema_text()
        if text is not None:
            return _columns(text)
        texts = self._texts_of(run)
        records = texts.read_with_all(self._first(run, offsets))
        columns = columns_of_sample(records, run.route, texts.types())
        if columns is None:
            topics = ", ".join(sorted({source.topic for source in offsets}))
            raise InvalidRequest(
                f"{run.place.root} is no table yet, and {topics} has no record from which "
                "to infer its columns: give value_schema, or send a record; nothing was committed",
                error_class="DELTA_SCHEMA_NOT_PROVIDED",
            )
        return columns

    def _first(self, run: RouteRun, offsets: OffsetsBySource) -> DataFrame:
        """Return the first records of each partition, from some offsets on."""
        share = max(1, SAMPLE_RECORDS // max(1, len(offsets)))
        bounds = self._source_of(run).bounds(list(offsets))
        ends = {
            source: min(offset + share, bounds[source].end) for source, offset in offsets.items()
        }
        return self._between(run, offsets, ends)

    def _between(self, run: RouteRun, begins: OffsetsBySource, ends: OffsetsBySource) -> DataFrame:
        """Return the records between offsets."""
        options = range_options(self._settings.kafka, run.route, begins, ends)
        return self._spark.read.format("kafka").options(**options).load()

    def previews(self) -> Iterator[Preview]:
        """Yield for each route what it would do, and write nothing.

        Raises: as the beginning of a route.
        """
        for run in self.runs:
            with errors_of_spark(run.name, run.place.root):
                preview = self._preview(run)
            yield preview

    def _preview(self, run: RouteRun) -> Preview:
        source, target = self._source_of(run), opened(run.place)
        is_there = target is not None
        positions = self._positions(source, self.dependencies(run)) if is_there else {}
        offsets = self._beginning(source, run, positions).offsets
        if target is None:
            columns = columns_made(self._spark, self._values(run, offsets), run.route)
            target = TargetTable(run.place, columns, WriteRequirements(), may_widen=True)
        check_may_widen(target, run.route)
        records = self._texts_of(run).read_with_all(self._first(run, offsets))
        rows = rows_of(records, target, run.route)
        return preview_of(run.name, target, rows, offsets, is_there=is_there)

    def _send(self, letters: Sequence[DeadLetter]) -> int:
        return send(self._producer, self._dead_letters, letters)

    def _stop(self, run: RouteRun) -> None:
        if run.query is not None:
            run.query.stop()
            run.query = None
        if run.checkpoint is not None:
            shutil.rmtree(run.checkpoint, ignore_errors=True)
            run.checkpoint = None


def _with_ends(batches: RouteBatches, checkpoint: Path) -> Callable[[DataFrame, int], None]:
    """Return what `foreachBatch` calls: Spark has noted the offsets of a batch before."""

    def on_batch(rows: DataFrame, batch_id: int) -> None:
        noted = checkpoint / "offsets" / str(batch_id)
        batches(rows, lambda: ends_of_batch(noted.read_text(encoding="utf-8")))

    return on_batch


def registered(url: str, properties: Mapping[str, str]) -> Schemas:
    """Return the schema registry at a URL. Raises: Misconfigured, where its client is missing."""
    module = _of_registry("tidegate_runtime.kafka.schema_registry")
    schemas: Schemas = module.RegisteredSchemas.at(url, properties, _REGISTRY)
    return schemas


def read_by(spark: SparkSession, record_format: Format, schemas: Schemas) -> RecordTexts:
    """Return how records of a format are read by schemas. Raises: Misconfigured."""
    if record_format == "json":
        return JsonTexts(schemas.json)
    if record_format == "avro":
        return AvroTexts(spark, schemas.avro)
    module = _of_registry("tidegate_producers.ingest.protobuf_texts")
    texts: RecordTexts = module.ProtobufTexts(schemas.protobuf)
    return texts


def _of_registry(name: str) -> ModuleType:
    """Return a module that needs the extra `registry`. Raises: Misconfigured, without it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise Misconfigured(
            "--registry needs the extra `registry`: pip install 'tidegate[producers,registry]' "
            f"({error})"
        ) from error


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
