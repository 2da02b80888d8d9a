"""`tidegate changes`: how far the change streams are, what is in one, and what is done with it.

`list` and `tail` only read; the commands of `signal_commands` send signals to the publisher.

`change_line` is a record as a line for people, in whatever envelope and format it is.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final

import orjson
import typer

from tidegate_cdc_publisher.cli import signal_commands, table_copy_commands
from tidegate_cdc_publisher.cli.stream_place import CLIENT_ID, TableArgument, find_stream
from tidegate_cdc_publisher.record_encoding import CONTENT_TYPES
from tidegate_cdc_publisher.record_form import ADDED_FIELDS, PayloadEncoder, envelope_of
from tidegate_cdc_publisher.schema_markers import in_words
from tidegate_cdc_publisher.settings import CdcSettings
from tidegate_cdc_publisher.transactional_producer import read_positions
from tidegate_delta.errors import InvalidRequest, Misconfigured
from tidegate_messages.codec import encode
from tidegate_runtime.cli.command import OUT, Json, Result, command
from tidegate_runtime.client.change_stream import payload_of, schema_change_of
from tidegate_runtime.followers.quarantine import read_follower_state
from tidegate_runtime.followers.stream_status import as_data, statuses
from tidegate_runtime.followers.stream_status import in_words as stream_in_words
from tidegate_runtime.followers.version_gates import read_leases
from tidegate_runtime.kafka.client_protocols import Bus, Offset, Record, TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.table_registry import read_registry

_SCHEMA_ID_BYTES: Final = 5
"""The size of what stands before a value whose schema is in a registry: a zero byte and an id."""


def change_line(change: Record, registry: PayloadEncoder | None, *, as_json: bool) -> str:
    """Return a change in a line: version and place in it, operation, row; or what a marker says.

    Raises: Misconfigured, for a value that only a registry's schema explains, without a registry;
    InvalidRequest (`NoChange`), for a record that no publisher wrote; as `PayloadEncoder.decoded`.
    """
    schema = schema_change_of(change)
    if schema is not None:
        steps_text = "; ".join(in_words(step) for step in schema.steps)
        return encode(schema).decode() if as_json else f"{schema.version} schema: {steps_text}"
    headers = dict(change.headers)
    if change.value is None or not {"event_id", "op"} <= headers.keys():
        raise InvalidRequest(
            f"{change.at}, offset {change.offset}: no publisher of changes wrote this record; look "
            "who else writes to the topic",
            error_class="NoChange",
        )
    content = _json(change, headers.get("content-type"), registry)
    if as_json:
        return content.decode()
    value = payload_of(content)
    _, version, index = (headers["event_id"] or b"").decode().removesuffix(":before").split(":")
    is_feed = envelope_of(value) == "delta"
    op = value["_change_type"] if is_feed else (headers["op"] or b"").decode()
    return f"{version}:{index.lstrip('ri')} {op} {orjson.dumps(_row(value)).decode()}"


def _json(change: Record, content_type: bytes | None, registry: PayloadEncoder | None) -> bytes:
    """Return a record's value as JSON."""
    value = change.value or b""
    if content_type == CONTENT_TYPES["json_schema_registry"]:
        return value[_SCHEMA_ID_BYTES:]
    if content_type not in (CONTENT_TYPES["avro"], CONTENT_TYPES["protobuf"]):
        return value
    if registry is None:
        raise Misconfigured(
            f"the values on {change.at.topic} are {content_type.decode()}, which is read with the "
            "schemas in its registry: give the publisher's settings with --config, or "
            "--set cdc.registry.url=URL"
        )
    return registry.decoded(value)


def _row(value: dict[str, Any]) -> Any:
    """Return the row of a change: the image after it, or the last one."""
    envelope = envelope_of(value)
    if envelope != "debezium":
        return {name: cell for name, cell in value.items() if name not in ADDED_FIELDS[envelope]}
    after = value.get("after")
    return value.get("before") if after is None else after


QUIET_S: Final = 2.0
"""Silence after which a topic is read to its end: transaction markers take offsets, too."""

_FOLLOW_S: Final = 1.0
_PER_RECORD: Final = 2
"""Offsets to go back for a record: each may be a transaction of its own, with its marker."""

app = typer.Typer(no_args_is_help=True, add_completion=False, help="The change streams of tables.")
app.command("show")(signal_commands.show_position)
app.command("snapshot")(signal_commands.snapshot)
app.command("skip")(signal_commands.skip)
app.command("reset")(signal_commands.reset)
app.command("replay")(table_copy_commands.replay)
app.command("verify")(table_copy_commands.verify)


@app.callback()
def _changes() -> None:
    """The change streams of registered tables."""


@app.command("list")
@command(CdcSettings)
def list_streams(settings: CdcSettings) -> Result:
    """Show each table's change stream: its version, its lag, and why it has stopped."""
    topics = settings.kafka.topics
    bus = KafkaBus(settings.kafka, CLIENT_ID)
    tables = read_registry(bus, topics).values()
    positions = read_positions(settings.kafka)
    quarantined = read_follower_state(bus, topics).values()
    streams = list(statuses(tables, positions, quarantined, read_leases(bus, topics)))
    width = max((len(stream.table) for stream in streams), default=0)
    return Result(
        [as_data(stream, topics.changes(stream.table)) for stream in streams],
        [f"{stream.table:<{width}}  {stream_in_words(stream)}" for stream in streams],
    )


@app.command()
@command(CdcSettings)
def tail(
    settings: CdcSettings,
    table: TableArgument,
    last: Annotated[int, typer.Option(help="Show at most this many changes.", min=0)] = 10,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with changes as they come, until Ctrl-C.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the last changes of a table's stream, as a reader of committed records gets them.

    With several topic partitions the changes of each are in order, and those of one follow those
    of another. With --json each line is a record's value, which Avro and Protobuf are shown as.
    They are read with the schemas in the registry that the settings name.
    """
    bus, topics = KafkaBus(settings.kafka, CLIENT_ID), settings.kafka.topics
    record = find_stream(bus, topics, table)
    registry = settings.cdc.registry.opened()
    for change in _tail(bus, settings.cdc.topic_of(topics, record.name), last, follow=follow):
        line = change_line(change, registry, as_json=as_json)
        OUT.print(line, soft_wrap=True, markup=False)


@dataclass
class _ReadState:
    """Where a partition is read on, and its end when the command began."""

    following: Offset
    end: Offset


def _tail(bus: Bus, topic: str, last: int, *, follow: bool) -> Iterator[Record]:
    reader = bus.reader()
    try:
        partitions = [TopicPartition(topic, number) for number in range(bus.partitions(topic))]
        places = {
            topic_partition: _ReadState(*bounds)
            for topic_partition, bounds in reader.bounds_of(partitions).items()
        }
        last_records: deque[Record] = deque(maxlen=last)
        for topic_partition, place in places.items():
            start = max(place.following, place.end - _PER_RECORD * max(1, last))
            place.following = Offset(start)
            while place.following < place.end:
                read = reader.read(topic_partition, place.following, QUIET_S)
                if not read:
                    break
                place.following = Offset(read[-1].offset + 1)
                last_records.extend(record for record in read if not _is_tombstone(record))
        yield from last_records
        while follow:
            starts = {topic_partition: place.following for topic_partition, place in places.items()}
            for record in reader.read_several(starts, _FOLLOW_S):
                places[record.at].following = Offset(record.offset + 1)
                if not _is_tombstone(record):
                    yield record
    finally:
        reader.close()


def _is_tombstone(record: Record) -> bool:
    return record.value is None and schema_change_of(record) is None
