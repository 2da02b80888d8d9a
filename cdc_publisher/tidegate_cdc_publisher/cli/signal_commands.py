"""Commands that move a change stream: each sends a signal, which the publisher obeys once.

The publisher that has the table obeys at its next pass (`cdc.look_s`), in the Kafka transaction of
the position that follows from it.
"""

import time
from typing import Annotated, Final, Literal
from uuid import UUID

import typer

from tidegate_cdc_publisher.cli.stream_place import CLIENT_ID, TableArgument, find_stream
from tidegate_cdc_publisher.settings import CdcSettings
from tidegate_cdc_publisher.signals import SignalReader
from tidegate_cdc_publisher.transactional_producer import read_positions
from tidegate_delta.errors import InvalidRequest, MalformedRecord, Unavailable
from tidegate_messages import codec
from tidegate_messages.change_signal import ChangeSignal
from tidegate_messages.published_records import TableRecord
from tidegate_messages.stream_position import Position, position_of
from tidegate_runtime.cli.console import console
from tidegate_runtime.cli.service_command import Config, Json, Set, errors_as_exit_status, loaded
from tidegate_runtime.clock import instant
from tidegate_runtime.followers.quarantine import read_follower_state
from tidegate_runtime.followers.retention_leases import read_leases
from tidegate_runtime.followers.stream_status import in_words, statuses
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus

POSITIONS_S: Final = 15.0
_ASK_S: Final = 0.5

_OUT: Final = console()

Reason = Annotated[
    str | None, typer.Option("--reason", help="Why; subscribers of a gap read it, too.")
]
Wait = Annotated[
    float,
    typer.Option("--wait", help="Seconds to wait until the publisher has obeyed.", min=0.0),
]
_WAIT_S: Final = 90.0

offsets = typer.Typer(no_args_is_help=True, help="How far a stream is: show it, or set it.")


class _Stream:
    """A table's stream as a command finds it, with the means to send it a signal."""

    def __init__(self, settings: CdcSettings, table: str) -> None:
        self.settings = settings
        self.bus = KafkaBus(settings.kafka, CLIENT_ID)
        self.record: TableRecord = find_stream(self.bus, settings.kafka.topics, table)

    def position(self) -> Position | None:
        """Return the stream's position. Raises: MalformedRecord; Unavailable."""
        positions = read_positions(self.settings.kafka, POSITIONS_S, "settled")
        return position_of(positions, self.record.table)

    def begun_position(self) -> Position:
        """Return the position of a stream that has begun. Raises: InvalidRequest."""
        position = self.position()
        if position is None or position.begins:
            name = self.record.name
            raise InvalidRequest(
                f"nothing of table {name} is published yet: it begins by the publisher's settings "
                f"cdc.tables.{name}.snapshot_mode and start_version",
                error_class="StreamNotBegun",
            )
        return position

    def send(self, signal: ChangeSignal, wait_s: float) -> None:
        """Send a signal, and wait until the publisher has obeyed.

        Raises: Unavailable; InvalidRequest, if the publisher refuses it.
        """
        topic = self.settings.kafka.topics.cdc_signals
        producer = self.bus.producer()
        key, value = str(signal.table).encode(), codec.encode(signal)
        producer.publish(TopicPartition(topic, 0), key, value, codec.headers(signal))
        producer.close()
        reader = SignalReader(self.bus, topic)
        reader.read()
        offset = reader.after(signal.table, None)[-1].offset
        until_s = time.monotonic() + wait_s
        while time.monotonic() < until_s:
            position = self.position()
            if position is not None and position.signal is not None and position.signal >= offset:
                if position.signal == offset and position.refused is not None:
                    raise InvalidRequest(position.refused, error_class="BadSignal")
                _OUT.print(f"{self.record.name}: done; {_in_words(position)}", soft_wrap=True)
                return
            time.sleep(_ASK_S)
        name = self.record.name
        if wait_s:
            raise Unavailable(
                f"the signal is sent, and no publisher has obeyed within {wait_s:g} s: it will at "
                f"its next look (cdc.look_s) at {name}, or when one runs; `tidegate changes show "
                f"{name}` tells"
            )
        _OUT.print(f"{name}: sent", soft_wrap=True)


def show_position(
    table: TableArgument, config: Config = None, set_: Set = None, as_json: Json = False
) -> None:
    """Show a stream's state, its position, and the signals that wait to be obeyed."""
    with errors_as_exit_status():
        stream = _Stream(loaded(CdcSettings, config, set_), table)
        topics, record = stream.settings.kafka.topics, stream.record
        positions = read_positions(stream.settings.kafka, POSITIONS_S, "settled")
        aside = read_follower_state(stream.bus, topics).values()
        leases = read_leases(stream.bus, topics).get(record.table, ())
        status = next(statuses([record], positions, aside), None)
        signals = SignalReader(stream.bus, topics.cdc_signals)
        signals.read()
        position = position_of(positions, record.table)
        waiting = () if position is None else signals.after(record.table, position.signal)
    if as_json:
        position_json = None if position is None else position.model_dump(mode="json")
        sent = [received.signal.model_dump(mode="json", exclude_none=True) for received in waiting]
        held = [lease.model_dump(mode="json", exclude_none=True) for lease in leases]
        shown = {"position": position_json, "signals": sent, "leases": held}
        _OUT.print_json(data={"table": record.name, **shown})
        return
    state = "not followed" if status is None else in_words(status)
    _OUT.print(f"{record.name}: {state}", soft_wrap=True, markup=False)
    if position is not None:
        _OUT.print(f"position: {_in_words(position)}", soft_wrap=True, markup=False)
    for lease in leases:
        until = f"until {instant(lease.until_ms)} UTC"
        text = f"lease: {lease.holder} needs version {lease.needed_from} and later, {until}"
        _OUT.print(text, soft_wrap=True, markup=False)
    for received in waiting:
        text = codec.encode(received.signal).decode()
        _OUT.print(f"waits to be obeyed: {text}", soft_wrap=True, markup=False)


def resnapshot(  # noqa: PLR0913 - each is an option of the command
    table: TableArgument,
    incremental: Annotated[
        bool,
        typer.Option("--incremental", help="Between the versions that follow, not before them."),
    ] = False,
    where: Annotated[
        str | None,
        typer.Option(help="Only rows for which a SQL condition is true; with --incremental."),
    ] = None,
    reason: Reason = None,
    wait: Wait = _WAIT_S,
    config: Config = None,
    set_: Set = None,
) -> None:
    """Publish all rows of a table again, as `r`.

    Without --incremental a marker has copies forget what they have, and the rows of the newest
    version follow, then the versions after it. With it the rows come between the versions, the
    stream goes on meanwhile, and it can be paused.
    """
    if where is not None and not incremental:
        raise typer.BadParameter(
            "add --incremental: the other snapshot has copies forget the rows that do not match",
            param_hint="--where",
        )
    with errors_as_exit_status():
        stream = _Stream(loaded(CdcSettings, config, set_), table)
        if incremental:
            stream.begun_position()
        kind: Literal["incremental", "blocking"] = "incremental" if incremental else "blocking"
        signal = ChangeSignal(
            table=stream.record.table,
            type="execute-snapshot",
            snapshot=kind,
            reason=reason,
            filter=where,
        )
        stream.send(signal, wait)


def pause_snapshot(
    table: TableArgument, wait: Wait = _WAIT_S, config: Config = None, set_: Set = None
) -> None:
    """Pause the incremental snapshot of a table; its versions go on."""
    with errors_as_exit_status():
        stream = _beside(loaded(CdcSettings, config, set_), table)
        stream.send(ChangeSignal(table=stream.record.table, type="pause-snapshot"), wait)


def resume_snapshot(
    table: TableArgument, wait: Wait = _WAIT_S, config: Config = None, set_: Set = None
) -> None:
    """Go on with the incremental snapshot of a table."""
    with errors_as_exit_status():
        stream = _beside(loaded(CdcSettings, config, set_), table)
        stream.send(ChangeSignal(table=stream.record.table, type="resume-snapshot"), wait)


def stop_snapshot(
    table: TableArgument, wait: Wait = _WAIT_S, config: Config = None, set_: Set = None
) -> None:
    """End the incremental snapshot of a table before it is whole."""
    with errors_as_exit_status():
        stream = _beside(loaded(CdcSettings, config, set_), table)
        stream.send(ChangeSignal(table=stream.record.table, type="stop-snapshot"), wait)


def skip(
    table: TableArgument,
    to: Annotated[int, typer.Option("--to", help="The last version to pass over.", min=0)],
    reason: Reason = None,
    wait: Wait = _WAIT_S,
    config: Config = None,
    set_: Set = None,
) -> None:
    """Go on behind a version whose changes can't or shall not be published.

    A marker in the stream says which versions are missing.
    """
    with errors_as_exit_status():
        stream = _Stream(loaded(CdcSettings, config, set_), table)
        position = stream.begun_position()
        if to < position.version or (to == position.version and position.complete):
            raise InvalidRequest(
                f"version {to} of {stream.record.name} is published already, up to "
                f"{position.version}: to publish versions again use `tidegate changes offsets set`",
                error_class="WrongPosition",
            )
        stream.send(_set_to(stream, to, reason), wait)


@offsets.command("show")
def show_offsets(
    table: TableArgument, config: Config = None, set_: Set = None, as_json: Json = False
) -> None:
    """Show how far a stream is, and the signals that wait to be obeyed."""
    show_position(table, config, set_, as_json)


@offsets.command("set")
def set_offsets(
    table: TableArgument,
    version: Annotated[
        int, typer.Option("--version", help="The last version that is not to follow.", min=0)
    ],
    reason: Reason = None,
    wait: Wait = _WAIT_S,
    config: Config = None,
    set_: Set = None,
) -> None:
    """Go on behind a version: an earlier one publishes again what follows it, with the same ids.

    A later one is a gap, which a marker announces.
    """
    with errors_as_exit_status():
        stream = _Stream(loaded(CdcSettings, config, set_), table)
        stream.begun_position()
        stream.send(_set_to(stream, version, reason), wait)


@offsets.command("reset")
def reset_offsets(
    table: TableArgument, wait: Wait = _WAIT_S, config: Config = None, set_: Set = None
) -> None:
    """Have a stream begin anew, as `cdc.snapshot_mode` says. Subscribers see rows again."""
    with errors_as_exit_status():
        stream = _Stream(loaded(CdcSettings, config, set_), table)
        try:
            stream.begun_position()
        except MalformedRecord:
            _remove_position(stream, stream.record.table)
            _OUT.print(
                f"{stream.record.name}: its position could not be read, and is removed",
                soft_wrap=True,
            )
            return
        stream.send(ChangeSignal(table=stream.record.table, type="reset-position"), wait)


def _beside(settings: CdcSettings, table: str) -> _Stream:
    """Return a stream with an incremental snapshot. Raises: InvalidRequest."""
    stream = _Stream(settings, table)
    if stream.begun_position().incremental is None:
        raise InvalidRequest(
            f"no incremental snapshot of {stream.record.name} is under way; begin one with "
            f"`tidegate changes resnapshot {stream.record.name} --incremental`",
            error_class="NoSnapshot",
        )
    return stream


def _set_to(stream: _Stream, version: int, reason: str | None) -> ChangeSignal:
    """Return the signal. Raises: InvalidRequest, for a version that the table lacks."""
    head = stream.record.published_through
    if version > head >= 0:
        raise InvalidRequest(
            f"table {stream.record.name} has no version {version} yet, its newest is {head}",
            error_class="VersionNotFound",
        )
    return ChangeSignal(
        table=stream.record.table, type="set-position", version=version, reason=reason
    )


def _remove_position(stream: _Stream, table: UUID) -> None:
    """Write a tombstone for a position that can't be read: nobody publishes the table."""
    producer = stream.bus.producer()
    topic_partition = TopicPartition(stream.settings.kafka.topics.cdc_positions, 0)
    producer.publish(topic_partition, str(table).encode(), None)
    producer.close()


def _in_words(position: Position) -> str:
    if position.begins:
        return "the stream begins anew"
    part = "" if position.complete else f", of which {position.changes_published} changes"
    subject = "the snapshot of version" if position.snapshot else "version"
    return f"{subject} {position.version}{part}"
