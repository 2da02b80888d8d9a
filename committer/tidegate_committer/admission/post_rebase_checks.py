"""Checks of a proposal against the table at the head, after it is rebased over all winners."""

from collections.abc import Sequence

from tidegate_committer.admission import change_data_checks, constraint_checks, feature_checks
from tidegate_committer.admission.admission_rules import partitioning_problem
from tidegate_committer.admission.feature_checks import before_drop, in_use, left_in
from tidegate_committer.admission.table_change_checks import (
    drops_row_ids,
    files_left_behind,
    rows_without_ids,
    table_change_problem,
)
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.path_checks import ELSEWHERE, NEARER, lies_under, new_path_problem
from tidegate_committer.intake.proposal_actions import CheckedActions, canonical
from tidegate_committer.intake.refusals import (
    BAD_PATH,
    FEATURE_IN_USE,
    PARTITION_VALUES,
    PLACE,
    flaw,
)
from tidegate_committer.policy import Policy
from tidegate_committer.row_level import row_deletes
from tidegate_committer.state.fetched_inputs import FetchedInputs
from tidegate_committer.state.live_files import GONE, LiveFiles
from tidegate_committer.state.path_normal_form import path_spelling_problem, spelling_of
from tidegate_committer.state.table_definition import TableDefinition
from tidegate_committer.state.table_state import TableState
from tidegate_delta.features import row_tracking
from tidegate_delta.log.file_paths import is_absolute
from tidegate_messages.outcome import Rejection


def problem_at_head(
    candidate: Candidate, state: TableState, policy: Policy, known: FetchedInputs
) -> Rejection | None:
    """Return why a proposal is illegal for the table at the head, or None.

    This comes after the conflict rules, which explain better what a winner did, and uses the
    proposal as it is after the winners.
    """
    content, live = candidate.content, state.files
    since, table_definition = state.table_definitions[-1]
    has_moved = since > candidate.read_version
    rejection = _problem_since(candidate, state, policy) if has_moved else None
    if rejection is None and content.protocol is not None:
        rejection = _traces(
            candidate, state, table_definition.after(content.metadata, content.protocol)
        )
    if rejection is None and content.metadata is not None:
        rejection = rows_without_ids(candidate, state) or files_left_behind(content, state)
    rejection = rejection or feature_checks.removal_problem(content, table_definition)
    if rejection is not None:
        return rejection
    after = table_definition.after(content.metadata, content.protocol)
    if content.has_row_ids or has_moved or candidate.is_unbackfill:
        rejection = feature_checks.uncounted_rows(candidate, after)
    if rejection is None and after.tracks_rows:
        mark = row_tracking.high_water_mark(state.domains)
        rejection = feature_checks.no_ids_left(candidate, after, mark)
    rejection = (
        rejection
        or removed_file_problem(content, live)
        or new_path_form_problem(content, state, policy.roots, candidate.returned)
    )
    rejection = (
        rejection or _live_file(content, live) or path_spelling_problem(content, live, state.spelt)
    )
    if rejection is not None or not (content.vectors or content.removed_vectors):
        return rejection
    rejection = in_another_partition(content)
    return rejection or row_deletes.new_vector_problem(candidate, live, known, policy)


def _problem_since(candidate: Candidate, state: TableState, policy: Policy) -> Rejection | None:
    """Return why a proposal is illegal after table changes by winners that did not conflict."""
    content = candidate.content
    if content.metadata is not None or content.protocol is not None:
        rejection = table_change_problem(
            content, state.table_definition, state.root, policy, candidate.operation
        )
        if rejection is not None:
            return rejection
    after = state.table_definition.after(content.metadata, content.protocol)
    rejection = (
        constraint_checks.not_enforced(candidate, after, has_changed=True)
        or constraint_checks.statistics_problem(candidate, after)
        or change_data_checks.cdc_mode_problem(candidate, after)
    )
    if rejection is not None or not (content.adds or content.changes):
        return rejection
    return partitioning_problem(content, state.table_definition, candidate.operation)


def _traces(candidate: Candidate, state: TableState, after: TableDefinition) -> Rejection | None:
    """Return why a feature can't be dropped: some file or domain of the table still uses it."""
    dropped = state.table_definition.features - after.features
    trace = in_use(dropped, after, left_in(state)) if dropped else None
    if trace is None and drops_row_ids(candidate, state):
        row_ids = state.row_ids.get(candidate.read_version)
        trace = (row_ids.carried if row_ids else "") or None
    if trace is None:
        return None
    return flaw(
        FEATURE_IN_USE,
        "actions.protocol",
        f"drops {', '.join(sorted(dropped))}: {trace}",
        before_drop(dropped),
    )


def removed_file_problem(content: CheckedActions, live: LiveFiles) -> Rejection | None:
    """Return which removed file is not live, or not live with this vector, or None."""
    if not content.removed:
        return None
    vectors = content.removed_vectors
    missing: list[str] = []
    changed: list[str] = []
    for path, vector in zip(content.removed, live.vectors_of(content.removed), strict=True):
        if vector != vectors.get(path):
            (missing if vector == GONE else changed).append(path)
    if missing:
        dead = min(missing)
        problem = f"{dead[:128]!r} is removed, and is no file of the table"
    elif changed:
        dead = min(changed)
        problem = f"{dead[:128]!r} is removed with another deletion vector than it has"
    else:
        return None
    advice = "read the table and propose again"
    return flaw("removed_file_not_live", "actions", problem, advice, path=dead)


def in_another_partition(content: CheckedActions) -> Rejection | None:
    """Return which file is removed and added again in another partition, or None."""
    if not (content.vectors or content.removed_vectors):
        return None
    known = {canonical(remove.path): remove.partition_values for remove in content.removes}
    for add, (path, values) in zip(content.adds, content.added, strict=True):
        # A remove need not have partition values, and delta-spark leaves out those that are null.
        before = {name: value for name, value in (known.get(path) or {}).items() if value}
        if before and before != {name: value for name, value in values.items() if value}:
            problem = f"{add.path[:128]!r} leaves with other values than it comes again with"
            remedy = "give those that it has: its rows stay where they are"
            field = "actions.add.partitionValues"
            return flaw(PARTITION_VALUES, field, problem, remedy, path=add.path)
    return None


def new_path_form_problem(
    content: CheckedActions,
    state: TableState,
    roots: Sequence[str],
    returned: frozenset[str] = frozenset(),
) -> Rejection | None:
    """Return which added file has a path that no new file may have, or None.

    A file that is in the table under this path, or was and is `returned`, may be added again. One
    outside of the table's root must lie under one of `roots`. Below its root a file has one path,
    which is relative.
    """
    if content.is_plain:
        return None
    live, normal_forms = state.files, state.spelt
    for add, (path, _) in zip(content.adds, content.added, strict=True):
        rejection = new_path_problem(add.path)
        is_there = path in live and add.path == spelling_of(path, normal_forms)
        is_there = is_there or path in returned
        if add.data_change and is_absolute(add.path) and not is_there:
            if lies_under(add.path, (state.root,)):
                rejection = "names a file below the table root by a URI"
            elif lies_under(add.path, roots):
                continue
            else:
                problem = f"{add.path[:128]!r} {ELSEWHERE}"
                return flaw(PLACE, "actions.add.path", problem, NEARER, path=add.path)
        if rejection is not None and not is_there:
            remedy = "name a new file below the table root, percent-encoded once"
            problem = f"{add.path[:128]!r} {rejection}"
            return flaw(BAD_PATH, "actions.add.path", problem, remedy, path=add.path)
    return None


def _live_file(content: CheckedActions, live: LiveFiles) -> Rejection | None:
    paths = [path for path, _ in content.added]
    for add, path, vector in zip(content.adds, paths, live.vectors_of(paths), strict=True):
        if path in content.removed:
            # The file is removed with its vector and added again with another one.
            continue
        is_live = vector != GONE
        if is_live and (add.data_change or vector != content.vectors.get(path)):
            return flaw(
                "added_file_live",
                "actions",
                f"{path[:128]!r} is in the table already",
                "write new rows under a new name, or remove the file with the vector that it has",
                path=path,
            )
        if not (add.data_change or content.removes or is_live):
            return flaw(
                "rows_from_nowhere",
                "actions",
                f"{path[:128]!r} joins without changing data, and no file leaves",
                "say dataChange, or remove the files whose rows it holds",
                path=path,
            )
    return None
