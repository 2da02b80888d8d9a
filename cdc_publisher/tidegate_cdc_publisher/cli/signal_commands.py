"""Commands that move a change stream: each sends a signal, which the publisher obeys once.

The publisher that has the table obeys at its next pass (`cdc.look_s`), in the Kafka transaction of
the position that follows from it.
"""

import time
from typing import Annotated, Final
from uuid import UUID

import typer

from tidegate_cdc_publisher.cli.stream_place import CLIENT_ID, TableArgument, find_stream
from tidegate_cdc_publisher.settings import CdcSettings
from tidegate_cdc_publisher.signals import SignalReader
from tidegate_cdc_publisher.transactional_producer import read_positions
from tidegate_delta.errors import InvalidRequest, MalformedRecord, Unavailable
from tidegate_messages import codec
from tidegate_messages.published_records import ChangeSignal, SignalType, TableRecord
from tidegate_messages.stream_position import Position, position_of
from tidegate_runtime.cli.command import OUT, Result, command
from tidegate_runtime.clock import instant
from tidegate_runtime.followers.quarantine import read_follower_state
from tidegate_runtime.followers.stream_status import in_words, statuses
from tidegate_runtime.followers.version_gates import read_leases
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus

_ASK_S: Final = 0.5

Reason = Annotated[
    str | None, typer.Option("--reason", help="Why; subscribers of a gap read it, too.")
]
Wait = Annotated[
    float,
    typer.Option("--wait", help="Seconds to wait until the publisher has obeyed.", min=0.0),
]
_WAIT_S: Final = 90.0


class _Stream:
    """A table's stream as a command finds it, with the means to send it a signal."""

    def __init__(self, settings: CdcSettings, table: str) -> None:
        self.settings = settings
        self.bus = KafkaBus(settings.kafka, CLIENT_ID)
        self.record: TableRecord = find_stream(self.bus, settings.kafka.topics, table)

    def position(self) -> Position | None:
        """Return the stream's position. Raises: MalformedRecord; Unavailable."""
        positions = read_positions(self.settings.kafka)
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
                OUT.print(f"{self.record.name}: done; {_in_words(position)}", soft_wrap=True)
                return
            time.sleep(_ASK_S)
        name = self.record.name
        if wait_s:
            raise Unavailable(
                f"the signal is sent, and no publisher has obeyed within {wait_s:g} s: it will at "
                f"its next look (cdc.look_s) at {name}, or when one runs; `tidegate changes show "
                f"{name}` tells"
            )
        OUT.print(f"{name}: sent", soft_wrap=True)


@command(CdcSettings)
def show_position(settings: CdcSettings, table: TableArgument) -> Result:
    """Show a stream's state, its position, and the signals that wait to be obeyed."""
    stream = _Stream(settings, table)
    topics, record = settings.kafka.topics, stream.record
    positions = read_positions(settings.kafka)
    quarantined = read_follower_state(stream.bus, topics).values()
    leases = read_leases(stream.bus, topics).get(record.table, ())
    status = next(statuses([record], positions, quarantined), None)
    signals = SignalReader(stream.bus, topics.cdc_signals)
    signals.read()
    position = position_of(positions, record.table)
    waiting = () if position is None else signals.after(record.table, position.signal)
    lines = [f"{record.name}: {'not followed' if status is None else in_words(status)}"]
    if position is not None:
        lines.append(f"position: {_in_words(position)}")
    for lease in leases:
        until = f"until {instant(lease.until_ms)} UTC"
        lines.append(f"lease: {lease.holder} needs version {lease.needed_from} and later, {until}")
    for received in waiting:
        lines.append(f"waits to be obeyed: {codec.encode(received.signal).decode()}")
    data = {
        "table": record.name,
        "position": None if position is None else position.model_dump(mode="json"),
        "signals": [one.signal.model_dump(mode="json", exclude_none=True) for one in waiting],
        "leases": [lease.model_dump(mode="json", exclude_none=True) for lease in leases],
    }
    return Result(data, lines)


@command(CdcSettings)
def snapshot(  # noqa: PLR0913 - each is an option of the command
    settings: CdcSettings,
    table: TableArgument,
    incremental: Annotated[
        bool,
        typer.Option("--incremental", help="Between the versions that follow, not before them."),
    ] = False,
    where: Annotated[
        str | None,
        typer.Option(help="Only rows for which a SQL condition is true; with --incremental."),
    ] = None,
    pause: Annotated[
        bool, typer.Option("--pause", help="Pause the incremental snapshot; versions go on.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the incremental snapshot.")
    ] = False,
    stop: Annotated[
        bool, typer.Option("--stop", help="End the incremental snapshot before it is whole.")
    ] = False,
    reason: Reason = None,
    wait: Wait = _WAIT_S,
) -> None:
    """Publish all rows of a table again, as `r`; or pause, resume or stop that.

    Without --incremental a marker has copies forget what they have, and the rows of the newest
    version follow, then the versions after it. With it the rows come between the versions, the
    stream goes on meanwhile, and it can be paused.
    """
    steps: dict[SignalType, bool] = {
        "pause-snapshot": pause,
        "resume-snapshot": resume,
        "stop-snapshot": stop,
    }
    chosen = [step for step, is_chosen in steps.items() if is_chosen]
    if chosen and (len(chosen) > 1 or incremental or where is not None or reason is not None):
        raise typer.BadParameter(
            "--pause, --resume and --stop are for the snapshot that is under way: give one of "
            "them, without options of a new one"
        )
    if where is not None and not incremental:
        raise typer.BadParameter(
            "add --incremental: the other snapshot has copies forget the rows that do not match",
            param_hint="--where",
        )
    stream = _Stream(settings, table)
    if chosen:
        _check_incremental(stream)
        stream.send(ChangeSignal(table=stream.record.table, type=chosen[0]), wait)
        return
    if incremental:
        stream.begun_position()
    signal = ChangeSignal(
        table=stream.record.table,
        type="execute-snapshot",
        snapshot="incremental" if incremental else "blocking",
        reason=reason,
        filter=where,
    )
    stream.send(signal, wait)


@command(CdcSettings)
def skip(
    settings: CdcSettings,
    table: TableArgument,
    to: Annotated[int, typer.Option("--to", help="The last version to pass over.", min=0)],
    reason: Reason = None,
    wait: Wait = _WAIT_S,
) -> None:
    """Go on behind a version whose changes can't or shall not be published.

    A marker in the stream says which versions are missing.
    """
    stream = _Stream(settings, table)
    position = stream.begun_position()
    if to < position.version or (to == position.version and position.complete):
        raise InvalidRequest(
            f"version {to} of {stream.record.name} is published already, up to "
            f"{position.version}: to publish versions again use `tidegate changes reset`",
            error_class="WrongPosition",
        )
    stream.send(_set_to(stream, to, reason), wait)


@command(CdcSettings)
def reset(
    settings: CdcSettings,
    table: TableArgument,
    to: Annotated[
        int | None,
        typer.Option(
            "--to",
            help="The last version that is not to follow. An earlier one than the stream's "
            "publishes again what follows it, with the same ids; a later one is a gap, which a "
            "marker announces.",
            min=0,
        ),
    ] = None,
    anew: Annotated[
        bool,
        typer.Option(
            "--anew", help="Begin anew, as cdc.snapshot_mode says: subscribers see rows again."
        ),
    ] = False,
    reason: Reason = None,
    wait: Wait = _WAIT_S,
) -> None:
    """Set where a stream goes on: behind a version, or from its beginning."""
    if (to is not None) is anew:
        raise typer.BadParameter("give one of the two", param_hint="--to, --anew")
    if anew and reason is not None:
        raise typer.BadParameter("it goes with --to", param_hint="--reason")
    stream = _Stream(settings, table)
    try:
        stream.begun_position()
    except MalformedRecord:
        if to is not None:
            raise
        _remove_position(stream, stream.record.table)
        name = stream.record.name
        OUT.print(f"{name}: its position could not be read, and is removed", soft_wrap=True)
        return
    if to is not None:
        stream.send(_set_to(stream, to, reason), wait)
    else:
        stream.send(ChangeSignal(table=stream.record.table, type="reset-position"), wait)


def _check_incremental(stream: _Stream) -> None:
    """Check that an incremental snapshot is under way. Raises: InvalidRequest."""
    if stream.begun_position().incremental is None:
        raise InvalidRequest(
            f"no incremental snapshot of {stream.record.name} is under way; begin one with "
            f"`tidegate changes snapshot {stream.record.name} --incremental`",
            error_class="NoSnapshot",
        )


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
