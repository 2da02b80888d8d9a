"""`tidegate table`: list, history, describe, snapshot, apps, conflicts.

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
from tidegate_producers.cached_clients import CLIENT_ID, store_for
from tidegate_producers.cli import (
    alter_command,
    clone_command,
    optimize_command,
    registration_commands,
    restore_command,
    row_commands,
    vacuum_command,
)
from tidegate_producers.cli.formatting import instant, moment, total_size
from tidegate_producers.cli.output import OUT, plain, show
from tidegate_producers.cli.registration_commands import TableArgument
from tidegate_producers.history.outcome_log import last_refusals
from tidegate_producers.history.refusal_history import (
    RefusedProposal,
    by_rule,
    conflicts,
    with_winner,
)
from tidegate_producers.history.table_history import HistoryEntry, history
from tidegate_producers.options import TableLocation
from tidegate_runtime.cli.service_command import Config, Json, Set, errors_as_exit_status, loaded
from tidegate_runtime.client.client import Client
from tidegate_runtime.followers.quarantine import read_follower_state
from tidegate_runtime.followers.stream_status import StreamStatus, as_data, statuses
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus
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
app.command("alter")(alter_command.alter_table)
app.command("replace-columns")(alter_command.replace_columns)
app.command("drop-feature")(alter_command.drop_table_feature)
app.command("optimize")(optimize_command.optimize_table)
app.command("restore")(restore_command.restore_table)
app.command("clone")(clone_command.clone_table)
app.command("generate")(clone_command.generate_manifests)
app.command("vacuum")(vacuum_command.vacuum_table)


@app.callback()
def _table() -> None:
    """Registered Delta tables."""


@app.command("list")
def list_tables(config: Config = None, set_: Set = None, as_json: Json = False) -> None:
    """Show every registered table: why it is halted, which followers have set it aside, and how far
    its change stream is.
    """
    settings = loaded(ServiceSettings, config, set_)
    with errors_as_exit_status(), _client(settings) as client:
        records = sorted(client.tables().values(), key=lambda record: record.name)
        aside = _set_aside(settings)
        streams = _streams(settings, records, aside)
    if as_json:
        data = [
            {
                **record.model_dump(mode="json"),
                "changes": _stream_data(settings, streams.get(record.name)),
                "followers": [follower.model_dump(mode="json") for follower in aside[record.table]],
            }
            for record in records
        ]
        OUT.print_json(data=data)
        return
    rows = [
        (
            *(getattr(record, name) for name in _LISTED.values()),
            _followers(aside[record.table]),
            _stream(streams.get(record.name)),
        )
        for record in records
    ]
    show((*_LISTED, "set aside by", "changes"), rows)


@app.command("history")
def show_history(
    uri: row_commands.UriOrName,
    limit: Annotated[
        int, typer.Option(help="How many versions to show, newest first.", min=1)
    ] = 20,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Show the table's versions: operation, engine, metrics, and how many proposals each holds."""
    settings = loaded(ServiceSettings, config, set_)
    with errors_as_exit_status():
        entries = list(history(store_for(_place(uri, settings)), limit))
    if as_json:
        OUT.print_json(data=[vars(entry) for entry in entries])
        return
    titles = ("version", "time (UTC)", "operation", "proposals", "refused", "metrics", "engine")
    show(titles, [_history_row(entry) for entry in entries])


@app.command()
def describe(
    uri: row_commands.UriOrName,
    version: VersionOption = None,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Show a table's columns, partitioning, protocol, properties, size and registration.

    Everything except the registration comes from the log. If no broker answers, only the
    registration is left out.
    """
    snapshot = _opened(uri, version, config, set_)
    facts = _facts(snapshot) | _registration(uri, config, set_)
    schema = parse_schema(snapshot.metadata.schema_string)
    columns = [
        {"name": field.name, "type": str(field.kind), "nullable": field.nullable}
        for field in schema.fields
    ]
    if as_json:
        OUT.print_json(data={**facts, "columns": columns})
        return
    show(("", ""), [(name, plain(value)) for name, value in facts.items()])
    OUT.print()
    rows = [tuple(plain(value) for value in column.values()) for column in columns]
    show(("column", "type", "nullable"), rows)


@app.command("apps")
def show_apps(
    uri: row_commands.UriOrName,
    version: VersionOption = None,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Show the last version of every application that writes to the table (`txn` actions)."""
    snapshot = _opened(uri, version, config, set_)
    apps = sorted(snapshot.app_transactions.values(), key=lambda txn: txn.app_id)
    if as_json:
        rows = [
            {"app_id": txn.app_id, "version": txn.version, "last_updated": moment(txn.last_updated)}
            for txn in apps
        ]
        OUT.print_json(data={"table_version": snapshot.version, "apps": rows})
        return
    OUT.print(f"version {snapshot.version} of the table")
    show(
        ("application", "version", "last updated (UTC)"),
        [(txn.app_id, txn.version, instant(txn.last_updated)) for txn in apps],
    )


@app.command("conflicts")
def show_conflicts(
    table: TableArgument,
    limit: Annotated[
        int, typer.Option(help="How many refusals to show, newest first.", min=1)
    ] = 20,
    versions: Annotated[
        int, typer.Option(help="How many of the log's newest versions to search.", min=1)
    ] = 200,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Show a table's newest refused proposals: the rule, and the winning version of a conflict.

    `tidegate proposals explain ID` explains one of them in full.
    """
    settings = loaded(ServiceSettings, config, set_)
    with errors_as_exit_status():
        with _client(settings) as client:
            record = client.require(table)
        bus = KafkaBus(settings.kafka, CLIENT_ID)
        outcomes = last_refusals(bus, settings.kafka.topics, record)
        store = store_for(TableLocation(record.table_root, settings.storage))
        refusals = conflicts(store, outcomes, versions)
        listed = [with_winner(store, refusal) for refusal in refusals[:limit]]
    if as_json:
        data = {"table": record.name, "root": record.table_root, "rules": by_rule(refusals)}
        OUT.print_json(data={**data, "conflicts": [_conflict_data(refusal) for refusal in listed]})
        return
    if not refusals:
        OUT.print(f"nothing was refused lately at {record.name}", soft_wrap=True)
        return
    show(("rule", "times"), list(by_rule(refusals).items()))
    OUT.print()
    titles = ("proposal", "time (UTC)", "status", "rule", "winner", "winner's", "about")
    show(titles, [_conflict_row(refusal) for refusal in listed])
    if len(refusals) > limit:
        OUT.print(f"... and {len(refusals) - limit} older ones; --limit shows them")


@app.command("snapshot")
def show_snapshot(
    uri: row_commands.UriOrName,
    version: VersionOption = None,
    limit: Annotated[int, typer.Option(help="How many files to show.", min=1)] = _FILES_SHOWN,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Show the live files of a version, and its app transactions (`txn` actions)."""
    snapshot = _opened(uri, version, config, set_)
    files = snapshot.files.select(["path", "partitionValues", "size"]).slice(0, limit).to_pylist()
    rows = [{**file, "partitionValues": dict(file["partitionValues"] or ())} for file in files]
    apps = {
        app_transaction.app_id: app_transaction.version
        for app_transaction in snapshot.app_transactions.values()
    }
    if as_json:
        facts = _facts(snapshot)
        OUT.print_json(data={**facts, "appTransactions": apps, "shown": rows})
        return
    listed = [(row["path"], plain(row["partitionValues"]), row["size"]) for row in rows]
    show(("path", "partition values", "bytes"), listed)
    if snapshot.files.num_rows > limit:
        OUT.print(f"... and {snapshot.files.num_rows - limit} more; --limit shows them")
    for app_id, app_version in apps.items():
        OUT.print(f"application {app_id} is at {app_version}", soft_wrap=True)


def _opened(uri: str, version: int | None, config: Any, set_: Any) -> Snapshot:
    settings = loaded(ServiceSettings, config, set_)
    with errors_as_exit_status():
        return open_snapshot(store_for(_place(uri, settings)), version)


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
        "checksum": str(snapshot.checksum),
    }


def _set_aside(settings: ServiceSettings) -> Mapping[UUID, list[FollowerRecord]]:
    """Return the follower records of tables that are set aside.

    If the topic is missing or may not be read, return none and print a line about it.
    """
    records_by_table: defaultdict[UUID, list[FollowerRecord]] = defaultdict(list)
    bus = KafkaBus(settings.kafka, CLIENT_ID)
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
    aside: Mapping[UUID, Sequence[FollowerRecord]],
) -> Mapping[str, StreamStatus]:
    """Return how far each table's change stream is, by name; nothing if it may not be read."""
    topics = settings.kafka.topics
    topic_partition = TopicPartition(topics.cdc_positions, 0)
    try:
        newest = newest_values(KafkaBus(settings.kafka, CLIENT_ID), topic_partition, PATIENCE_S)
    except Misconfigured as error:
        typer.echo(f"how far the change streams are is not known: {error}", err=True)
        return {}
    positions = positions_of({key: record.value for key, record in newest.items()})
    followers = [follower for of_table in aside.values() for follower in of_table]
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


def _followers(aside: Sequence[FollowerRecord]) -> str:
    return "; ".join(
        f"{record.service} since {instant(record.since_ms)}, {record.attempts} attempts, next "
        f"{instant(record.next_try_ms) or 'at its next look'}: {record.reason}"
        for record in aside
    )


def _registration(uri: str, config: Any, set_: Any) -> dict[str, Any]:
    settings = loaded(ServiceSettings, config, set_)
    try:
        with _client(settings) as client:
            record = client.table(_place(uri, settings).root, REGISTRY_S)
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


def _conflict_data(refusal: RefusedProposal) -> dict[str, Any]:
    winner = refusal.winner
    return {
        "proposal": refusal.proposal_id,
        "at": moment(refusal.at_ms),
        "status": refusal.status,
        "refusedIn": refusal.refused_in,
        "rejection": refusal.rejection.model_dump(mode="json", exclude_none=True),
        "winner": None
        if winner is None
        else {
            "version": winner.version,
            "operation": winner.operation,
            "engineInfo": winner.engine_info,
            "proposals": winner.proposals,
        },
    }


def _conflict_row(refusal: RefusedProposal) -> tuple[object, ...]:
    winner, rejection = refusal.winner, refusal.rejection
    winner_text = f"{winner.operation} by {winner.engine_info}" if winner else ""
    about = rejection.path or rejection.app_id or rejection.domain or rejection.field or ""
    version = winner.version if winner else None
    timestamp = instant(refusal.at_ms)
    return (
        refusal.proposal_id,
        timestamp,
        refusal.status,
        rejection.rule,
        version,
        winner_text,
        about,
    )


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
    )


def _place(uri: str, settings: ServiceSettings) -> TableLocation:
    return row_commands.location_of(uri, settings)


def _client(settings: ServiceSettings) -> Client:
    return Client(KafkaBus(settings.kafka, CLIENT_ID), settings.kafka.topics)
