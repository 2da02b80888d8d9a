"""Log compactions: the commits of a range as one file that has the same effect.

A compaction is applied on top of an older checkpoint. So it keeps every tombstone of files,
domains and app transactions, whatever its age: without it the older state would come back.

Spec: "Log Compaction Files"
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.actions import KINDS, from_row
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_paths import canonical_path

Key = tuple[str, ...]

_ORDER: Final = ("protocol", "metaData", "txn", "domainMetadata", "remove", "add")


def compact(commits: Sequence[Commit]) -> bytes:
    """Return the bytes of the log compaction of consecutive commits, oldest first.

    Raises: ValueError for fewer than two commits, or versions with a gap.
    """
    versions = [commit.version for commit in commits]
    if len(versions) < 2 or versions != list(range(versions[0], versions[0] + len(versions))):
        raise ValueError(f"versions {versions} are no range that can be compacted")
    return compact_contents([commit.encode() for commit in commits])


def compact_contents(contents: Sequence[bytes]) -> bytes:
    """Return the log compaction of consecutive commits or compactions, oldest first, from bytes.

    It consists of their own lines: the newest for each key. Actions without a key are dropped.
    Law: replaying it in the commits' place gives the same snapshot, on whatever came before
    Raises: BrokenLog (`CorruptCommit`) for a line that is no JSON object.
    """
    newest: dict[Key, tuple[str, bytes]] = {}
    for content in contents:
        for key, kind, line in _in_order(content):
            newest.pop(key, None)
            newest[key] = kind, line
    kept = sorted(newest.values(), key=lambda kind_and_line: _ORDER.index(kind_and_line[0]))
    return b"".join(line + b"\n" for _, line in kept)


def _in_order(content: bytes) -> Iterator[tuple[Key, str, bytes]]:
    """Yield key, kind and line of each action with its adds last, as replay applies them."""
    adds: list[tuple[Key, str, bytes]] = []
    for line in content.split(b"\n"):
        if not line or line.isspace():
            continue
        kind, body = _action(line)
        key = _key(kind, body)
        if key is not None and kind == "add":
            adds.append((key, kind, line))
        elif key is not None:
            yield key, kind, line
    yield from adds


def _action(line: bytes) -> tuple[str, Mapping[str, Any]]:
    """Return the kind of a row and its body; "" for a row that we do not know."""
    try:
        row = orjson.loads(line)
        named = [(kind, body) for kind, body in row.items() if body is not None and kind in KINDS]
    except (orjson.JSONDecodeError, AttributeError) as error:
        raise BrokenLog(
            f"a log to compact holds a line that is no JSON object ({error}): restore the commit "
            "from a backup",
            error_class="CorruptCommit",
        ) from error
    if len(named) > 1:
        from_row(row)  # which refuses it
    return named[0] if named else ("", {})


def _key(kind: str, body: Mapping[str, Any]) -> Key | None:
    match kind:
        case "add" | "remove":
            return "file", canonical_path(body["path"]), _vector_id(body.get("deletionVector"))
        case "txn":
            return "txn", body["appId"]
        case "domainMetadata":
            return "domain", body["domain"]
        case "protocol" | "metaData":
            return (kind,)
        case _:
            return None


def _vector_id(vector: Mapping[str, Any] | None) -> str:
    if vector is None:
        return ""
    offset = vector.get("offset")
    tail = "" if offset is None else f"@{offset}"
    return f"{vector['storageType']}{vector['pathOrInlineDv']}{tail}"
