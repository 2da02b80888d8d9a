"""Is a store's put-if-absent one? Contests on scratch names that say yes, or show where not."""

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier
from typing import Final

from tidegate.runtime.log_store import LogStore, Put
from tidegate.runtime.store_paths import joined

CONTESTS: Final = 200
_FOLDER: Final = "_tidegate"
_DEADLINE_S: Final = 30.0
_CUT_SHORT_S: Final = 0.002


@dataclass(frozen=True)
class ProbeReport:
    """What the contests came to. `failures` says, in words, what the store did wrong."""

    root: str
    contests: int
    won: int
    lost: int
    unknown: int
    failures: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether each contest had exactly one winner, whose bytes are there."""
        return not self.failures


def _silent(contest: int) -> None:
    """Tell nobody."""


def probe(
    store: LogStore, contests: int = CONTESTS, progress: Callable[[int], None] = _silent
) -> ProbeReport:
    """Return how a store stands in contests of two, and when a PUT is cut short and sent again.

    What is written lies under `_tidegate/` and is removed. `progress` is told each contest's
    number. Raises: Unavailable, when the store cannot be written at all.
    """
    prefix = joined(_FOLDER, f"probe-{secrets.token_hex(8)}")
    paths = [f"{prefix}-{number:06d}" for number in range(contests)]
    puts: list[Put] = []
    failures: list[str] = []
    try:
        with ThreadPoolExecutor(max_workers=2) as contestants:
            for number, path in enumerate(paths):
                answers, failure = _contest(store, path, contestants)
                puts += answers
                failures += failure
                progress(number + 1)
        failures += _cut_short(store, f"{prefix}-cut")
        failures += _listed(store, prefix, paths)
    finally:
        for path in [*paths, f"{prefix}-cut"]:
            store.delete(path)
    counts = {put: puts.count(put) for put in Put}
    if contests and counts[Put.UNKNOWN] > contests // 2:
        failures.append(f"{counts[Put.UNKNOWN]} of {len(puts)} answers were unknown")
    return ProbeReport(
        root=store.root,
        contests=contests,
        won=counts[Put.WON],
        lost=counts[Put.LOST],
        unknown=counts[Put.UNKNOWN],
        failures=tuple(failures),
    )


def _contest(
    store: LogStore, path: str, contestants: ThreadPoolExecutor
) -> tuple[list[Put], list[str]]:
    contents = [secrets.token_bytes(64), secrets.token_bytes(64)]
    together = Barrier(2)

    def contend(content: bytes) -> Put:
        together.wait(_DEADLINE_S)
        return store.put_if_absent(path, content, _DEADLINE_S)

    futures = [contestants.submit(contend, content) for content in contents]
    answers = [future.result() for future in futures]
    there = store.read(path)
    return answers, [f"{path}: {wrong}" for wrong in _wrong(answers, contents, there)]


def _wrong(answers: list[Put], contents: list[bytes], there: bytes | None) -> list[str]:
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


def _cut_short(store: LogStore, path: str) -> list[str]:
    """What an interrupted PUT leaves: nothing or all of it, and the same bytes win afterwards."""
    content = secrets.token_bytes(256 * 1024)
    first = store.put_if_absent(path, content, _CUT_SHORT_S)
    there = store.read(path)
    if there is not None and there != content:
        return [f"{path}: a PUT that was cut short left other bytes than it was given"]
    if first is Put.LOST:
        return [f"{path}: a PUT to a fresh name lost"]
    again = store.put_if_absent(path, content, _DEADLINE_S)
    if again is Put.WON and store.read(path) == content:
        return []
    return [f"{path}: sent again after a cut, the same bytes came to {again.value}"]


def _listed(store: LogStore, prefix: str, paths: list[str]) -> list[str]:
    start = prefix.removeprefix(f"{_FOLDER}/")
    shown = [stat.path for stat in store.list_from(_FOLDER, start) if stat.path in set(paths)]
    return [] if shown == paths else ["a listing does not show in order what was written"]
