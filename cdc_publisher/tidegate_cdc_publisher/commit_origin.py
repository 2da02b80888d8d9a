"""Who wrote a version, and when: what its changes say of their origin."""

from collections.abc import Mapping
from typing import Any, Final

from tidegate_delta.log.actions import Metadata, Txn
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import LOG_FOLDER
from tidegate_runtime.storage.log_store import LogStore

_OURS: Final = "tidegate/"
"""Prefix of the app ids under which the committer records how far it has read."""


def provenance(commit: Commit, metadata: Metadata) -> Mapping[str, str | int]:
    """Return what is known of a version's writer; with several writers, neither is named."""
    facts: dict[str, str | int | None] = {"table_id": metadata.id}
    if commit.info is not None:
        facts["operation"] = commit.info.operation
        facts["proposal_id"] = _proposal(commit.info.tidegate)
    writers = [txn for txn in commit.txns if not txn.app_id.startswith(_OURS)]
    if len(writers) == 1:
        facts |= _app(writers[0])
    return {name: value for name, value in facts.items() if value is not None}


def commit_time_ms(store: LogStore, commit: Commit, now_ms: int) -> int:
    """Return a version's in-commit timestamp, else the timestamp of its commitInfo.

    Without either, return the commit file's modification time, or `now_ms` if the file is gone.
    """
    info = commit.info
    if info is not None and info.in_commit_timestamp is not None:
        return info.in_commit_timestamp
    if info is not None and info.timestamp is not None:
        return info.timestamp
    stat = next(iter(store.list_from(LOG_FOLDER, commit.name)), None)
    return stat.modified_ms if stat and stat.path.endswith(commit.name) else now_ms


def _proposal(provenance_json: Mapping[str, Any] | None) -> str | None:
    accepted = (provenance_json or {}).get("accepted")
    if not isinstance(accepted, list) or len(accepted) != 1 or not isinstance(accepted[0], dict):
        return None
    proposal_id = accepted[0].get("id")
    return proposal_id if isinstance(proposal_id, str) else None


def _app(txn: Txn) -> dict[str, str | int | None]:
    return {"txn_app_id": txn.app_id, "txn_version": txn.version}
