"""The clock, and new ids: the only sources of time and randomness."""

import secrets
import time
from datetime import UTC, datetime
from typing import Final, Protocol
from uuid import UUID

BOOTTIME: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""The clock that counts time in suspension, if the system has it."""


class Clock(Protocol):
    """Time, as a service needs it."""

    def now_ms(self) -> int:
        """Return wall time in ms since the Unix epoch; it may step."""

    def boot_s(self) -> float:
        """Return seconds of a clock that never steps back and counts suspension; for durations."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Return wall time in ms since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def boot_s(self) -> float:
        """Return BOOTTIME in seconds."""
        return time.clock_gettime(BOOTTIME)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


def new_id(clock: Clock) -> UUID:
    """Return a UUIDv7: unique, and ordered by time."""
    value = (clock.now_ms() & ((1 << 48) - 1)) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return UUID(int=value)


def utc(at_ms: int) -> datetime | None:
    """Return a point in time, or None for one after the year 9999 or before the year 1.

    Units: `at_ms` in ms since the Unix epoch. Logs may hold any number.
    """
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def instant(at_ms: int) -> str:
    """Return a point in time in UTC, to the millisecond, in readable form."""
    moment = utc(at_ms)
    if moment is None:
        return f"{at_ms} ms after 1970"
    return moment.replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")
