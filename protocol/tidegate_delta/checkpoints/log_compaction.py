"""Log compactions: the commits of a range as one file that has the same effect.

A compaction is applied on top of an older checkpoint. So it keeps every tombstone of files,
domains and app transactions, whatever its age: without it the older state would come back.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import orjson

from tidegate_delta.log.actions import Action, Add, DomainMetadata, Metadata, Protocol, Remove, Txn
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_paths import canonical_path

Key = tuple[str, ...]

_KINDS: Final[tuple[type[Action], ...]] = (Protocol, Metadata, Txn, DomainMetadata, Add, Remove)


def compact(commits: Sequence[Commit]) -> bytes:
    """Return the bytes of the log compaction of consecutive commits, oldest first.

    Law: replaying it in the commits' place gives the same snapshot, on whatever came before
    Raises: ValueError for fewer than two commits, or versions with a gap.
    Spec: "Log Compaction Files"
    """
    versions = [commit.version for commit in commits]
    if len(versions) < 2 or versions != list(range(versions[0], versions[0] + len(versions))):
        raise ValueError(f"versions {versions} are no range that can be compacted")
    kept = reconcile(action for commit in commits for action in _in_order(commit))
    return b"".join(orjson.dumps(action.to_row()) + b"\n" for action in kept)


def reconcile(actions: Iterable[Action]) -> Sequence[Action]:
    """Return the newest action for each key, in a fixed order; actions without a key are dropped.

    Spec: "Action Reconciliation"
    """
    newest: dict[Key, Action] = {}
    for action in actions:
        key = _key(action)
        if key is not None:
            newest.pop(key, None)
            newest[key] = action
    return sorted(newest.values(), key=lambda action: _KINDS.index(type(action)))


def _in_order(commit: Commit) -> Sequence[Action]:
    """Return the actions of a commit with its adds last, as replay applies them."""
    return sorted(commit.actions, key=lambda action: isinstance(action, Add))


def _key(action: Action) -> Key | None:
    match action:
        case Add() | Remove():
            return "file", canonical_path(action.path), action.key.dv_id or ""
        case Txn():
            return "txn", action.app_id
        case DomainMetadata():
            return "domain", action.domain
        case Protocol():
            return ("protocol",)
        case Metadata():
            return ("metaData",)
        case _:
            return None
