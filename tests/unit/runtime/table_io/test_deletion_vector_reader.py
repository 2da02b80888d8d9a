"""Deletion vectors in files, and the errors for unreadable ones."""

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

import pyarrow as pa
import pytest

from tests.fakes.memory_store import MemoryStore
from tests.support.refusals import refused
from tidegate_delta.deletion_vectors.descriptors import EVERY_ROW, RowChoice, in_file, inline
from tidegate_delta.deletion_vectors.roaring_bitmap import Bitmap, of_rows
from tidegate_delta.errors import BrokenLog, Unavailable
from tidegate_delta.log.actions import DeletionVector
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.table_io.deletion_vector_reader import (
    ChosenRows,
    chosen_rows,
    live_rows,
    read_vector,
)

FILE = UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")
NAME = f"deletion_vector_{FILE}.bin"
BLOCK = 1 << 16
SETS = [of_rows([1, 5]), of_rows(range(3, 3 * BLOCK))]


def stored() -> tuple[MemoryStore, tuple[DeletionVector, ...]]:
    store = MemoryStore()
    content, vectors = in_file(SETS, FILE, "a b")
    store.files[f"a b/{NAME}"] = content
    return store, vectors


def error_class(store: MemoryStore, vector: DeletionVector) -> str:
    with pytest.raises(BrokenLog, match=store.root) as caught:
        read_vector(store, vector)
    return caught.value.error_class


def test_vectors_of_one_file_are_read_each_at_its_place() -> None:
    store, vectors = stored()
    assert [read_vector(store, vector) for vector in vectors] == SETS


def test_a_vector_may_lie_elsewhere(tmp_path: Path) -> None:
    content, (vector,) = in_file(SETS[:1], FILE)
    (tmp_path / "t").mkdir()
    (tmp_path / "x y.bin").write_bytes(content)
    store = LocalStore(f"file://{tmp_path}/t")
    there = vector.with_(storage_type="p", path_or_inline_dv=f"file:{tmp_path}/x%20y.bin")
    assert read_vector(store, there) == SETS[0]


def test_a_vector_whose_file_is_gone_is_missing() -> None:
    store, vectors = stored()
    del store.files[f"a b/{NAME}"]
    assert error_class(store, vectors[0]) == "DeletionVectorMissing"


@pytest.mark.parametrize(
    "damaged",
    [
        lambda content: b"",
        lambda content: b"\x02" + content[1:],
        lambda content: content[:-1],
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
    ],
)
def test_a_damaged_file_is_reported_as_damaged(damaged: Callable[[bytes], bytes]) -> None:
    store, vectors = stored()
    store.files[f"a b/{NAME}"] = damaged(store.files[f"a b/{NAME}"])
    assert error_class(store, vectors[-1]) == "CorruptDeletionVector"


def test_an_impossible_descriptor_is_reported_as_damage() -> None:
    store, (vector, _) = stored()
    for changed in (
        {"offset": 2},
        {"offset": 1 << 40},
        {"size_in_bytes": (1 << 31) - 1},
        {"cardinality": 3},
        {"storage_type": "r"},
        {"storage_type": "i"},
    ):
        assert error_class(store, vector.with_(**changed)) == "CorruptDeletionVector"


def test_a_malformed_descriptor_is_reported_with_its_file() -> None:
    with refused(BrokenLog, "CorruptDeletionVector", match="data"):
        live_rows(MemoryStore(), {"path": "data", "deletionVector": {"storageType": "i"}})


def test_a_store_that_fails_is_unavailable() -> None:
    class Failing(MemoryStore):
        def open(self, path: str) -> BinaryIO:
            raise OSError(5, "no answer")

    with pytest.raises(Unavailable, match="no answer"):
        read_vector(Failing(), stored()[1][0])


def test_a_file_without_a_vector_is_all_its_rows() -> None:
    assert live_rows(MemoryStore(), {"path": "a", "deletionVector": None}) == EVERY_ROW


def test_a_choice_is_made_from_the_vectors_that_it_names() -> None:
    one, two = inline(of_rows([1, 2])), inline(of_rows([2, 3]))
    assert chosen_rows(MemoryStore(), RowChoice(one)) == ChosenRows(of_rows([1, 2]), True)
    assert chosen_rows(MemoryStore(), RowChoice(one, two)) == ChosenRows(of_rows([3]), False)
    assert chosen_rows(MemoryStore(), RowChoice(one, one)).is_nothing
    assert not chosen_rows(MemoryStore(), EVERY_ROW).is_nothing


@pytest.mark.parametrize("are_left_out", [True, False])
def test_rows_are_chosen_by_their_place_in_the_file(are_left_out: bool) -> None:
    rows = [0, 1, BLOCK - 1, BLOCK, 3 * BLOCK - 1]
    sizes = [1, 0, 7, BLOCK, BLOCK - 9, BLOCK + 1]
    starts = [sum(sizes[:at]) for at in range(len(sizes))]
    batches = [
        pa.record_batch({"v": pa.array(range(start, start + size), pa.int64())})
        for start, size in zip(starts, sizes, strict=True)
    ]
    chosen = ChosenRows(of_rows(rows), are_left_out).of_batches(batches)
    result = [value for batch in chosen for value in batch.column(0).to_pylist()]
    meant = [row for row in range(sum(sizes)) if (row in rows) is not are_left_out]
    assert result == meant


def test_batches_without_chosen_rows_are_not_yielded() -> None:
    batch = pa.record_batch({"v": [1, 2]})
    assert list(ChosenRows(of_rows([0, 1]), True).of_batches([batch])) == []
    assert list(ChosenRows(of_rows([9 * BLOCK]), False).of_batches([batch])) == []
    assert list(ChosenRows(Bitmap(), True).of_batches([batch])) == [batch]
