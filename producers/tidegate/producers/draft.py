"""Files and a read set become a Proposal. Pure: ids and times arrive with the stamp.

Actions carry what the writer knows; the committer assigns the version, timestamps and commitInfo.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import orjson
from pydantic import JsonValue

from tidegate.delta.actions import Action, Add, Metadata, Protocol, Remove
from tidegate.delta.commit import sha256
from tidegate.pipeline.codec import encode
from tidegate.pipeline.proposal import (
    AppTxn,
    ClaimCheck,
    Isolation,
    Kind,
    Operation,
    Proposal,
)
from tidegate.pipeline.read_set import Predicate, ReadSet

INLINE_BYTES_MAX: Final = 512 * 1024
"""Size of a record above which its actions go to the store, and a claim check to the topic."""

CLAIM_FOLDER: Final = "_tidegate/proposals"
EVERYTHING: Final[Predicate] = {"op": "true"}
NO_VERSION: Final = -1


@dataclass(frozen=True)
class Target:
    """The table that is written, as its writer saw it.

    `table` is the registry's id, `table_id` that of the metadata at `read_version`.
    """

    table: UUID
    root: str
    read_version: int = NO_VERSION
    table_id: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class Stamp:
    """What distinguishes this proposal from all others, and what its writer wants said of it.

    Units: all `_ms` in ms since the Unix epoch; `files_since_ms` is a time before the first data
    file was written.
    """

    proposal_id: UUID
    created_ms: int
    deadline_ms: int | None = None
    files_since_ms: int | None = None
    isolation: Isolation = "default"
    app_txn: AppTxn | None = None
    engine_info: str | None = None
    user_metadata: str | None = None


@dataclass(frozen=True)
class StreamBatch:
    """The micro-batch of a structured stream, by Spark's names for both."""

    query_id: str
    batch_id: int


@dataclass(frozen=True)
class Deletion:
    """A delete: its predicate, the files it read, those that leave, and what replaces them.

    `text` is the condition as the user wrote it, for the table's history.
    """

    text: str
    predicate: Predicate
    read: Sequence[str]
    removed: Sequence[Add]
    added: Sequence[Add]
    metrics: Mapping[str, int]


def create(
    target: Target,
    stamp: Stamp,
    protocol: Protocol,
    metadata: Metadata,
    adds: Sequence[Add] | None = None,
) -> Proposal:
    """Return the proposal that brings version 0: the table alone, or with its first files."""
    operation = Operation(name="CREATE TABLE", parameters=_creation(metadata))
    if adds is not None:
        parameters = {"mode": "Append", "partitionBy": _names(metadata.partition_columns)}
        operation = Operation(name="WRITE", parameters=parameters, metrics=_written(adds))
    rows = _rows([protocol, metadata, *(adds or ())])
    return _proposal("commit", target, stamp, _Body(operation, rows, ReadSet()))


def append(
    target: Target, stamp: Stamp, adds: Sequence[Add], batch: "StreamBatch | None" = None
) -> Proposal:
    """Return a blind append: it looked at nothing, so no file of a winner can rule it out."""
    operation = _writing("Append", _written(adds), batch)
    return _proposal("commit", target, stamp, _Body(operation, _rows(adds), ReadSet()))


def overwrite(
    target: Target,
    stamp: Stamp,
    adds: Sequence[Add],
    live: Sequence[Add],
    batch: "StreamBatch | None" = None,
) -> Proposal:
    """Return the replacement of all rows: every live file leaves, and the new ones join."""
    metrics = {**_written(adds), "numRemovedFiles": str(len(live))}
    operation = _writing("Overwrite", metrics, batch)
    rows = _rows([*(removal(add, stamp.created_ms) for add in live), *adds])
    reads = ReadSet(predicates=(EVERYTHING,), files=tuple(add.path for add in live))
    return _proposal("commit", target, stamp, _Body(operation, rows, reads))


def delete(target: Target, stamp: Stamp, deletion: Deletion) -> Proposal:
    """Return the deletion of the rows that match a predicate, with its exact read set."""
    operation = Operation(
        name="DELETE",
        parameters={"predicate": _names([deletion.text])},
        metrics={name: str(value) for name, value in deletion.metrics.items()},
    )
    removes = [removal(add, stamp.created_ms) for add in deletion.removed]
    reads = ReadSet(predicates=(deletion.predicate,), files=tuple(deletion.read))
    body = _Body(operation, _rows([*removes, *deletion.added]), reads)
    return _proposal("commit", target, stamp, body)


def register(target: Target, stamp: Stamp) -> Proposal:
    """Return the request to manage a table that exists: nothing is written to its log."""
    return _proposal("register", target, stamp, _Body(Operation(name="REGISTER")))


def cancel(proposal: Proposal, stamp: Stamp) -> Proposal:
    """Return the request to give a proposal up."""
    target = Target(proposal.table, proposal.table_root, proposal.read_version, proposal.table_id)
    body = _Body(Operation(name="CANCEL"), cancels=proposal.proposal_id)
    return _proposal("cancel", target, stamp, body)


def with_claim_check(proposal: Proposal) -> tuple[Proposal, bytes | None]:
    """Return the proposal to send and, where its actions are too large for a record, their file.

    The file is to be durable under the claim check's path before the proposal is sent.
    """
    if len(encode(proposal)) <= INLINE_BYTES_MAX:
        return proposal, None
    content = b"".join(orjson.dumps(action) + b"\n" for action in proposal.actions)
    path = f"{CLAIM_FOLDER}/{proposal.proposal_id}.ndjson"
    check = ClaimCheck(path=path, size=len(content), sha256=sha256(content))
    return _bounded(proposal.model_copy(update={"actions": (), "claim_check": check})), content


def removal(add: Add, now_ms: int) -> Remove:
    """Return the removal of a live file; the committer sets its timestamp anew."""
    return Remove(
        path=add.path,
        data_change=True,
        deletion_timestamp=now_ms,
        extended_file_metadata=True,
        partition_values=add.partition_values,
        size=add.size,
        deletion_vector=add.deletion_vector,
        base_row_id=add.base_row_id,
        default_row_commit_version=add.default_row_commit_version,
    )


@dataclass(frozen=True)
class _Body:
    operation: Operation
    actions: tuple[Mapping[str, Any], ...] = ()
    reads: ReadSet | None = None
    cancels: UUID | None = None


def _proposal(kind: Kind, target: Target, stamp: Stamp, body: _Body) -> Proposal:
    return Proposal(
        proposal_id=stamp.proposal_id,
        kind=kind,
        table=target.table,
        table_root=target.root,
        table_id=target.table_id,
        name=target.name,
        read_version=target.read_version,
        operation=body.operation,
        actions=body.actions,
        reads=body.reads,
        isolation=stamp.isolation,
        app_txn=stamp.app_txn,
        created_ms=stamp.created_ms,
        files_since_ms=stamp.files_since_ms,
        deadline_ms=stamp.deadline_ms,
        engine_info=stamp.engine_info,
        user_metadata=stamp.user_metadata,
        cancels=body.cancels,
    )


def _writing(mode: str, metrics: Mapping[str, str], batch: "StreamBatch | None") -> Operation:
    if batch is None:
        return Operation(name="WRITE", parameters={"mode": mode}, metrics=metrics)
    parameters = {
        "outputMode": "Append" if mode == "Append" else "Complete",
        "queryId": batch.query_id,
        "epochId": str(batch.batch_id),
    }
    return Operation(name="STREAMING UPDATE", parameters=parameters, metrics=metrics)


def _bounded(proposal: Proposal) -> Proposal:
    """Name the whole table where even the names of the files read are too many for a record.

    That is coarser and never unsafe: what conflicts with the files conflicts with the table.
    """
    reads = proposal.reads
    if reads is None or len(encode(proposal)) <= INLINE_BYTES_MAX:
        return proposal
    whole = reads.model_copy(update={"whole_table": True, "files": ()})
    return proposal.model_copy(update={"reads": whole})


def _rows(actions: Sequence[Action]) -> tuple[Mapping[str, JsonValue], ...]:
    return tuple(action.to_row() for action in actions)


def _written(adds: Sequence[Add]) -> dict[str, str]:
    rows = sum(_record_count(add) for add in adds)
    return {
        "numFiles": str(len(adds)),
        "numOutputRows": str(rows),
        "numOutputBytes": str(sum(add.size for add in adds)),
    }


def _record_count(add: Add) -> int:
    return int(orjson.loads(add.stats)["numRecords"]) if add.stats else 0


def _creation(metadata: Metadata) -> dict[str, str]:
    return {
        "partitionBy": _names(metadata.partition_columns),
        "properties": orjson.dumps(dict(metadata.configuration)).decode(),
        "description": metadata.description or "",
        "isManaged": "false",
    }


def _names(names: Sequence[str]) -> str:
    return orjson.dumps(list(names)).decode()
