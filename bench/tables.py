"""Many busy tables of one committer: throughput, latency, fairness, a creation, a takeover.

Each table has four writers, of which one deletes rows of a file and three append. The peer is
delta-rs, whose writers of different tables share nothing.
"""

import os
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import inf
from queue import SimpleQueue
from typing import Final

from rich.console import Console

from bench import delta_rs_writers, gate_writers, load
from bench.committer_line import SESSION_S, CommitterLine, Gate
from bench.committing import MANY, miscounted, slow_put_ms, slow_run
from bench.delta_rs_writers import Rate
from bench.figures import Figure, median, percentile
from bench.gate_writers import create_by
from bench.load import Load
from bench.row_deletes import PATH, shared_file
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.client.client import Client
from tidegate_runtime.kafka.confluent_bus import KafkaBus

COUNTS: Final = (1, 10, 50, 200)
PEERS: Final = (10, 50)
WRITERS: Final = load.Writers(4, deleters=1)
PEER_S: Final = 8.0
AT_ONCE: Final = 16
"""How many tables are created at once."""

ALONE: Final = 8
"""How many tables are created one after the other, to be timed."""

TAKEOVER_S: Final = 150.0
"""How long writers go on around a kill of the committer: what takes longer counts as infinite."""

MANY_MIN: Final = 1.2
TWO_MIN: Final = 1.7
P99_PUTS: Final = 15.0
SLOWEST_MAX: Final = 2.0
_SHARED: Final = re.compile(rb"^.*%b.*$" % PATH.encode(), re.MULTILINE)
_MARKED: Final = re.compile(rb'"cardinality":(\d+)')
_PROPERTIES: Final = {"delta.enableDeletionVectors": "true"}
_console = Console(width=170)


@dataclass(frozen=True)
class Run:
    """One run. Units: `cpu_ms` CPU time of the committer for a version, in ms."""

    load: Load
    versions: int
    wrong: int
    cpu_ms: float

    @property
    def slowest(self) -> float:
        """The p50 of the slowest table as a multiple of the median one's."""
        waits = [percentile(latencies, 50) for latencies in self.load.by_table if latencies]
        return max(waits) / median(waits)


@dataclass
class Tables:
    """1, 10, 50 and 200 tables on the slow store, and one with many writers."""

    seconds: float
    one: list[Load] = field(default_factory=list)
    ours: dict[int, list[Run]] = field(default_factory=dict)
    by_two: list[Run] = field(default_factory=list)
    theirs: dict[int, list[Rate]] = field(default_factory=dict)
    alone_s: list[float] = field(default_factory=list)
    at_once_s: list[float] = field(default_factory=list)
    puts_ms: list[float] = field(default_factory=list)
    taken_over_s: list[float] = field(default_factory=list)

    def measure(self, line: CommitterLine, number: int) -> None:
        """Measure a round."""
        self.puts_ms.append(slow_put_ms(line, number))
        busiest = slow_run(line, line.gate, f"tables-{number}-busiest", MANY, self.seconds)
        self.one.append(busiest.load)
        for count in COUNTS:
            self.ours.setdefault(count, []).append(self._ours(line, line.gate, count, number))
        with line.pair() as two:
            self.by_two.append(self._ours(line, two, max(COUNTS), number))
        for count in PEERS:
            roots = [line.slow_root(f"peer-{number}-{count}-{n}") for n in range(count)]
            rate = delta_rs_writers.run(roots, WRITERS.count, PEER_S, line.store.theirs)
            self.theirs.setdefault(count, []).append(rate)
            _console.print(f"{count} tables, delta-rs: {gate_writers.describe(rate)}")

    def _ours(self, line: CommitterLine, gate: Gate, count: int, number: int) -> Run:
        committers = len(gate.services)
        names = [f"tables-{number}-{count}-by-{committers}-{n}" for n in range(count)]
        tables = self._created(line, gate, names)
        cpu_s = [0.0]

        def begins() -> None:
            cpu_s[0] = gate.cpu_s

        run = load.run(gate.kafka, tables, WRITERS, self.seconds, begins)
        spent_ms = 1e3 * (gate.cpu_s - cpu_s[0])
        commits = [content for name in names for content in line.store.commits(name)[1:]]
        appended = (_SHARED.sub(b"", content) for content in commits)
        wrong = miscounted(appended, run.committed) + abs(_deleted(line, names) - run.deleted)
        result = Run(run, len(commits), wrong, spent_ms / max(1, len(commits)))
        _console.print(
            f"{count} tables, {committers} committers: {run.per_s:.0f} proposals/s, "
            f"{len(commits)} versions, p50 {run.p50_ms:.0f}, p99 {run.p99_ms:.0f} ms, "
            f"slowest {result.slowest:.2f}, {result.cpu_ms:.2f} ms CPU a version, "
            f"{run.gave_up} gave up, {wrong} wrong, {run.deleted} rows deleted"
        )
        if count == max(COUNTS) and gate is line.gate:
            self.taken_over_s.append(_taken_over_s(line, tables))
            _console.print(f"all {count} taken over: {self.taken_over_s[-1]:.1f} s")
        return result

    def _created(self, line: CommitterLine, gate: Gate, names: Sequence[str]) -> list[TableRecord]:
        alone = names[:ALONE] if len(names) == max(COUNTS) and gate is line.gate else ()
        kafka = gate.kafka
        with ExitStack() as clients, ThreadPoolExecutor(AT_ONCE) as pool:
            free: SimpleQueue[Client] = SimpleQueue()
            for _ in range(AT_ONCE):
                free.put(clients.enter_context(Client(KafkaBus(kafka, "bench"), kafka.topics)))

            def create(name: str) -> TableRecord:
                client = free.get()
                record = create_by(client, line.slow_root(name), _PROPERTIES, [shared_file()])
                free.put(client)
                return record

            # A client's first creation connects it.
            began = [*pool.map(create, names[len(alone) :][:AT_ONCE])]
            started_s = time.perf_counter()
            tables = [create(name) for name in alone]
            alone_s = time.perf_counter() - started_s
            rest = names[len(alone) :][AT_ONCE:]
            tables += [*began, *pool.map(create, rest)]
            at_once_s = time.perf_counter() - started_s - alone_s
        if alone:
            self.alone_s.append(alone_s / len(alone))
            self.at_once_s.append(at_once_s / len(rest))
            _console.print(
                f"a creation: {self.alone_s[-1]:.2f} s, of {AT_ONCE} at once "
                f"{self.at_once_s[-1]:.2f} s each"
            )
        return tables

    def figures(self) -> list[Figure]:
        """Return a figure for each number of tables, and of a creation."""
        put = median(self.puts_ms)
        return [
            *(self._figure(count) for count in COUNTS),
            self._saturated(put),
            self._by_two(),
            Figure(
                f"kill -9 of the committer until each of {max(COUNTS)} tables has committed again",
                f"{median(self.taken_over_s):.1f} s",
                f"session timeout {SESSION_S:.0f} s",
                median(self.taken_over_s) / SESSION_S,
                "",
                is_met=None,
                recorded=None,
            ),
            Figure(
                f"a table's creation on the slow store, and with {AT_ONCE} at once",
                f"{median(self.alone_s):.2f} s, {median(self.at_once_s):.2f} s each",
                f"PUT {put:.0f} ms",
                1e3 * median(self.alone_s) / put,
                "<= 10 PUTs",
                is_met=1e3 * median(self.alone_s) <= 10 * put,
                recorded=None,
            ),
        ]

    def _per_s(self, count: int) -> float:
        return median([run.load.per_s for run in self.ours[count]])

    def _figure(self, count: int) -> Figure:
        runs, peers = self.ours[count], self.theirs.get(count, [])
        versions = median([run.versions / (self.seconds + load.WARM_S) for run in runs])
        theirs = median([peer.per_s for peer in peers])
        wrong = sum(run.wrong + run.load.gave_up for run in runs)
        return Figure(
            f"{count} tables with {WRITERS.count} writers, slow store, proposals/s",
            f"{self._per_s(count):.0f}/s, {versions:.0f} versions/s, p50 "
            f"{self._latency(count, 50):.0f}, p99 {self._latency(count, 99):.0f} ms",
            f"delta-rs {theirs:.0f}/s, {sum(p.gave_up for p in peers)} gave up" if peers else "-",
            self._per_s(count) / theirs if peers else 0.0,
            "",
            f"{median([run.cpu_ms for run in runs]):.2f} ms CPU a version; {wrong} lost, doubled "
            "or given up",
            is_met=not wrong,
            recorded=None,
        )

    def _by_two(self) -> Figure:
        most = max(COUNTS)
        rate = median([run.load.per_s for run in self.by_two])
        two, one = (median([run.cpu_ms for run in runs]) for runs in (self.by_two, self.ours[most]))
        return Figure(
            f"{most} tables by two committers, a topic partition each, proposals/s",
            f"{rate:.0f}/s, {two:.2f} ms CPU a version",
            f"one committer {self._per_s(most):.0f}/s, {one:.2f} ms",
            rate / self._per_s(most),
            f">= {TWO_MIN}",
            f"{os.cpu_count()} cores for committers, broker, store and writers",
            is_met=rate >= TWO_MIN * self._per_s(most),
            recorded=None,
        )

    def _latency(self, count: int, percent: float) -> float:
        return median([1e3 * percentile(run.load.latencies_s, percent) for run in self.ours[count]])

    def _saturated(self, put_ms: float) -> Figure:
        most, one = max(COUNTS), median([run.per_s for run in self.one])
        rate, p99 = self._per_s(most) / one, self._latency(most, 99)
        slowest = median([run.slowest for run in self.ours[most]])
        return Figure(
            f"{most} tables beside one of {MANY} writers: proposals/s, p99, the slowest table",
            f"{rate:.2f} times, {p99:.0f} ms, {slowest:.2f} times the median one",
            f"one table {one:.0f}/s, PUT {put_ms:.0f} ms",
            rate,
            f">= {MANY_MIN}, <= {P99_PUTS:.0f} PUTs, <= {SLOWEST_MAX:.0f}",
            is_met=rate >= MANY_MIN and p99 <= P99_PUTS * put_ms and slowest <= SLOWEST_MAX,
            recorded=None,
        )


def _taken_over_s(line: CommitterLine, tables: Sequence[TableRecord]) -> float:
    """Kill the committer and start it again; return when the last table has committed again."""

    def again() -> None:
        line.gate.service.child.kill()
        line.gate.service.start()

    run = load.run(line.gate.kafka, tables, load.Writers(1), TAKEOVER_S, again)
    line.gate.service.wait_ready()
    return max((waits[0] if waits else inf) for waits in run.by_table)


def _deleted(line: CommitterLine, names: Sequence[str]) -> int:
    """Return how many rows of the shared file are marked in the newest version of some tables."""
    marked = 0
    for name in names:
        adds = [
            line_of_log
            for content in line.store.commits(name)
            for line_of_log in content.splitlines()
            if line_of_log.startswith(b'{"add"') and PATH.encode() in line_of_log
        ]
        found = _MARKED.search(adds[-1])
        marked += int(found.group(1)) if found else 0
    return marked
