"""K4 and K6: what others wait while a large table is checkpointed without a pause.

The committer and the checkpointer run as processes over a real broker. K4 is the p99 of writers of
another table, K6 the p99 from a commit of a small table to its checkpoint; both alone, and beside
a table whose every version is due a checkpoint.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console

from bench import gate_writers, load
from bench.figures import Figure, median, percentile
from bench.generated_logs import Shape, generate
from tidegate_delta.log.file_names import LOG_FOLDER, checkpoint_name, commit_name
from tidegate_local.local_stack import LocalStack, StackSettings
from tidegate_messages.published_records import TableRecord
from tidegate_producers.options import TableLocation
from tidegate_producers.writing import table_requests
from tidegate_runtime.client.client import Client
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.settings import KafkaSettings

EVERY_VERSION: Final = {"delta.checkpointInterval": "1"}
WRITERS: Final = 8
PACE_S: Final = 0.25
LARGE_PACE_S: Final = 0.5
TIMES_MAX: Final = 1.5
TIMEOUT_S: Final = 120.0
SETTLE_S: Final = 10.0
_console = Console(width=150)


def figures(folder: Path, rounds: int, seconds: float, files: int) -> list[Figure]:
    """Return K4 and K6, with a large table of this many files."""
    tables = folder / "tables"
    tables.mkdir()
    generate(tables / "large", Shape.CLASSIC, files, EVERY_VERSION)
    outcomes: dict[bool, list[float]] = {False: [], True: []}
    lags: dict[bool, list[float]] = {False: [], True: []}
    settings = StackSettings(folder, [tables.as_uri()], overrides={"maintain.off": "*"})
    with LocalStack(settings) as stack:
        large = _registered(stack.kafka, tables / "large")
        for number in range(rounds):
            for is_beside in (False, True):
                name = f"{number}-{'beside' if is_beside else 'alone'}"
                busy = gate_writers.create(stack.kafka, tables / f"busy-{name}")
                small = gate_writers.create(stack.kafka, tables / f"small-{name}", EVERY_VERSION)
                ran = [_Appender(stack.kafka, small, PACE_S)]
                ran += [_Appender(stack.kafka, large, LARGE_PACE_S)] if is_beside else []
                with _together(ran):
                    waited = load.run(stack.kafka, [busy], load.Writers(WRITERS), seconds)
                    time.sleep(SETTLE_S)
                outcomes[is_beside].append(waited.p99_ms)
                lags[is_beside] += _lags_ms(tables / f"small-{name}")
                _console.print(f"{name}: p99 {waited.p99_ms:.0f} ms")
        checkpoints = len(list((tables / "large" / LOG_FOLDER).glob("*.checkpoint.parquet")))
    alone, beside = (median(outcomes[is_beside_large]) for is_beside_large in (False, True))
    lag, late = (percentile(lags[is_beside_large], 99) for is_beside_large in (False, True))
    note = f"{checkpoints - 1} checkpoints of {files:,} files meanwhile"
    return [
        _figure("K4: a writer's p99", beside, alone, note),
        _figure("K6: p99 from a small table's commit to its checkpoint", late, lag, note),
    ]


def _figure(measure: str, beside_ms: float, alone_ms: float, note: str) -> Figure:
    times = beside_ms / alone_ms
    return Figure(
        f"{measure}, while a large table is checkpointed",
        f"{beside_ms:.0f} ms",
        f"without {alone_ms:.0f} ms",
        times,
        f"<= {TIMES_MAX}",
        note,
        is_met=times <= TIMES_MAX,
        recorded=None,
    )


def _registered(kafka: KafkaSettings, folder: Path) -> TableRecord:
    with Client(KafkaBus(kafka, "bench"), kafka.topics) as client:
        place = TableLocation(folder.as_uri())
        table_requests.register(client, place, "large", TIMEOUT_S)
        return client.require(place.root)


class _Appender:
    """A thread that appends a file to a table at a steady pace."""

    def __init__(self, kafka: KafkaSettings, table: TableRecord, pace_s: float) -> None:
        self._kafka, self._table, self._pace_s = kafka, table, pace_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for the last outcome."""
        self._stopping.set()
        self._thread.join(TIMEOUT_S)

    def _run(self) -> None:
        version = max(self._table.published_through, 0)
        with Client(KafkaBus(self._kafka, "paced"), self._kafka.topics) as client:
            while not self._stopping.wait(self._pace_s):
                work = gate_writers.Appending(self._table, 0)
                work.committed({"version": version})
                outcome = client.propose(work.proposal(), timeout_s=TIMEOUT_S)
                version = outcome.version or version


@contextmanager
def _together(appenders: list[_Appender]) -> Iterator[None]:
    for appender in appenders:
        appender.start()
    try:
        yield
    finally:
        for appender in appenders:
            appender.stop()


def _lags_ms(table: Path) -> list[float]:
    """Return the times from each commit to its checkpoint, of those that have one."""
    log = table / LOG_FOLDER
    lags_ms = []
    for path in sorted(log.glob("*.checkpoint.parquet")):
        version = int(path.name[:20])
        if path.name == checkpoint_name(version):
            commit_s = (log / commit_name(version)).stat().st_mtime
            lags_ms.append(1e3 * (path.stat().st_mtime - commit_s))
    return lags_ms
