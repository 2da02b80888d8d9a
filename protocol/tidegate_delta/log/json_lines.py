"""Decode the JSON lines of a commit, a log compaction or a JSON checkpoint.

A large commit has a line for each file, so the cost of a line decides the cost of a load.
"""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from tidegate_delta.errors import BrokenLog

OBJECTS: Final = ("commitInfo", "protocol", "metaData", "txn", "domainMetadata")
"""Actions that are few in a file, so that each one becomes an object.

Spec: "Actions"
"""

_BODIES: Final = frozenset({"add", "remove", *OBJECTS, "checkpointMetadata", "sidecar"})

_MAPS: Final = frozenset({"configuration", "format"})
"""Fields of metaData that are JSON objects."""

_SPACE: Final = b" \t\r\n"
"""The whitespace that JSON allows around a value."""

Bodies = dict[str, list[Mapping[str, Any]]]
"""The bodies of a file's rows by the name of the action."""


def read_bodies(name: str, content: bytes) -> Bodies:
    """Return the body of each row by the name of its action; unknown actions are left out.

    A commitInfo may be any JSON; one that is no object is ignored.
    Raises: BrokenLog (`CorruptCommit`) for a line that is no JSON object.
    Spec: "Delta Log Entries"
    """
    rows = _objects(name, _rows(name, content))
    bodies_by_kind: Bodies = {kind: [] for kind in _BODIES}
    for kind in _BODIES & set().union(*rows):
        bodies = [row[kind] for row in rows if row.get(kind) is not None]
        if kind == "commitInfo":
            bodies = [body for body in bodies if isinstance(body, dict)]
        bodies_by_kind[kind] = _objects(name, bodies)
    return bodies_by_kind


def with_defaults(name: str, body: Any) -> Any:
    """Return the body of an action with the defaults for what writers omit.

    A null property or metaData field counts as unset. A removed domain needs no configuration. A
    remove without `dataChange` changes data.
    Spec: "Change Metadata"
    """
    if not isinstance(body, dict):
        return body
    if name == "metaData":
        return {key: _set(value) if key in _MAPS else value for key, value in _set(body).items()}
    if name == "domainMetadata" and body.get("configuration") is None:
        return {**body, "configuration": ""} if body.get("removed") is True else body
    if name == "remove" and body.get("dataChange") is None:
        return {**body, "dataChange": True}
    return body


def _set(body: Any) -> Any:
    """Return an object without its null fields; any other value unchanged."""
    if not isinstance(body, dict) or None not in body.values():
        return body
    return {key: value for key, value in body.items() if value is not None}


def _rows(name: str, content: bytes) -> list[Any]:
    """Return the values of the lines, decoded in one call where each line is one JSON value."""
    content = content.strip(_SPACE)
    # The zero between lines detects a value that continues on the next line and a line with two
    # values: in both cases values and zeros no longer alternate.
    joined = content.replace(b"\n", b",0,")
    breaks = (len(joined) - len(content)) // 2
    try:
        values = orjson.loads(b"[" + joined + b"]")
    except orjson.JSONDecodeError:
        return _line_by_line(name, content)
    if len(values) != 2 * breaks + 1 or values[1::2].count(0) != breaks:
        return _line_by_line(name, content)
    rows: list[Any] = values[::2]
    return rows


def _line_by_line(name: str, content: bytes) -> list[Any]:
    lines = content.split(b"\n")
    try:
        return [orjson.loads(line) for line in lines if line and not line.isspace()]
    except orjson.JSONDecodeError as error:
        raise BrokenLog(
            f"{name} holds a line that is no JSON ({error}); the file is torn or was written by "
            "hand",
            error_class="CorruptCommit",
            remedy="restore it from a backup, or the table to an earlier version",
        ) from error


def _objects(name: str, values: list[Any]) -> list[Any]:
    """Return the values, all of which must be JSON objects."""
    others = set(map(type, values)) - {dict}
    if others:
        kind = next(iter(others)).__name__
        raise BrokenLog(
            f"{name} holds {kind} where a JSON object is needed: restore it from a backup, or the "
            "table to an earlier version",
            error_class="CorruptCommit",
        )
    return values
