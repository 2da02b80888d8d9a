"""The records of a topic partition that were read and have no outcome yet.

A record is judged as soon as it is read, unless its table has too many judged ones already. Those
behind them are held back as bytes, table by table, and the topic partition is read on: so a table
that is flooded keeps only its own writers waiting. How much is read ahead, and how much of that is
judged, is bounded.
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

JUDGED_MAX: Final = 5_000
JUDGED_BYTES_MAX: Final = 64 * 1024 * 1024
"""How many of them, and how many bytes, are judged: these are Python objects, not bytes."""

SHARE: Final = 4
"""How many times what is left of these bounds a table may take: alone four fifths, with others
less, so that some is left for a table that has none."""

Flow = UUID | Literal["others", "in order"]
"""Records that keep their order: a table's; those that name no table served here; or all."""

OTHERS: Final = "others"
IN_ORDER: Final = "in order"


@dataclass
class ReadAhead:
    """Records without an outcome: which of them are judged, and which are held back.

    Law: the records of a flow are judged in the order of their offsets
    """

    _sizes: dict[int, int] = field(default_factory=dict)
    _flows: dict[int, Flow] = field(default_factory=dict)
    _judged: Counter[Flow] = field(default_factory=Counter)
    _judged_bytes: Counter[Flow] = field(default_factory=Counter)
    _held: OrderedDict[Flow, deque[Record]] = field(default_factory=OrderedDict)
    size_bytes: int = 0
    judged_bytes: int = 0

    def __len__(self) -> int:
        return len(self._sizes)

    def __contains__(self, offset: int) -> bool:
        return offset in self._sizes

    def discard(self, offset: int) -> None:
        """Take a judged record out: it has its outcome. Nothing happens where it is out already."""
        if offset not in self._flows:
            return
        size, flow = self._sizes.pop(offset), self._flows.pop(offset)
        self.size_bytes -= size
        self.judged_bytes -= size
        self._judged[flow] -= 1
        self._judged_bytes[flow] -= size
        if not self._judged[flow]:
            del self._judged[flow], self._judged_bytes[flow]

    @property
    def first(self) -> int | None:
        """The offset of the first one, or None."""
        return next(iter(self._sizes), None)

    @property
    def judged(self) -> int:
        """How many are judged."""
        return len(self._flows)

    def has_room(self, flow: Flow) -> bool:
        """Return whether another record of a flow may be judged, by what is judged already."""
        left = 1 - max(self.judged / JUDGED_MAX, self.judged_bytes / JUDGED_BYTES_MAX)
        own = max(self._judged[flow] / JUDGED_MAX, self._judged_bytes[flow] / JUDGED_BYTES_MAX)
        return own < SHARE * left

    def is_next(self, flow: Flow) -> bool:
        """Return whether a record of a flow that was just read may be judged at once."""
        return flow not in self._held and self.has_room(flow)

    def judge(self, record: Record, flow: Flow) -> None:
        """Note that a record was read and is judged. Law: each one is read after all before it."""
        self._read(record)
        self._note(record, flow)

    def hold(self, record: Record, flow: Flow) -> None:
        """Note that a record was read, and hold it back."""
        self._read(record)
        self._held.setdefault(flow, deque()).append(record)

    def release(self, most: int) -> Iterator[Record]:
        """Yield records that were held back and may be judged now, `most` of them at most.

        Each flow in turn, so that none waits for the records of another one.
        """
        without_room = 0
        while most and without_room < len(self._held):
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
            most -= 1
            yield record

    @property
    def may_go_on(self) -> bool:
        """Whether a record that is held back may be judged now."""
        return any(map(self.has_room, self._held))

    def held(self, flow: Flow) -> int:
        """Return how many records of a flow are held back."""
        return len(self._held.get(flow, ()))

    def part(self, flow: Flow, flow_of: Callable[[Record], Flow]) -> None:
        """Let the records of a flow that are held back join other ones, behind theirs."""
        for record in self._held.pop(flow, ()):
            self._held.setdefault(flow_of(record), deque()).append(record)

    def _read(self, record: Record) -> None:
        size = size_of(record)
        self._sizes[record.offset] = size
        self.size_bytes += size

    def _note(self, record: Record, flow: Flow) -> None:
        size = self._sizes[record.offset]
        self._flows[record.offset] = flow
        self._judged[flow] += 1
        self._judged_bytes[flow] += size
        self.judged_bytes += size


def size_of(record: Record) -> int:
    """Return the bytes of a record: its value, its key and its headers."""
    named = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.value or b"") + len(record.key or b"") + named
