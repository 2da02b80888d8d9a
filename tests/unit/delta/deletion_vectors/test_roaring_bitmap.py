import struct
from hashlib import sha256

import pyarrow as pa
import pytest

from tidegate_delta.deletion_vectors import roaring_bitmap
from tidegate_delta.deletion_vectors.roaring_bitmap import (
    MAGIC,
    NATIVE_MAGIC,
    Bitmap,
    decode,
    encode,
    last,
    mask,
    of_mask,
    of_rows,
)

BLOCK = 1 << 16
FAR = 1 << 32
JAVA_DIGEST = "9a76049cdbddd0b108ff227201f387dcdf3ae2a06691830971aae7a357180d3a"
"""SHA-256 of what RoaringBitmap 1.6.10 wrote with runs optimized, after the magic and one bucket.
"""

ONE_ROW = struct.pack("<IIHHIH", 12346, 1, 0, 0, 16, 7)
"""A 32-bit roaring bitmap with row 7."""


def portable(*buckets: tuple[int, bytes]) -> bytes:
    parts = [struct.pack("<IQ", MAGIC, len(buckets))]
    return b"".join([*parts, *(struct.pack("<I", key) + one for key, one in buckets)])


def native(*buckets: bytes) -> bytes:
    parts = [struct.pack("<II", NATIVE_MAGIC, len(buckets))]
    return b"".join([*parts, *(struct.pack("<I", len(bucket)) + bucket for bucket in buckets)])


def test_a_set_returns_its_rows() -> None:
    rows = of_rows([9, 3, BLOCK, FAR + 5, 3])
    assert list(rows) == [3, 9, BLOCK, FAR + 5]
    assert len(rows) == 4
    assert [row in rows for row in (3, 4, BLOCK, BLOCK + 1, FAR + 5)] == [1, 0, 1, 0, 1]
    assert (last(rows), last(Bitmap())) == (FAR + 5, -1)


@pytest.mark.parametrize(("start", "size"), [(0, 12), (3, 7), (BLOCK - 2, 5), (9, BLOCK), (FAR, 6)])
def test_a_mask_of_some_rows_says_which_are_in_the_set(start: int, size: int) -> None:
    wanted = {3, 9, BLOCK, FAR + 5}
    made = mask(of_rows(wanted), start, size)
    assert made is not None
    assert made.to_pylist() == [start + row in wanted for row in range(size)]


def test_where_no_row_is_in_the_set_there_is_no_mask() -> None:
    assert mask(of_rows([3, BLOCK]), 4, BLOCK - 4) is None
    assert mask(Bitmap(), 0, 5) is None


def test_no_row_is_a_set_too() -> None:
    assert encode(Bitmap()) == portable()
    assert decode(portable()) == of_rows([]) == Bitmap()


@pytest.mark.parametrize("row", [-1, 1 << 63])
def test_what_is_no_position_is_refused(row: int) -> None:
    with pytest.raises(ValueError, match="no row positions"):
        of_rows([row])


def test_sets_are_joined_cut_and_taken_away() -> None:
    left, right = of_rows([1, 2, BLOCK + 1]), of_rows([2, 3, FAR])
    assert list(left | right) == [1, 2, 3, BLOCK + 1, FAR]
    assert list(left & right) == [2]
    assert list(left - right) == [1, BLOCK + 1]
    assert left - left == Bitmap()


def test_a_mask_says_which_rows_are_in_the_set() -> None:
    mask = pa.array([False, True, None, True] + [False] * 70_000 + [True])
    assert of_mask(mask) == of_rows([1, 3, 70_004])
    assert of_mask(mask.slice(1)) == of_rows([0, 2, 70_003])
    assert of_mask(mask.slice(3, 1)) == of_rows([0])
    assert of_mask(pa.array([], pa.bool_())) == Bitmap()


def test_one_row_has_the_bytes_of_the_format() -> None:
    assert encode(of_rows([7])) == portable((0, ONE_ROW))


def test_buckets_without_rows_are_read_as_delta_spark_writes_them() -> None:
    empty = struct.pack("<II", 12346, 0)
    far = portable((0, empty), (1, empty), (2, ONE_ROW))
    assert decode(far) == decode(portable((2, ONE_ROW))) == of_rows([2 * FAR + 7])
    assert decode(encode(of_rows([2 * FAR + 7]))) == of_rows([2 * FAR + 7])


def test_a_set_that_no_descriptor_could_describe_is_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(roaring_bitmap, "SIZE_MAX", 100)
    with pytest.raises(ValueError, match="can't be written"):
        encode(of_rows(range(0, 200, 2)))


def test_rows_past_2_to_the_48_are_read_and_not_written() -> None:
    far = 1 << 48
    assert decode(encode(of_rows([far - 1]))) == of_rows([far - 1])
    assert decode(portable((1 << 16, ONE_ROW))) == of_rows([far + 7])
    with pytest.raises(ValueError, match="can't be written"):
        encode(of_rows([far]))


def test_more_containers_than_any_file_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    content = encode(of_rows([0, BLOCK, 2 * BLOCK]))
    monkeypatch.setattr(roaring_bitmap, "CONTAINERS_MAX", 2)
    with pytest.raises(ValueError, match="3 containers"):
        decode(content)


def test_runs_are_written_with_offsets_from_four_containers_on() -> None:
    for blocks in (1, 3, 4, 9):
        rows = of_rows(block * BLOCK + row for block in range(blocks) for row in range(100))
        content = encode(rows)
        assert len(content) == 24 - 4 + (blocks + 7) // 8 + blocks * (4 + 6 + 4 * (blocks >= 4))
        assert decode(content) == rows


def test_the_format_of_the_first_releases_is_read() -> None:
    assert decode(native(ONE_ROW, ONE_ROW)) == of_rows([7, FAR + 7])
    assert decode(native()) == Bitmap()


def test_bytes_after_the_bitmaps_are_not_read() -> None:
    assert decode(portable((0, ONE_ROW)) + b"more") == of_rows([7])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"abc",
        struct.pack("<IQ", MAGIC + 1, 0),
        struct.pack(">IQ", MAGIC, 0),
        struct.pack("<IQ", MAGIC, 1 << 60),
        portable((0, ONE_ROW), (0, ONE_ROW)),
        portable((1 << 31, ONE_ROW)),
        portable((0, ONE_ROW))[:-1],
        portable((0, ONE_ROW[4:])),
        portable((0, struct.pack("<II", 12346, 1 << 20))),
        portable((0, struct.pack("<IIHHHHIIHH", 12346, 2, 5, 0, 5, 0, 24, 26, 1, 1))),
        native(ONE_ROW)[:-2],
        struct.pack("<III", NATIVE_MAGIC, 1, 3) + ONE_ROW,
        struct.pack("<II", NATIVE_MAGIC, 1 << 31),
    ],
)
def test_bytes_that_hold_no_set_are_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"[a-z]"):
        decode(content)


def shapes(size: int) -> list[list[int]]:
    """Return sets of `size` rows: one run, every second row, two of three, three of four."""
    return [
        list(range(size)),
        list(range(0, 2 * size, 2)),
        [row for row in range(3 * size) if row % 3 != 2][:size],
        [row for row in range(2 * size) if row % 4 != 3][:size],
    ]


def test_rows_have_the_bytes_that_javas_library_gives_them() -> None:
    digest = sha256()
    for size in (1, 2, 3, 4, 5, 8, 4094, 4095, 4096, 4097, 4098, 8190, 8192, 8193, 65535, 65536):
        for rows in shapes(size):
            digest.update(encode(of_rows(rows)))
    assert digest.hexdigest() == JAVA_DIGEST
