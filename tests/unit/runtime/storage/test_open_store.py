import asyncio
import gc
import threading
import weakref
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import pytest

from tidegate_delta.errors import Misconfigured, Unavailable, UnsupportedFeature
from tidegate_runtime.storage import object_store
from tidegate_runtime.storage.gcs_bucket import GcsBucket
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.storage.object_store import ObjectStore
from tidegate_runtime.storage.open_store import canonical_root, open_store
from tidegate_runtime.table_io.table_files import open_table_file


def test_a_path_opens_the_local_store(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), {"region": "for tables elsewhere"})
    assert isinstance(store, LocalStore)
    assert store.root == canonical_root(str(tmp_path))


def test_an_s3_uri_opens_the_object_store() -> None:
    store = open_store("s3a://bucket/t/", {"AWS_REGION": "eu-central-1"})
    assert isinstance(store, ObjectStore)
    assert store.root == "s3://bucket/t"


@pytest.mark.parametrize("root", ["gs://bucket/t", "abfss://files@account.dfs.core.windows.net/t"])
def test_the_other_clouds_open_the_object_store_and_pass_over_words_for_s3(root: str) -> None:
    store = open_store(root, {"AWS_REGION": "eu-central-1", "google_anonymous": "true"})
    assert isinstance(store, ObjectStore)
    assert store.root == root


def test_tables_of_a_bucket_share_its_client_while_one_of_them_is_open() -> None:
    options = {"google_anonymous": "true"}

    def opened(root: str, **more: str) -> ObjectStore:
        store = open_store(root, {**options, **more})
        assert isinstance(store, ObjectStore)
        return store

    one, other, elsewhere = map(opened, ("gs://bucket/a", "gs://bucket/b", "gs://lake/a"))
    as_another = opened("gs://bucket/a", google_endpoint_url="http://x")
    assert one._bucket is other._bucket
    assert len({id(store._bucket) for store in (one, elsewhere, as_another)}) == 3
    watched = weakref.ref(one._bucket)
    del one, other
    gc.collect()
    assert watched() is None


def test_opening_touches_nothing(tmp_path: Path) -> None:
    open_store(str(tmp_path / "t"))
    assert not (tmp_path / "t").exists()


def test_an_unknown_option_is_refused_by_name() -> None:
    with pytest.raises(Misconfigured, match="regoin") as raised:
        open_store("s3://bucket/t", {"regoin": "x", "secret_access_key": "hush"})
    assert "hush" not in str(raised.value)


def test_memory_cannot_be_opened() -> None:
    with pytest.raises(Misconfigured, match="memory"):
        open_store("memory://t")


class FarAway(GcsBucket):
    """A bucket that takes a moment for each request."""

    def __init__(self, scheme: str, name: str, told: Mapping[str, str]) -> None:
        """Connect to nothing."""

    async def put(self, key: str, content: bytes) -> None:
        await asyncio.sleep(0.01)

    async def read_range(self, key: str, start: int, end: int, version: str) -> bytes:
        await asyncio.sleep(0.01)
        return bytes(end - start)


def test_the_timeout_grows_with_the_bytes_sent_or_requested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(object_store, "_PATIENCE_S", 0.001)
    store, large = ObjectStore("gs://bucket/t", {}, FarAway), 8 * 1024 * 1024
    store.put("part-0.parquet", bytes(large))
    assert len(store.read_range("part-0.parquet", 0, large, "1")) == large
    with pytest.raises(Unavailable, match="took too long"):
        store.put("part-0.parquet", b"x")
    with pytest.raises(Unavailable, match="took too long"):
        store.read_range("part-0.parquet", 0, 1, "1")


class Whole(FarAway):
    """Ignores ranges, as some proxies do."""

    async def read_range(self, key: str, start: int, end: int, version: str) -> bytes:
        return bytes(10)


def test_a_whole_object_is_no_part_of_one() -> None:
    store = ObjectStore("gs://bucket/t", {}, Whole)
    assert len(store.read_range("part-0.parquet", 0, 10, "1")) == 10
    with pytest.raises(Unavailable, match="sent 10 bytes instead of 3"):
        store.read_range("part-0.parquet", 2, 5, "1")


def test_no_request_waits_for_the_credentials_of_another_bucket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks, finds = threading.Event(), threading.Event()

    def opened(scheme: str, name: str, told: Mapping[str, str]) -> object:
        if name == "slow":
            looks.set()
            finds.wait(10.0)
        return mock.Mock()

    monkeypatch.setattr(object_store, "opened_alone", opened)
    buckets = object_store.SharedBuckets()
    with ThreadPoolExecutor(2) as threads:
        slow = threads.submit(buckets, "gs", "slow", {})
        assert looks.wait(10.0)
        assert threads.submit(buckets, "gs", "other", {}).result(10.0) is not None
        finds.set()
        assert slow.result(10.0) is buckets("gs", "slow", {})


def test_a_file_that_the_log_names_on_another_machine_is_nowhere(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFeature, match="outside of its store"):
        open_table_file(open_store(str(tmp_path)), "file://host/x/a.parquet")
