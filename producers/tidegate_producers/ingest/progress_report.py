"""Reports how far the routes of a job are: a line for each commit, and metrics."""

import json
import logging
from typing import Any, Final

from pyspark.sql.streaming.query import StreamingQuery

from tidegate_producers.ingest.job import RouteRun
from tidegate_producers.ingest.remote_query import RemoteQuery
from tidegate_runtime.cli.command import OUT, printable
from tidegate_runtime.clock import Clock
from tidegate_runtime.observability import metrics
from tidegate_runtime.observability.logs import log_event

_log = logging.getLogger(__name__)

LINE_S: Final = 1.0
"""How often a route has a line at most."""


class Report:
    """Reports the progress of routes; `clock` times the rates."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._said: dict[str, tuple[int, float]] = {}
        self._counted: dict[str, tuple[int, int]] = {}

    def __call__(self, run: RouteRun) -> None:
        """Report a route, if it has committed something since the last time."""
        progress, now_s = run.progress, self._clock.boot_s()
        lag = lag_of(run.query)
        self._count(run, lag)
        records, at_s = self._said.setdefault(run.name, (0, now_s))
        is_due = now_s - at_s >= LINE_S or run.is_over
        if progress.records == records or not is_due:
            return
        rate = (progress.records - records) / max(now_s - at_s, 0.001)
        self._said[run.name] = (progress.records, now_s)
        facts: dict[str, object] = {
            "version": progress.version,
            "records": progress.records,
            "records_per_s": round(rate),
            "lag": sum(lag.values()),
            "dead_letters": progress.dead_letters,
        }
        if not OUT.is_terminal:
            text = " ".join(f"{name}={value}" for name, value in facts.items())
            log_event(_log, "copied", route=run.name, table=run.place.root, progress=text)
            return
        text = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items())
        OUT.print(printable(f"{run.name}: {text}"), soft_wrap=True)

    def _count(self, run: RouteRun, lag: dict[str, int]) -> None:
        progress, route = run.progress, run.name
        records, dead_letters = self._counted.get(run.name, (0, 0))
        metrics.INGEST_RECORDS.labels(route).inc(progress.records - records)
        metrics.INGEST_DEAD_LETTERS.labels(route).inc(progress.dead_letters - dead_letters)
        metrics.INGEST_STOPPED.labels(route).set(run.failure is not None)
        if progress.version is not None:
            metrics.INGEST_VERSION.labels(route).set(progress.version)
        for partition, offsets in lag.items():
            metrics.INGEST_LAG.labels(route, partition).set(offsets)
        self._counted[run.name] = (progress.records, progress.dead_letters)


def lag_of(query: StreamingQuery | RemoteQuery | None) -> dict[str, int]:
    """Return how many offsets of each topic partition lie behind the last batch of a query."""
    last = query.lastProgress if query is not None else None
    if last is None:
        return {}
    lag: dict[str, int] = {}
    for source in last["sources"]:
        ends, read = _offsets(source["latestOffset"]), _offsets(source["endOffset"])
        for topic, partitions in ends.items():
            for partition, end in partitions.items():
                behind = end - read.get(topic, {}).get(partition, 0)
                lag[f"{topic}/{partition}"] = max(0, behind)
    return lag


def _offsets(value: Any) -> dict[str, dict[str, int]]:
    found: Any = json.loads(value) if isinstance(value, str) else value
    return found or {}
