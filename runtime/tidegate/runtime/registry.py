"""The registry: which tables there are, as the records of `table-state` say."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

from tidegate.delta.errors import InvalidRequest, MalformedRecord, Misconfigured, Unavailable
from tidegate.pipeline.codec import decode, other_format
from tidegate.pipeline.published import TableRecord
from tidegate.pipeline.topics import Topics
from tidegate.runtime.bus import Bus, Offset, Reader, Record, TopicPartition
from tidegate.runtime.logs import log_event
from tidegate.runtime.stores.paths import canonical_root

PATIENCE_S: Final = 15.0
_READ_S: Final = 1.0
_LEAST_S: Final = 0.05
_log = logging.getLogger(__name__)


def read_registry(
    bus: Bus, topics: Topics, timeout_s: float = PATIENCE_S
) -> dict[UUID, TableRecord]:
    """Return the registered tables by their ids: the topic is read to its end, in time.

    Raises: Unavailable; Misconfigured, when the topic is missing.
    """
    tables: dict[UUID, TableRecord] = {}
    until_s = time.monotonic() + timeout_s
    reader = bus.reader()
    try:
        numbers = range(bus.partitions(topics.table_state, timeout_s))
        everywhere = [TopicPartition(topics.table_state, number) for number in numbers]
        for record in _to_the_ends(reader, everywhere, until_s):
            _fold(tables, record)
    finally:
        reader.close()
    return {table: _respelled(record) for table, record in tables.items()}


def find_table(registry: Mapping[UUID, TableRecord], root_or_name: str) -> TableRecord | None:
    """Return the table with this root, id or name, or None; a dropped one has its name last.

    Raises: InvalidRequest (`AmbiguousName`), when several tables have the name.
    """
    root, table = _as_root(root_or_name), _as_id(root_or_name)
    exact = [r for r in registry.values() if r.table_root == root or r.table == table]
    called = [r for r in registry.values() if r.name == root_or_name]
    named = [r for r in called if r.status != "dropped"] or called
    if not exact and len(named) > 1:
        where = ", ".join(sorted(record.table_root for record in named))
        raise InvalidRequest(
            f"{len(named)} tables are called {root_or_name!r}; give the root instead: {where}",
            error_class="AmbiguousName",
        )
    return next(iter((*exact, *named)), None)


def _respelled(record: TableRecord) -> TableRecord:
    """Return a record with the root as it is spelled today: it was another one to a release before
    that told two spellings apart.
    """
    root = _as_root(record.table_root)
    if root is None or root == record.table_root:
        return record
    return record.model_copy(update={"table_root": root})


def _as_root(text: str) -> str | None:
    try:
        return canonical_root(text)
    except Misconfigured:
        return None


def _as_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _to_the_ends(
    reader: Reader, everywhere: Sequence[TopicPartition], until_s: float
) -> Iterator[Record]:
    """Yield the records of some partitions, read together: one after the other takes seconds."""
    bounds = {at: reader.bounds(at, _left_s(until_s)) for at in everywhere}
    ends = {at: end for at, (first, end) in bounds.items() if first < end}
    starts = {at: bounds[at][0] for at in ends}
    while behind := [at for at, end in ends.items() if starts[at] < end]:
        records = reader.read_several(starts, min(_READ_S, _left_s(until_s)))
        yield from records
        starts |= {record.at: Offset(record.offset + 1) for record in records}
        if time.monotonic() > until_s and not any(record.at in behind for record in records):
            at = behind[0]
            raise Unavailable(
                f"{at} gave nothing from {starts[at]} to {ends[at]} in time; look at the brokers"
            )


def _left_s(until_s: float) -> float:
    return max(_LEAST_S, until_s - time.monotonic())


def _fold(tables: dict[UUID, TableRecord], record: Record) -> None:
    if record.value is None:
        # Whoever takes a record out by hand may get its key wrong: that takes out nothing.
        gone = _as_id((record.key or b"").decode(errors="replace"))
        if gone is not None:
            tables.pop(gone, None)
        return
    other = other_format(record.headers, TableRecord)
    try:
        if other is not None:
            raise MalformedRecord(
                f"it is of format {other!r}, by a newer release: upgrade this one"
            )
        table = decode(TableRecord, record.value)
    except MalformedRecord as error:
        where = f"{record.at}@{record.offset}"
        log_event(_log, "malformed", level=logging.ERROR, record=where, why=error)
        return
    known = tables.get(table.table)
    # Who was suspended while the table went to another may still tell what it took for its state.
    if known is None or table.rulings >= known.rulings:
        tables[table.table] = table
