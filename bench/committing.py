"""The committer beside delta-rs: many writers and one, on a slow store and on the local disk.

A part measures ours, its peer and its limit once a round. Its figures are medians of the rounds.
After every run the log is checked: each committed file is in it exactly once.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console

from bench import delta_rs_writers, limits, load
from bench.committer_line import CommitterLine, Gate
from bench.delta_rs_writers import Rate
from bench.figures import Figure, at_least, at_most, median
from bench.load import Load
from bench.slow_store import BUCKET
from tidegate_messages.published_records import TableRecord

MANY: Final = 64
PEER_S: Final = 15.0
LIMIT_COUNT: Final = 60
BROKER_WARM_S: Final = 8.0
"""How long the committer that groups is under load before measuring; the other one half as long."""

_ADDED: Final = re.compile(rb'^\{"add":\{.*?"path":"([^"]+)"', re.MULTILINE)
_console = Console(width=170)


@dataclass(frozen=True)
class Run:
    """One run of ours.

    `requests` are the requests at the table from the first proposal to the last outcome, `versions`
    the number of versions that it wrote.
    Units: `cpu_us` CPU time of the committer for a proposal, in us.
    """

    load: Load
    versions: int
    wrong: int
    cpu_us: float
    requests: Mapping[str, int] = field(default_factory=dict)


def slow_run(line: CommitterLine, gate: Gate, name: str, writers: int, seconds: float) -> Run:
    """Let writers append to a new table on the slow store."""
    table = gate.table(line.slow_root(name))
    requests: Counter[str] = Counter()

    def begins() -> None:
        requests.subtract(line.store.count(name))

    run, spent_us = loaded(gate, table, writers, seconds, begins)
    requests.update(line.store.count(name))
    commits = line.store.commits(name)
    wrong = miscounted(commits, run.committed)
    return _printed(name, Run(run, len(commits) - 1, wrong, spent_us, +requests))


def warm_up(line: CommitterLine) -> None:
    """Let the broker compile its hot code, as in a broker that has run for a while."""
    local_run(line, line.gate, "warm-up", MANY, BROKER_WARM_S)
    local_run(line, line.ungrouped, "warm-up-single", MANY, BROKER_WARM_S / 2)


def local_run(line: CommitterLine, gate: Gate, name: str, writers: int, seconds: float) -> Run:
    """Let writers append to a new local table."""
    table = gate.table(line.local_root(name))
    run, spent_us = loaded(gate, table, writers, seconds)
    commits = local_commits(line.folder / "tables" / name)
    wrong = miscounted(commits, run.committed)
    return _printed(name, Run(run, len(commits) - 1, wrong, spent_us))


def loaded(
    gate: Gate,
    table: TableRecord,
    writers: int,
    seconds: float,
    begins: Callable[[], None] = lambda: None,
) -> tuple[Load, float]:
    """Return what the writers measured, and the committer's CPU time for a proposal in us."""
    began_s: list[float] = []

    def starts() -> None:
        begins()
        began_s.append(gate.cpu_s)

    run = load.run(gate.kafka, [table], load.Writers(writers), seconds, starts)
    return run, 1e6 * (gate.cpu_s - began_s[0]) / max(1, len(run.committed))


def local_commits(table: Path) -> list[bytes]:
    """Return the bytes of a local table's commit files in order."""
    return [path.read_bytes() for path in sorted((table / "_delta_log").glob("*[0-9].json"))]


def miscounted(commits: Iterable[bytes], expected: Iterable[str]) -> int:
    """Return how many files are missing from the log, repeated in it, or in it without being
    expected.
    """
    logged = Counter(path.decode() for content in commits for path in _ADDED.findall(content))
    expected_counts = Counter(expected)
    return (logged - expected_counts).total() + (expected_counts - logged).total()


@dataclass
class Slow:
    """64 writers on the slow store: throughput, latency, requests."""

    seconds: float
    ours: list[Run] = field(default_factory=list)
    theirs: list[Rate] = field(default_factory=list)
    puts_ms: list[float] = field(default_factory=list)
    trips_ms: list[float] = field(default_factory=list)

    def measure(self, line: CommitterLine, number: int) -> None:
        """Measure a round."""
        self.ours.append(slow_run(line, line.gate, f"slow-{number}", MANY, self.seconds))
        self.puts_ms.append(slow_put_ms(line, number))
        self.trips_ms.append(2 * limits.broker_round_trip_ms(line.gate.kafka, LIMIT_COUNT))
        root = line.slow_root(f"slow-peer-{number}")
        self.theirs.append(delta_rs_writers.run([root], MANY, PEER_S, line.store.theirs))
        _peer(root, self.theirs[-1])

    def figures(self) -> list[Figure]:
        """Return C1, C4, C7 and C8."""
        put, trip = median(self.puts_ms), median(self.trips_ms)
        ours, theirs = middle(self.ours, "per_s"), median([their.per_s for their in self.theirs])
        p50, p99 = middle(self.ours, "p50_ms"), middle(self.ours, "p99_ms")
        their_p50 = median([their.p50_ms for their in self.theirs])
        their_p99 = median([their.p99_ms for their in self.theirs])
        gave_up, their_gave_up = lost(self.ours), sum(their.gave_up for their in self.theirs)
        calls, they_told = told_of(self.ours), sum(their.committed for their in self.theirs)
        bound = 2.5 * put + trip
        limit = f"PUT {put:.1f} ms, round trip {trip:.1f} ms"
        return [
            Figure(
                "C1: 64 writers, slow store, proposals/s",
                f"{ours:.0f}/s",
                f"delta-rs {theirs:.1f}/s",
                ours / theirs,
                ">= 240",
                f"{cpu_us(self.ours)} each",
                f"64 / PUT {MANY / put * 1000:.0f}/s",
                ours / theirs >= 240,
                recorded=at_least(269),
            ),
            Figure(
                "C4: the same, p99, proposal to outcome",
                f"{p99:.0f} ms",
                f"delta-rs {their_p99:.0f} ms",
                p99 / bound,
                "<= 1 (2.5 PUTs + round trip)",
                f"{their_p99 / p99:.0f} times below the peer's; 80 wanted",
                limit,
                p99 <= bound and their_p99 >= 80 * p99,
                recorded=at_most(1.02),
            ),
            Figure(
                "C4: the same, p50",
                f"{p50:.0f} ms",
                f"delta-rs {their_p50:.0f} ms",
                p50 / put,
                "<= 2.1 PUTs",
                "",
                limit,
                p50 <= 2.1 * put,
                recorded=at_most(1.6),
            ),
            self._requests(),
            Figure(
                "C8: calls that give up, and files lost or doubled",
                f"{gave_up} of {calls}",
                f"delta-rs {their_gave_up} of {their_gave_up + they_told}",
                gave_up / max(1, calls),
                "0",
                "the log is counted, file by file",
                "0",
                gave_up == 0,
                recorded=at_most(0.0),
            ),
        ]

    def _requests(self) -> Figure:
        requests: Counter[str] = Counter()
        for our in self.ours:
            requests.update(our.requests)
        versions = sum(our.versions for our in self.ours)
        puts = requests.pop("PUT 200", 0)
        other_requests = ", ".join(f"{count} {kind}" for kind, count in sorted(requests.items()))
        return Figure(
            "C7: requests to the store",
            f"{puts} PUTs, {other_requests or 'nothing else'}",
            "-",
            (puts + requests.total()) / max(1, versions),
            "1 a version, <= 0.05 a proposal",
            f"{puts / told_of(self.ours):.3f} a proposal",
            f"{versions} versions",
            puts == versions and not requests,
            recorded=at_most(1.0),
        )


@dataclass
class Local:
    """64 writers on the local disk. Ours syncs file and folder with fsync; the peer does not."""

    seconds: float
    ours: list[Run] = field(default_factory=list)
    theirs: list[Rate] = field(default_factory=list)

    def measure(self, line: CommitterLine, number: int) -> None:
        """Measure a round."""
        self.ours.append(local_run(line, line.gate, f"local-{number}", MANY, self.seconds))
        root = str(line.folder / "tables" / f"local-peer-{number}")
        self.theirs.append(delta_rs_writers.run([root], MANY, PEER_S))
        _peer(root, self.theirs[-1])

    def figures(self) -> list[Figure]:
        """Return C2."""
        ours, theirs = middle(self.ours, "per_s"), median([their.per_s for their in self.theirs])
        return [
            Figure(
                "C2: 64 writers, local, proposals/s",
                f"{ours:.0f}/s, p50 {middle(self.ours, 'p50_ms'):.0f}, "
                f"p99 {middle(self.ours, 'p99_ms'):.0f} ms, {lost(self.ours)} gave up",
                f"delta-rs {theirs:.1f}/s, {sum(their.gave_up for their in self.theirs)} gave up",
                ours / theirs,
                ">= 400",
                f"{cpu_us(self.ours)} each; delta-rs does not sync",
                "",
                ours / theirs >= 400 and not lost(self.ours),
                recorded=at_least(465),
            )
        ]


@dataclass
class One:
    """One writer: what the committer adds to a PUT."""

    seconds: float
    slow: list[Run] = field(default_factory=list)
    local: list[Run] = field(default_factory=list)
    theirs: list[Rate] = field(default_factory=list)
    puts_ms: list[float] = field(default_factory=list)
    local_puts_ms: list[float] = field(default_factory=list)
    trips_ms: list[float] = field(default_factory=list)

    def measure(self, line: CommitterLine, number: int) -> None:
        """Measure a round."""
        seconds = self.seconds / 2
        self.slow.append(slow_run(line, line.gate, f"one-{number}", 1, seconds))
        self.puts_ms.append(put := slow_put_ms(line, number))
        trip = limits.broker_round_trip_ms(line.gate.kafka, LIMIT_COUNT, pause_ms=put)
        self.trips_ms.append(2 * trip)
        root = line.slow_root(f"one-peer-{number}")
        self.theirs.append(delta_rs_writers.run([root], 1, seconds, line.store.theirs))
        _peer(root, self.theirs[-1])
        self.local.append(local_run(line, line.gate, f"local-one-{number}", 1, seconds / 2))
        self.local_puts_ms.append(limits.put_ms(line.folder / "limits" / f"one-{number}", 300))

    def figures(self) -> list[Figure]:
        """Return C3 and Q1."""
        put, trip = median(self.puts_ms), median(self.trips_ms)
        slow, theirs = middle(self.slow, "p50_ms"), median([their.p50_ms for their in self.theirs])
        local, local_put = middle(self.local, "p50_ms"), median(self.local_puts_ms)
        shares = [
            run_on_slow.load.p50_ms - put - trip
            for run_on_slow, put, trip in zip(self.slow, self.puts_ms, self.trips_ms, strict=True)
        ]
        limit = f"PUT {put:.1f} ms, round trip {trip:.1f} ms"
        return [
            Figure(
                "C3: 1 writer, slow store, p50, proposal to outcome",
                f"{slow:.1f} ms, p99 {middle(self.slow, 'p99_ms'):.1f} ms",
                f"delta-rs {theirs:.0f} ms",
                slow / put,
                "<= PUT + 2 ms",
                f"PUT + {slow - put:.1f} ms; {theirs / slow:.1f} times below the peer's, 5 wanted",
                limit,
                slow <= put + 2 and theirs >= 5 * slow and not lost(self.slow),
                recorded=at_most(1.19),
            ),
            Figure(
                "Q1: of that, the gate's share",
                f"{median(shares):.1f} ms",
                "-",
                median(shares),
                "<= 1 ms",
                "less PUT and the broker's round trip, of the same round and at the same pace",
                limit,
                median(shares) <= 1,
                recorded=at_most(2.8),
            ),
            Figure(
                "1 writer, local, p50, proposal to outcome",
                f"{local:.1f} ms, p99 {middle(self.local, 'p99_ms'):.1f} ms",
                "-",
                local / (local_put + trip),
                "-",
                "",
                f"PUT {local_put:.1f} ms, round trip {trip:.1f} ms",
                recorded=None,
            ),
        ]


def middle(runs: Sequence[Run], name: str) -> float:
    """Return the median of a value of some runs' loads."""
    return median([getattr(run.load, name) for run in runs])


def told_of(runs: Sequence[Run]) -> int:
    """Return how many proposals were reported as committed."""
    return sum(len(run.load.committed) for run in runs)


def cpu_us(runs: Sequence[Run]) -> str:
    """Return the committer's CPU time for a proposal, in words."""
    return f"{median([run.cpu_us for run in runs]):.0f} us of the committer's CPU time"


def lost(runs: Sequence[Run]) -> int:
    """Return how many proposals were given up, lost or committed twice in some runs."""
    return sum(run.load.gave_up + run.wrong for run in runs)


def slow_put_ms(line: CommitterLine, number: int) -> float:
    """Return the median time of a bare conditional PUT to the slow store."""
    return limits.slow_put_ms(line.store.port, f"{BUCKET}/limit-{number}", LIMIT_COUNT)


def _printed(name: str, run: Run) -> Run:
    load = run.load
    _console.print(
        f"{name}: {load.per_s:.0f}/s, p50 {load.p50_ms:.1f}, p99 {load.p99_ms:.1f} ms, "
        f"{load.gave_up} gave up, {run.wrong} lost or doubled, {run.versions} versions, "
        f"{run.cpu_us:.0f} us CPU each, {dict(run.requests)}"
    )
    return run


def _peer(root: str, rate: Rate) -> None:
    _console.print(
        f"{root}: {rate.per_s:.1f}/s, p50 {rate.p50_ms:.0f}, p99 {rate.p99_ms:.0f} ms, "
        f"{rate.gave_up} gave up"
    )
