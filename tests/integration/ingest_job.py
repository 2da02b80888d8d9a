"""`tidegate ingest` in the test's own process, by a Spark session that several jobs share."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from tests.integration.test_ingest import SPARK, versions
from tests.integration.waiting import until
from tidegate_delta.errors import TidegateError
from tidegate_producers.ingest.job import RouteRunner
from tidegate_producers.ingest.settings import IngestSettings
from tidegate_producers.ingest.spark_session import open_session
from tidegate_producers.options import TableLocation
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.service.health import Health
from tidegate_runtime.service.runner import Running
from tidegate_runtime.service.settings import load

WAIT_S = 120.0
"""A guard against what hangs; nothing is measured."""


def session_of_ingest(**more: str) -> SparkSession:
    """Return a session with Spark's Kafka source; skip where it can't be had."""
    try:
        return open_session({**SPARK, **more})
    except PySparkRuntimeError:
        pytest.skip("Spark's Kafka source can't be had: no Maven repository answers")


class IngestThread:
    """A job that runs in a thread, from `with` on; at the end it is stopped."""

    def __init__(
        self,
        spark: SparkSession,
        given: Mapping[str, str],
        routes: Mapping[str, Mapping[str, str]],
        *,
        once: bool = False,
    ) -> None:
        named = {
            f"ingest.routes.{name}.{key}": value
            for name, route in routes.items()
            for key, value in {"value_schema": "id BIGINT", "max_latency_s": "0.2", **route}.items()
        }
        settings = load(IngestSettings, None, {**given, **named})
        places = {
            name: TableLocation(route.table, settings.storage)
            for name, route in settings.ingest.routes.items()
        }
        clock = SystemClock()
        self._running = Running(clock, Health(clock))
        self._runner = RouteRunner(spark, settings, places, once=once)
        self._thread = threading.Thread(target=self._run)
        self.failure: TidegateError | None = None

    def _run(self) -> None:
        try:
            self._runner.run(self._running, lambda _: None)
        except TidegateError as error:
            self.failure = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.stopping.set()
        self._thread.join()

    def wait_for_rows(self, table: Path, ids: list[int]) -> None:
        """Wait until a table has these ids, each once."""
        until(lambda: self.failure is not None or ids_of(table) == ids, f"{ids}", WAIT_S)
        assert self.failure is None, self.failure
        assert ids_of(table) == ids

    def wait_for_end(self) -> TidegateError | None:
        """Wait until the job has ended, and return why, if it failed."""
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "it goes on"
        return self.failure


def ids_of(table: Path) -> list[int]:
    """Return the ids of a table's rows, in order; none where there is no table."""
    if not versions(table):
        return []
    ids: list[Any] = DeltaTable(str(table)).to_pyarrow_table()["id"].to_pylist()
    return sorted(ids)
