"""Commands that make a table of its change stream: to show it, and to compare it with the table."""

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import orjson
import typer

from tidegate_cdc_publisher.cli.stream_place import CLIENT_ID, TableArgument, find_stream
from tidegate_cdc_publisher.json_rows import in_utf8
from tidegate_cdc_publisher.record_form import RecordForm
from tidegate_cdc_publisher.row_diff import images
from tidegate_cdc_publisher.settings import CdcSettings
from tidegate_cdc_publisher.transactional_producer import read_positions
from tidegate_delta.errors import InvalidRequest, Misconfigured
from tidegate_messages.published_records import LeaseRecord, TableRecord
from tidegate_messages.stream_position import position_of
from tidegate_runtime.cli.command import OUT, Result, command
from tidegate_runtime.client.change_stream import ChangeStream, TableCopy
from tidegate_runtime.clock import SystemClock, new_id
from tidegate_runtime.followers.version_gates import give_back_lease, take_lease
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.service.runner import EXIT_OK, EXIT_STOP
from tidegate_runtime.storage.open_store import open_store
from tidegate_runtime.table_io.data_file_reader import scan
from tidegate_runtime.table_io.open_table import open_snapshot

LEASE_MS: Final = 6 * 60 * 60 * 1000
"""After this time a comparison that was killed holds nothing back any more."""

QuietOption = Annotated[
    float,
    typer.Option("--quiet", help="Seconds without a change after which the topic is read.", min=1),
]
_QUIET_S: Final = 5.0
_SHOWN: Final = 10

VersionOption = Annotated[
    int | None, typer.Option("--version", help="Version; the last published one if not given.")
]

_log = logging.getLogger(__name__)


@command(CdcSettings)
def replay(
    settings: CdcSettings,
    table: TableArgument,
    version: VersionOption = None,
    quiet: QuietOption = _QUIET_S,
) -> None:
    """Print the rows that the change stream gives at a version, a JSON object a line."""
    bus = KafkaBus(settings.kafka, CLIENT_ID)
    record = find_stream(bus, settings.kafka.topics, table)
    up_to = _published(settings, record, version)
    for row in _copy(bus, settings, record, up_to, quiet).rows:
        OUT.print(orjson.dumps(row).decode(), soft_wrap=True, markup=False)


@command(CdcSettings)
def verify(
    settings: CdcSettings,
    table: TableArgument,
    version: VersionOption = None,
    quiet: QuietOption = _QUIET_S,
) -> Result:
    """Compare the rows that the change stream gives at a version with the table's.

    The settings must be the publisher's where they say how values are written (`cdc.types`). Exit
    status 3: they differ. The topic must hold the stream from its beginning.
    """
    bus = KafkaBus(settings.kafka, CLIENT_ID)
    record = find_stream(bus, settings.kafka.topics, table)
    up_to = _published(settings, record, version)
    copy = _copy(bus, settings, record, up_to, quiet)
    streamed = Counter(orjson.dumps(row, option=orjson.OPT_SORT_KEYS) for row in copy.rows)
    with _leased(bus, settings, record, up_to):
        stored = Counter(_table_rows(settings, record, up_to))
    missing, surplus = stored - streamed, streamed - stored
    gaps = [f"versions {gap.first} to {gap.last}: {gap.reason}" for gap in copy.gaps]
    lines = [f"gap: {gap}" for gap in gaps]
    for name, rows in (("missing", missing), ("surplus", surplus)):
        lines += [f"{name}: {row.decode()}" for row in list(rows.elements())[:_SHOWN]]
    differ = f"{missing.total()} missing in the stream, {surplus.total()} surplus"
    difference = differ if missing or surplus else "the stream gives the same"
    lines.append(f"{record.name} at version {up_to}: {stored.total()} rows, {difference}")
    counts = {"rows": stored.total(), "missing": missing.total(), "surplus": surplus.total()}
    data = {"table": record.name, "version": up_to, **counts, "gaps": gaps}
    return Result(data, lines, EXIT_STOP if missing or surplus else EXIT_OK)


def _published(settings: CdcSettings, record: TableRecord, version: int | None) -> int:
    """Return the version asked for, or the last whole one. Raises: InvalidRequest."""
    positions = read_positions(settings.kafka)
    position = position_of(positions, record.table)
    is_whole = position is not None and position.complete
    if position is None or position.begins or (position.snapshot and not is_whole):
        raise InvalidRequest(
            f"no version of {record.name} is whole in the stream yet: wait until the snapshot is "
            "published (`tidegate changes list`)",
            error_class="StreamNotBegun",
        )
    last = position.version if is_whole else position.version - 1
    if version is not None and version > last:
        raise InvalidRequest(
            f"version {version} of {record.name} is not published yet, the last one is {last}",
            error_class="VersionNotFound",
        )
    return last if version is None else version


def _copy(
    bus: KafkaBus, settings: CdcSettings, record: TableRecord, version: int, quiet_s: float
) -> TableCopy:
    """Return the table as the stream gives it at a version.

    Raises: InvalidRequest (`NoChange`), for a stream that is not in Debezium's envelope, as JSON.
    """
    copy = TableCopy()
    topic = settings.cdc.topic_of(settings.kafka.topics, record.name)
    store = open_store(record.table_root, settings.storage)
    try:
        with ChangeStream(bus, topic, store=store) as stream:
            for change in stream.changes(quiet_s):
                if change.version <= version:
                    copy.apply(change)
    except ValueError as error:
        raise InvalidRequest(str(error), error_class="NoChange") from error
    return copy


@contextmanager
def _leased(
    bus: KafkaBus, settings: CdcSettings, record: TableRecord, version: int
) -> Iterator[None]:
    """Keep the files of a version from vacuum and cleanup while it is read.

    Who may not write leases reads without one.
    """
    clock, topics = SystemClock(), settings.kafka.topics
    lease = LeaseRecord(
        table=record.table,
        holder=f"changes-verify.{new_id(clock)}",
        needed_from=version,
        until_ms=clock.now_ms() + LEASE_MS,
        reason="tidegate changes verify",
    )
    try:
        take_lease(bus, topics, lease)
    except Misconfigured as error:
        log_event(_log, "not_leased", level=logging.WARNING, why=error)
        yield
        return
    try:
        yield
    finally:
        give_back_lease(bus, topics, lease.holder, lease.table)


def _table_rows(settings: CdcSettings, record: TableRecord, version: int) -> Iterator[bytes]:
    """Yield the table's rows as the stream writes them, with sorted names."""
    form: RecordForm = settings.cdc.form(record.name)
    store = open_store(record.table_root, settings.storage)
    for rows in scan(store, open_snapshot(store, version)):
        for text in in_utf8(images(rows, None, form).texts):
            yield orjson.dumps(orjson.loads(text), option=orjson.OPT_SORT_KEYS)
