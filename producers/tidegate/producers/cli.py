"""`tidegate table`: register, list, history, describe, snapshot."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final

import orjson
import typer
from rich.console import Console
from rich.table import Table

from tidegate.delta.errors import TidegateError
from tidegate.delta.schema.types import parse_schema
from tidegate.delta.snapshot import Snapshot
from tidegate.producers.client import TIMEOUT_S, Client
from tidegate.producers.connection import CLIENT_ID, store_for
from tidegate.producers.history import Entry, history
from tidegate.producers.options import Place
from tidegate.producers.registering import register as register_table
from tidegate.producers.shown import instant, total_size
from tidegate.runtime.cli_service import Config, Json, Set, fail, loaded
from tidegate.runtime.kafka_bus import KafkaBus
from tidegate.runtime.open_table import open_snapshot
from tidegate.runtime.settings import ServiceSettings
from tidegate.runtime.stores import canonical_root

_OUT: Final = Console(highlight=False)
_FILES_SHOWN: Final = 20

Uri = Annotated[
    str, typer.Argument(help="The table's root: a path, file://, s3://, gs:// or abfss://.")
]
Version = Annotated[int | None, typer.Option("--version", help="As of this version.")]

app = typer.Typer(no_args_is_help=True, help="Tables behind the gate.")


@app.callback()
def _table() -> None:
    """Tables behind the gate."""


@app.command()
def register(
    uri: Uri,
    name: Annotated[str | None, typer.Option(help="The name to register it under.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the answer.")] = TIMEOUT_S,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Bring a table that exists under the gate; to do so again is no error."""
    settings = loaded(ServiceSettings, config, set_)
    try:
        place = _place(uri, settings)
        with _client(settings) as client:
            outcome = register_table(client, place, name, timeout)
    except TidegateError as error:
        fail(error)
    if as_json:
        _OUT.print_json(outcome.model_dump_json(exclude_none=True))
    else:
        again = " (it was already)" if outcome.repeat else ""
        told = f"{place.root} is registered as {outcome.table} at version {outcome.version}{again}"
        _OUT.print(told, soft_wrap=True)


@app.command("list")
def list_tables(config: Config = None, set_: Set = None, as_json: Json = False) -> None:
    """Show every registered table."""
    settings = loaded(ServiceSettings, config, set_)
    try:
        with _client(settings) as client:
            records = sorted(client.tables().values(), key=lambda one: one.name)
    except TidegateError as error:
        fail(error)
    if as_json:
        _OUT.print_json(data=[one.model_dump(mode="json") for one in records])
        return
    rows = [
        (one.name, one.table_root, one.status, one.published_through, one.topic_partition)
        for one in records
    ]
    _show(("name", "root", "status", "published through", "topic partition"), rows)


@app.command("history")
def show_history(
    uri: Uri,
    limit: Annotated[int, typer.Option(help="So many versions, newest first.", min=1)] = 20,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Show what each version did, and how many proposals it holds."""
    settings = loaded(ServiceSettings, config, set_)
    try:
        entries = list(history(store_for(_place(uri, settings)), limit))
    except TidegateError as error:
        fail(error)
    if as_json:
        _OUT.print_json(data=[vars(one) for one in entries])
        return
    titles = ("version", "time (UTC)", "operation", "proposals", "refused", "metrics", "engine")
    _show(titles, [_history_row(one) for one in entries])


@app.command()
def describe(
    uri: Uri,
    version: Version = None,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Show columns, partitioning, protocol, properties and size."""
    snapshot = _opened(uri, version, config, set_)
    facts = _facts(snapshot)
    schema = parse_schema(snapshot.metadata.schema_string)
    columns = [
        {"name": one.name, "type": str(one.kind), "nullable": one.nullable} for one in schema.fields
    ]
    if as_json:
        _OUT.print_json(data={**facts, "columns": columns})
        return
    _show(("", ""), [(name, _plain(value)) for name, value in facts.items()])
    _OUT.print()
    rows = [tuple(_plain(value) for value in one.values()) for one in columns]
    _show(("column", "type", "nullable"), rows)


@app.command("snapshot")
def show_snapshot(
    uri: Uri,
    version: Version = None,
    limit: Annotated[int, typer.Option(help="So many files.", min=1)] = _FILES_SHOWN,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Show the live files of a version, and the applications it knows."""
    snapshot = _opened(uri, version, config, set_)
    files = snapshot.files.select(["path", "partitionValues", "size"]).slice(0, limit).to_pylist()
    rows = [{**one, "partitionValues": dict(one["partitionValues"] or ())} for one in files]
    apps = {one.app_id: one.version for one in snapshot.app_transactions.values()}
    if as_json:
        facts = _facts(snapshot)
        _OUT.print_json(data={**facts, "appTransactions": apps, "shown": rows})
        return
    shown = [(one["path"], _plain(one["partitionValues"]), one["size"]) for one in rows]
    _show(("path", "partition values", "bytes"), shown)
    if snapshot.files.num_rows > limit:
        _OUT.print(f"... and {snapshot.files.num_rows - limit} more; --limit shows them")
    for app_id, app_version in apps.items():
        _OUT.print(f"application {app_id} is at {app_version}", soft_wrap=True)


def _opened(uri: str, version: int | None, config: Any, set_: Any) -> Snapshot:
    settings = loaded(ServiceSettings, config, set_)
    try:
        return open_snapshot(store_for(_place(uri, settings)), version)
    except TidegateError as error:
        fail(error)


def _facts(snapshot: Snapshot) -> dict[str, Any]:
    metadata, protocol = snapshot.metadata, snapshot.protocol
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    return {
        "version": int(snapshot.version),
        "id": metadata.id,
        "name": metadata.name,
        "partitionColumns": list(metadata.partition_columns),
        "properties": dict(metadata.configuration),
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        "features": sorted(features),
        "files": snapshot.files.num_rows,
        "bytes": total_size(snapshot),
    }


def _history_row(one: Entry) -> tuple[object, ...]:
    metrics = ", ".join(f"{name}={value}" for name, value in one.metrics.items())
    at, engine = instant(one.timestamp_ms), one.engine_info or ""
    return (one.version, at, one.operation or "", one.proposals, one.refused, metrics, engine)


def _place(uri: str, settings: ServiceSettings) -> Place:
    return Place(canonical_root(uri), settings.storage)


def _client(settings: ServiceSettings) -> Client:
    return Client(KafkaBus(settings.kafka, CLIENT_ID), settings.kafka.topics)


def _plain(value: object) -> str:
    if isinstance(value, str) or value is None:
        return value or ""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={one}" for name, one in value.items())
    return orjson.dumps(value).decode()


def _show(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    table = Table(box=None, pad_edge=False, show_header=any(titles))
    for title in titles:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*("" if cell is None else str(cell) for cell in row))
    _OUT.print(table)
