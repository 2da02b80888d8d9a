"""A table's history: what each version did, newest first, from the log alone."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import orjson
from pydantic import JsonValue

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.commit import Commit
from tidegate_messages import commit_provenance
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.open_table import head_version, read_commit


@dataclass(frozen=True)
class HistoryEntry:
    """One version of a table's history.

    `proposals` is the number of proposals in it, 0 for an external writer's; `refused` is the
    number of refusals that it records.
    Units: `timestamp_ms` in ms since the Unix epoch.
    """

    version: int
    timestamp_ms: int | None = None
    operation: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)
    read_version: int | None = None
    isolation_level: str | None = None
    is_blind_append: bool | None = None
    engine_info: str | None = None
    user_metadata: str | None = None
    proposals: int = 0
    refused: int = 0


def history(store: LogStore, limit: int | None = None) -> Iterator[HistoryEntry]:
    """Yield the versions of a table that the log still holds, newest first.

    Raises: InvalidRequest (`NotADeltaTable`); BrokenLog; Unavailable.
    """
    head = head_version(store)
    if head is None:
        raise InvalidRequest(
            f"{store.root} is no Delta table: check the path", error_class="NotADeltaTable"
        )
    last = -1 if limit is None else max(-1, head - limit)
    for version in range(head, last, -1):
        entry = read_commit(store, version)
        if entry is None:
            return
        yield entry_of(entry[0])


def entry_of(commit: Commit) -> HistoryEntry:
    """Return the history entry of a commit, from its commitInfo."""
    version, info = int(commit.version), commit.info
    if info is None:
        return HistoryEntry(version)
    provenance = commit_provenance.of(commit)
    return HistoryEntry(
        version=version,
        timestamp_ms=info.in_commit_timestamp or info.timestamp,
        operation=info.operation,
        parameters=_texts(info.operation_parameters),
        metrics=_texts(info.operation_metrics),
        read_version=info.read_version,
        isolation_level=info.isolation_level,
        is_blind_append=info.is_blind_append,
        engine_info=info.engine_info,
        user_metadata=info.user_metadata,
        proposals=len(provenance.accepted) if provenance else 0,
        refused=len(provenance.refused) if provenance else 0,
    )


def _texts(values: Mapping[str, JsonValue] | None) -> dict[str, str]:
    return {
        name: value if isinstance(value, str) else orjson.dumps(value).decode()
        for name, value in (values or {}).items()
    }
