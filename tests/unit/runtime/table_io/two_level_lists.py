"""Parquet files with two-level lists, which old writers made and Arrow reads but cannot write."""

import struct
from typing import Final

INT32, INT64, BYTE_ARRAY = 1, 2, 6
_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12
_OPTIONAL, _REPEATED, _IS_LIST = 1, 2, 3

Field = tuple[int, int, object]

MAGIC: Final = b"PAR1"
ROWS: Final[tuple[list[int] | None, ...]] = ([1, 2], [3], [], None)


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def zigzag(value: int) -> bytes:
    return varint(value << 1 ^ value >> 63)


def encoded(kind: int, value: object) -> bytes:
    if isinstance(value, int):
        return zigzag(value)
    if isinstance(value, str):
        return varint(len(value)) + value.encode()
    assert isinstance(value, list)
    if kind == _LIST:
        inner, items = value[0], value[1:]
        head = bytes([len(items) << 4 | inner])
        return head + b"".join(encoded(inner, item) for item in items)
    return thrift(value)


def thrift(fields: list[Field]) -> bytes:
    """Return a struct in Thrift's compact protocol; fields must be in ascending order."""
    out, last = b"", 0
    for number, kind, value in fields:
        out += bytes([(number - last) << 4 | kind]) + encoded(kind, value)
        last = number
    return out + b"\0"


def file_with_two_level_lists(name: str = "l") -> bytes:
    """Return a file whose column is `optional group NAME (LIST) { repeated int32 array; }`."""
    repetition, definition = bits([0, 1, 0, 0, 0], 1), bits([2, 2, 2, 1, 0], 2)
    page = levels(repetition) + levels(definition) + struct.pack("<3i", 1, 2, 3)
    header = thrift(
        [
            (1, _I32, 0),
            (2, _I32, len(page)),
            (3, _I32, len(page)),
            (5, _STRUCT, [(1, _I32, 5), (2, _I32, 0), (3, _I32, 3), (4, _I32, 3)]),
        ]
    )
    column: list[Field] = [
        (1, _I32, INT32),
        (2, _LIST, [_I32, 0, 3]),
        (3, _LIST, [_BINARY, name, "array"]),
        (4, _I32, 0),
        (5, _I64, 5),
        (6, _I64, len(header + page)),
        (7, _I64, len(header + page)),
        (9, _I64, len(MAGIC)),
    ]
    schema: list[list[Field]] = [
        [(4, _BINARY, "root"), (5, _I32, 1)],
        [(3, _I32, _OPTIONAL), (4, _BINARY, name), (5, _I32, 1), (6, _I32, _IS_LIST)],
        [(1, _I32, INT32), (3, _I32, _REPEATED), (4, _BINARY, "array")],
    ]
    chunk: list[Field] = [(2, _I64, len(MAGIC)), (3, _STRUCT, column)]
    group: list[Field] = [
        (1, _LIST, [_STRUCT, chunk]),
        (2, _I64, len(header + page)),
        (3, _I64, len(ROWS)),
    ]
    footer = thrift(
        [
            (1, _I32, 1),
            (2, _LIST, [_STRUCT, *schema]),
            (3, _I64, len(ROWS)),
            (4, _LIST, [_STRUCT, group]),
        ]
    )
    return MAGIC + header + page + footer + struct.pack("<I", len(footer)) + MAGIC


def bits(values: list[int], width: int) -> bytes:
    """Return up to eight levels, bit-packed."""
    number = sum(value << at * width for at, value in enumerate(values))
    return bytes([1 << 1 | 1]) + number.to_bytes(width, "little")


def levels(packed: bytes) -> bytes:
    return struct.pack("<I", len(packed)) + packed
