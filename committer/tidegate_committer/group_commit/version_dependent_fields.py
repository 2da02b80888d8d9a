"""What depends on an entry's version, and is assigned when the entry is encoded.

That is row ids and commit versions, in-commit timestamps, type-widening versions, the
checkpoint-protection bound, and identity high-water marks. After a lost race all of it is assigned
again. Each effect is a function; two tuples are the specification: `METADATA_EFFECTS` on the
metadata that a member writes, `FILE_EFFECTS` on the lines of all members together.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from tidegate_committer.admission.feature_checks import BOUND, moves_bound
from tidegate_committer.conflicts.metadata_compatibility import numbers_only
from tidegate_committer.intake.action_reader import ActionLine, add_line, dated, is_add, tracked
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.state.log_entry import IDENTITY_ONLY
from tidegate_committer.state.table_definition import TableDefinition, table_definition_after
from tidegate_committer.state.table_state import TableState, in_commit_timestamp
from tidegate_delta.constraints import identity_columns
from tidegate_delta.features import in_commit_timestamps, row_tracking
from tidegate_delta.log.actions import Add, DomainMetadata, Metadata
from tidegate_delta.properties.table_properties import in_commit_timestamps_enabled
from tidegate_delta.schema.type_widening import TYPE_CHANGES
from tidegate_delta.value_limits import AHEAD_MAX_MS

EntryLines = tuple[ActionLine, ...]


@dataclass(frozen=True)
class EntryDraft:
    """An entry before it is encoded: its version and time, and what its members bring.

    `before` is the table definition at the version before, None for version 0; `after` is the one
    that the entry leaves. `row_mark` is the high-water mark of row ids before it. `lines` are each
    member's log lines, `domains` the metadata domains that the entry itself adds.
    Units: `now_ms` in ms since the Unix epoch.
    """

    version: int
    now_ms: int
    members: tuple[Candidate, ...]
    before: TableDefinition | None
    after: TableDefinition
    row_mark: int
    lines: tuple[EntryLines, ...]
    domains: tuple[DomainMetadata, ...] = ()


def in_commit_timestamps_begin(
    draft: EntryDraft, metadata: Metadata, read_version: int
) -> Metadata:
    """Record the enablement version and timestamp in metadata that enables in-commit timestamps."""
    before = draft.before.metadata if draft.before else None
    return in_commit_timestamps.with_enablement(before, metadata, draft.version, draft.now_ms)


def type_changes_are_of_this_version(
    draft: EntryDraft, metadata: Metadata, read_version: int
) -> Metadata:
    """Set this version in the type changes that a proposal dates after its read version."""
    widens = {"typeWidening", "typeWidening-preview"} & draft.after.features
    if not widens or TYPE_CHANGES not in metadata.schema_string:
        return metadata
    if metadata.configuration.get("delta.enableTypeWidening", "").lower() != "true":
        return metadata
    schema: Any = orjson.loads(metadata.schema_string)
    if not _date_changes(schema, read_version, draft.version):
        return metadata
    return metadata.with_(schema_string=orjson.dumps(schema).decode())


def history_is_protected(draft: EntryDraft, metadata: Metadata, read_version: int) -> Metadata:
    """Set `requireCheckpointProtectionBeforeVersion` where old versions need a dropped feature."""
    if draft.before is None or not moves_bound(draft.before, draft.after):
        return metadata
    bound = {BOUND: str(draft.version)}
    return metadata.with_(configuration={**metadata.configuration, **bound})


MetadataEffect = Callable[[EntryDraft, Metadata, int], Metadata]
"""Returns the metadata to write, given the entry, the metadata so far, and the read version of the
proposal that brings it.
"""

METADATA_EFFECTS: Final[tuple[MetadataEffect, ...]] = (
    type_changes_are_of_this_version,
    history_is_protected,
    in_commit_timestamps_begin,
)


def rows_are_numbered(draft: EntryDraft) -> EntryDraft:
    """With row tracking, give new files base row ids and this version as commit version."""
    if not draft.after.tracks_rows:
        return draft
    mark, lines = draft.row_mark, []
    for member, own in zip(draft.members, draft.lines, strict=True):
        numbered, mark = _numbered(member.content.adds, own, mark, draft.version)
        lines.append(numbered)
    if mark == draft.row_mark:
        return replace(draft, lines=tuple(lines))
    domain = row_tracking.mark_domain(mark)
    return replace(draft, lines=tuple(lines), domains=(*draft.domains, domain))


def rows_lose_their_numbers(draft: EntryDraft) -> EntryDraft:
    """While row tracking is suspended, write new files without row ids."""
    if not row_tracking.is_suspended(draft.after.metadata):
        return draft
    lines = tuple(
        _without_row_ids(member.content.adds, own) if member.content.has_row_ids else own
        for member, own in zip(draft.members, draft.lines, strict=True)
    )
    return replace(draft, lines=lines)


def identity_marks_follow(draft: EntryDraft) -> EntryDraft:
    """Raise the high-water marks of identity columns to the values that members use."""
    reached: dict[str, list[int]] = {}
    for member in draft.members:
        for column, value in (member.numbers.marks if member.numbers else {}).items():
            reached.setdefault(column, []).append(value)
    if not reached:
        return draft
    metadata = identity_columns.with_marks(draft.after.metadata, reached)
    return replace(draft, after=TableDefinition(metadata, draft.after.protocol))


FileEffect = Callable[[EntryDraft], EntryDraft]
"""Returns the entry with one more assignment to the files of all members."""

FILE_EFFECTS: Final[tuple[FileEffect, ...]] = (
    rows_are_numbered,
    rows_lose_their_numbers,
    identity_marks_follow,
)


def dated_lines(draft: EntryDraft) -> Iterator[bytes]:
    """Yield all members' lines, with the entry's time as `deletionTimestamp`, which VACUUM uses."""
    for own in draft.lines:
        for line in own:
            yield line if isinstance(line, bytes) else dated(line, draft.now_ms)


def row_ids_given(draft: EntryDraft) -> tuple[Mapping[str, int], ...]:
    """Return for each member the base row ids that its new files get, by path.

    Empty if the table tracks no rows; files that bring their own ids are left out.
    """
    if not draft.after.tracks_rows:
        return ()
    mark, row_ids = draft.row_mark, []
    for member in draft.members:
        member_ids: dict[str, int] = {}
        for add in member.content.adds:
            if add.base_row_id is None:
                member_ids[add.path] = mark + 1
                mark += row_tracking.physical_records(add.stats) or 0
        row_ids.append(member_ids)
    return tuple(row_ids)


def tags_of(members: Sequence[Candidate], state: TableState, after: Metadata) -> Mapping[str, str]:
    """Return the tags of an entry's commitInfo: those of all members, and whether its metadata only
    moves identity high-water marks.

    `after` is the table's metadata after the entry.
    """
    tags: dict[str, str] = {}
    for member in members:
        if member.tags:
            tags.update(member.tags)
        metadata = member.content.metadata
        if metadata is None or state.version < 0 or member.content.protocol is not None:
            continue
        if numbers_only(state.table_definition.metadata, metadata):
            tags[IDENTITY_ONLY] = "true"
    only_marks = not any(member.content.metadata for member in members)
    if only_marks and state.version >= 0 and after is not state.table_definition.metadata:
        tags[IDENTITY_ONLY] = "true"
    return tags


def draft_of(state: TableState, members: Sequence[Candidate], now_ms: int) -> EntryDraft:
    """Return the entry after a state, before any effect is applied."""
    contents = [member.content for member in members]
    metadata = next((content.metadata for content in contents if content.metadata), None)
    protocol = next((content.protocol for content in contents if content.protocol), None)
    before = state.table_definition if state.version >= 0 else None
    after = table_definition_after(before, metadata, protocol)
    mark = row_tracking.NO_HIGH_WATER_MARK
    if after.tracks_rows:
        mark = row_tracking.high_water_mark(state.domains)
    lines = tuple(content.lines for content in contents)
    return EntryDraft(state.version + 1, now_ms, tuple(members), before, after, mark, lines)


def follows_untimed(state: TableState, members: Sequence[Candidate]) -> bool:
    """Return whether in-commit timestamps begin with this entry, so that the version before has
    none.

    Then the modification time of that version's file replaces its timestamp.
    """
    last = state.entries.get(state.version)
    if last is None or last.is_timed:
        return False
    own = next((member.content.metadata for member in members if member.content.metadata), None)
    return in_commit_timestamps_enabled(own or state.table_definition.metadata)


def time_before(state: TableState, now_ms: int) -> int:
    """Return the time that the next version's timestamp must exceed.

    The last version's in-commit timestamp binds however far it is ahead of our clock: the protocol
    requires it. A version without one may claim any time. A claim beyond AHEAD_MAX_MS ahead is
    ignored, or all later versions would get such times and removed files would be kept for ever.
    Units: ms since the Unix epoch.
    """
    claimed = state.timestamp if state.timestamp <= now_ms + AHEAD_MAX_MS else 0
    return max(claimed, in_commit_timestamp(state) or 0)


def assigned(draft: EntryDraft) -> EntryDraft:
    """Return an entry with all effects applied, in their order."""
    writers = [member for member in draft.members if member.content.metadata is not None]
    for writer in writers:
        metadata = draft.after.metadata
        for effect in METADATA_EFFECTS:
            metadata = effect(draft, metadata, writer.read_version)
        if metadata is not draft.after.metadata:
            draft = replace(draft, after=TableDefinition(metadata, draft.after.protocol))
    for file_effect in FILE_EFFECTS:
        draft = file_effect(draft)
    return draft


def _numbered(
    adds: Sequence[Add], lines: EntryLines, mark: int, version: int
) -> tuple[EntryLines, int]:
    """Return the lines with row ids and commit versions, and the high-water mark after them."""
    following = iter(adds)
    after: list[ActionLine] = []
    for line in lines:
        if not is_add(line):
            after.append(line)
            continue
        add = next(following)
        base, written = add.base_row_id, add.default_row_commit_version
        if base is None:
            count = row_tracking.physical_records(add.stats)
            assert count is not None, "on a table that tracks rows every new file is counted"
            base, mark = mark + 1, mark + count
        if add.base_row_id is None and written is None:
            assert isinstance(line, bytes), "what adds a file is spelled out"
            after.append(tracked(line, base, version))
            continue
        ids = {"base_row_id": base, "default_row_commit_version": version}
        after.append(add_line(add.with_(**ids if written is None else {"base_row_id": base})))
    return tuple(after), mark


def _without_row_ids(adds: Sequence[Add], lines: EntryLines) -> EntryLines:
    following = iter(adds)
    none = {"base_row_id": None, "default_row_commit_version": None}
    return tuple(
        add_line(next(following).with_(**none)) if is_add(line) else line for line in lines
    )


def _date_changes(node: Any, read_version: int, version: int) -> bool:
    """Set the version in the type changes of a part of a schema; return whether any was changed."""
    if isinstance(node, list):
        return any([_date_changes(child, read_version, version) for child in node])
    if not isinstance(node, dict):
        return False
    was_changed = any([_date_changes(child, read_version, version) for child in node.values()])
    metadata = node.get("metadata")
    changes = metadata.get(TYPE_CHANGES) if isinstance(metadata, dict) else None
    for change in changes if isinstance(changes, list) else ():
        dated_at = change.get("tableVersion") if isinstance(change, dict) else None
        if type(dated_at) is int and read_version < dated_at < version:
            change["tableVersion"] = version
            was_changed = True
    return was_changed
