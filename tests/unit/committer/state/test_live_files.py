"""Live files: column blocks, in which files are found by hash, and the changes since them."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate_committer.state import live_files
from tidegate_committer.state.live_files import (
    GONE,
    HASH_BITS,
    FileBlock,
    LiveFiles,
    blocks_of,
    hash_of,
)

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


def test_what_is_not_live_has_no_vector() -> None:
    files = of({"a": None}).changed({}, drop=["a"])
    assert files.get("a", "not there") == "not there"
    with pytest.raises(KeyError):
        files["a"]


@given(FILES, FILES, st.lists(PATHS, max_size=8))
def test_many_files_are_evaluated_at_once_as_one_by_one(
    before: dict[str, str | None], put: dict[str, str | None], drop: list[str]
) -> None:
    files = of(before).changed(put, drop)
    asked = [f"p={number % 3}/f{number}" for number in range(42)]
    assert files.vectors_of(asked) == [files.get(path, GONE) for path in asked]


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


# Blocks

MANY = [f"p={number % 3}/f{number}" for number in range(500)]


def test_a_file_is_found_with_its_vector() -> None:
    block = FileBlock.of(MANY, {MANY[7]: "u1"})
    assert {path for path in [*MANY, "other"] if block.place(path) is not None} == set(MANY)
    place = block.place(MANY[7])
    assert place is not None
    assert (block.vector(place), block.with_vector, len(block)) == ("u1", 1, 500)


@pytest.mark.parametrize("block", [FileBlock.of((), {}), FileBlock.empty()])
def test_an_empty_block_holds_nothing(block: FileBlock) -> None:
    assert (len(block), block.place("a"), dict(block.items())) == (0, None, {})
    assert dict(block.changed({"a": "u1"}, drop=["b"]).items()) == {"a": "u1"}


def test_a_piece_of_a_column_and_texts_of_any_kind_are_found() -> None:
    paths = ["x", "é/ß", "\U0001f600", "a" * 300]
    column = pa.array(["before", *paths, "after"]).slice(1, len(paths))
    [block] = blocks_of(pa.chunked_array([column]), {}, 0)
    assert all(block.place(path) is not None for path in paths)
    assert [block.place(path) for path in ("before", "after", "x\ud800", "")] == [None] * 4


def test_paths_of_one_hash_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    class Same(str):
        def __hash__(self) -> int:
            return 7

    monkeypatch.setattr(
        live_files, "_hashes", lambda paths: pa.array([7] * len(paths), pa.uint32())
    )
    block = FileBlock.of(["a", "b"], {"b": "u1"})
    places = [block.place(Same("a")), block.place(Same("b"))]
    assert sorted(place for place in places if place is not None) == [0, 1]
    assert block.place(Same("c")) is None


def test_a_change_drops_and_then_puts() -> None:
    before = FileBlock.of(["a", "b", "c"], {"c": "u1"})
    after = before.changed({"b": "u2", "d": None}, drop=["a", "b", "z"])
    assert dict(after.items()) == {"b": "u2", "c": "u1", "d": None}
    assert dict(before.items()) == {"a": None, "b": None, "c": "u1"}


def test_blocks_are_cut_by_the_first_bits_of_hashes() -> None:
    column = pa.chunked_array([pa.array(MANY[:200]), pa.array(MANY[200:])])
    blocks = blocks_of(column, {}, 2)
    for slot, block in enumerate(blocks):
        assert {hash_of(path) >> (HASH_BITS - 2) for path, _ in block.items()} <= {slot}
    assert sorted(path for block in blocks for path, _ in block.items()) == sorted(MANY)


def test_halves_are_what_lies_below_a_hash_and_the_rest() -> None:
    whole = FileBlock.of(MANY, {MANY[0]: "u1"})
    low, high = whole.halves(1 << (HASH_BITS - 1))
    assert all(hash_of(path) < 1 << (HASH_BITS - 1) for path, _ in low.items())
    assert {**dict(low.items()), **dict(high.items())} == dict(whole.items())


def test_paths_are_cut_a_few_at_a_time_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_files, "SLICE", 70)
    chunks = [MANY[:3], MANY[3:5], [], MANY[5:480], MANY[480:]]
    column = pa.chunked_array(chunks, pa.string())
    windows = list(live_files._windows(column, 200))
    assert [len(window) for window in windows] == [5, 200, 200, 95]
    blocks = blocks_of(column, {}, 3)
    assert sorted(path for block in blocks for path, _ in block.items()) == sorted(MANY)


def test_more_text_than_an_offset_reaches_is_cut_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_files, "TEXT_MAX", 10)
    column = pa.chunked_array([[path] for path in MANY])
    assert [len(window) for window in live_files._windows(column, 200)] == [1] * len(MANY)
    blocks = blocks_of(column, {}, 3)
    assert sorted(path for block in blocks for path, _ in block.items()) == sorted(MANY)


def test_a_lookup_does_not_disturb_an_iteration() -> None:
    block = FileBlock.of(MANY, {MANY[0]: "u1"})
    walk = block.items()
    seen = [next(walk)]
    assert block.place(MANY[9]) is not None
    assert dict([*seen, *walk]) == {**dict.fromkeys(MANY), MANY[0]: "u1"}
