"""Live files in columns: found by hash, compared by exact path."""

import pyarrow as pa
import pytest

from tidegate_committer.state import live_files
from tidegate_committer.state.live_files import HASH_BITS, FileBlock, blocks_of, hash_of

PATHS = [f"p={number % 3}/f{number}" for number in range(500)]


def test_a_file_is_found_with_its_vector() -> None:
    block = FileBlock.of(PATHS, {PATHS[7]: "u1"})
    assert {path for path in [*PATHS, "other"] if block.place(path) is not None} == set(PATHS)
    place = block.place(PATHS[7])
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


def test_paths_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
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
    column = pa.chunked_array([pa.array(PATHS[:200]), pa.array(PATHS[200:])])
    blocks = blocks_of(column, {}, 2)
    for slot, block in enumerate(blocks):
        assert {hash_of(path) >> (HASH_BITS - 2) for path, _ in block.items()} <= {slot}
    assert sorted(path for block in blocks for path, _ in block.items()) == sorted(PATHS)


def test_halves_are_what_lies_below_a_hash_and_the_rest() -> None:
    whole = FileBlock.of(PATHS, {PATHS[0]: "u1"})
    low, high = whole.halves(1 << (HASH_BITS - 1))
    assert all(hash_of(path) < 1 << (HASH_BITS - 1) for path, _ in low.items())
    assert {**dict(low.items()), **dict(high.items())} == dict(whole.items())


def test_paths_are_cut_a_few_at_a_time_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_files, "SLICE", 70)
    chunks = [PATHS[:3], PATHS[3:5], [], PATHS[5:480], PATHS[480:]]
    column = pa.chunked_array(chunks, pa.string())
    windows = list(live_files._windows(column, 200))
    assert [len(window) for window in windows] == [5, 200, 200, 95]
    blocks = blocks_of(column, {}, 3)
    assert sorted(path for block in blocks for path, _ in block.items()) == sorted(PATHS)


def test_more_text_than_an_offset_reaches_is_cut_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_files, "TEXT_MAX", 10)
    column = pa.chunked_array([[path] for path in PATHS])
    assert [len(window) for window in live_files._windows(column, 200)] == [1] * len(PATHS)
    blocks = blocks_of(column, {}, 3)
    assert sorted(path for block in blocks for path, _ in block.items()) == sorted(PATHS)


def test_who_looks_for_a_file_meanwhile_does_not_disturb_a_walk() -> None:
    block = FileBlock.of(PATHS, {PATHS[0]: "u1"})
    walk = block.items()
    seen = [next(walk)]
    assert block.place(PATHS[9]) is not None
    assert dict([*seen, *walk]) == {**dict.fromkeys(PATHS), PATHS[0]: "u1"}
