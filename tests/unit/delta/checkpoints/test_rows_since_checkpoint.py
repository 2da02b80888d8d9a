"""The rows of a checkpoint's file that commits name: found by scans, then by an index."""

import pyarrow as pa
import pytest

from tests.definitions import one_file
from tidegate_delta.checkpoints.rows_since_checkpoint import SCANS_BEFORE_INDEX, StoredKeys
from tidegate_delta.snapshots.file_action_columns import adds_to_columns

ROWS = 1_000


def stored(*paths: str) -> StoredKeys:
    return StoredKeys(adds_to_columns([one_file(path) for path in paths]))


def rows_of(mask: pa.Array | None) -> list[int] | None:
    return (
        None if mask is None else [row for row, is_found in enumerate(mask.to_pylist()) if is_found]
    )


@pytest.mark.parametrize("searches", [1, SCANS_BEFORE_INDEX + 2], ids=["scanned", "indexed"])
def test_the_rows_of_the_keys_are_found(searches: int) -> None:
    found = stored(*(f"f{number}" for number in range(ROWS)), "twice", "twice")
    for _ in range(searches):
        assert rows_of(found.found(pa.array(["f7", "none"]))) == [7]
        assert rows_of(found.found(pa.array(["twice"]))) == [ROWS, ROWS + 1]
        assert found.found(pa.array(["none"])) is None


def test_an_index_is_made_once_searches_are_many_and_its_memory_counts() -> None:
    found = stored(*(f"f{number}" for number in range(ROWS)))
    before = found.size_bytes
    many = pa.array([f"f{number}" for number in range(ROWS)])
    for _ in range(SCANS_BEFORE_INDEX):
        found.found(pa.array(["f1"]))
        found.found(many)
    assert found.size_bytes == before
    found.found(pa.array(["f1"]))
    assert found.size_bytes == before + 12 * ROWS
    assert rows_of(found.found(many)) == list(range(ROWS))
