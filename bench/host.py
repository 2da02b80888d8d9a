"""What the host withheld: on a shared machine a figure is worth what it says of that."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

_STAT = Path("/proc/stat")
_IDLE, _IOWAIT, _STEAL = 3, 4, 7
_KINDS = 8
"""What comes behind is part of what comes before."""


@dataclass(frozen=True)
class CpuTime:
    """CPU time of all cores since the start of the machine. Units: ticks."""

    wanted: int
    stolen: int

    @classmethod
    def now(cls) -> Self:
        """Return it as the kernel counts it, under Linux."""
        return cls.of(_STAT.read_text(encoding="ascii"))

    @classmethod
    def of(cls, stat: str) -> Self:
        """Return what the first line of `/proc/stat` says."""
        ticks = [int(word) for word in stat.split("\n", 1)[0].split()[1 : 1 + _KINDS]]
        return cls(sum(ticks) - ticks[_IDLE] - ticks[_IOWAIT], ticks[_STEAL])

    def stolen_since(self, before: "CpuTime") -> float:
        """Return the share that others on the host got of what was wanted since then."""
        return (self.stolen - before.stolen) / max(1, self.wanted - before.wanted)
