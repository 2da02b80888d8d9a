"""Mutate valid bytes: flipped, cut, duplicated; JSON with other values in it."""

import json
import random
from collections.abc import Callable
from typing import Any, Final

_DEEP: Final = 3_000
_DEPTHS: Final = (65, 129, 200, 253, 254, 255, 256, 500, 1_000)
"""Depths around the limits of our validators, encoders and parsers."""

ODD: Final[tuple[str, ...]] = (
    "null",
    "true",
    "0",
    "-1",
    "1.5",
    "1e400",
    "1e999999999999999999999",
    str(2**31),
    str(2**63 - 1),
    str(2**63),
    str(2**64),
    "9" * 5_000,
    "NaN",
    "-Infinity",
    '""',
    '"\\u0000"',
    '"\\ud800"',
    "-" + "9" * 400,
    "18446744073709551615",
    "-9223372036854775809",
    str(2**53),
    str(2**53 + 1),
    '"+292278994-08-17T07:12:55.807Z"',
    '"1"',
    '"x"',
    '"../x"',
    '"9999-12-31T23:59:59.999999+14:00"',
    '"+12345-01-01"',
    "[]",
    "[null]",
    "[[]]",
    "{}",
    '{"": {}}',
    '{"a": 1, "a": 2}',
    "[" * _DEEP + "]" * _DEEP,
    '{"a":' * _DEEP + "1" + "}" * _DEEP,
    *("[" * depth + "1" + "]" * depth for depth in _DEPTHS),
    *('{"a":' * depth + "1" + "}" * depth for depth in _DEPTHS),
    json.dumps("[" * _DEEP),
)
"""JSON texts that few fields expect."""

_MARK: Final = "\0odd\0"

Step = Callable[[random.Random, bytes], bytes]


def mutate(dice: random.Random, data: bytes) -> bytes:
    """Return bytes with one to three mutations."""
    for _ in range(dice.randint(1, 3)):
        data = dice.choice(_STEPS)(dice, data)
    return data


def _flip(dice: random.Random, data: bytes) -> bytes:
    at = dice.randrange(len(data) or 1)
    return (
        data[:at]
        + bytes([(data[at : at + 1] or b"\0")[0] ^ 1 << dice.randrange(8)])
        + data[at + 1 :]
    )


def _cut(dice: random.Random, data: bytes) -> bytes:
    return data[: dice.randrange(len(data) + 1)]


def _cut_out(dice: random.Random, data: bytes) -> bytes:
    start = dice.randrange(len(data) + 1)
    return data[:start] + data[start + dice.randint(1, 16) :]


def _overwrite(dice: random.Random, data: bytes) -> bytes:
    at = dice.randrange(len(data) + 1)
    some = dice.choice((b"\xff" * 8, bytes(8), dice.randbytes(dice.randint(1, 8))))
    return data[:at] + some + data[at + len(some) :]


def _double(dice: random.Random, data: bytes) -> bytes:
    start, stop = sorted((dice.randrange(len(data) + 1), dice.randrange(len(data) + 1)))
    return data[:stop] + data[start:]


def _line(dice: random.Random, data: bytes) -> bytes:
    """Duplicate, drop or swap lines."""
    lines = data.split(b"\n")
    match dice.randrange(3):
        case 0:
            lines.insert(dice.randrange(len(lines)), dice.choice(lines))
        case 1:
            lines.pop(dice.randrange(len(lines)))
        case _:
            dice.shuffle(lines)
    return b"\n".join(lines)


def _json(dice: random.Random, data: bytes) -> bytes:
    """Replace a value by an odd one, drop a field, or duplicate it."""
    lines = data.split(b"\n")
    at = dice.randrange(len(lines))
    try:
        tree = json.loads(lines[at])
    except (ValueError, RecursionError):
        return _flip(dice, data)
    lines[at] = _odd_json(dice, tree).encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def _odd_json(dice: random.Random, tree: Any) -> str:
    places = list(_places(tree))
    if not places:
        return dice.choice(ODD)
    holder, key = dice.choice(places)
    inner = holder[key]
    if isinstance(inner, str) and inner[:1] in "{[" and dice.random() < 0.7:
        try:
            holder[key] = _odd_json(dice, json.loads(inner))
            return json.dumps(tree)
        except (ValueError, RecursionError):
            return json.dumps(tree)
    if isinstance(holder, dict) and dice.random() < 0.2:
        del holder[key]
        return json.dumps(tree)
    holder[key] = _MARK
    text, odd = json.dumps(tree), dice.choice(ODD)
    if isinstance(holder, dict) and dice.random() < 0.1:
        odd = f"{odd}, {json.dumps(key)}: {dice.choice(ODD)}"
    return text.replace(json.dumps(_MARK), odd)


def _places(tree: Any) -> Any:
    """Yield each container of a value with the value's key."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        keys = (
            list(node)
            if isinstance(node, dict)
            else range(len(node))
            if isinstance(node, list)
            else ()
        )
        for key in keys:
            yield node, key
            waiting.append(node[key])


_STEPS: Final[tuple[Step, ...]] = (
    _flip,
    _flip,
    _cut,
    _cut_out,
    _overwrite,
    _double,
    _line,
    _json,
    _json,
    _json,
    _json,
)
