"""Encodes a group's members into the bytes of their entry, for one version.

An entry holds commitInfo with its provenance (the accepted and the refused proposals), the lines of
all members, and the watermark `txn`. After a lost race the same group is decided and encoded again.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

import orjson
from pydantic import JsonValue

from tidegate_committer.admission.admission_rules import table_level
from tidegate_committer.conflicts.conflict_rules import RULES_VERSION
from tidegate_committer.group_commit.grouping import Group
from tidegate_committer.group_commit.version_dependent_fields import (
    EntryDraft,
    assigned,
    dated_lines,
    draft_of,
    row_ids_given,
    tags_of,
    time_before,
)
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_actions import EMPTY, CheckedActions, canonical
from tidegate_committer.intake.row_intents import NO_MOVES, Relocations, moves_of, row_mapping_of
from tidegate_committer.policy import STRICTNESS, Level
from tidegate_committer.row_level.merged_row_deletes import NO_EFFECTS, MergeEffects, effects
from tidegate_committer.state.log_entry import (
    IDENTITY_ONLY,
    Entry,
    Revision,
    names_what_left,
    returned_by,
    revisions,
)
from tidegate_committer.state.path_normal_form import NormalForms, unusual
from tidegate_committer.state.table_state import TableState
from tidegate_delta.features.in_commit_timestamps import next_timestamp
from tidegate_delta.log.actions import Action, Add, CommitInfo, Metadata, Txn
from tidegate_delta.log.commit import sha256
from tidegate_delta.log.file_paths import encoded_path
from tidegate_delta.properties.table_properties import in_commit_timestamps_enabled
from tidegate_messages.commit_provenance import Accepted, Provenance, Refused, spelled
from tidegate_messages.proposal import Operation

REFUSALS: Final = "TIDEGATE REFUSALS"
"""The operation of an entry with refusals and no member."""

GROUP: Final = "TIDEGATE GROUP"
"""The operation of an entry whose members have different operations."""

DIGITS_MAX: Final = 18
"""The most digits of a metric that is summed: a longer number counts neither rows nor bytes."""


@dataclass(frozen=True)
class EntryWriter:
    """The writer of an entry: `epoch` identifies one assignment of a topic partition to one
    process.

    `stream` is `clusterId/topicId/partition` of the proposals that it reads, `app_id` that of the
    watermark `txn`, `engine` the release as commitInfo names it.
    """

    epoch: UUID
    stream: str
    app_id: str
    engine: str


@dataclass(frozen=True)
class Attempt:
    """One try at a version. `token` becomes `txnId`, so that no two tries have the same bytes.

    Units: `inline_bytes_max` is the largest merged deletion vector that is stored inline, in bytes.
    """

    token: UUID
    now_ms: int
    inline_bytes_max: int = 0


@dataclass(frozen=True)
class EncodedEntry:
    """The bytes of an entry, and what the state keeps of it once they have landed.

    `adds` are its new files. `merged` are its merged deletion vectors, whose file, if any, is
    written before the entry. `row_ids` are the base row ids of each member's new files, if the
    table tracks rows. `verbatim` is the proposal whose bytes it is, unchanged.

    Law: encoded.entry == entry_of(Commit.decode(version, content), sha256(content), len(content))
    """

    content: bytes
    entry: Entry
    adds: tuple[Add, ...] = ()
    merged: MergeEffects = NO_EFFECTS
    row_ids: tuple[Mapping[str, int], ...] = ()
    verbatim: UUID | None = None


def encode(state: TableState, group: Group, origin: EntryWriter, attempt: Attempt) -> EncodedEntry:
    """Return the entry that makes a group's verdicts true."""
    assert not group.is_empty, "an entry says something"
    now_ms = next_timestamp(attempt.now_ms, time_before(state, attempt.now_ms))
    merged = effects(group.merges, attempt.token, attempt.inline_bytes_max)
    bearers = (*group.members, *_row_delete_member(group, merged.content))
    draft = assigned(draft_of(state, bearers, now_ms))
    contents = [bearer.content for bearer in bearers]
    metadata = _written_metadata(draft, contents)
    has_protocol = group.changes_table and any(content.protocol for content in contents)
    protocol = draft.after.protocol if has_protocol else None
    provenance = _provenance(group, origin)
    timed = in_commit_timestamps_enabled(draft.after.metadata)
    info = _info(state, group, draft.after.metadata).with_(
        timestamp=now_ms,
        in_commit_timestamp=now_ms if timed else None,
        engine_info=_engine(group, origin),
        txn_id=str(attempt.token),
    )
    txns = (
        *[txn for member in group.members for txn in _txns(member, now_ms)],
        Txn(app_id=origin.app_id, version=provenance.offsets[1], last_updated=now_ms),
    )
    content = b"".join(
        (
            _info_line(info, provenance),
            *(_line(action) for action in (protocol, metadata) if action is not None),
            *dated_lines(draft),
            *(_line(domain) for domain in draft.domains),
            *(_line(txn) for txn in txns),
        )
    )
    entry = Entry(
        version=group.version,
        added=tuple([file for content in contents for file in content.added]),
        vectors={path: vector for content in contents for path, vector in content.vectors.items()},
        spelt=_unusual_paths(contents),
        removed=frozenset().union(*[content.removed for content in contents if content.removes]),
        removed_in_order=_in_order(contents) if names_what_left(provenance) else (),
        revised=_revised(contents),
        is_blind_append=bool(info.is_blind_append),
        is_identity_only=IDENTITY_ONLY in (info.tags or {}),
        metadata=metadata,
        protocol=protocol,
        txns=txns,
        domains=(*[domain for content in contents for domain in content.domains], *draft.domains),
        only_moves_row_ids=group.moves_row_ids,
        is_timed=timed,
        txn_id=info.txn_id,
        provenance=provenance,
        operation=info.operation,
        timestamp=now_ms,
        sha256=sha256(content),
        size=len(content),
        moved=_moved(group, contents, provenance),
        returned=returned_by(provenance),
    )
    kept = merged.as_written(line for own in draft.lines[-1:] for line in own)
    adds = tuple([add for content in contents for add in content.adds])
    return EncodedEntry(content, entry, adds, kept, row_ids_given(draft))


def _written_metadata(draft: EntryDraft, contents: Sequence[CheckedActions]) -> Metadata | None:
    """Return the metadata that the entry writes: a member's, or as an effect changes it; else
    None.
    """
    is_kept = draft.before is not None and draft.after.metadata is draft.before.metadata
    return (
        None
        if is_kept and not any(content.metadata for content in contents)
        else draft.after.metadata
    )


def _revised(contents: Sequence[CheckedActions]) -> Mapping[str, Revision]:
    return {
        path: revision
        for content in contents
        if content.vectors or content.removed_vectors
        for path, revision in revisions(content.removes, content.adds).items()
    }


def _unusual_paths(contents: Sequence[CheckedActions]) -> NormalForms:
    # In plain contents every path is in its normal form.
    return unusual(add for content in contents if not content.is_plain for add in content.adds)


def _moved(group: Group, contents: Sequence[CheckedActions], provenance: Provenance) -> Relocations:
    if not group.write_summary.moves_rows:
        return NO_MOVES
    removes = [remove for content in contents for remove in content.removes]
    return moves_of(provenance, removes, [add for content in contents for add in content.adds])


def _row_delete_member(group: Group, content: CheckedActions) -> Sequence[Candidate]:
    """Return a stand-in member that holds the merged row deletes, if there are any."""
    return [replace(group.members[0], content=content, tags=None)] if content is not EMPTY else []


def _info(state: TableState, group: Group, metadata: Metadata) -> CommitInfo:
    members = group.members
    proposals = [member.proposal for member in members if member.proposal]
    operations = [proposal.operation for proposal in proposals]
    names = {operation.name for operation in operations}
    of_table = table_level(metadata)
    level = _weakest({member.level(of_table) for member in members})
    read_version = min([member.read_version for member in members], default=state.version)
    return CommitInfo(
        operation=REFUSALS if not members else names.pop() if len(names) == 1 else GROUP,
        operation_parameters=_parameters(operations),
        operation_metrics=_metrics(operations) or None,
        is_blind_append=all([member.is_blind_append for member in members]),
        isolation_level=level,
        read_version=None if read_version < 0 else read_version,
        user_metadata=_single_value({proposal.user_metadata for proposal in proposals}),
        tags=tags_of(members, state, metadata) or None,
    )


def _engine(group: Group, origin: EntryWriter) -> str:
    engine = _single_value(
        {member.proposal.engine_info for member in group.members if member.proposal}
    )
    if not engine:
        return origin.engine
    return engine if origin.engine in engine.split() else f"{engine} {origin.engine}"


def _single_value(values: set[str | None]) -> str | None:
    return values.pop() if len(values) == 1 else None


def _weakest(levels: Collection[Level]) -> Level:
    return min(levels, key=STRICTNESS.index, default="SnapshotIsolation")


def _parameters(operations: Sequence[Operation]) -> dict[str, JsonValue]:
    """Return the operation parameters, if all members share them, each value as text or JSON."""
    parameters = [operation.parameters for operation in operations]
    if not parameters or parameters.count(parameters[0]) < len(parameters):
        return {}
    return {name: _text(value) for name, value in parameters[0].items()}


def _metrics(operations: Sequence[Operation]) -> dict[str, JsonValue]:
    """Return the members' metrics as text: unchanged for one member, summed for several.

    A metric that some member lacks is left out: readers of the change feed skip a MERGE whose
    metrics say that it changed no row, and one member's metric must not speak for the others.
    """
    all_metrics = [operation.metrics for operation in operations]
    if len(all_metrics) == 1:
        return {name: _text(value) for name, value in all_metrics[0].items()}
    shared = set(all_metrics[0]).intersection(*all_metrics[1:]) if all_metrics else set()
    sums: dict[str, int] = {}
    for name in all_metrics[0] if all_metrics else ():
        values = [str(metrics[name]) for metrics in all_metrics] if name in shared else []
        if "" in values or not _are_numbers(values):
            values = list(filter(_is_number, values))
        if values:
            sums[name] = sum(map(int, values))
    return {name: str(total) for name, total in sums.items()}


def _are_numbers(texts: Sequence[str]) -> bool:
    digits = "".join(texts)
    return digits.isascii() and digits.isdigit() and max(map(len, texts)) <= DIGITS_MAX


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _in_order(contents: Sequence[CheckedActions]) -> tuple[str, ...]:
    # Paths of plain contents are canonical.
    return tuple(
        [
            remove.path if content.is_plain else canonical(remove.path)
            for content in contents
            for remove in content.removes
        ]
    )


def _provenance(group: Group, origin: EntryWriter) -> Provenance:
    offsets = [member.offset for member in group.members]
    offsets += [refused.offset for refused, _, _ in group.refused]
    shared = group.members if len(group.members) > 1 else ()
    removed = [len(member.content.removes) for member in shared]
    moved = [len(member.txns) for member in shared]
    written = [len(member.content.domains) for member in shared]
    return Provenance.trusted(
        {
            "epoch": origin.epoch,
            "stream": origin.stream,
            "offsets": (min(offsets), max(offsets)),
            "rules": RULES_VERSION,
            "accepted": tuple(map(_accepted, group.members, group.deleted)),
            "refused": tuple(
                Refused(
                    id=target,
                    offset=candidate.offset,
                    sha256=candidate.sha256 if target == candidate.id else None,
                    reason=rejection,
                )
                for candidate, target, rejection in group.refused
            ),
            "files_added": tuple([len(member.content.adds) for member in shared]),
            "files_removed": tuple(removed) if any(removed) else (),
            "applications": tuple(moved) if any(moved) else (),
            "domains": tuple(written) if any(written) else (),
            "rows_by": group.rows_by if shared else (),
        }
    )


def _accepted(member: Candidate, deleted: int | None) -> Accepted:
    operation = member.proposal.operation if member.proposal else None
    fields: dict[str, Any] = {
        "id": member.id,
        "offset": member.offset,
        "sha256": member.sha256,
        "operation": operation.name if operation else member.operation,
        "metrics": operation.metrics if operation else {},
    }
    if deleted is not None:
        fields["rows_deleted"] = deleted
    if member.patch is not None:
        fields["patched"] = True
    if member.numbers is not None:
        fields["identity_blocks"] = member.numbers.blocks
        fields["identity_used"] = member.numbers.used
    if member.moves:
        fields["row_mapping"] = row_mapping_of(member.moves)
    if member.returned:
        fields["returned"] = tuple(map(encoded_path, sorted(member.returned)))
    return Accepted.trusted(fields)


def _line(action: Action) -> bytes:
    return orjson.dumps(action.to_row()) + b"\n"


def _info_line(info: CommitInfo, provenance: Provenance) -> bytes:
    """Return the line of commitInfo; its provenance is inserted as JSON that is already encoded."""
    body = info.model_dump(mode="json", by_alias=True, exclude_none=True)
    body["tidegate"] = orjson.Fragment(spelled(provenance))
    return orjson.dumps({info.wire_name: body}) + b"\n"


def _txns(member: Candidate, now_ms: int) -> Sequence[Txn]:
    """Return a member's txn actions: those it proposed, and its `app_txn` with a time."""
    proposed = member.content.txns
    dated = [txn.with_(last_updated=now_ms) for txn in member.txns[len(proposed) :]]
    return (*proposed, *dated)
