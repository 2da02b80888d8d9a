"""`tidegate table`: list, history, describe, snapshot.

The other subcommands are in `*_command.py` and `*_commands.py` of this package.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final
from uuid import UUID

import typer

from tidegate_delta.errors import Misconfigured, Unavailable
from tidegate_delta.schema.types import parse_schema
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_messages.published_records import FollowerRecord, TableRecord
from tidegate_messages.stream_position import positions_of
from tidegate_producers.cached_clients import store_for
from tidegate_producers.cli import (
    alter_command,
    optimize_command,
    registration_commands,
    restore_command,
    row_commands,
    vacuum_command,
)
from tidegate_producers.cli.formatting import instant, live_bytes, moment
from tidegate_producers.cli.output import plain, show
from tidegate_producers.cli.table_place import UriOrName, bus_of, client_of, location_of
from tidegate_producers.history.table_history import HistoryEntry, history
from tidegate_producers.options import TableLocation
from tidegate_runtime.cli.command import OUT, Result, command
from tidegate_runtime.followers.quarantine import read_follower_state
from tidegate_runtime.followers.stream_status import StreamStatus, as_data, statuses
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.service.settings import ServiceSettings
from tidegate_runtime.table_io.open_table import open_snapshot
from tidegate_runtime.table_registry import PATIENCE_S, newest_values

_FILES_SHOWN: Final = 20
REGISTRY_S: Final = 5.0
"""Seconds that `describe` waits for the registry before it shows only what the log holds."""

_LISTED: Final = {
    "name": "name",
    "root": "table_root",
    "status": "status",
    "published through": "published_through",
    "topic partition": "topic_partition",
    "reason": "reason",
}
"""Maps a column title to the part of a table's registration that the column shows."""

VersionOption = Annotated[
    int | None, typer.Option("--version", help="Version; the newest if not given.")
]

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Tables behind the gate.")
app.command("rows")(row_commands.show_rows)
app.command("changes")(row_commands.show_changes)
app.command("delete-rows")(row_commands.delete_by_condition)
app.command("create")(alter_command.create_table)
app.command("register")(registration_commands.register)
app.command("halt")(registration_commands.halt)
app.command("reopen")(registration_commands.reopen)
app.command("retry")(registration_commands.retry)
app.command("drop")(registration_commands.drop)
app.command("move")(registration_commands.move)
app.command("alter")(alter_command.alter_table)
app.command("optimize")(optimize_command.optimize_table)
app.command("restore")(restore_command.restore_table)
app.command("vacuum")(vacuum_command.vacuum_table)


@app.callback()
def _table() -> None:
    """Registered Delta tables."""


@app.command("list")
@command()
def list_tables(settings: ServiceSettings) -> Result:
    """Show every registered table: why it is halted, which followers have set it aside, and how far
    its change stream is.
    """
    with client_of(settings) as client:
        records = sorted(client.tables().values(), key=lambda record: record.name)
    quarantined = _quarantined(settings)
    streams = _streams(settings, records, quarantined)
    data = [
        {
            **record.model_dump(mode="json"),
            "changes": _stream_data(settings, streams.get(record.name)),
            "followers": [
                follower.model_dump(mode="json") for follower in quarantined[record.table]
            ],
        }
        for record in records
    ]
    rows = [
        (
            *(getattr(record, name) for name in _LISTED.values()),
            _followers(quarantined[record.table]),
            _stream(streams.get(record.name)),
        )
        for record in records
    ]
    return Result(data, lambda: show((*_LISTED, "set aside by", "changes"), rows))


@app.command("history")
@command()
def show_history(
    settings: ServiceSettings,
    uri: UriOrName,
    limit: Annotated[
        int, typer.Option(help="How many versions to show, newest first.", min=1)
    ] = 20,
) -> Result:
    """Show the table's versions: operation, engine, metrics, and how many proposals each holds."""
    entries = list(history(store_for(location_of(uri, settings)), limit))
    counts = ("proposals", "refused", "metrics")
    titles = ("version", "time (UTC)", "operation", *counts, "engine", "user metadata")
    return Result(
        [vars(entry) for entry in entries],
        lambda: show(titles, [_history_row(entry) for entry in entries]),
    )


@app.command()
@command()
def describe(settings: ServiceSettings, uri: UriOrName, version: VersionOption = None) -> Result:
    """Show a table's columns, partitioning, protocol, properties, size and registration.

    Everything except the registration comes from the log. If no broker answers, only the
    registration is left out.
    """
    place = location_of(uri, settings)
    snapshot = open_snapshot(store_for(place), version)
    facts = _facts(snapshot) | _registration(place, settings)
    schema = parse_schema(snapshot.metadata.schema_string)
    columns = [
        {"name": field.name, "type": str(field.kind), "nullable": field.nullable}
        for field in schema.fields
    ]

    def print_facts() -> None:
        show(("", ""), [(name, plain(value)) for name, value in facts.items()])
        OUT.print()
        rows = [tuple(plain(value) for value in column.values()) for column in columns]
        show(("column", "type", "nullable"), rows)

    return Result({**facts, "columns": columns}, print_facts)


@app.command("snapshot")
@command()
def show_snapshot(
    settings: ServiceSettings,
    uri: UriOrName,
    version: VersionOption = None,
    limit: Annotated[int, typer.Option(help="How many files to show.", min=0)] = _FILES_SHOWN,
) -> Result:
    """Show the live files of a version, and the last version of every application that writes to
    the table (`txn` actions).
    """
    snapshot = open_snapshot(store_for(location_of(uri, settings)), version)
    files = snapshot.files.select(["path", "partitionValues", "size"]).slice(0, limit).to_pylist()
    rows = [{**file, "partitionValues": dict(file["partitionValues"] or ())} for file in files]
    apps = sorted(snapshot.app_transactions.values(), key=lambda txn: txn.app_id)
    app_data = [
        {"appId": txn.app_id, "version": txn.version, "lastUpdated": moment(txn.last_updated)}
        for txn in apps
    ]

    def print_files() -> None:
        listed = [(row["path"], plain(row["partitionValues"]), row["size"]) for row in rows]
        OUT.print(f"version {snapshot.version} of the table")
        show(("path", "partition values", "bytes"), listed)
        if snapshot.files.num_rows > limit:
            OUT.print(f"... and {snapshot.files.num_rows - limit} more; --limit shows them")
        if apps:
            OUT.print()
            show(
                ("application", "version", "last updated (UTC)"),
                [(txn.app_id, txn.version, instant(txn.last_updated)) for txn in apps],
            )

    data = {**_facts(snapshot), "appTransactions": app_data, "shown": rows}
    return Result(data, print_files)


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
        "bytes": live_bytes(snapshot),
        "checksum": str(snapshot.checksum),
    }


def _quarantined(settings: ServiceSettings) -> Mapping[UUID, list[FollowerRecord]]:
    """Return the follower records of tables that are set aside.

    If the topic is missing or may not be read, return none and print a line about it.
    """
    records_by_table: defaultdict[UUID, list[FollowerRecord]] = defaultdict(list)
    bus = bus_of(settings)
    try:
        records = read_follower_state(bus, settings.kafka.topics)
    except Misconfigured as error:
        typer.echo(f"what followers have set aside is not known: {error}", err=True)
        return records_by_table
    for record in sorted(records.values(), key=lambda record: record.service):
        records_by_table[record.table].append(record)
    return records_by_table


def _streams(
    settings: ServiceSettings,
    records: Sequence[TableRecord],
    quarantined: Mapping[UUID, Sequence[FollowerRecord]],
) -> Mapping[str, StreamStatus]:
    """Return how far each table's change stream is, by name; nothing if it may not be read."""
    topics = settings.kafka.topics
    topic_partition = TopicPartition(topics.cdc_positions, 0)
    try:
        newest = newest_values(bus_of(settings), topic_partition, PATIENCE_S)
    except Misconfigured as error:
        typer.echo(f"how far the change streams are is not known: {error}", err=True)
        return {}
    positions = positions_of({key: record.value for key, record in newest.items()})
    followers = [follower for of_table in quarantined.values() for follower in of_table]
    return {status.table: status for status in statuses(records, positions, followers)}


def _stream_data(
    settings: ServiceSettings, status: StreamStatus | None
) -> Mapping[str, object] | None:
    if status is None:
        return None
    # A name that is too long for a topic has none, and stops its stream alone.
    with suppress(Misconfigured):
        return as_data(status, settings.kafka.topics.changes(status.table))
    return as_data(status, None)


def _stream(status: StreamStatus | None) -> str:
    """Return a stream's state; its reason stands among what followers have set aside."""
    if status is None or status.state == "not begun":
        return ""
    return status.state if status.lag == 0 else f"{status.state}, lag {status.lag}"


def _followers(quarantined: Sequence[FollowerRecord]) -> str:
    return "; ".join(
        f"{record.service} since {instant(record.since_ms)}, {record.attempts} attempts, next "
        f"{instant(record.next_try_ms) or 'at its next look'}: {record.reason}"
        for record in quarantined
    )


def _registration(place: TableLocation, settings: ServiceSettings) -> dict[str, Any]:
    try:
        with client_of(settings) as client:
            record = client.table(place.root, REGISTRY_S)
    except (Unavailable, Misconfigured) as error:
        return {"registered": None, "registry": f"not asked: {error}"}
    return {"registered": _registered(record) if record else None}


def _registered(record: TableRecord) -> dict[str, Any]:
    return {
        "table": str(record.table),
        "name": record.name,
        "status": record.status,
        "reason": record.reason,
        "topicPartition": record.topic_partition,
        "publishedThrough": record.published_through,
    }


def _history_row(entry: HistoryEntry) -> tuple[object, ...]:
    metrics = ", ".join(f"{name}={value}" for name, value in entry.metrics.items())
    timestamp, engine = instant(entry.timestamp_ms), entry.engine_info or ""
    return (
        entry.version,
        timestamp,
        entry.operation or "",
        entry.proposals,
        entry.refused,
        metrics,
        engine,
        entry.user_metadata or "",
    )
