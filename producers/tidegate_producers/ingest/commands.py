"""`tidegate ingest status` and `dead-letters`: what needs no Spark."""

from typing import Annotated, Any

import typer

from tidegate_producers.cli.formatting import instant, moment
from tidegate_producers.cli.output import show
from tidegate_producers.cli.table_place import bus_of, client_of, location_of
from tidegate_producers.ingest.dead_letters import DeadLetter, read_all
from tidegate_producers.ingest.ingest_status import PartitionStatus, statuses
from tidegate_producers.options import TableLocation
from tidegate_runtime.cli.command import Result, command
from tidegate_runtime.service.settings import ServiceSettings

TableOption = Annotated[
    str | None,
    typer.Argument(
        metavar="TABLE", help="The table's root, or its registered name; all without it."
    ),
]


@command()
def show_status(settings: ServiceSettings, uri: TableOption = None) -> Result:
    """Show how far tables are in their topics, from their logs and the topics' ends.

    No job needs to run. The lag is in offsets, some of which may be no records.
    """
    if uri is not None:
        places = [location_of(uri, settings)]
    else:
        with client_of(settings) as client:
            records = sorted(client.tables().values(), key=lambda record: record.name)
        places = [
            TableLocation(record.table_root, settings.storage)
            for record in records
            if record.status not in ("dropped", "staged")
        ]
    found = list(statuses(bus_of(settings), places))
    titles = ("table", "topic", "partition", "position", "end", "lag", "committed (UTC)", "note")
    rows = [
        (
            each.table_root,
            each.source.topic,
            each.source.partition,
            each.position,
            each.end,
            each.lag,
            instant(each.updated_ms),
            each.note,
        )
        for each in found
    ]
    return Result([_status_data(each) for each in found], lambda: show(titles, rows))


def _status_data(status: PartitionStatus) -> dict[str, Any]:
    return {
        "table": status.table_root,
        "topic": status.source.topic,
        "topic_id": status.source.topic_id,
        "partition": status.source.partition,
        "position": status.position,
        "end": status.end,
        "lag": status.lag,
        "committed": moment(status.updated_ms),
        "note": status.note,
    }


@command()
def show_dead_letters(
    settings: ServiceSettings,
    uri: TableOption = None,
    limit: Annotated[int, typer.Option(help="How many to show, oldest first.", min=1)] = 100,
) -> Result:
    """Show records that are no rows of their table: where they are, why, and their bytes.

    A record that was sent twice, because its batch was repeated, is shown once.
    """
    root = None if uri is None else location_of(uri, settings).root
    reader = bus_of(settings).reader()
    found: list[DeadLetter] = []
    try:
        for _, letter in read_all(reader, settings.kafka.topics.ingest_dead_letters):
            if root in (None, letter.table_root) and len(found) < limit:
                found.append(letter)
    finally:
        reader.close()
    titles = ("source", "table", "attempt", "field", "reason", "key", "value")
    rows = [
        (
            letter.place,
            letter.table_root,
            letter.attempt,
            letter.field,
            letter.reason,
            _text(letter.key),
            _text(letter.value),
        )
        for letter in found
    ]
    return Result([_letter_data(letter) for letter in found], lambda: show(titles, rows))


def _letter_data(letter: DeadLetter) -> dict[str, Any]:
    return {
        "source": letter.place,
        "topic_id": letter.source.topic_id,
        "table": letter.table_root,
        "attempt": letter.attempt,
        "field": letter.field,
        "reason": letter.reason,
        "key": None if letter.key is None else letter.key.hex(),
        "value": None if letter.value is None else letter.value.hex(),
        "text": _text(letter.value),
    }


def _text(value: bytes | None) -> str | None:
    """Return bytes as text, those that are none in hexadecimal."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.hex()
