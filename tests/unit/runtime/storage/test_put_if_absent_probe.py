from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock

import pytest

from tests.fakes.memory_store import MemoryStore
from tests.support.object_stores import Overwriting
from tidegate_delta.errors import Unavailable
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.storage.log_store import FileStat, Put, Turn, at_once
from tidegate_runtime.storage.put_if_absent_probe import probe

CONTESTED = 64
"""The size of what racing writers put."""


class AtomicStore(MemoryStore):
    """Takes one conditional PUT at a time: a probe's contestants are threads."""

    def __init__(self) -> None:
        super().__init__()
        self._puts = Lock()

    def put_if_absent(
        self, path: str, content: bytes, deadline_s: float, turn: Turn = at_once
    ) -> Put:
        with self._puts:
            return super().put_if_absent(path, content, deadline_s, turn)


class TornOnce(AtomicStore):
    """Leaves half a file behind, and then takes it for whole."""

    def put_if_absent(
        self, path: str, content: bytes, deadline_s: float, turn: Turn = at_once
    ) -> Put:
        half = content[: len(content) // 2]
        return super().put_if_absent(path, half, deadline_s)


class Forgetful(AtomicStore):
    """Answers UNKNOWN to every put."""

    def put_if_absent(
        self, path: str, content: bytes, deadline_s: float, turn: Turn = at_once
    ) -> Put:
        return Put.UNKNOWN


class Unconditional(AtomicStore):
    """Refuses conditional PUTs."""

    def put_if_absent(
        self, path: str, content: bytes, deadline_s: float, turn: Turn = at_once
    ) -> Put:
        raise Unavailable("501 NotImplemented")


class Tearing(AtomicStore):
    """Keeps the part of an interrupted PUT that arrived, and later takes it for whole."""

    def put_if_absent(
        self, path: str, content: bytes, deadline_s: float, turn: Turn = at_once
    ) -> Put:
        if deadline_s < 1:
            self.put(path, content[:100])
            return Put.UNKNOWN
        return super().put_if_absent(path, content, deadline_s)


class Busy(AtomicStore):
    """Keeps the contract, and answers 409 while an interrupted PUT is still in progress."""

    conflicts = 0

    def put_if_absent(
        self, path: str, content: bytes, deadline_s: float, turn: Turn = at_once
    ) -> Put:
        if deadline_s < 1:
            self.conflicts = 2
            return Put.UNKNOWN
        if self.conflicts:
            self.conflicts -= 1
            return Put.UNKNOWN
        return super().put_if_absent(path, content, deadline_s)


class InConflict(AtomicStore):
    """Answers 409 to the loser, as S3 does while both PUTs are in progress."""

    def put_if_absent(
        self, path: str, content: bytes, deadline_s: float, turn: Turn = at_once
    ) -> Put:
        answer = super().put_if_absent(path, content, deadline_s)
        return Put.UNKNOWN if answer is Put.LOST and len(content) == CONTESTED else answer


class Hiding(AtomicStore):
    """Lists nothing."""

    def list_from(self, folder: str, start: str) -> Iterator[FileStat]:
        yield from ()


class Keeping(AtomicStore):
    """Deletes nothing."""

    def delete(self, path: str) -> None:
        raise Unavailable("403 Forbidden")


class Refusing(AtomicStore):
    """Answers LOST to every writer."""

    def put_if_absent(
        self, path: str, content: bytes, deadline_s: float, turn: Turn = at_once
    ) -> Put:
        super().put_if_absent(path, content, deadline_s)
        return Put.LOST


def test_a_store_that_keeps_the_contract_passes_and_is_left_clean() -> None:
    store = AtomicStore()
    store.put("_delta_log/0.json", b"{}")
    result: list[int] = []
    report = probe(store, 25, result.append)
    assert report.passed
    assert (report.contests, report.won, report.lost, report.unknown) == (25, 25, 25, 0)
    assert result == list(range(1, 26))
    assert list(store.files) == ["_delta_log/0.json"]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Overwriting, "both were told that they won"),
        (TornOnce, "the winner's bytes are not there"),
        (Forgetful, "unknown"),
        (Refusing, "both were told that they lost"),
        (Unconditional, "refuses a conditional one: 501"),
        (Tearing, "cut short left other bytes"),
        (Hiding, "a listing does not show"),
    ],
)
def test_a_store_that_breaks_the_contract_is_caught(
    kind: Callable[[], MemoryStore], message: str
) -> None:
    store = kind()
    report = probe(store, 20)
    assert not report.passed
    assert any(message in failure for failure in report.failures)
    assert store.files == {}


def test_a_repeated_problem_is_reported_once_with_a_count() -> None:
    report = probe(Overwriting(), 20)
    assert "both were told that they won (20 times)" in report.failures
    assert len(report.failures) < 10


def test_contests_may_be_held_at_the_same_time(tmp_path: Path) -> None:
    report = probe(LocalStore(str(tmp_path)), 40, at_once=8)
    assert report.failures == ()
    assert (report.won, report.lost, report.unknown) == (40, 40, 0)
    assert list(tmp_path.rglob("*.*")) == []


def test_a_store_that_is_busy_for_a_moment_after_a_cut_passes() -> None:
    report = probe(Busy(), 5)
    assert report.failures == ()


def test_a_store_that_keeps_what_it_is_given_passes_and_its_scratch_files_are_counted() -> None:
    store = Keeping()
    report = probe(store, 3)
    assert report.passed
    assert report.left == len(store.files) > 3


def test_a_store_that_answers_losers_with_a_conflict_passes() -> None:
    report = probe(InConflict(), 20)
    assert report.failures == ()
    assert (report.won, report.unknown) == (20, 20)


def test_a_store_that_cannot_be_written_at_all_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "_tidegate").write_text("a file")
    with pytest.raises(Unavailable, match="another place"):
        probe(LocalStore(str(tmp_path)), 3)
