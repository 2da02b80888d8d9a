"""Pairs of writers race through a proxy that delays, cuts, repeats, throttles and answers late.

Each name has two writers that act as the committer does: put, and on doubt read, compare, and send
the same bytes again. In the end one has won, the other has lost, and both know it. `--contests`
sets the number of names; CI takes few, the nightly run a thousand.
"""

import secrets
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Barrier
from typing import Final

import pytest

from tests.integration.faulty_proxy import WRITES, RoughRoad
from tests.integration.store_servers import KINDS, Kind
from tests.store_laws import DEADLINE_S
from tidegate_delta.errors import Unavailable
from tidegate_runtime.storage.log_store import LogStore, Put
from tidegate_runtime.storage.object_store import ObjectStore

WRITERS: Final = 2
AT_ONCE: Final = 8
"""Races that run at the same time."""

TRIES_MAX: Final = 60


@dataclass
class Contest:
    """A name, and what its writers put. `doubts` counts responses that had to be resolved."""

    path: str
    contents: tuple[bytes, ...]
    together: Barrier = field(default_factory=lambda: Barrier(WRITERS))
    ends: dict[int, Put] = field(default_factory=dict)
    doubts: int = 0

    def put(self, number: int, store: LogStore) -> None:
        """Put until the result is known."""
        content = self.contents[number]
        self.together.wait(DEADLINE_S)
        for _ in range(TRIES_MAX):
            answer = store.put_if_absent(self.path, content, DEADLINE_S)
            if answer is Put.UNKNOWN:
                self.doubts += 1
                there = self._read(store)
                if there is not None:
                    answer = Put.WON if there == content else Put.LOST
            if answer is not Put.UNKNOWN:
                self.ends[number] = answer
                return

    def _read(self, store: LogStore) -> bytes | None:
        try:
            return store.read(self.path)
        except Unavailable:
            # Four faults in a row: the committer pauses and tries again.
            return None


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.name)
def served(request: pytest.FixtureRequest) -> Iterator[tuple[Kind, int]]:
    kind: Kind = request.param
    with kind.serve() as port:
        yield kind, port


def test_every_contest_has_one_winner_and_every_doubt_is_resolved(
    served: tuple[Kind, int], request: pytest.FixtureRequest
) -> None:
    kind, upstream = served
    count: int = request.config.getoption("--contests")
    root = kind.root(f"tables/{secrets.token_hex(6)}")
    contests = [
        Contest(
            f"_delta_log/{number:020d}.json", (secrets.token_bytes(64), secrets.token_bytes(64))
        )
        for number in range(count)
    ]
    with (
        RoughRoad(upstream, count, kind.throttled) as road,
        ThreadPoolExecutor(max_workers=AT_ONCE * WRITERS) as pool,
    ):
        stores = [kind.opened(road.front, root) for _ in range(WRITERS)]
        # The writers of one race are adjacent in the queue, so that neither waits for long.
        futures = [
            pool.submit(contest.put, number, stores[number])
            for contest in contests
            for number in range(WRITERS)
        ]
        for future in futures:
            future.result()
        truth = kind.opened(upstream, root)
        assert_decided(contests, truth)
        assert sum(contest.doubts for contest in contests) > 0
        assert set(road.met) == set(WRITES)


def assert_decided(contests: list[Contest], truth: ObjectStore) -> None:
    """Check each race against the store's content, read without the proxy."""
    wrong: Counter[str] = Counter()
    for contest in contests:
        there = truth.read(contest.path)
        ends = [contest.ends.get(number) for number in range(WRITERS)]
        wrong["two winners"] += ends.count(Put.WON) > 1
        wrong["no winner"] += ends.count(Put.WON) == 0
        wrong["a doubt that stayed"] += None in ends
        for content, end in zip(contest.contents, ends, strict=True):
            wrong["a winner whose bytes are not there"] += end is Put.WON and there != content
            wrong["a loser whose bytes are there"] += end is Put.LOST and there == content
    assert +wrong == Counter()
