"""Lines of the log: the bytes of a commit, a log compaction or a checkpoint in JSON, decoded.

A large commit has as many lines as files, so what a line costs decides what a table costs.
"""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from tidegate_delta.errors import BrokenLog

OBJECTS: Final = ("commitInfo", "protocol", "metaData", "txn", "domainMetadata")
"""Actions that are few in a file, so that each becomes an object.

Spec: "Actions"
"""

_BODIES: Final = frozenset({"add", "remove", *OBJECTS, "checkpointMetadata", "sidecar"})

_MAPS: Final = frozenset({"configuration", "format"})
"""Fields of metaData that are objects."""

_SPACE: Final = b" \t\r\n"
"""What JSON allows around a value."""

Bodies = dict[str, list[Mapping[str, Any]]]
"""What the rows of a file say, by the name of the action."""


def read_bodies(name: str, content: bytes) -> Bodies:
    """Return what each row says, by the name of its action; what we don't know is left out.

    A commitInfo may be any JSON: one that is no object says nothing to us.
    Raises: BrokenLog (`CorruptCommit`) for a line that is no JSON object.
    Spec: "Delta Log Entries"
    """
    rows = _objects(name, _rows(name, content))
    found: Bodies = {kind: [] for kind in _BODIES}
    for kind in _BODIES & set().union(*rows):
        bodies = [row[kind] for row in rows if row.get(kind) is not None]
        if kind == "commitInfo":
            bodies = [body for body in bodies if isinstance(body, dict)]
        found[kind] = _objects(name, bodies)
    return found


def settled(name: str, body: Any) -> Any:
    """Return what an action says where writers leave open what goes without saying.

    A property that is null is not set, and so is a field of metaData; a domain that is removed
    needs no configuration; a file that is removed takes its rows along.
    Spec: "Change Metadata"
    """
    if not isinstance(body, dict):
        return body
    if name == "metaData":
        return {key: _set(told) if key in _MAPS else told for key, told in _set(body).items()}
    if name == "domainMetadata" and body.get("configuration") is None:
        return {**body, "configuration": ""} if body.get("removed") is True else body
    if name == "remove" and body.get("dataChange") is None:
        return {**body, "dataChange": True}
    return body


def _set(body: Any) -> Any:
    """Return what an object says that is not null; what is none, as it is."""
    if not isinstance(body, dict) or None not in body.values():
        return body
    return {key: told for key, told in body.items() if told is not None}


def _rows(name: str, content: bytes) -> list[Any]:
    """Return what the lines hold, decoded all at once where each is one JSON value."""
    content = content.strip(_SPACE)
    # A zero between two lines shows where a value runs over the end of its line, or a line holds
    # two: values and zeros no longer take turns.
    joined = content.replace(b"\n", b",0,")
    breaks = (len(joined) - len(content)) // 2
    try:
        found = orjson.loads(b"[" + joined + b"]")
    except orjson.JSONDecodeError:
        return _one_by_one(name, content)
    if len(found) != 2 * breaks + 1 or found[1::2].count(0) != breaks:
        return _one_by_one(name, content)
    rows: list[Any] = found[::2]
    return rows


def _one_by_one(name: str, content: bytes) -> list[Any]:
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
    """Return values, all of which have to be JSON objects."""
    others = set(map(type, values)) - {dict}
    if others:
        kind = next(iter(others)).__name__
        raise BrokenLog(
            f"{name} holds {kind} where a JSON object is needed: restore it from a backup, or the "
            "table to an earlier version",
            error_class="CorruptCommit",
        )
    return values
