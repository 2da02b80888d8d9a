"""`tidegate table rows|changes|delete-rows`: a table's rows, its changed rows, and deletes."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final

import orjson
import pyarrow as pa
import typer

from tidegate_delta.errors import InvalidRequest
from tidegate_producers.cached_clients import store_for
from tidegate_producers.cli.output import plain, show
from tidegate_producers.cli.table_place import Timeout, UriOrName, client_of, location_of
from tidegate_producers.options import time_ms
from tidegate_producers.writing.row_delete import count_matches, delete_rows, rewrite_here
from tidegate_producers.writing.table_write import WriteRequest
from tidegate_runtime.cli.command import Result, command
from tidegate_runtime.client.client import TIMEOUT_S
from tidegate_runtime.service.settings import ServiceSettings
from tidegate_runtime.table_io.change_row_reader import stream_changes
from tidegate_runtime.table_io.data_file_reader import scan, schema_of
from tidegate_runtime.table_io.open_table import open_keys, open_snapshot
from tidegate_runtime.table_io.row_ids import ROW_COMMIT_VERSION, ROW_ID
from tidegate_runtime.table_io.time_travel import versions_between


def first_rows(batches: Iterable[pa.RecordBatch], limit: int) -> list[tuple[Any, ...]]:
    """Return the first `limit` rows, and read no further batches.

    Dates and timestamps are returned as text, because Python's end at year 9999.
    """
    rows: list[tuple[Any, ...]] = []
    for batch in batches:
        part = batch.slice(0, limit - len(rows))
        rows += zip(*map(_values, part.columns), strict=True)
        if len(rows) >= limit:
            break
    return rows


def _values(column: pa.Array) -> list[Any]:
    is_moment = pa.types.is_temporal(column.type)
    values: list[Any] = (column.cast(pa.string()) if is_moment else column).to_pylist()
    return values


RowLimit = Annotated[int, typer.Option("--limit", help="How many rows to show.", min=1)]
_MOMENT: Final = "A version, or a time in UTC: 2024-02-29, or 2024-02-29 12:00:00."


@command()
def show_rows(
    settings: ServiceSettings,
    uri: UriOrName,
    at: Annotated[str | None, typer.Option("--at", help=_MOMENT)] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            help="Columns to show, separated by commas; where rows are tracked also "
            f"{ROW_ID} and {ROW_COMMIT_VERSION}.",
        ),
    ] = None,
    limit: RowLimit = 20,
) -> Result:
    """Show rows of a table, at its newest version or as of an older one."""
    store = store_for(location_of(uri, settings))
    version, at_ms = _moment(at, "--at")
    snapshot = open_snapshot(store, version, at_ms)
    names = list(schema_of(snapshot.metadata).names)
    if columns is not None:
        names = [name.strip() for name in columns.split(",") if name.strip()]
    return _rows_result(names, first_rows(scan(store, snapshot, names), limit))


@command()
def show_changes(
    settings: ServiceSettings,
    uri: UriOrName,
    since: Annotated[str, typer.Option("--from", help=_MOMENT)],
    until: Annotated[str | None, typer.Option("--to", help=_MOMENT)] = None,
    limit: RowLimit = 20,
) -> Result:
    """Show the change data feed: the changed rows, with change type, version and time of commit.

    --from and --to are inclusive, and are both versions or both times.
    """
    store = store_for(location_of(uri, settings))
    (start, start_ms), (end, end_ms) = _moment(since, "--from"), _moment(until, "--to")
    if until is not None and (start is None) != (end is None):
        raise InvalidRequest(
            "--from and --to must be of one kind: give two versions or two times",
            error_class="DELTA_ILLEGAL_OPTION",
        )
    if start_ms is not None:
        start, end = versions_between(store, open_keys(store), start_ms, end_ms)
    shape, batches = stream_changes(store, start or 0, end)
    return _rows_result(shape.names, first_rows(batches, limit))


@command()
def delete_by_condition(
    settings: ServiceSettings,
    uri: UriOrName,
    condition: Annotated[
        str, typer.Argument(help="The rows to delete, as SQL text: id < 10 AND day = '2024-02-29'.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count the rows that match.")
    ] = False,
    timeout: Timeout = TIMEOUT_S,
) -> Result:
    """Delete the rows that match a condition, without Spark: by deletion vectors, or by rewriting.

    Timestamps without a time zone are in UTC.
    """
    place = location_of(uri, settings)
    if dry_run:
        matches = count_matches(place, condition)
        facts = {"version": None, "rows": matches.total(), "files": len(matches)}
        text = f"{matches.total()} rows in {len(matches)} files match; nothing was deleted"
        return Result(facts, [text])
    with client_of(settings) as client:
        deletion = delete_rows(client, place, condition, WriteRequest(timeout), rewrite_here)
    if deletion is None:
        return Result({"version": None, "rows": 0}, ["no row matches"])
    version, rows = deletion.outcome.version, deletion.rows
    row_count = "rows of whole files" if rows is None else f"{rows} rows"
    text = f"{row_count} were deleted in version {version}"
    return Result({"version": version, "rows": rows}, [text])


def _moment(text: str | None, option: str) -> tuple[int | None, int | None]:
    """Return the version that an option names, or the time in ms since the Unix epoch."""
    if text is None:
        return None, None
    return (int(text), None) if text.isdecimal() else (None, time_ms(text, option))


def _rows_result(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Result:
    def records() -> Any:
        named = [dict(zip(names, row, strict=True)) for row in rows]
        return orjson.loads(orjson.dumps(named, default=_spelled))

    return Result(records, lambda: show(names, [[_cell(value) for value in row] for row in rows]))


def _cell(value: Any) -> str:
    if isinstance(value, list | dict):
        return orjson.dumps(value, default=_spelled).decode()
    return (
        value.hex() if isinstance(value, bytes) else plain(value if value is None else str(value))
    )


def _spelled(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
