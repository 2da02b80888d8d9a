"""The committer when entries hold one proposal each, and when others write to the same table."""

from dataclasses import dataclass, field

from rich.console import Console

from bench import limits
from bench.committer_line import CommitterLine
from bench.committing import (
    MANY,
    Run,
    cpu_us,
    loaded,
    local_run,
    lost,
    middle,
    miscounted,
    slow_put_ms,
    slow_run,
)
from bench.figures import Figure, at_least, median
from bench.foreign_writer import ForeignWriter, Written

_console = Console(width=170)


@dataclass
class Ungrouped:
    """64 writers at a committer that writes a version for each proposal."""

    seconds: float
    slow: list[Run] = field(default_factory=list)
    local: list[Run] = field(default_factory=list)
    puts_ms: list[float] = field(default_factory=list)
    local_puts_ms: list[float] = field(default_factory=list)

    def measure(self, line: CommitterLine, number: int) -> None:
        """Measure a round."""
        seconds = self.seconds / 2
        self.slow.append(slow_run(line, line.ungrouped, f"single-{number}", MANY, seconds))
        self.puts_ms.append(slow_put_ms(line, number))
        self.local.append(local_run(line, line.ungrouped, f"local-single-{number}", MANY, seconds))
        self.local_puts_ms.append(limits.put_ms(line.folder / "limits" / f"single-{number}", 500))

    def figures(self) -> list[Figure]:
        """Return C5 and C6."""
        put, local_put = median(self.puts_ms), median(self.local_puts_ms)
        slow, local = middle(self.slow, "per_s"), middle(self.local, "per_s")
        return [
            Figure(
                "C5: not grouped, slow store, versions/s",
                f"{slow:.1f}/s",
                "-",
                slow * put / 1000,
                ">= 0.95 of 1 / PUT",
                f"{lost(self.slow)} gave up",
                f"1 / PUT {1000 / put:.1f}/s",
                slow * put / 1000 >= 0.95 and not lost(self.slow),
                recorded=at_least(0.96),
            ),
            Figure(
                "C6: not grouped, local, versions/s",
                f"{local:.0f}/s",
                "-",
                local * local_put / 1000,
                ">= 0.5 of raw PUTs",
                f"{cpu_us(self.local)} each (30 wanted), {lost(self.local)} gave up",
                f"raw {1000 / local_put:.0f}/s",
                local * local_put / 1000 >= 0.5 and not lost(self.local),
                recorded=at_least(0.3),
            ),
        ]


@dataclass
class Beside:
    """64 writers, with and without delta-rs committing to the same table once a second."""

    seconds: float
    alone: list[Run] = field(default_factory=list)
    beside: list[Run] = field(default_factory=list)
    foreign: list[Written] = field(default_factory=list)

    def measure(self, line: CommitterLine, number: int) -> None:
        """Measure a round."""
        self.alone.append(slow_run(line, line.gate, f"alone-{number}", MANY, self.seconds))
        name = f"beside-{number}"
        table = line.gate.table(line.slow_root(name))
        with ForeignWriter(table.table_root, line.store.theirs) as foreign:
            run, spent_us = loaded(line.gate, table, MANY, self.seconds)
        commits = line.store.commits(name)
        wrong = miscounted(commits, [*run.committed, *foreign.written.committed])
        self.beside.append(Run(run, len(commits) - 1, wrong, spent_us, line.store.count(name)))
        self.foreign.append(foreign.written)
        _console.print(
            f"{name}: {run.per_s:.0f}/s, p99 {run.p99_ms:.1f} ms, {run.gave_up} gave up, {wrong} "
            f"lost or doubled, {len(foreign.written.committed)} foreign commits, "
            f"{foreign.written.gave_up} of its calls gave up"
        )

    def figures(self) -> list[Figure]:
        """Return C9."""
        beside, alone = middle(self.beside, "per_s"), middle(self.alone, "per_s")
        theirs = sum(len(rate.committed) for rate in self.foreign)
        gave_up = sum(rate.gave_up for rate in self.foreign)
        return [
            Figure(
                "C9: beside a delta-rs writer, proposals/s",
                f"{beside:.0f}/s, {lost(self.beside)} gave up, lost or doubled",
                f"alone {alone:.0f}/s",
                beside / alone,
                ">= 0.8, 0 lost or doubled",
                f"{theirs} foreign commits, {gave_up} of its calls gave up",
                "",
                beside >= 0.8 * alone and not lost(self.beside) and theirs > 0,
                recorded=at_least(0.93),
            )
        ]
