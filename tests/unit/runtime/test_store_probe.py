from collections.abc import Callable

import pytest

from tidegate.runtime.log_store import Put
from tidegate.runtime.memory import MemoryStore
from tidegate.runtime.store_probe import probe


class Overwriting(MemoryStore):
    """What a store does that knows no condition: the last one stands, and all are told they won."""

    def put_if_absent(self, path: str, content: bytes, deadline_s: float) -> Put:
        self.put(path, content)
        return Put.WON


class TornOnce(MemoryStore):
    """Leaves half a file behind, and then believes that it is whole."""

    def put_if_absent(self, path: str, content: bytes, deadline_s: float) -> Put:
        half = content[: len(content) // 2]
        return super().put_if_absent(path, half, deadline_s)


class Forgetful(MemoryStore):
    """Answers every put with a shrug."""

    def put_if_absent(self, path: str, content: bytes, deadline_s: float) -> Put:
        return Put.UNKNOWN


class Refusing(MemoryStore):
    """Tells everyone that they lost."""

    def put_if_absent(self, path: str, content: bytes, deadline_s: float) -> Put:
        super().put_if_absent(path, content, deadline_s)
        return Put.LOST


def test_a_store_that_keeps_the_contract_passes_and_is_left_clean() -> None:
    store = MemoryStore()
    store.put("_delta_log/0.json", b"{}")
    told: list[int] = []
    report = probe(store, 25, told.append)
    assert report.passed
    assert (report.contests, report.won, report.lost, report.unknown) == (25, 25, 25, 0)
    assert told == list(range(1, 26))
    assert list(store.files) == ["_delta_log/0.json"]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Overwriting, "both were told that they won"),
        (TornOnce, "the winner's bytes are not there"),
        (Forgetful, "unknown"),
        (Refusing, "both were told that they lost"),
    ],
)
def test_a_store_that_breaks_the_contract_is_caught(
    kind: Callable[[], MemoryStore], said: str
) -> None:
    store = kind()
    report = probe(store, 20)
    assert not report.passed
    assert any(said in failure for failure in report.failures)
    assert store.files == {}
