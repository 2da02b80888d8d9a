"""`tidegate table rows|changes|delete-rows`: a table's rows, its changed rows, and deletes."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import orjson
import pyarrow as pa
import typer

from tidegate_delta.errors import InvalidRequest
from tidegate_producers.cached_clients import CLIENT_ID, store_for
from tidegate_producers.cli.output import OUT, plain, show
from tidegate_producers.options import TableLocation, time_ms
from tidegate_producers.writing.row_delete import count_matches, delete_rows, rewrite_here
from tidegate_producers.writing.table_write import WriteRequest
from tidegate_runtime.cli.service_command import Config, Json, Set, errors_as_exit_status, loaded
from tidegate_runtime.client.client import TIMEOUT_S, Client
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.service.settings import ServiceSettings
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.storage.open_store import canonical_root
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


Uri = Annotated[
    str,
    typer.Argument(
        help="The table's root: a path, or a URI: file://, s3://, gs:// or abfss://, in which %20 "
        "is a space."
    ),
]
UriOrName = Annotated[
    str,
    typer.Argument(
        metavar="TABLE", help="The table's root (a path or URI), or the name it is registered by."
    ),
]
RowLimit = Annotated[int, typer.Option("--limit", help="How many rows to show.", min=1)]
_MOMENT: Final = "A version, or a time in UTC: 2024-02-29, or 2024-02-29 12:00:00."


def show_rows(  # noqa: PLR0913 - each is an option of the command
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
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Show rows of a table, at its newest version or as of an older one."""
    with errors_as_exit_status():
        store = _store(uri, config, set_)
        version, at_ms = _moment(at, "--at")
        snapshot = open_snapshot(store, version, at_ms)
        names = list(schema_of(snapshot.metadata).names)
        if columns is not None:
            names = [name.strip() for name in columns.split(",") if name.strip()]
        _print(names, first_rows(scan(store, snapshot, names), limit), as_json=as_json)


def show_changes(  # noqa: PLR0913 - each is an option of the command
    uri: UriOrName,
    since: Annotated[str, typer.Option("--from", help=_MOMENT)],
    until: Annotated[str | None, typer.Option("--to", help=_MOMENT)] = None,
    limit: RowLimit = 20,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Show the change data feed: the changed rows, with change type, version and time of commit.

    --from and --to are inclusive, and are both versions or both times.
    """
    with errors_as_exit_status():
        store = _store(uri, config, set_)
        (start, start_ms), (end, end_ms) = _moment(since, "--from"), _moment(until, "--to")
        if until is not None and (start is None) != (end is None):
            raise InvalidRequest(
                "--from and --to must be of one kind: give two versions or two times",
                error_class="DELTA_ILLEGAL_OPTION",
            )
        if start_ms is not None:
            start, end = versions_between(store, open_keys(store), start_ms, end_ms)
        shape, batches = stream_changes(store, start or 0, end)
        _print(shape.names, first_rows(batches, limit), as_json=as_json)


def delete_by_condition(  # noqa: PLR0913 - each is an option of the command
    uri: UriOrName,
    condition: Annotated[
        str, typer.Argument(help="The rows to delete, as SQL text: id < 10 AND day = '2024-02-29'.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count the rows that match.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the answer.", min=1)] = (
        TIMEOUT_S
    ),
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Delete the rows that match a condition, without Spark: by deletion vectors, or by rewriting.

    Timestamps without a time zone are in UTC.
    """
    settings = loaded(ServiceSettings, config, set_)
    with errors_as_exit_status():
        place = location_of(uri, settings)
        if dry_run:
            matches = count_matches(place, condition)
            facts: dict[str, Any] = {
                "version": None,
                "rows": matches.total(),
                "files": len(matches),
            }
            message = f"{matches.total()} rows in {len(matches)} files match; nothing was deleted"
        else:
            with Client(KafkaBus(settings.kafka, CLIENT_ID), settings.kafka.topics) as client:
                deletion = delete_rows(
                    client, place, condition, WriteRequest(timeout), rewrite_here
                )
            version, rows = (deletion.outcome.version, deletion.rows) if deletion else (None, 0)
            facts = {"version": version, "rows": rows}
            row_count = "rows of whole files" if rows is None else f"{rows} rows"
            message = (
                f"{row_count} were deleted in version {version}" if deletion else "no row matches"
            )
    if as_json:
        OUT.print_json(data=facts)
    else:
        OUT.print(message, soft_wrap=True)


def _store(uri: str, config: Path | None, set_: list[str] | None) -> LogStore:
    return store_for(location_of(uri, loaded(ServiceSettings, config, set_)))


def location_of(root_or_name: str, settings: ServiceSettings) -> TableLocation:
    """Return where a table lies, given by its root, or by the name that it is registered by.

    The registry is read only for a name.
    Raises: Misconfigured; InvalidRequest (`TableNotRegistered`); Unavailable.
    """
    if "/" in root_or_name or Path(root_or_name).exists():
        return TableLocation(canonical_root(root_or_name), settings.storage)
    with Client(KafkaBus(settings.kafka, CLIENT_ID), settings.kafka.topics) as client:
        return TableLocation(client.require(root_or_name).table_root, settings.storage)


def root_of(uri: str) -> str:
    """Return the canonical URI of a root, of a table that need not be registered.

    Raises: Misconfigured; InvalidRequest, for a name.
    """
    if "/" not in uri and not Path(uri).exists():
        raise InvalidRequest(
            f"there is no folder {uri!r} here; give its root: a path with a slash, or a URI",
            error_class="NotADeltaTable",
        )
    return canonical_root(uri)


def _moment(text: str | None, option: str) -> tuple[int | None, int | None]:
    """Return the version that an option names, or the time in ms since the Unix epoch."""
    if text is None:
        return None, None
    return (int(text), None) if text.isdecimal() else (None, time_ms(text, option))


def _print(names: Sequence[str], rows: Sequence[Sequence[Any]], *, as_json: bool) -> None:
    if as_json:
        records = [dict(zip(names, row, strict=True)) for row in rows]
        OUT.print_json(orjson.dumps(records, default=_spelled).decode())
    else:
        show(names, [[_cell(value) for value in row] for row in rows])


def _cell(value: Any) -> str:
    if isinstance(value, list | dict):
        return orjson.dumps(value, default=_spelled).decode()
    return (
        value.hex() if isinstance(value, bytes) else plain(value if value is None else str(value))
    )


def _spelled(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
