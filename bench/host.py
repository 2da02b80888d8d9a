"""CPU time that the host withheld, without which figures mean little; and what a process uses."""

import os
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


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process so far, in seconds."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int, name: str) -> float:
    """Return a process's memory by its name in `/proc`: VmRSS, now; VmHWM, the highest so far."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    [line] = [line for line in status.splitlines() if line.startswith(name)]
    return int(line.split()[1]) / 1024
