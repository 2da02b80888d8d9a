"""`_last_checkpoint`: where the newest checkpoint may be; its checksum detects a torn file.

Spec: "Last Checkpoint File Schema"
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

CHECKSUM: Final = "checksum"


@dataclass(frozen=True)
class LastCheckpoint:
    """The version of a checkpoint and its size.

    Units: `size` in actions; `size_in_bytes` in bytes; `parts` only for a multi-part checkpoint.
    """

    version: int
    size: int
    parts: int | None = None
    size_in_bytes: int | None = None
    num_of_add_files: int | None = None
    checkpoint_schema: Mapping[str, Any] | None = None


_WIRE: Final = (
    ("version", "version"),
    ("size", "size"),
    ("parts", "parts"),
    ("sizeInBytes", "size_in_bytes"),
    ("numOfAddFiles", "num_of_add_files"),
    ("checkpointSchema", "checkpoint_schema"),
)


def encode(hint: LastCheckpoint) -> bytes:
    """Return the bytes of `_last_checkpoint`, checksum included.

    Law: decode(encode(hint)) == hint
    """
    plain = {wire: getattr(hint, name) for wire, name in _WIRE}
    body = {wire: value for wire, value in plain.items() if value is not None}
    text = json.dumps({**body, CHECKSUM: checksum(json.dumps(body))}, separators=(",", ":"))
    return text.encode()


def decode(content: bytes) -> LastCheckpoint | None:
    """Return the hint in the bytes of `_last_checkpoint`, or None where it is not valid.

    Law: a hint that is torn, mistyped or contradicts its checksum is no hint
    Spec: "Last Checkpoint File"
    """
    try:
        text = content.decode()
        body = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse)
        plain = _checked(body, text)
        fields: dict[str, Any] = {name: plain.get(wire) for wire, name in _WIRE}
        return LastCheckpoint(**fields)
    except (ValueError, RecursionError):
        return None


def checksum(text: str) -> str:
    """Return the MD5 of the canonical form of a JSON object, its own `checksum` left out.

    Raises: as `canonical`.
    Spec: "JSON checksum"
    """
    return hashlib.md5(canonical(text).encode(), usedforsecurity=False).hexdigest()


def canonical(text: str) -> str:
    """Return the canonical form of a JSON object.

    Raises: ValueError for no JSON object, one with the same key twice, or nested too deeply.
    Spec: "JSON checksum"
    """
    try:
        parsed = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_Spelled,
            parse_float=_Spelled,
            parse_constant=_refuse,
        )
        if not isinstance(parsed, dict):
            raise ValueError("no JSON object")
        body = {name: value for name, value in parsed.items() if name != CHECKSUM}
        pairs = sorted(_leaves(body, ()), key=lambda pair: pair[0].encode())
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return ",".join(f"{path}={value}" for path, value in pairs)


class _Spelled(str):
    """A number as written in the text, which is its canonical form."""

    __slots__ = ()


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    body = dict(pairs)
    if len(body) != len(pairs):
        raise ValueError("the same key twice")
    return body


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, (*path, _quoted(name)))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*path, str(index)))
    else:
        yield "+".join(path), _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, _Spelled):
        return str(value)
    if isinstance(value, str):
        return _quoted(value)
    return {None: "null", True: "true", False: "false"}[value]


def _quoted(text: str) -> str:
    return f'"{quote(text, safe="-._~")}"'


def _checked(body: Any, text: str) -> Mapping[str, Any]:
    if not isinstance(body, dict):
        raise ValueError("no JSON object")
    claimed = body.get(CHECKSUM)
    if claimed is not None and claimed != checksum(text):
        raise ValueError("the checksum contradicts the content")
    for wire in ("version", "size", "parts", "sizeInBytes", "numOfAddFiles"):
        value = body.get(wire)
        if value is not None and not _is_count(value):
            raise ValueError(f"{wire} is no count")
    if body.get("version") is None or body.get("size") is None:
        raise ValueError("no version or size")
    if not isinstance(body.get("checkpointSchema"), dict | None):
        raise ValueError("checkpointSchema is no object")
    return body


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
