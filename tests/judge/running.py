"""Runs seeds in a few threads of one Spark session, and collects what differs, once a fault."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from tests.judge.cases import Case
from tests.judge.comparison import Difference, Judge
from tests.judge.generator import case
from tests.judge.known_differences import known
from tests.judge.shrinking import shrunk

THREADS = 3
RUNS_OF_SHRINKING = 40


@dataclass(frozen=True)
class Found:
    """A difference that a seed showed first, and the smallest case that shows it."""

    seed: int
    difference: Difference
    case: Case

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.difference}\n  {self.case!r}"


@dataclass
class Run:
    """What the seeds so far have shown."""

    found: dict[str, Found] = field(default_factory=dict)
    seeds_of: dict[str, list[int]] = field(default_factory=dict)
    excused: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    """By reason, the last difference that was excused."""
    done: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def is_new(self, seed: int, difference: Difference) -> bool:
        """Note a difference, and return whether it is the first of its kind."""
        with self.lock:
            why = known(difference)
            if why is not None:
                self.excused[why.reason] += 1
                self.examples[why.reason] = f"seed {seed}: {difference}"
                return False
            seeds = self.seeds_of.setdefault(difference.signature, [])
            seeds.append(seed)
            return len(seeds) == 1


def judged(
    judge: Judge,
    seeds: Iterable[int],
    *,
    shrinks: bool,
    report: Callable[[Found], object] = print,
    progress: Callable[[int], object] = lambda _: None,
) -> Run:
    """Run the cases of some seeds, and return what differs; each is reported as it is found.

    `progress` gets the number of sequences that are done.
    """
    run = Run()
    waiting = SimpleQueue[int]()
    for seed in seeds:
        waiting.put(seed)

    def work(name: str) -> None:
        own = judge.new_session(name)
        while not waiting.empty():
            with suppress(Empty):
                _judge_one(own, waiting.get_nowait(), run, report, shrinks=shrinks)
                with run.lock:
                    run.done += 1
                    progress(run.done)

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(work, f"w{at}") for at in range(THREADS)]:
            done.result()
    return run


def _judge_one(
    judge: Judge, seed: int, run: Run, report: Callable[[Found], object], *, shrinks: bool
) -> None:
    whole = case(seed)
    for difference in judge.check(whole):
        if not run.is_new(seed, difference):
            continue
        small, seen = whole, difference
        if shrinks:
            runs = RUNS_OF_SHRINKING // 4 if difference.is_slight else RUNS_OF_SHRINKING
            small, seen = shrunk(judge, whole, difference, runs)
        found = Found(seed, seen, small)
        with run.lock:
            run.found[difference.signature] = found
            report(found)
