"""Live files: a column block and the changes since it, as one immutable map."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate_committer.state import live_files
from tidegate_committer.state.live_files import GONE, LiveFiles

PATHS = st.sampled_from([f"p={number % 3}/f{number}" for number in range(40)])
FILES = st.dictionaries(PATHS, st.none() | st.sampled_from(["u1", "u2"]), max_size=12)
CHANGES = st.lists(st.tuples(st.integers(0, 30), FILES, st.lists(PATHS, max_size=8)), max_size=12)


def of(files: dict[str, str | None]) -> LiveFiles:
    vectors = {path: text for path, text in files.items() if text is not None}
    return LiveFiles.of(pa.chunked_array([pa.array(list(files), pa.string())]), vectors)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_files, "PART_FILES", 2)
    monkeypatch.setattr(live_files, "CHANGES_MIN", 1)


def test_a_change_leaves_what_was_there() -> None:
    before = of({"a": None, "b": "u1"})
    after = before.changed({"c": None, "b": "u2"}, drop=["a"])
    assert dict(before) == {"a": None, "b": "u1"}
    assert dict(after) == {"b": "u2", "c": None}
    assert ("a" in before, "a" in after) == (True, False)


def test_what_is_not_live_has_no_vector() -> None:
    files = of({"a": None}).changed({}, drop=["a"])
    assert files.get("a", "not there") == "not there"
    with pytest.raises(KeyError):
        files["a"]


@given(FILES, FILES, st.lists(PATHS, max_size=8))
def test_many_files_are_told_at_once_as_one_by_one(
    before: dict[str, str | None], put: dict[str, str | None], drop: list[str]
) -> None:
    files = of(before).changed(put, drop)
    asked = [f"p={number % 3}/f{number}" for number in range(42)]
    assert files.vectors_of(asked) == [files.get(path, GONE) for path in asked]


def test_no_change_is_the_same_map() -> None:
    one = of({"a": None})
    assert one.changed({}) is one


def test_a_file_that_leaves_and_comes_back_is_live() -> None:
    assert dict(of({"a": "u1"}).changed({"a": None}, drop=["a"])) == {"a": None}


def test_a_table_that_grows_is_cut_into_more_parts() -> None:
    files = LiveFiles()
    expected: dict[str, str | None] = {}
    for start in range(0, 600, 3):
        new: dict[str, str | None] = {f"f{number}": None for number in range(start, start + 3)}
        files, expected = files.changed(new), expected | new
    assert dict(files) == expected
    assert len(files._parts) >= 64


@given(FILES, CHANGES)
def test_every_version_stays_what_it_was(
    first: dict[str, str | None], changes: list[tuple[int, dict[str, str | None], list[str]]]
) -> None:
    versions = [(of(first), first)]
    for place, put, drop in changes:
        one, expected = versions[place % len(versions)]
        kept = {path: vector for path, vector in expected.items() if path not in drop}
        versions.append((one.changed(put, drop), {**kept, **put}))
    for one, expected in versions:
        assert dict(one) == expected
        assert len(one) == len(expected)
        assert one.with_vector == sum(vector is not None for vector in expected.values())
        assert all(one.get(path, "?") == vector for path, vector in expected.items())
