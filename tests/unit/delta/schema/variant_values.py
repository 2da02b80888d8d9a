"""Variants as Python values: a reader that shares no code with ours."""

import struct
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WHOLE = {3: 1, 4: 2, 5: 4, 6: 8}
DECIMALS = {8: 4, 9: 8, 10: 16}


def decoded(metadata: bytes, value: bytes) -> Any:
    """Return a variant's value."""
    assert metadata[0] & 0xF == 1
    width = (metadata[0] >> 6) + 1
    names = _slices(metadata, 1, width, width)
    return _value(value, [name.decode() for name in names])


def _value(value: bytes, names: list[str]) -> Any:
    basic, header = value[0] & 3, value[0] >> 2
    if basic == 0:
        return _primitive(header, value[1:])
    if basic == 1:
        return value[1 : 1 + header].decode()
    if basic == 3:
        count_width = 4 if header & 4 else 1
        return [_value(item, names) for item in _slices(value, 1, count_width, (header & 3) + 1)]
    return _object(value, header, names)


def _object(value: bytes, header: int, names: list[str]) -> dict[str, Any]:
    count_width, id_width = (4 if header & 16 else 1), (header >> 2 & 3) + 1
    count = int.from_bytes(value[1 : 1 + count_width], "little")
    ids = 1 + count_width
    rest = value[:ids] + value[ids + count * id_width :]
    keys = [
        names[int.from_bytes(value[at : at + id_width], "little")]
        for at in range(ids, ids + count * id_width, id_width)
    ]
    assert keys == sorted(keys, key=str.encode)
    items = _slices(rest, 1, count_width, (header & 3) + 1)
    return {key: _value(item, names) for key, item in zip(keys, items, strict=True)}


def _slices(source: bytes, at: int, count_width: int, width: int) -> list[bytes]:
    """Read a count and offsets, and return the slices that start at each offset."""
    count = int.from_bytes(source[at : at + count_width], "little")
    first = at + count_width
    edges = [
        int.from_bytes(source[first + n * width : first + (n + 1) * width], "little")
        for n in range(count + 1)
    ]
    start = first + (count + 1) * width
    ends = {edge: min((e for e in edges if e > edge), default=edge) for edge in edges}
    return [source[start + edge : start + ends[edge]] for edge in edges[:count]]


def _primitive(kind: int, body: bytes) -> Any:
    if kind <= 2:
        return (None, True, False)[kind]
    if kind in WHOLE:
        return int.from_bytes(body[: WHOLE[kind]], "little", signed=True)
    if kind in DECIMALS:
        unscaled = int.from_bytes(body[1 : 1 + DECIMALS[kind]], "little", signed=True)
        return Decimal(unscaled).scaleb(-body[0])
    if kind in (12, 13, 17):
        at = timedelta(microseconds=int.from_bytes(body[:8], "little", signed=True))
        return at if kind == 17 else EPOCH + at if kind == 12 else (EPOCH + at).replace(tzinfo=None)
    if kind in (15, 16):
        text = body[4 : 4 + int.from_bytes(body[:4], "little")]
        return text if kind == 15 else text.decode()
    if kind == 11:
        return date(1970, 1, 1) + timedelta(days=int.from_bytes(body[:4], "little", signed=True))
    if kind in (18, 19):
        return int.from_bytes(body[:8], "little", signed=True)
    if kind == 20:
        return uuid.UUID(bytes=body[:16])
    form, size = {7: ("<d", 8), 14: ("<f", 4)}[kind]
    return struct.unpack(form, body[:size])[0]
