"""Admission: is a proposal legal for the table that it read, in time, and allowed by the operator?

Where a result depends on time or settings, its refusal is written into the log before it is
published. `ADMISSION` holds the checks in their order; the first refusal is the one that the writer
gets.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tidegate_committer.admission import change_data_checks, constraint_checks, feature_checks
from tidegate_committer.admission.feature_checks import DROP_FEATURE
from tidegate_committer.admission.identity_allocation import BRING_BACK
from tidegate_committer.admission.table_change_checks import table_change_problem
from tidegate_committer.intake.action_reader import NAME_CHARS_MAX, OUR_APPS
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_actions import CheckedActions, canonical
from tidegate_committer.intake.refusals import (
    BAD_PREDICATE,
    FEATURE_NOT_LISTED,
    PARTITION_VALUES,
    TOO_LARGE,
    flaw,
)
from tidegate_committer.policy import LEVELS, STRICTNESS, Level, Policy
from tidegate_committer.row_level.row_relocation import ids_left_behind
from tidegate_committer.state.table_definition import TableDefinition
from tidegate_delta.data_skipping.predicate_tree import predicate_problem
from tidegate_delta.log.actions import Add, Cdc, Metadata
from tidegate_delta.schema import partition_value_checks
from tidegate_messages.outcome import Rejection
from tidegate_messages.proposal import Proposal

OPERATION_CHARS_MAX: Final = 128
PARTITIONS_MAX: Final = 4_096
"""Most partitions of a table whose values are cached as valid."""


class AdmissionInput(NamedTuple):
    """The table's root, its definition at the read version (None: no table yet), and the time."""

    root: str
    read: TableDefinition | None
    now_ms: int


class _Case(NamedTuple):
    candidate: Candidate
    proposal: Proposal
    input: AdmissionInput
    policy: Policy
    after: TableDefinition | None


AdmissionCheck = Callable[[_Case], Rejection | None]


def table_level(metadata: Metadata) -> Level:
    """Return a table's isolation level; an unknown one counts as the strictest."""
    named = metadata.configuration.get("delta.isolationLevel", "").lower()
    return LEVELS.get(named, "Serializable")


def level_of(candidate: Candidate, read: TableDefinition) -> Level:
    """Return a proposal's isolation level: its own, else that of the table it read or writes."""
    return candidate.level(table_level(candidate.content.metadata or read.metadata))


def refusal(
    candidate: Candidate, admission_input: AdmissionInput, policy: Policy
) -> Rejection | None:
    """Return why a candidate is refused, or None."""
    if candidate.flaw is not None:
        return candidate.flaw
    assert candidate.proposal is not None, "what is no proposal has a flaw"
    content, after = candidate.content, admission_input.read
    if content.metadata is not None or content.protocol is not None:
        after = _after(content, after)
    case = _Case(candidate, candidate.proposal, admission_input, policy, after)
    for check in ADMISSION:
        rejection = check(case)
        if rejection is not None:
            return rejection
    return None


def late_or_wrong_table(
    candidate: Candidate, admission_input: AdmissionInput, policy: Policy
) -> Rejection | None:
    """Return why a verbatim entry comes too late or is for another table, or None."""
    assert candidate.proposal is not None, "verbatim bytes are proposed"
    case = _Case(candidate, candidate.proposal, admission_input, policy, admission_input.read)
    return right_table(case) or in_time(case)


def _after(content: CheckedActions, read: TableDefinition | None) -> TableDefinition | None:
    """Return the table read with the proposal's definition, or None if they define no table."""
    metadata, protocol = content.metadata, content.protocol
    if read is not None:
        return read.after(metadata, protocol)
    return TableDefinition(metadata, protocol) if metadata and protocol else None


def right_table(case: _Case) -> Rejection | None:
    """The proposal was made for the table that is here now."""
    if case.proposal.table_root != case.input.root:
        return flaw(
            "other_root",
            "table_root",
            f"is {case.proposal.table_root[:256]!r}, the table is registered at {case.input.root}",
            "propose with the registered root",
        )
    read_id = case.input.read.metadata.id if case.input.read else None
    if case.proposal.table_id == read_id:
        return None
    if case.proposal.table_id is None and case.candidate.is_verbatim:
        # The writer of a log has the bytes of a version, and may not know the table's id.
        return None
    table_id = (case.proposal.table_id or "")[:64]
    return flaw(
        "other_table",
        "table_id",
        f"is {table_id!r}, the table at read_version had the id {read_id!r}",
        "read the table that is here and propose again",
    )


def in_time(case: _Case) -> Rejection | None:
    """The deadline has not passed, and the files are younger than those that VACUUM may delete."""
    deadline, since = case.proposal.deadline_ms, case.candidate.since_ms
    if deadline is not None and case.input.now_ms > deadline:
        return flaw(
            "deadline_passed",
            "deadline_ms",
            f"passed {case.input.now_ms - deadline} ms ago",
            "propose again with a later deadline",
            advice="rerun",
        )
    age = 0 if since is None else case.input.now_ms - since
    if age <= case.policy.files_age_max_ms:
        return None
    candidate = case.candidate
    brings_files = candidate.content.adds or any(
        intent.inline is None for intent in candidate.intents
    )
    if not brings_files:
        return None
    return flaw(
        "files_too_old",
        "files_since_ms",
        f"the files are {age} ms old, so vacuum may have deleted them",
        f"write them again; {case.policy.files_age_max_ms} ms are allowed",
        advice="rerun",
    )


def allowed_isolation(case: _Case) -> Rejection | None:
    """The requested isolation level is not weaker than the operator allows."""
    isolation = case.proposal.isolation
    weakest = case.policy.weakest_isolation
    if isolation == "default" or STRICTNESS.index(isolation) >= STRICTNESS.index(weakest):
        return None
    return flaw(
        "isolation_not_allowed",
        "isolation",
        f"{isolation} is weaker than {weakest}, the weakest that is allowed",
        "ask for a stronger level",
    )


def understood(case: _Case) -> Rejection | None:
    """The predicates are ones that this release understands."""
    predicates = case.candidate.reads.predicates
    mistake = predicate_problem(predicates, case.policy.predicate_nodes_max) if predicates else None
    if mistake is not None:
        rule = TOO_LARGE if mistake.is_too_large else BAD_PREDICATE
        field, remedy = f"reads.predicates[{mistake.place}]", "use the grammar of read sets"
        return flaw(rule, field, mistake.what, f"{remedy}, or say `opaque`")
    return None


def well_named(case: _Case) -> Rejection | None:
    """Names are short, and no application is named twice."""
    proposal = case.proposal
    if len(case.candidate.operation) > OPERATION_CHARS_MAX:
        problem = f"is longer than {OPERATION_CHARS_MAX} characters"
        return flaw(TOO_LARGE, "operation.name", problem, "use one of Delta's names")
    if proposal.app_txn is None and not proposal.app_txns:
        return None
    own = {f"app_txns[{index}]": txn.app_id for index, txn in enumerate(proposal.app_txns)}
    if proposal.app_txn is not None:
        own["app_txn"] = proposal.app_txn.app_id
    named = {txn.app_id for txn in case.candidate.content.txns}
    for field, app_id in own.items():
        if len(app_id) > NAME_CHARS_MAX:
            problem = f"is longer than {NAME_CHARS_MAX} characters"
            return flaw(TOO_LARGE, f"{field}.app_id", problem, "shorten it")
        if app_id.startswith(OUR_APPS) or app_id in named:
            return flaw(
                "duplicate_action",
                f"{field}.app_id",
                f"{app_id[:64]!r} is the committer's, or stands twice in the proposal",
                "give each application once, under a name of its own",
            )
        named.add(app_id)
    return None


def legal_table(case: _Case) -> Rejection | None:
    """The metadata, protocol and dropped features are legal, and this release supports them."""
    content, admission_input = case.candidate.content, case.input
    if admission_input.read is None and not (content.metadata and content.protocol):
        return flaw(
            "bad_metadata",
            "actions",
            "a table begins with metaData and protocol",
            "put both into the first proposal",
        )
    if content.metadata is None and content.protocol is None:
        return None
    rejection = table_change_problem(
        content, admission_input.read, admission_input.root, case.policy, case.candidate.operation
    )
    drops = rejection is None or (
        rejection.rule == FEATURE_NOT_LISTED and case.candidate.operation == DROP_FEATURE
    )
    if not drops or admission_input.read is None or case.after is None:
        return rejection
    # If the metadata still uses a dropped feature, the refusal is `feature_in_use`.
    return (
        feature_checks.feature_drop_problem(case.candidate, admission_input.read, case.after)
        or rejection
    )


def clear(case: _Case) -> Rejection | None:
    """The table's properties say how it must be written, after the changes of the proposal.

    delta-spark commits nothing to a table where they do not. The result of a patch is checked at
    the head.
    """
    unclear = case.after.unclear if case.after else None
    if unclear is None or case.candidate.patch is not None:
        return None
    rejection = flaw("unclear_table", "table", unclear.what, "set that property of the table first")
    return rejection.model_copy(update={"error_class": unclear.error_class})


def removable(case: _Case) -> Rejection | None:
    """No row is removed from a table that was append-only when it was read."""
    content, read = case.candidate.content, case.input.read
    return feature_checks.removal_problem(content, read) if content.removes and read else None


def legal_by_features(case: _Case) -> Rejection | None:
    """Vectors, domains and new files are allowed by the table's features."""
    content, after = case.candidate.content, case.after
    if after is None or not (content.vectors or content.domains or after.tracks_rows):
        return None
    return (
        ids_left_behind(case.candidate, after)
        or feature_checks.vector_problem(case.candidate, after)
        or feature_checks.uncounted_rows(case.candidate, after)
        or feature_checks.domain_problem(case.candidate, after)
    )


def held_to_constraints(case: _Case) -> Rejection | None:
    """The writer attests the table's constraints for its rows; statistics do not disprove it."""
    candidate, after, read = case.candidate, case.after, case.input.read
    if after is None:
        return None
    rejection = None
    if read is not None and read is not after:
        rejection = constraint_checks.not_validated(candidate, read, after)
    if rejection is None and after.expressions:
        rejection = constraint_checks.not_enforced(candidate, after)
    return rejection or constraint_checks.statistics_problem(candidate, after)


def change_data_complete(case: _Case) -> Rejection | None:
    """Readers of the table's change feed can tell which rows the proposal changes."""
    candidate, after, read = case.candidate, case.after, case.input.read
    if after is None or not after.feeds_changes:
        return None
    rejection = change_data_checks.columns_change(candidate, read, after) if read else None
    return rejection or change_data_checks.cdc_mode_problem(candidate, after)


def partitioned_alike(case: _Case) -> Rejection | None:
    """Each file has a value of the right type for each partition column and for nothing else."""
    content, after = case.candidate.content, case.after
    if after is None or not (content.adds or content.changes):
        return None
    return partitioning_problem(content, after, case.candidate.operation)


def partitioning_problem(
    content: CheckedActions, table_definition: TableDefinition, operation: str | None
) -> Rejection | None:
    """Return which file does not fit a table's partitioning, or None.

    An `operation` that brings files back keeps their values as they were written.
    """
    kinds, right = table_definition.partition_kinds, table_definition.right_partitions
    columns = kinds.keys()
    files: Sequence[Add | Cdc] = (
        (*content.adds, *content.changes) if content.changes else content.adds
    )
    for file in files:
        values = file.partition_values
        key = frozenset(values.items())
        if key in right:
            continue
        if values.keys() != columns:
            return flaw(
                PARTITION_VALUES,
                f"{file.wire_name}.partitionValues",
                f"{file.path[:128]!r} has values for {sorted(values)[:20]}, the table is "
                f"partitioned by {sorted(columns)}",
                "give exactly those, by their physical names",
                path=file.path,
            )
        is_new = operation not in BRING_BACK and _is_new(file, content)
        rejection = _mistyped(file, table_definition, is_new=is_new)
        if rejection is not None:
            return rejection
        if len(right) >= PARTITIONS_MAX:
            right.clear()
        if is_new:
            right.add(key)
    return None


def _mistyped(
    file: Add | Cdc, table_definition: TableDefinition, *, is_new: bool
) -> Rejection | None:
    """Return which partition value is not of its column's type, or None.

    A file that was in the table before keeps its values as its writer wrote them, and so does one
    from before its column was widened.
    """
    for name, text in file.partition_values.items():
        kind = table_definition.partition_kinds[name]
        is_widened = name in table_definition.widened_partitions
        try:
            partition_value_checks.check_of_file(text, kind, is_new=is_new, is_widened=is_widened)
        except ValueError as error:
            return flaw(
                PARTITION_VALUES,
                f"{file.wire_name}.partitionValues.{name}",
                f"{file.path[:128]!r}: {error}",
                f"write the value as {kind}",
                path=file.path,
            )
    return None


def _is_new(file: Add | Cdc, content: CheckedActions) -> bool:
    if isinstance(file, Cdc) or not content.removes:
        return isinstance(file, Cdc) or file.data_change
    return file.data_change and canonical(file.path) not in content.removed


ADMISSION: Final[tuple[AdmissionCheck, ...]] = (
    right_table,
    in_time,
    allowed_isolation,
    understood,
    well_named,
    legal_table,
    clear,
    removable,
    legal_by_features,
    held_to_constraints,
    change_data_complete,
    partitioned_alike,
)
