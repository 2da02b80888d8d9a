"""A table's root has one canonical form, whatever characters its folders' names have."""

import os
from pathlib import Path
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from tidegate_delta.log.file_paths import canonical_place, encode_path
from tidegate_runtime.storage.object_store import ObjectStore
from tidegate_runtime.storage.root_paths import (
    canonical_root,
    decoded_root,
    lies_under,
    root_prefix,
)
from tidegate_runtime.table_io.table_files import key_below

NAMES = st.text(
    st.one_of(st.sampled_from("%20 #?+:&=@~ü[]{}ab"), st.characters(exclude_categories=["C"])),
    min_size=1,
    max_size=12,
).filter(lambda name: "/" not in name and name not in (".", ".."))
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda names: "/" + "/".join(names))
BUCKETS = st.sampled_from(["s3://bucket", "gs://bucket", "abfss://c@a.dfs.core.windows.net"])


@given(PATHS)
def test_a_path_and_its_uri_are_one_root(path: str) -> None:
    root = canonical_root(f"/lake{path}")
    assert canonical_root(root) == root
    for uri in (Path(f"/lake{path}").as_uri(), f"file:/lake{quote(path, safe='')}"):
        assert canonical_root(uri) == root
    assert decoded_root(root) == f"file:///lake{path}"


@given(PATHS, PATHS)
def test_roots_are_equal_where_their_folders_are(one: str, other: str) -> None:
    assert (canonical_root(one) == canonical_root(other)) == (one == other)
    # A folder may be named as the URI of another one is written.
    named_so = canonical_root(one).removeprefix("file://")
    assert (canonical_root(named_so) == canonical_root(one)) == (named_so == one)


@given(BUCKETS, PATHS)
def test_an_object_stores_keys_begin_with_the_decoded_root(bucket: str, path: str) -> None:
    root = canonical_root(f"{bucket}{quote(path)}")
    assert canonical_root(root) == root
    assert ObjectStore(root)._key("f") == f"{path[1:]}/f"


@given(st.one_of(st.just("file://"), BUCKETS), PATHS, NAMES)
def test_a_file_below_a_root_is_found_by_its_uri(store: str, path: str, name: str) -> None:
    root = canonical_root(f"{store}{quote(path)}")
    uri = f"{root}/{encode_path(name)}"
    assert canonical_place(canonical_place(uri)) == canonical_place(uri)
    assert key_below(root, uri) == name
    assert key_below(f"{root}%20", uri) is None


@given(PATHS, NAMES)
def test_a_root_lies_under_the_prefixes_above_it(path: str, name: str) -> None:
    root = canonical_root(f"/lake{path}/{name}")
    folder = os.path.dirname(decoded_root(root).removeprefix("file://"))
    for prefix in (folder, f"{folder}/", Path(folder).as_uri()):
        assert lies_under(root, root_prefix(prefix))
    assert not lies_under(root, root_prefix(f"{folder}%"))
