"""Make proposals from files and read sets. Pure: ids and times are arguments (`Stamp`).

A proposal's actions hold what the writer knows. The committer assigns version, timestamps and
commitInfo.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import orjson
from pydantic import JsonValue

from tidegate_delta.deletion_vectors.descriptors import placed
from tidegate_delta.deletion_vectors.roaring_bitmap import Bitmap
from tidegate_delta.log.actions import (
    Action,
    Add,
    Cdc,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
)
from tidegate_delta.log.commit import Commit, sha256
from tidegate_delta.log.file_names import STAGED_FOLDER, in_log, staged_name
from tidegate_messages.codec import encode
from tidegate_messages.metadata_patch import MetadataPatch
from tidegate_messages.proposal import (
    ROW_INTENT,
    AppTxn,
    AppTxnAdvance,
    ClaimCheck,
    Isolation,
    Operation,
    Predicate,
    Proposal,
    ProposalKind,
    Purpose,
    ReadSet,
    RowIntent,
)

INLINE_BYTES_MAX: Final = 512 * 1024
"""Size of a record above which its actions go to a file in the store, named by a claim check."""

INLINE_VECTOR_BYTES_MAX: Final = 1_024
"""Size of a deletion vector above which it goes to a file instead of the proposal."""

READ_FILES_MAX: Final = 20_000
"""How many files a read set may name: their paths fill a record."""

CLAIM_FOLDER: Final = "_tidegate/proposals"
EVERYTHING: Final[Predicate] = {"op": "true"}
NOTHING: Final = ReadSet()
WHOLE_TABLE: Final = ReadSet(whole_table=True)
NO_VERSION: Final = -1


@dataclass(frozen=True)
class Target:
    """The table to write, as its writer saw it.

    `table` is the registry's id, `table_id` that of the metadata at `read_version`.
    """

    table: UUID
    root: str
    read_version: int = NO_VERSION
    table_id: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class Stamp:
    """A proposal's id and times, and its writer's options and descriptions.

    Units: all `_ms` in ms since the Unix epoch; `files_since_ms` is a time before the first data
    file was written.
    """

    proposal_id: UUID
    created_ms: int
    deadline_ms: int | None = None
    files_since_ms: int | None = None
    isolation: Isolation = "default"
    app_txn: AppTxn | None = None
    app_txns: tuple[AppTxnAdvance, ...] = ()
    engine_info: str | None = None
    user_metadata: str | None = None
    verify_files: bool | None = None


@dataclass(frozen=True)
class StreamBatch:
    """A micro-batch of a structured stream, by Spark's query id and batch id."""

    query_id: str
    batch_id: int


@dataclass(frozen=True)
class Deletion:
    """A delete, update or merge: its predicate, the files that it read, removed and added.

    `text` is the condition as the user wrote it, for the table's history; `marked` are files that
    stay, with the positions of the rows to delete from them. `updated` are those marked files of
    which a row has a new image among `added`. `is_row_by_row` says that each written row depends on
    the row that it replaces and on no other row of the table. `changes` are the change files, where
    readers of the change feed need them. `read` is None for more files than a record can name: then
    the whole table counts as read. `definition` is the metadata, and the protocol, that the
    table gets with the rows.
    """

    text: str
    predicate: Predicate
    read: Sequence[str] | None
    removed: Sequence[Add]
    added: Sequence[Add]
    metrics: Mapping[str, int]
    marked: Sequence[tuple[Add, Bitmap]] = ()
    operation: str = "DELETE"
    parameters: Mapping[str, str] = field(default_factory=dict)
    updated: frozenset[str] = frozenset()
    is_row_by_row: bool = True
    changes: Sequence[Cdc] = ()
    definition: Sequence[Action] = ()


def create(
    target: Target,
    stamp: Stamp,
    protocol: Protocol,
    metadata: Metadata,
    adds: Sequence[Add] | None = None,
    domains: Sequence[DomainMetadata] = (),
) -> Proposal:
    """Return the proposal that creates a table, empty or with its first files."""
    operation = Operation(name="CREATE TABLE", parameters=_creation(metadata))
    if adds is not None:
        parameters = {"mode": "Append", "partitionBy": _names(metadata.partition_columns)}
        operation = Operation(name="WRITE", parameters=parameters, metrics=_written(adds))
    rows = _rows([protocol, metadata, *domains, *(adds or ())])
    return of_body("commit", target, stamp, Body(operation, rows, ReadSet()))


def change_metadata(
    target: Target, stamp: Stamp, operation: Operation, metadata: Metadata
) -> Proposal:
    """Return a change of the whole metadata. It conflicts with every other change of it."""
    return of_body("commit", target, stamp, Body(operation, _rows([metadata]), NOTHING))


def note(target: Target, stamp: Stamp, operation: Operation) -> Proposal:
    """Return a commit that records an operation and changes nothing; nothing conflicts with it."""
    return of_body("commit", target, stamp, Body(operation, reads=NOTHING))


def append(
    target: Target,
    stamp: Stamp,
    adds: Sequence[Add],
    batch: "StreamBatch | None" = None,
    reads: ReadSet = NOTHING,
    definition: Sequence[Action] = (),
) -> Proposal:
    """Return an append. With an empty read set it is blind, and no winner's files conflict.

    `definition` is the metadata, and the protocol, that the table gets with the rows.
    """
    operation = _writing("Append", _written(adds), batch)
    return of_body("commit", target, stamp, Body(operation, _rows([*definition, *adds]), reads))


def overwrite(
    target: Target,
    stamp: Stamp,
    adds: Sequence[Add],
    live: Sequence[Add],
    batch: "StreamBatch | None" = None,
    definition: Sequence[Action] = (),
) -> Proposal:
    """Return an overwrite: every live file is removed, and the new ones are added."""
    metrics = {**_written(adds), "numRemovedFiles": str(len(live))}
    operation = _writing("Overwrite", metrics, batch)
    rows = _rows([*definition, *(removal(add, stamp.created_ms) for add in live), *adds])
    reads = ReadSet(predicates=(EVERYTHING,), files=tuple(add.path for add in live))
    proposal = of_body("commit", target, stamp, Body(operation, rows, reads))
    # No old row is among the new ones, so the change feed follows from added and removed files.
    return proposal.model_copy(update={"cdc_mode": "implicit"})


def overwrite_some(
    target: Target,
    stamp: Stamp,
    adds: Sequence[Add],
    replaced: Deletion,
    vectors: Sequence[DeletionVector] = (),
    definition: Sequence[Action] = (),
) -> Proposal:
    """Return an overwrite of some rows: those that `replaced` deletes, by new files.

    A deletion without a text is that of the partitions in which the new files lie. The new rows
    depend on no old one, so rows that others delete meanwhile are no conflict.
    """
    parameters = (
        {"predicate": replaced.text} if replaced.text else {"isDynamicPartitionOverwrite": "true"}
    )
    metrics = {
        **_written(adds),
        **{name: str(value) for name, value in replaced.metrics.items()},
    }
    operation = Operation(
        name="WRITE", parameters={"mode": "Overwrite", **parameters}, metrics=metrics
    )
    removes = [removal(add, stamp.created_ms) for add in replaced.removed]
    rows = _rows([*definition, *removes, *replaced.added, *adds])
    intents = _intents(replaced, vectors)
    body = Body(operation, rows, _read_by(replaced, is_row_by_row=True), intents=intents)
    proposal = of_body("commit", target, stamp, body)
    # Copied rows would leave and come back: only without them files alone show the changes.
    return proposal if replaced.added else proposal.model_copy(update={"cdc_mode": "implicit"})


def forget_files(target: Target, stamp: Stamp, missing: Sequence[Add]) -> Proposal:
    """Return the removal of live files that are not in the store any more, rows and all."""
    operation = Operation(name="FSCK", metrics={"numRemovedFiles": str(len(missing))})
    rows = _rows([removal(add, stamp.created_ms) for add in missing])
    reads = ReadSet(files=tuple(add.path for add in missing))
    proposal = of_body("commit", target, stamp, Body(operation, rows, reads))
    return proposal.model_copy(update={"cdc_mode": "implicit"})


def vectors_of(
    deletion: Deletion, name: UUID
) -> tuple[Sequence[DeletionVector], tuple[str, bytes] | None]:
    """Return a deletion vector for each marked file, and the file to write first, if any.

    Small vectors are inline; the others go to one file of deletion vectors, which gets its name
    from `name`, a fresh id.
    """
    return placed([rows for _, rows in deletion.marked], name, INLINE_VECTOR_BYTES_MAX)


def delete(
    target: Target, stamp: Stamp, deletion: Deletion, vectors: Sequence[DeletionVector] = ()
) -> Proposal:
    """Return a delete, update or merge of rows, with its exact read set.

    `vectors` hold the rows to delete from the marked files. Where a row's fate depends on that row
    alone, rows that others delete meanwhile are no conflict (`delete_insensitive`).
    """
    operation = Operation(
        name=deletion.operation,
        parameters={"predicate": _names([deletion.text]), **deletion.parameters},
        metrics={name: str(value) for name, value in deletion.metrics.items()},
    )
    removes = [removal(add, stamp.created_ms) for add in deletion.removed]
    reads = _read_by(deletion, is_row_by_row=deletion.is_row_by_row)
    intents = _intents(deletion, vectors)
    rows = _rows([*deletion.definition, *removes, *deletion.added, *deletion.changes])
    return of_body("commit", target, stamp, Body(operation, rows, reads, intents=intents))


def verbatim(target: Target, stamp: Stamp, version: int, content: bytes) -> Proposal:
    """Return the proposal to commit this entry verbatim as exactly this version.

    Before it is sent, the bytes must be durable under its claim check's path. Other bytes are
    another proposal, with another stamp; commitInfo.txnId identifies them as the same work.
    """
    info = Commit.decode(version, content).info
    path = in_log(f"{STAGED_FOLDER}/{staged_name(version, stamp.proposal_id)}")
    claim = ClaimCheck(path=path, size=len(content), sha256=sha256(content))
    known = of_body("commit", target, stamp, Body(Operation()))
    fields = {
        "exact_version": version,
        "claim_check": claim,
        "txn_id": info.txn_id if info else None,
    }
    return Proposal.model_validate({**dict(known), **fields, "kind": "verbatim"})


def cancel(proposal: Proposal, stamp: Stamp) -> Proposal:
    """Return the proposal that cancels another one."""
    target = Target(proposal.table, proposal.table_root, proposal.read_version, proposal.table_id)
    body = Body(Operation(name="CANCEL"), cancels=proposal.proposal_id)
    return of_body("cancel", target, stamp, body)


def app_versions(target: Target, stamp: Stamp, app_ids: Sequence[str]) -> Proposal:
    """Return the question for a table's versions of applications. It changes nothing."""
    body = Body(Operation(name="APP VERSIONS"), app_ids=tuple(app_ids))
    return of_body("app_versions", target, stamp, body)


def with_claim_check(proposal: Proposal) -> tuple[Proposal, bytes | None]:
    """Return the proposal to send and, if its actions are too large for a record, their file.

    The file must be durable under the claim check's path before the proposal is sent.
    """
    if len(encode(proposal)) <= INLINE_BYTES_MAX:
        return proposal, None
    lines = [
        *proposal.actions,
        *({ROW_INTENT: _plain(dv_intent)} for dv_intent in proposal.dv_intents),
    ]
    content = b"".join(orjson.dumps(line) + b"\n" for line in lines)
    path = f"{CLAIM_FOLDER}/{proposal.proposal_id}.ndjson"
    check = ClaimCheck(path=path, size=len(content), sha256=sha256(content))
    claimed = {"actions": (), "dv_intents": (), "claim_check": check}
    return _bounded(proposal.model_copy(update=claimed)), content


def removal(add: Add, now_ms: int) -> Remove:
    """Return the removal of a live file; the committer replaces its timestamp."""
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
class Body:
    """The part of a proposal that depends on its kind."""

    operation: Operation
    actions: tuple[Mapping[str, Any], ...] = ()
    reads: ReadSet | None = None
    cancels: UUID | None = None
    intents: tuple[RowIntent, ...] = ()
    reason: str | None = None
    patch: MetadataPatch | None = None
    app_ids: tuple[str, ...] = ()
    to_partition: int | None = None


def of_body(kind: ProposalKind, target: Target, stamp: Stamp, body: Body) -> Proposal:
    """Return a proposal of a kind, assembled from its parts."""
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
        dv_intents=body.intents,
        isolation=stamp.isolation,
        app_txn=stamp.app_txn,
        app_txns=stamp.app_txns,
        app_ids=body.app_ids,
        created_ms=stamp.created_ms,
        files_since_ms=stamp.files_since_ms,
        deadline_ms=stamp.deadline_ms,
        engine_info=stamp.engine_info,
        user_metadata=stamp.user_metadata,
        verify_files=stamp.verify_files,
        cancels=body.cancels,
        reason=body.reason,
        to_partition=body.to_partition,
        metadata_patch=body.patch,
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
    """Declare the whole table as read if the names of the files read are too many for a record.

    That is coarser and always safe: what conflicts with a file conflicts with the whole table.
    """
    reads = proposal.reads
    if reads is None or len(encode(proposal)) <= INLINE_BYTES_MAX:
        return proposal
    whole_table = reads.model_copy(update={"whole_table": True, "files": ()})
    return proposal.model_copy(update={"reads": whole_table})


def _rows(actions: Sequence[Action]) -> tuple[Mapping[str, JsonValue], ...]:
    return tuple(action.to_row() for action in actions)


def _read_by(deletion: Deletion, *, is_row_by_row: bool) -> ReadSet:
    return ReadSet(
        predicates=(deletion.predicate,),
        files=tuple(deletion.read or ()),
        whole_table=deletion.read is None,
        delete_insensitive=is_row_by_row,
    )


def _intents(deletion: Deletion, vectors: Sequence[DeletionVector]) -> tuple[RowIntent, ...]:
    return tuple(
        _intent(add, vector, "update" if add.path in deletion.updated else "delete")
        for (add, _), vector in zip(deletion.marked, vectors, strict=True)
    )


def _intent(add: Add, vector: DeletionVector, purpose: Purpose) -> RowIntent:
    count = row_count(add)
    assert count is not None, "rows are marked in files that tell their number"
    return RowIntent(
        path=add.path,
        base=add.deletion_vector.unique_id if add.deletion_vector else None,
        rows=vector.model_dump(by_alias=True, exclude_none=True),
        num_records=count,
        op=purpose,
    )


def _plain(intent: RowIntent) -> dict[str, JsonValue]:
    return intent.model_dump(mode="json", exclude_none=True)


def _written(adds: Sequence[Add]) -> dict[str, str]:
    rows = sum(row_count(add) or 0 for add in adds)
    return {
        "numFiles": str(len(adds)),
        "numOutputRows": str(rows),
        "numOutputBytes": str(sum(add.size for add in adds)),
    }


def row_count(add: Add) -> int | None:
    """Return the `numRecords` of a file's statistics, deleted rows included, or None."""
    return row_count_of(add.stats)


def live_rows(adds: Sequence[Add]) -> int | None:
    """Return the number of rows in files that are not deleted; None if one states no count."""
    counts = [row_count(add) for add in adds]
    gone = [add.deletion_vector.cardinality for add in adds if add.deletion_vector]
    return None if None in counts else sum(filter(None, counts)) - sum(gone)


def row_count_of(stats: str | None) -> int | None:
    """Return the `numRecords` of statistics, or None."""
    statistics = orjson.loads(stats) if stats else {}
    count = statistics.get("numRecords") if isinstance(statistics, dict) else None
    return count if type(count) is int and count >= 0 else None


def _creation(metadata: Metadata) -> dict[str, str]:
    return {
        "partitionBy": _names(metadata.partition_columns),
        "properties": orjson.dumps(dict(metadata.configuration)).decode(),
        "description": metadata.description or "",
        "isManaged": "false",
    }


def _names(names: Sequence[str]) -> str:
    return orjson.dumps(list(names)).decode()
