import gc
import weakref
from pathlib import Path

import pytest

from tidegate.delta.errors import Misconfigured
from tidegate.runtime.local_store import LocalStore
from tidegate.runtime.object_store import ObjectStore
from tidegate.runtime.stores import canonical_root, open_store


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


def test_tables_of_a_bucket_share_what_speaks_to_it_as_long_as_one_of_them_lives() -> None:
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
