"""Test a store's put-if-absent by contests: two writers race for each of many scratch names.

It detects a store that refuses or ignores the condition, keeps part of a PUT that was cut off, or
lists files that it does not hold. It can't prove that what worked a few hundred times always works,
nor what two machines see that mount the same file system.
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

from tidegate_delta.errors import Unavailable
from tidegate_runtime.storage.log_store import LogStore, Put
from tidegate_runtime.storage.root_paths import joined

CONTESTS: Final = 200
CUTS_S: Final = (0.0005, 0.002, 0.008, 0.032)
"""The times after which a PUT is cut off, each on a name of its own."""

_FOLDER: Final = "_tidegate"
_DEADLINE_S: Final = 30.0
_CUT_BYTES: Final = 256 * 1024
_TRIES_MAX: Final = 20
_PAUSE_S: Final = 0.1
"""The pause before a PUT with an unknown result is sent again, and how often a probe may do so."""


@dataclass(frozen=True)
class ProbeReport:
    """The result of a probe. `failures` are sentences on what the store did wrong.

    `left` counts scratch files that could not be removed. That is no failure: some stores retain
    objects on purpose.
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
        """Whether each contest had exactly one winner, whose bytes are stored."""
        return not self.failures


def _no_progress(decided: int) -> None:
    """Report no progress."""


def probe(
    store: LogStore,
    contests: int = CONTESTS,
    progress: Callable[[int], None] = _no_progress,
    at_once: int = 1,
) -> ProbeReport:
    """Run contests of two writers, cut PUTs off and send them again, and return what happened.

    Scratch files lie under `_tidegate/` and are removed. `progress` is called with the number of
    contests decided so far; `at_once` contests run concurrently.
    Raises: Unavailable, when the store cannot be written at all.
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
            failure if times == 1 else f"{failure} ({times} times)"
            for failure, times in scratch.wrong.items()
        ),
        left=scratch.left,
    )


@dataclass
class _Scratch:
    """The names that a probe writes, and the faults that it finds: `wrong` counts each kind.

    `tries` is how often a PUT may still be sent again. `doubts` counts unknown results of contests
    that left no file: S3 often reports only that there was a conflict.
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
        """Return a scratch path, and register it for deletion at the end."""
        self.names.append(joined(_FOLDER, f"{self.prefix}-{end}"))
        return self.names[-1]

    def write_plainly(self) -> None:
        """Check that a plain PUT replaces a file. Raises: Unavailable."""
        path = self.name("plain")
        self.store.put(path, b"first")
        self.store.put(path, b"second")
        if self.store.read(path) != b"second":
            self.wrong["after a file was replaced, its old content was read"] += 1

    def takes_conditions(self) -> bool:
        """Return whether the store accepts a conditional PUT, given that it accepts a plain one."""
        try:
            self.store.put_if_absent(self.name("first"), b"first", _DEADLINE_S)
        except Unavailable as error:
            self.wrong[f"it accepts a plain PUT and refuses a conditional one: {error}"] += 1
            return False
        return True

    def decide(
        self, path: str, contents: Sequence[bytes], futures: Iterable["Future[Put]"]
    ) -> None:
        """Compare the results of two contestants with what the store holds."""
        results = [_answer(future) for future in futures]
        self.puts.update(results)
        stored = self.store.read(path)
        self.doubts += results.count(Put.UNKNOWN) if stored is None else 0
        self.wrong.update(_wrong(results, contents, stored))

    def cut(self, path: str, cut_s: float) -> None:
        """Cut a PUT off: it must leave nothing or all, and the same bytes must win afterwards."""
        content = secrets.token_bytes(_CUT_BYTES)
        first = self.store.put_if_absent(path, content, cut_s)
        stored = self.store.read(path)
        if stored is not None and stored != content:
            self.wrong["a PUT that was cut short left other bytes than it was given"] += 1
        elif first is Put.LOST:
            self.wrong["a PUT to a fresh name lost"] += 1
        else:
            repeated = self._put_until_known(path, content)
            rival = self._put_until_known(path, content[::-1])
            if repeated is not Put.WON or self.store.read(path) != content:
                self.wrong[f"sent again after a cut, the same bytes were {repeated.value}"] += 1
            if rival is not Put.LOST:
                self.wrong[f"other bytes after a cut were {rival.value}"] += 1

    def _put_until_known(self, path: str, content: bytes) -> Put:
        """Repeat a PUT while its result is unknown.

        As long as the one that was cut off is in flight, S3 responds with a conflict.
        """
        answer = self.store.put_if_absent(path, content, _DEADLINE_S)
        while answer is Put.UNKNOWN and self.tries:
            self.tries -= 1
            time.sleep(_PAUSE_S)
            answer = self.store.put_if_absent(path, content, _DEADLINE_S)
        return answer

    def compare_listing(self, paths: Sequence[str]) -> None:
        """Compare a listing with what was written."""
        expected, listed = set(paths), []
        for stat in self.store.list_from(_FOLDER, self.prefix):
            if not stat.path.startswith(joined(_FOLDER, self.prefix)):
                break
            listed += [stat.path] if stat.path in expected else []
        if listed != list(paths):
            self.wrong["a listing does not show in order what was written"] += 1

    def clear(self, pool: ThreadPoolExecutor) -> None:
        """Delete the scratch files, and count those that can't be deleted."""
        for deletion in [pool.submit(self.store.delete, name) for name in self.names]:
            if isinstance(deletion.exception(), Unavailable):
                self.left += 1
            else:
                deletion.result()


def _contest(
    store: LogStore, path: str, contestants: ThreadPoolExecutor
) -> tuple[str, list[bytes], list["Future[Put]"]]:
    contents = [secrets.token_bytes(64), secrets.token_bytes(64)]
    together = Barrier(2)

    def contend(content: bytes) -> Put:
        together.wait()
        return store.put_if_absent(path, content, _DEADLINE_S)

    # Adjacent in the pool's queue: a contestant at the barrier waits for the next one to start.
    return path, contents, [contestants.submit(contend, content) for content in contents]


def _answer(future: "Future[Put]") -> Put:
    with suppress(Unavailable):
        return future.result()
    return Put.UNKNOWN


def _wrong(results: list[Put], contents: Sequence[bytes], stored: bytes | None) -> list[str]:
    failures = []
    if results.count(Put.WON) > 1:
        failures.append("both were told that they won")
    for result, content in zip(results, contents, strict=True):
        if result is Put.WON and stored != content:
            failures.append("the winner's bytes are not there")
        if result is Put.LOST and stored == content:
            failures.append("the loser's bytes are there")
    if results.count(Put.LOST) == len(results):
        failures.append("both were told that they lost")
    if stored not in contents and Put.UNKNOWN not in results:
        failures.append("neither one's bytes are there")
    return failures
