"""The query of a route on Spark Connect: this process plans the micro-batches, Spark reads them.

A function for `foreachBatch` would be pickled to the server, where neither the clients of Kafka nor
what a job learns of its batches can go. So Structured Streaming's parts are replaced here, and only
there: its trigger by a thread that plans a batch each `max_latency_s`, its rate limit by
`batch_ends`, its look at the topics by that of `TopicSource`, and its checkpoint by nothing: the
table has the positions. Records are read by Spark's Kafka source for batches.
"""

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidegate_delta.errors import Misconfigured, TidegateError, Unavailable
from tidegate_producers.cached_clients import clock
from tidegate_producers.ingest.positions import (
    Bounds,
    OffsetsBySource,
    SourcePartition,
    batch_ends,
)
from tidegate_producers.ingest.route_batches import CopyAgain, RouteBatches
from tidegate_producers.ingest.settings import Route
from tidegate_producers.ingest.topic_source import TopicSource, starting_offsets

STOP_S: Final = 60.0
"""How long a batch that is interrupted may take to end."""

_PAUSE_MIN_S: Final = 0.1
"""How long topics are left alone at least when they had nothing new."""


class RemoteQuery:
    """What a job uses of Spark's StreamingQuery, for batches that a thread of this process plans.

    `source` is its own, and closed at its end. `read` returns the rows of records between offsets.
    """

    def __init__(
        self,
        spark: SparkSession,
        route: Route,
        source: TopicSource,
        read: Callable[[OffsetsBySource, OffsetsBySource], DataFrame],
        batches: RouteBatches,
    ) -> None:
        self._spark = spark
        self._route = route
        self._source = source
        self._read = read
        self._batches = batches
        self._tag = f"tidegate-ingest-{id(self)}"
        self._stopping = threading.Event()
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None
        self.lastProgress: Mapping[str, Any] | None = None

    def start(self, begins: OffsetsBySource, *, once: bool) -> "RemoteQuery":
        """Begin at offsets; `once` ends it at the ends that the topics have now."""
        self._thread = threading.Thread(
            target=self._run, args=(dict(begins), once), name=self._tag, daemon=True
        )
        self._thread.start()
        return self

    @property
    def isActive(self) -> bool:  # noqa: N802 - as StreamingQuery has it
        """Whether it goes on."""
        return self._thread is not None and self._thread.is_alive()

    def exception(self) -> Exception | None:
        """Return what ended it, whether it is ours, of Spark, or a fault of the program."""
        return self._error

    def stop(self) -> None:
        """End it, and a batch that Spark reads. One that waits for its outcome is left to that."""
        self._stopping.set()
        if self._thread is None or not self._thread.is_alive():
            return
        # A server that does not answer is called again and again.
        threading.Thread(target=self._interrupt, daemon=True).start()
        self._thread.join(STOP_S)

    def _interrupt(self) -> None:
        with suppress(PySparkException):
            self._spark.interruptTag(self._tag)

    def _run(self, begins: dict[SourcePartition, int], once: bool) -> None:
        try:
            with closing(self._source):
                self._spark.addTag(self._tag)
                self._copy(begins, once)
        except (CopyAgain, TidegateError, PySparkException, Py4JError) as error:
            self._error = error
        except Exception as fault:
            # With `once` an end without an error means that all is copied.
            self._error = fault
            raise

    def _copy(self, begins: dict[SourcePartition, int], once: bool) -> None:
        """Copy batch by batch, until it is stopped, a batch fails, or with `once` all is copied."""
        last = self._bounds(begins) if once else None
        timer = clock()
        while not self._stopping.is_set() and self._batches.failure is None:
            begun_s = timer.boot_s()
            bounds = self._bounds(begins) if last is None else last
            # A partition that is new to us is read from its first record, as Spark does it.
            begins |= {source: bounds[source].first for source in bounds.keys() - begins.keys()}
            known = {source: begins[source] for source in bounds}
            ends = batch_ends(known, bounds, self._route.batch_records_max)
            if ends:
                self._commit({source: begins[source] for source in ends}, ends)
                begins |= ends
            elif once:
                return
            self._note(begins, bounds)
            spent_s = timer.boot_s() - begun_s
            pause_s = 0.0 if once else max(self._route.max_latency_s - spent_s, 0.0)
            self._stopping.wait(pause_s if ends else max(pause_s, _PAUSE_MIN_S))

    def _commit(self, begins: OffsetsBySource, ends: OffsetsBySource) -> None:
        named = {(source.topic, source.partition): end for source, end in ends.items()}
        self._batches(self._read(begins, ends), lambda: named)

    def _bounds(self, begins: OffsetsBySource) -> Mapping[SourcePartition, Bounds]:
        """Return the bounds of the partitions that there are now.

        Raises: CopyAgain, for a topic that was made anew; Unavailable, also for records that are
        gone before they were copied: what is lost, if anything, the next beginning finds out.
        """
        try:
            partitions = self._source.partitions()
        except Misconfigured as error:
            # A topic that is made anew is absent for a moment.
            raise Unavailable(
                f"the topics of this query are not there any more: {error}"
            ) from error
        ids = {source.topic: source.topic_id for source in begins}
        for source in partitions:
            if ids.get(source.topic, source.topic_id) != source.topic_id:
                raise CopyAgain(f"topic {source.topic} was made anew")
        bounds = self._source.bounds(partitions)
        for source, (first, end) in bounds.items():
            if not first <= begins.get(source, first) <= end:
                raise Unavailable(
                    f"{source} has the offsets {first} to {end}, and no more {begins[source]}"
                )
        return bounds

    def _note(self, begins: OffsetsBySource, bounds: Mapping[SourcePartition, Bounds]) -> None:
        """Note how far it is, in the form of Spark's own progress."""
        read = {source: begins[source] for source in bounds}
        ends = {source: bound.end for source, bound in bounds.items()}
        offsets = {
            "latestOffset": json.loads(starting_offsets(ends)),
            "endOffset": json.loads(starting_offsets(read)),
        }
        self.lastProgress = {"sources": [offsets]}
