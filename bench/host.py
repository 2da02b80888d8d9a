"""CPU time that the host withheld. On a shared machine, figures mean little without it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

_STAT = Path("/proc/stat")
_IDLE, _IOWAIT, _STEAL = 3, 4, 7
_KINDS = 8
"""The counters after these are included in those before them."""


@dataclass(frozen=True)
class CpuTime:
    """CPU time of all cores since the start of the machine. Units: ticks."""

    wanted: int
    stolen: int

    @classmethod
    def now(cls) -> Self:
        """Return the current counts of the kernel, under Linux."""
        return cls.of(_STAT.read_text(encoding="ascii"))

    @classmethod
    def of(cls, stat: str) -> Self:
        """Return the counts in the first line of `/proc/stat`."""
        ticks = [int(word) for word in stat.split("\n", 1)[0].split()[1 : 1 + _KINDS]]
        return cls(sum(ticks) - ticks[_IDLE] - ticks[_IOWAIT], ticks[_STEAL])

    def stolen_since(self, before: "CpuTime") -> float:
        """Return the share of the wanted CPU time since then that the host gave to others."""
        return (self.stolen - before.stolen) / max(1, self.wanted - before.wanted)
