"""The store contract of `tests/store_laws.py` for every store, object stores over an in-memory
bucket. The integration tests run it on S3, Google Cloud Storage and Azure.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.fakes.memory_store import MemoryStore
from tests.store_laws import DEADLINE_S, LAWS, assert_one_winner_each, contest
from tidegate_delta.errors import Unavailable
from tidegate_runtime.storage import object_store
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.storage.log_store import FileStat, LogStore, Put, Turn, at_once
from tidegate_runtime.storage.object_bucket import Head, Page
from tidegate_runtime.storage.object_responses import ErrorResponse
from tidegate_runtime.storage.object_store import ObjectStore

PAGE = 100
"""The number of names in a page of a listing."""

MISSING = ErrorResponse(404, "notFound", "")


@dataclass
class Kept:
    """An in-memory bucket.

    With `sends_now` a conditional PUT is sent from the caller's thread; with `forgets` its answer
    is lost.
    """

    sends_now: bool = False
    forgets: bool = False
    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict)

    async def page(
        self, prefix: str, start: str, token: str | None, *, is_deep: bool = False
    ) -> Page:
        """Return a page of the objects directly under `prefix`, or of all."""
        after = token or ""
        found = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
        here = [key for key in found if is_deep or "/" not in key[len(prefix) :]]
        firsts = {key[len(prefix) :].partition("/")[0] for key in set(found).difference(here)}
        entries = tuple(FileStat(key, *self._size_and_time(key)) for key in here[:PAGE])
        folders = tuple(f"{prefix}{name}/" for name in sorted(firsts)) if not token else ()
        return Page(entries, here[PAGE - 1] if len(here) > PAGE else None, folders)

    async def head(self, key: str) -> Head:
        """Return an object's metadata."""
        return Head(len(await self.read(key)), "1")

    async def read(self, key: str) -> bytes:
        """Return a whole object."""
        if key not in self.objects:
            raise MISSING
        return self.objects[key][0]

    def read_now(self, key: str, timeout_s: float) -> bytes | ErrorResponse | None:
        """Return an object at once, or that there is none, if it sends at once."""
        if not self.sends_now:
            return None
        return self.objects[key][0] if key in self.objects else ErrorResponse(404, "NoSuchKey", "")

    async def read_range(self, key: str, start: int, end: int, version: str) -> bytes:
        """Return a range of an object's bytes."""
        return (await self.read(key))[start:end]

    async def create(self, key: str, content: bytes) -> None:
        """Write an object if it does not exist."""
        self._create(key, content)

    def create_now(self, key: str, content: bytes, timeout_s: float, turn: Turn = at_once) -> bool:
        """Write it at once if the caller's turn allows; return whether it was sent."""
        if self.sends_now and turn():
            self._create(key, content)
            return True
        return False

    async def put(self, key: str, content: bytes) -> None:
        """Write an object."""
        self.objects[key] = (content, time.time_ns() // 1_000_000)

    async def delete(self, key: str) -> None:
        """Remove an object."""
        if self.objects.pop(key, None) is None:
            raise MISSING

    def _create(self, key: str, content: bytes) -> None:
        if key in self.objects:
            raise ErrorResponse(412, "conditionNotMet", "")
        self.objects[key] = (content, time.time_ns() // 1_000_000)
        if self.forgets:
            raise ErrorResponse(503, "backendError", "")

    def _size_and_time(self, key: str) -> tuple[int, int]:
        content, written_ms = self.objects[key]
        return len(content), written_ms


def in_bucket(bucket: Kept) -> ObjectStore:
    return ObjectStore("gs://bucket/a table", {}, lambda *_: bucket)


@pytest.fixture(params=["memory", "local", "bucket", "bucket, sent at once"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> LogStore:
    match request.param:
        case "memory":
            return MemoryStore()
        case "local":
            return LocalStore(str(tmp_path / "a table"))
        case how:
            return in_bucket(Kept(sends_now=how != "bucket"))


@pytest.mark.parametrize("sends_now", [True, False])
def test_a_put_whose_answer_was_lost_is_unknown_and_won_when_it_is_sent_again(
    *, sends_now: bool
) -> None:
    store = in_bucket(Kept(sends_now, forgets=True))
    assert store.put_if_absent("a", b"x", DEADLINE_S) is Put.UNKNOWN
    assert store.put_if_absent("a", b"x", DEADLINE_S) is Put.WON
    assert store.put_if_absent("a", b"y", DEADLINE_S) is Put.LOST


def test_what_goes_in_no_single_request_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "SINGLE_PUT_BYTES_MAX", 3)
    bucket = Kept()
    with pytest.raises(Unavailable, match="4 bytes are too many for one request"):
        in_bucket(bucket).put_if_absent("a", b"xxxx", DEADLINE_S)
    assert bucket.objects == {}


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_a_store_obeys_the_law(law: Callable[[LogStore], None], store: LogStore) -> None:
    law(store)


def test_of_eight_threads_one_wins_each_version(tmp_path: Path) -> None:
    stores: list[LogStore] = [LocalStore(str(tmp_path)) for _ in range(8)]
    assert_one_winner_each(contest(stores, versions=40), stores[0])


def test_an_object_that_stands_for_a_folder_is_not_in_it() -> None:
    bucket = Kept()
    store = in_bucket(bucket)
    store.put("_delta_log/a", b"x")
    bucket.objects["a table/_delta_log/"] = (b"", 0)
    assert [item.path for item in store.list_from("_delta_log", "")] == ["_delta_log/a"]
