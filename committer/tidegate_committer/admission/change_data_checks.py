"""Check that readers of the change feed learn exactly what a proposal changes.

If a version has change files, readers use only these; otherwise they use its added and removed
files. So a proposal with change files must bring all of them, and one without must not rewrite rows
that stay.
"""

from collections.abc import Mapping
from typing import Final

from tidegate_committer.admission.constraint_checks import new_files
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.refusals import CDC_MODE, CHANGE_FILES, COLUMNS_AND_ROWS, flaw
from tidegate_committer.state.table_definition import TableDefinition
from tidegate_delta.log.actions import Add
from tidegate_delta.schema.column_mapping import ColumnMappingMode, dropped, mode_of, renamed
from tidegate_delta.schema.partition_values import partition_of
from tidegate_messages.outcome import Rejection

REWRITES: Final = frozenset({"DELETE", "UPDATE"})
"""Operations that add rows only in place of rows that they remove."""

MAY_CHANGE_NOTHING: Final = frozenset({"MERGE"})
"""Operations that may rewrite a file without changing any row of it."""

_MODE: Final = "cdc_mode"
_FILES: Final = "actions.cdc"
_BRING_THEM: Final = "write the rows that changed into change files and name them in cdc actions"


def cdc_mode_problem(candidate: Candidate, after: TableDefinition) -> Rejection | None:
    """Return why a proposal's changes could not be derived from its actions, or None."""
    asserted = candidate.proposal.cdc_mode if candidate.proposal else None
    if not after.feeds_changes or (asserted is None and candidate.is_plain_append):
        # Readers derive inserted rows from the added files.
        return None
    joins, leaves = _joins(candidate), _leaves(candidate)
    changes_rows = joins or leaves
    is_explicit = bool(candidate.content.changes)
    if is_explicit and not changes_rows:
        problem = "name change files, and no row joins or leaves"
        return flaw(CDC_MODE, _FILES, problem, "leave them out: rows that are moved do not change")
    if asserted == "none" and changes_rows:
        problem = "is none, and rows join or leave"
        return flaw(CDC_MODE, _MODE, problem, "say explicit or implicit, or dataChange: false")
    if asserted in ("implicit", "none") and is_explicit:
        problem = f"is {asserted}, and there are change files, which alone would be read"
        return flaw(CDC_MODE, _MODE, problem, "say explicit, or leave them out")
    if is_explicit or not changes_rows:
        return None
    if asserted == "explicit":
        return flaw(CHANGE_FILES, _FILES, "are none, and cdc_mode is explicit", _BRING_THEM)
    return _not_derivable(candidate) if joins and leaves else None


def columns_change(
    candidate: Candidate, read: TableDefinition, after: TableDefinition
) -> Rejection | None:
    """Return why rows may not change in a version that renames or drops columns, or None.

    Readers of the change feed would each choose one of the column's two names.
    """
    content = candidate.content
    if content.metadata is None or not (content.has_files and after.feeds_changes):
        return None
    mode = mode_of(after.metadata)
    if mode is ColumnMappingMode.NONE:
        return None
    if mode_of(read.metadata) is not ColumnMappingMode.NONE:
        schemas = read.schema, after.schema
        if not (dropped(*schemas, mode) or renamed(*schemas, mode)):
            return None
    problem = (
        "maps, renames or drops columns, and files join or leave in a table with a change feed"
    )
    return flaw(
        COLUMNS_AND_ROWS, "actions.metaData", problem, "change the columns in a version alone"
    )


def incomplete(
    candidate: Candidate, table_definition: TableDefinition, files: Mapping[str, Add]
) -> Rejection | None:
    """Return the refusal of a partition in which rows change without a change file, or None.

    `files` are the live files that lose rows, by canonical path, as far as they are known.
    """
    content = candidate.content
    if not (content.changes and table_definition.feeds_changes):
        return None
    if candidate.operation in MAY_CHANGE_NOTHING:
        return None
    kinds = table_definition.partition_kinds
    with_change_file = {partition_of(change.partition_values, kinds) for change in content.changes}
    touched = [(add.path, add.partition_values) for add in content.adds if add.data_change]
    touched += [
        (remove.path, remove.partition_values)
        for remove in content.removes
        if remove.data_change and remove.partition_values is not None
    ]
    touched += [
        (files[path].path, files[path].partition_values)
        for path in sorted(candidate.intended & files.keys())
    ]
    for path, values in touched:
        if partition_of(values, kinds) not in with_change_file:
            return flaw(
                CHANGE_FILES,
                _FILES,
                f"none is of the partition of {path[:128]!r}, in which rows change",
                _BRING_THEM,
                path=path,
            )
    return None


def _not_derivable(candidate: Candidate) -> Rejection | None:
    """Refuse rows that are added and removed if only the writer knows which are the same row."""
    updates = any(intent.is_update for intent in candidate.intents)
    asserted = candidate.proposal.cdc_mode if candidate.proposal else None
    if asserted == "implicit" and not updates and candidate.operation not in REWRITES:
        return None
    remedy = _BRING_THEM
    if not updates and candidate.operation not in REWRITES:
        remedy += "; or say cdc_mode: implicit, where no row that leaves comes back"
    problem = "are none, and rows leave and join: which of them changed could not be told"
    return flaw(CHANGE_FILES, _FILES, problem, remedy)


def _joins(candidate: Candidate) -> bool:
    return next(new_files(candidate), None) is not None


def _leaves(candidate: Candidate) -> bool:
    return bool(candidate.intents) or any(
        remove.data_change for remove in candidate.content.removes
    )
