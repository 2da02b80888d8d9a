"""Is a store's put-if-absent one? Contests on scratch names that say yes, or show where not.

What it can show is a store that takes no condition or forgets it, tears what is cut off, or lists
what it does not hold. What it cannot: that a promise kept a few hundred times is always kept, nor
what two machines see that mount the same file system.
"""

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Barrier
from typing import Final

from tidegate.delta.errors import Unavailable
from tidegate.runtime.stores.log_store import LogStore, Put
from tidegate.runtime.stores.paths import joined

CONTESTS: Final = 200
CUTS_S: Final = (0.0005, 0.002, 0.008, 0.032)
"""After how long a PUT is cut off, each on a name of its own."""

_FOLDER: Final = "_tidegate"
_DEADLINE_S: Final = 30.0
_CUT_BYTES: Final = 256 * 1024
_TRIES_MAX: Final = 20
_PAUSE_S: Final = 0.1
"""How often in a probe, and after what pause, a PUT is sent again whose answer says nothing."""


@dataclass(frozen=True)
class ProbeReport:
    """What the contests came to. `failures` says, in words, what the store did wrong.

    `left` are scratch files that could not be removed, which is no fault of a store's: some keep
    what they are given.
    """

    root: str
    contests: int
    cuts: int
    won: int
    lost: int
    unknown: int
    failures: tuple[str, ...]
    left: int = 0

    @property
    def passed(self) -> bool:
        """Whether each contest had exactly one winner, whose bytes are there."""
        return not self.failures


def _silent(contest: int) -> None:
    """Tell nobody."""


def probe(
    store: LogStore,
    contests: int = CONTESTS,
    progress: Callable[[int], None] = _silent,
    at_once: int = 1,
) -> ProbeReport:
    """Return how a store stands in contests of two, and when a PUT is cut short and sent again.

    What is written lies under `_tidegate/` and is removed. `progress` is told how many contests
    have been decided; `at_once` are held at the same time. Raises: Unavailable, when the store
    cannot be written at all.
    """
    scratch = _Scratch(store)
    with ThreadPoolExecutor(max_workers=2 * at_once) as contestants:
        try:
            scratch.write_plainly()
            if scratch.takes_conditions():
                names = [scratch.name(f"{number:06d}") for number in range(contests)]
                pairs = [_contest(store, name, contestants) for name in names]
                for number, pair in enumerate(pairs):
                    scratch.decide(*pair)
                    progress(number + 1)
                for number, cut_s in enumerate(CUTS_S):
                    scratch.cut(scratch.name(f"cut-{number}"), cut_s)
                scratch.compare_listing(names)
        finally:
            scratch.clear(contestants)
    if contests and scratch.doubts > contests // 2:
        scratch.wrong[f"{scratch.doubts} of {2 * contests} answers stayed unknown"] += 1
    return ProbeReport(
        root=store.root,
        contests=contests,
        cuts=len(CUTS_S),
        won=scratch.puts[Put.WON],
        lost=scratch.puts[Put.LOST],
        unknown=scratch.puts[Put.UNKNOWN],
        failures=tuple(
            said if times == 1 else f"{said} ({times} times)"
            for said, times in scratch.wrong.items()
        ),
        left=scratch.left,
    )


@dataclass
class _Scratch:
    """The names that a probe writes, and what was wrong with them, with how often it was.

    `tries` is how often a PUT may still be sent again, `doubts` counts answers that said nothing
    where nothing was there either: S3 tells many a loser no more than that there was a conflict.
    """

    store: LogStore
    prefix: str = field(default_factory=lambda: f"probe-{secrets.token_hex(8)}")
    names: list[str] = field(default_factory=list)
    puts: Counter[Put] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    tries: int = _TRIES_MAX
    doubts: int = 0
    left: int = 0

    def name(self, end: str) -> str:
        """Return a scratch path, to be cleared in the end."""
        self.names.append(joined(_FOLDER, f"{self.prefix}-{end}"))
        return self.names[-1]

    def write_plainly(self) -> None:
        """Write, write over, read. Raises: Unavailable."""
        path = self.name("plain")
        self.store.put(path, b"first")
        self.store.put(path, b"second")
        if self.store.read(path) != b"second":
            self.wrong["what was written over is not what is read"] += 1

    def takes_conditions(self) -> bool:
        """Whether the store takes a conditional PUT at all, now that it takes a plain one."""
        try:
            self.store.put_if_absent(self.name("first"), b"first", _DEADLINE_S)
        except Unavailable as error:
            self.wrong[f"it takes a plain PUT and refuses a conditional one: {error}"] += 1
            return False
        return True

    def decide(self, path: str, contents: Sequence[bytes], told: Iterable["Future[Put]"]) -> None:
        """Hold what two contestants were told against what is there."""
        answers = [_answer(future) for future in told]
        self.puts.update(answers)
        there = self.store.read(path)
        self.doubts += answers.count(Put.UNKNOWN) if there is None else 0
        self.wrong.update(_wrong(answers, contents, there))

    def cut(self, path: str, cut_s: float) -> None:
        """Cut a PUT short: it left nothing or all of it, and the same bytes win afterwards."""
        content = secrets.token_bytes(_CUT_BYTES)
        first = self.store.put_if_absent(path, content, cut_s)
        there = self.store.read(path)
        if there is not None and there != content:
            self.wrong["a PUT that was cut short left other bytes than it was given"] += 1
        elif first is Put.LOST:
            self.wrong["a PUT to a fresh name lost"] += 1
        else:
            again = self._settled(path, content)
            rival = self._settled(path, content[::-1])
            if again is not Put.WON or self.store.read(path) != content:
                self.wrong[f"sent again after a cut, the same bytes came to {again.value}"] += 1
            if rival is not Put.LOST:
                self.wrong[f"other bytes after a cut came to {rival.value}"] += 1

    def _settled(self, path: str, content: bytes) -> Put:
        """Put until it is known what it came to: what was cut off may still be under way, and then
        S3 answers that the two are in conflict.
        """
        answer = self.store.put_if_absent(path, content, _DEADLINE_S)
        while answer is Put.UNKNOWN and self.tries:
            self.tries -= 1
            time.sleep(_PAUSE_S)
            answer = self.store.put_if_absent(path, content, _DEADLINE_S)
        return answer

    def compare_listing(self, paths: Sequence[str]) -> None:
        """Hold a listing against what was written."""
        asked, shown = set(paths), []
        for stat in self.store.list_from(_FOLDER, self.prefix):
            if not stat.path.startswith(joined(_FOLDER, self.prefix)):
                break
            shown += [stat.path] if stat.path in asked else []
        if shown != list(paths):
            self.wrong["a listing does not show in order what was written"] += 1

    def clear(self, pool: ThreadPoolExecutor) -> None:
        """Remove what was written; what stays is counted."""
        for done in [pool.submit(self.store.delete, name) for name in self.names]:
            if isinstance(done.exception(), Unavailable):
                self.left += 1
            else:
                done.result()


def _contest(
    store: LogStore, path: str, contestants: ThreadPoolExecutor
) -> tuple[str, list[bytes], list["Future[Put]"]]:
    contents = [secrets.token_bytes(64), secrets.token_bytes(64)]
    together = Barrier(2)

    def contend(content: bytes) -> Put:
        together.wait()
        return store.put_if_absent(path, content, _DEADLINE_S)

    # Side by side in the queue: the second one of a pair is always the next to be taken up.
    return path, contents, [contestants.submit(contend, content) for content in contents]


def _answer(told: "Future[Put]") -> Put:
    with suppress(Unavailable):
        return told.result()
    return Put.UNKNOWN


def _wrong(answers: list[Put], contents: Sequence[bytes], there: bytes | None) -> list[str]:
    wrong = []
    if answers.count(Put.WON) > 1:
        wrong.append("both were told that they won")
    for answer, content in zip(answers, contents, strict=True):
        if answer is Put.WON and there != content:
            wrong.append("the winner's bytes are not there")
        if answer is Put.LOST and there == content:
            wrong.append("the loser's bytes are there")
    if answers.count(Put.LOST) == len(answers):
        wrong.append("both were told that they lost")
    if there not in contents and Put.UNKNOWN not in answers:
        wrong.append("neither one's bytes are there")
    return wrong
