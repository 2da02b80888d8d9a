"""The records of a topic partition that were read and have no outcome yet.

A record is handled (parsed and routed to its table) as soon as it is read, unless its table has too
many handled ones already. The records behind them are held back as bytes, by table, and the topic
partition is read on: so a flooded table delays only its own writers. The number of records read
ahead, and of those handled, is bounded.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal
from uuid import UUID

from tidegate_runtime.kafka.client_protocols import Record

RECORDS_MAX: Final = 50_000
"""Records without an outcome at which a topic partition is paused."""

BYTES_MAX: Final = 128 * 1024 * 1024
"""Bytes of such records at which it is paused."""

HANDLED_MAX: Final = 5_000
HANDLED_BYTES_MAX: Final = 64 * 1024 * 1024
"""How many of them, and how many bytes, are handled: these are Python objects, not bytes."""

SHARE: Final = 4
"""A table may take up to this many times what is left of these bounds: alone up to four fifths,
with others less, so that some is left for a table that has none.
"""

Flow = UUID | Literal["others", "in order"]
"""Records that keep their order: those of one table; those that name no table served here; or all.
"""

OTHERS: Final = "others"
IN_ORDER: Final = "in order"


@dataclass
class ReadAhead:
    """Records without an outcome: which are handled, and which are held back.

    Law: the records of a flow are handled in the order of their offsets
    """

    _sizes: dict[int, int] = field(default_factory=dict)
    _flows: dict[int, Flow] = field(default_factory=dict)
    _handled: Counter[Flow] = field(default_factory=Counter)
    _handled_bytes: Counter[Flow] = field(default_factory=Counter)
    _held: OrderedDict[Flow, deque[Record]] = field(default_factory=OrderedDict)
    size_bytes: int = 0
    handled_bytes: int = 0

    def __len__(self) -> int:
        return len(self._sizes)

    def __contains__(self, offset: int) -> bool:
        return offset in self._sizes

    def discard(self, offset: int) -> None:
        """Remove a handled record that got its outcome; do nothing if it is not there."""
        if offset not in self._flows:
            return
        size, flow = self._sizes.pop(offset), self._flows.pop(offset)
        self.size_bytes -= size
        self.handled_bytes -= size
        self._handled[flow] -= 1
        self._handled_bytes[flow] -= size
        if not self._handled[flow]:
            del self._handled[flow], self._handled_bytes[flow]

    @property
    def first(self) -> int | None:
        """The offset of the first record, or None."""
        return next(iter(self._sizes), None)

    @property
    def handled(self) -> int:
        """How many records are handled."""
        return len(self._flows)

    def has_room(self, flow: Flow) -> bool:
        """Return whether another record of a flow may be handled, given those that are."""
        free = 1 - max(self.handled / HANDLED_MAX, self.handled_bytes / HANDLED_BYTES_MAX)
        used = max(self._handled[flow] / HANDLED_MAX, self._handled_bytes[flow] / HANDLED_BYTES_MAX)
        return used < SHARE * free

    def may_be_handled(self, flow: Flow) -> bool:
        """Return whether a record of a flow that was just read may be handled at once."""
        return flow not in self._held and self.has_room(flow)

    def add_handled(self, record: Record, flow: Flow) -> None:
        """Add a record that was read and is handled. Law: records are read in offset order"""
        self._read(record)
        self._note(record, flow)

    def hold(self, record: Record, flow: Flow) -> None:
        """Add a record that was read, and hold it back."""
        self._read(record)
        self._held.setdefault(flow, deque()).append(record)

    def release(self, records_max: int) -> Iterator[Record]:
        """Yield at most `records_max` held records that may be handled at this moment.

        The flows take turns, so that none waits for the records of another.
        """
        without_room = 0
        while records_max and without_room < len(self._held):
            flow, records = self._held.popitem(last=False)
            if not self.has_room(flow):
                self._held[flow] = records
                without_room += 1
                continue
            without_room = 0
            record = records.popleft()
            if records:
                self._held[flow] = records
            self._note(record, flow)
            records_max -= 1
            yield record

    @property
    def may_go_on(self) -> bool:
        """Whether a held record may be handled at this moment."""
        return any(map(self.has_room, self._held))

    def held(self, flow: Flow) -> int:
        """Return how many records of a flow are held back."""
        return len(self._held.get(flow, ()))

    def part(self, flow: Flow, flow_of: Callable[[Record], Flow]) -> None:
        """Move the held records of a flow to other flows, behind the records held there."""
        for record in self._held.pop(flow, ()):
            self._held.setdefault(flow_of(record), deque()).append(record)

    def _read(self, record: Record) -> None:
        size = size_of(record)
        self._sizes[record.offset] = size
        self.size_bytes += size

    def _note(self, record: Record, flow: Flow) -> None:
        size = self._sizes[record.offset]
        self._flows[record.offset] = flow
        self._handled[flow] += 1
        self._handled_bytes[flow] += size
        self.handled_bytes += size


def size_of(record: Record) -> int:
    """Return the bytes of a record: its value, its key and its headers."""
    named = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.value or b"") + len(record.key or b"") + named
