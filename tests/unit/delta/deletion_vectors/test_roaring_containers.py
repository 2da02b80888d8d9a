import struct

import pytest

from tidegate_delta.deletion_vectors.roaring_bitmap import (
    BLOCK,
    NO_BITS,
    ContainerKind,
    container_of_bits,
    container_of_positions,
    least_kind,
    read_container,
)


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}H", *values)


@pytest.mark.parametrize(
    ("cardinality", "runs", "kind"),
    [
        (1, 1, ContainerKind.ARRAY),
        (3, 1, ContainerKind.ARRAY),
        (4, 1, ContainerKind.RUNS),
        (4096, 2048, ContainerKind.ARRAY),
        (4096, 2047, ContainerKind.RUNS),
        (4097, 2048, ContainerKind.BITMAP),
        (4097, 2047, ContainerKind.RUNS),
        (BLOCK, 1, ContainerKind.RUNS),
    ],
)
def test_a_container_is_of_the_kind_that_takes_least(
    cardinality: int, runs: int, kind: ContainerKind
) -> None:
    assert least_kind(cardinality, runs) is kind


@pytest.mark.parametrize(
    "positions",
    [
        [0],
        [BLOCK - 1],
        [3, 4, 7, 11, 18, 29],
        list(range(BLOCK)),
        list(range(5, 9)),
        list(range(3, 6)) + list(range(9, 40)) + list(range(64, 72)),
        list(range(0, BLOCK, 3)),
    ],
)
def test_bits_and_positions_make_the_same_container(positions: list[int]) -> None:
    container = container_of_positions(positions)
    assert container == container_of_bits(container.bits)
    number = int.from_bytes(container.bits, "little")
    assert number == sum(1 << position for position in positions)
    assert container.cardinality == len(positions)


def test_a_block_without_positions_has_no_container() -> None:
    assert container_of_bits(NO_BITS) is None


def test_however_a_file_spells_positions_they_are_one_container() -> None:
    positions = list(range(10, 20))
    bits = container_of_positions(positions).bits
    assert (
        read_container(ContainerKind.ARRAY, 10, words(*positions))
        == read_container(ContainerKind.RUNS, 10, words(10, 9))
        == read_container(ContainerKind.RUNS, 10, words(10, 4, 15, 4))
        == read_container(ContainerKind.BITMAP, 10, bits)
        == container_of_positions(positions)
    )


@pytest.mark.parametrize(
    ("kind", "cardinality", "content"),
    [
        (ContainerKind.ARRAY, 2, words(4, 4)),
        (ContainerKind.ARRAY, 2, words(5, 4)),
        (ContainerKind.RUNS, 4, words(4, 1, 5, 1)),
        (ContainerKind.RUNS, 2, words(BLOCK - 1, 1)),
        (ContainerKind.RUNS, 3, words(4, 1)),
        (ContainerKind.RUNS, 1, b""),
        (ContainerKind.BITMAP, 5000, NO_BITS),
    ],
)
def test_a_container_that_contradicts_itself_is_refused(
    kind: ContainerKind, cardinality: int, content: bytes
) -> None:
    with pytest.raises(ValueError, match=r"order|positions"):
        read_container(kind, cardinality, content)
