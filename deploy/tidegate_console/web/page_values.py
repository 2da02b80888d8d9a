"""Values as the pages show them: rows of tables with their state, times, sizes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from tidegate_console.overview import Overview
from tidegate_messages.published_records import FollowerRecord, TableRecord
from tidegate_runtime import clock
from tidegate_runtime.followers.stream_status import StreamStatus

Mark = Literal["bad", "warn", "good", "idle"]
PER_PAGE: Final = 200
_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
_AGES: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


@dataclass(frozen=True)
class TableRow:
    """A table with what the services say of it. `mark` is how urgent it is."""

    record: TableRecord
    quarantined: Sequence[FollowerRecord]
    stream: StreamStatus | None
    mark: Mark
    state: str


@dataclass(frozen=True)
class TablePage:
    """Some of the tables that match a filter; `states` counts all tables by their state."""

    rows: Sequence[TableRow]
    matching: int
    number: int
    last: int
    states: Mapping[str, int]


def table_rows(overview: Overview) -> list[TableRow]:
    """Return all tables, those that need somebody first, then by name."""
    streams = {stream.table: stream for stream in overview.streams}
    rows = [
        _row(record, overview.quarantined.get(table, ()), streams.get(record.name))
        for table, record in overview.tables.items()
    ]
    urgency = {"bad": 0, "warn": 1, "good": 2, "idle": 3}
    return sorted(rows, key=lambda row: (urgency[row.mark], row.record.name))


def table_page(rows: Iterable[TableRow], text: str, state: str, number: int) -> TablePage:
    """Return the tables whose name, root or id has a text, in a state, if these are given."""
    all_rows = list(rows)
    states: dict[str, int] = {}
    for row in all_rows:
        states[row.state] = states.get(row.state, 0) + 1
    wanted = text.casefold()
    result = [
        row
        for row in all_rows
        if (not state or row.state == state)
        and (
            not wanted
            or wanted in row.record.name.casefold()
            or wanted in row.record.table_root.casefold()
            or wanted in str(row.record.table)
        )
    ]
    last = max(1, -(-len(result) // PER_PAGE))
    number = min(max(1, number), last)
    shown = result[(number - 1) * PER_PAGE : number * PER_PAGE]
    return TablePage(shown, len(result), number, last, states)


def _row(
    record: TableRecord, quarantined: Sequence[FollowerRecord], stream: StreamStatus | None
) -> TableRow:
    if record.status == "halted" and record.halted_by_hand is None:
        return TableRow(record, quarantined, stream, "bad", "halted")
    if record.status == "halted":
        return TableRow(record, quarantined, stream, "warn", "halted by hand")
    if quarantined:
        return TableRow(record, quarantined, stream, "bad", "set aside")
    if stream is not None and stream.state == "stopped":
        return TableRow(record, quarantined, stream, "bad", "stream stopped")
    idle = record.status in ("staged", "dropped")
    return TableRow(record, quarantined, stream, "idle" if idle else "good", record.status)


def size(size_bytes: int) -> str:
    """Return a size in the largest unit that leaves a number of one or more."""
    value, unit = float(size_bytes), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{size_bytes} bytes" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def age(at_ms: int | None, now_ms: int) -> str:
    """Return how long ago something was, in one unit."""
    if at_ms is None:
        return ""
    seconds = max(0, now_ms - at_ms) // 1000
    for length, unit in _AGES:
        if seconds >= length:
            return f"{seconds // length} {unit} ago"
    return "now"


def instant(at_ms: int | None) -> str:
    """Return a time in UTC, to the second."""
    return "" if at_ms is None else clock.instant(at_ms).partition(".")[0]
