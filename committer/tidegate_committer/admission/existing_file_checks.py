"""What enabling or disabling row tracking or column mapping requires of the existing files.

With row tracking every file has row ids; once it is dropped, none has. The log says of each file
whether it has some, but the state does not, so the version read is scanned once. Each file has its
columns under the names by which they were mapped when it was written. A proposal that maps them
otherwise must rewrite all files in the same version.
"""

from collections.abc import Mapping
from typing import Final

from tidegate_committer.admission.drop_feature_checks import DROP_FEATURE
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_actions import CheckedActions
from tidegate_committer.intake.refusals import BAD_METADATA, ROWS_WITHOUT_IDS, flaw
from tidegate_committer.state.metadata_diff import columns_by_physical
from tidegate_committer.state.table_state import TableState
from tidegate_delta.features import row_tracking
from tidegate_delta.log.actions import Metadata
from tidegate_delta.schema.column_mapping import mode_of
from tidegate_delta.schema.field_paths import FieldPath, dotted
from tidegate_messages.metadata_patch import SetProperty
from tidegate_messages.outcome import Rejection

_WRITE_ANEW: Final = "remove every file in the same version, and write its rows again"
_OTHER_MODE: Final = "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE"


def minds_row_ids(candidate: Candidate, state: TableState) -> bool:
    """Return whether a proposal depends on which files have row ids."""
    if not (candidate.changes_definition and state.remembers(candidate.read_version)):
        return False
    return drops_row_ids(candidate, state) or _turns_on(candidate, state)


def drops_row_ids(candidate: Candidate, state: TableState) -> bool:
    """Return whether a proposal would drop row tracking from the table that it read."""
    protocol = candidate.content.protocol
    if candidate.operation != DROP_FEATURE or protocol is None or row_tracking.supports(protocol):
        return False
    if not state.remembers(candidate.read_version):
        return False
    return row_tracking.FEATURE in state.table_definition_at(candidate.read_version).features


def _turns_on(candidate: Candidate, state: TableState) -> bool:
    """Return whether a proposal enables row tracking on a table where it is disabled."""
    if row_tracking.is_enabled(state.table_definition_at(candidate.read_version).metadata):
        return False
    metadata, patch = candidate.content.metadata, candidate.patch
    keys = list(metadata.configuration) if metadata else []
    if patch is not None:
        keys += [change.key for change in patch.changes if isinstance(change, SetProperty)]
    # Property names get their canonical case later.
    return row_tracking.ENABLED.lower() in map(str.lower, keys)


def rows_without_ids(candidate: Candidate, state: TableState) -> Rejection | None:
    """Return why row tracking can't be enabled, or None: some existing rows have no ids.

    Readers fail at a file without row ids if the table says that each row has one.
    """
    metadata = candidate.content.metadata
    if metadata is None or not row_tracking.is_enabled(metadata):
        return None
    if row_tracking.is_enabled(state.table_definition.metadata):
        return None
    row_ids = state.row_ids.get(candidate.read_version)
    if row_ids is None or len(state.files) == len(candidate.content.removed):
        return None
    lacked = row_ids.lacked or _added_without_ids(candidate, state)
    if not lacked:
        return None
    problem = f"turns on {row_tracking.ENABLED}: {lacked}"
    remedy = (
        "give every file row ids first (list the feature rowTracking, then add the files again as "
        "`ROW TRACKING BACKFILL`), or copy the rows into a new table"
    )
    return flaw(ROWS_WITHOUT_IDS, "metaData.configuration", problem, remedy)


def files_left_behind(content: CheckedActions, state: TableState) -> Rejection | None:
    """Return why files that stay could no longer be read, or None."""
    after, before = content.metadata, state.table_definition.metadata
    if after is None or mode_of(after) is mode_of(before):
        return None
    if len(state.files) == sum(path in state.files for path in content.removed):
        return None
    names, known = _names_in_files(after), _names_in_files(before)
    moved = [path for path in sorted(names.keys() & known.keys()) if names[path] != known[path]]
    if not moved:
        return None
    change = f"{mode_of(before).value} to {mode_of(after).value}"
    problem = (
        f"maps columns otherwise ({change}), and files have {dotted(moved[0])!r} by another name"
    )
    rejection = flaw(BAD_METADATA, "actions.metaData.configuration", problem, _WRITE_ANEW)
    return rejection.model_copy(update={"error_class": _OTHER_MODE})


def _names_in_files(metadata: Metadata) -> Mapping[FieldPath, FieldPath]:
    """Return the path of each column in the data files, by its logical path."""
    return {column.path: physical for physical, column in columns_by_physical(metadata).items()}


def _added_without_ids(candidate: Candidate, state: TableState) -> str:
    """Return which version after the read version added files without row ids, in words."""
    for entry in state.since(candidate.read_version):
        if entry.added and not state.table_definition_at(entry.version).tracks_rows:
            return f"version {entry.version} added files without row ids"
    return ""
