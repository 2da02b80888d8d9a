"""Files of a log are read several at a time from an object store, and come in their order."""

from collections.abc import Iterator
from threading import Barrier, Lock
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate_delta.errors import BrokenLog, Unavailable
from tidegate_delta.log.file_names import in_log
from tidegate_runtime.table_io import log_reader
from tidegate_runtime.table_io.log_reader import READS_AHEAD, read_each

WAIT_S = 30.0


class Remote:
    """An object store with files of a log. Reading `away` fails, and others count themselves."""

    root = "s3://bucket/table"

    def __init__(self, contents: dict[str, bytes], away: str = "") -> None:
        self.contents = {in_log(name): content for name, content in contents.items()}
        self.away = in_log(away)
        self.together: Barrier | None = None
        self.most = 0
        self._now = 0
        self._lock = Lock()

    def read(self, path: str) -> bytes | None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        if self.together is not None and path != in_log("0"):
            self.together.wait(WAIT_S)
        with self._lock:
            self._now -= 1
        if path == self.away:
            raise Unavailable("503 Slow Down")
        return self.contents.get(path)


def read(store: Any, names: list[str]) -> Iterator[bytes | None]:
    return read_each(store, names)


@given(st.lists(st.one_of(st.none(), st.binary(min_size=1, max_size=9)), max_size=40))
def test_each_file_comes_in_its_turn_and_one_that_is_missing_too(
    contents: list[bytes | None],
) -> None:
    wanted = [None if content is None else b"{" + content for content in contents]
    present = {str(at): content for at, content in enumerate(wanted) if content is not None}
    assert list(read(Remote(present), [str(at) for at in range(len(wanted))])) == wanted


def test_after_the_first_one_so_many_are_read_at_once() -> None:
    store = Remote({str(at): b"{}" for at in range(1 + 2 * READS_AHEAD)})
    store.together = Barrier(READS_AHEAD)
    assert list(read(store, [str(at) for at in range(1 + 2 * READS_AHEAD)]))[-1] == b"{}"


def test_large_ones_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "AHEAD_BYTES", 3)
    store = Remote({str(at): b"{  }" for at in range(20)})
    assert len(list(read(store, [str(at) for at in range(20)]))) == 20
    assert store.most == 1


def test_an_error_comes_in_its_turn_and_never_if_nobody_gets_so_far() -> None:
    contents = {"0": b"{}", "1": b"{}", "2": b" "}
    files = read(Remote(contents, away="3"), ["0", "1", "2", "3"])
    assert [next(files), next(files)] == [b"{}", b"{}"]
    with pytest.raises(BrokenLog, match="2 of table s3://bucket/table is empty"):
        next(files)
    assert list(files) == []
    files = read(Remote(contents, away="1"), ["0", "1"])
    assert next(files) == b"{}"
    with pytest.raises(Unavailable):
        next(files)
