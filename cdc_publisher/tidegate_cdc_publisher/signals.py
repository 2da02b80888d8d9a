"""Reads operators' signals to the change streams, each time from where the last reading ended."""

import time
from typing import Final
from uuid import UUID

from tidegate_cdc_publisher.machine import Received
from tidegate_messages.published_records import ChangeSignal
from tidegate_runtime.kafka.client_protocols import Bus, Offset, TopicPartition
from tidegate_runtime.table_registry import PATIENCE_S, read_message, read_to_ends

FIRST: Final = -1
"""The offset before the first signal."""


class SignalReader:
    """The signals of all tables that the topic holds. It is small, and kept for two weeks."""

    def __init__(self, bus: Bus, topic: str) -> None:
        self._bus = bus
        self._at = TopicPartition(topic, 0)
        self._next = Offset(0)
        self._received: dict[UUID, list[Received]] = {}

    @property
    def newest(self) -> int:
        """The offset of the last signal that was read."""
        return int(self._next) - 1

    def read(self) -> None:
        """Read what has come since. Raises: Unavailable; Misconfigured, for a missing topic."""
        reader = self._bus.reader()
        try:
            first, end = reader.bounds(self._at)
            if end < self._next:
                # The topic was recreated.
                self._received, self._next = {}, Offset(0)
            starts = {self._at: max(first, self._next)}
            until_s = time.monotonic() + PATIENCE_S
            for record in read_to_ends(reader, {self._at: end}, starts, until_s):
                signal = read_message(ChangeSignal, record)
                if signal is not None:
                    received = Received(int(record.offset), signal)
                    self._received.setdefault(signal.table, []).append(received)
            self._next = end
        finally:
            reader.close()

    def after(self, table: UUID, offset: int | None) -> tuple[Received, ...]:
        """Return the signals of a table after the one that was obeyed last, at `offset`."""
        last = FIRST if offset is None or offset > self.newest else offset
        return tuple(
            received for received in self._received.get(table, ()) if received.offset > last
        )
