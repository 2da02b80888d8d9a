"""Check that a proposal attests the table's constraints, and that statistics do not disprove it.

The committer never opens data files. A writer that evaluates SQL attests by hashes which
expressions held for every row. What statistics can disprove is refused.
"""

from collections.abc import Iterator
from typing import Any, Final

import orjson

from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.refusals import (
    BOUNDS_OF_VARIANTS,
    NOT_ENFORCED,
    NOT_VALIDATED,
    NULL_IN_REQUIRED,
    flaw,
)
from tidegate_committer.state.table_definition import TableDefinition
from tidegate_delta.constraints.row_constraints import expressions, unenforced
from tidegate_delta.log.actions import Add
from tidegate_delta.schema.field_paths import FieldPath
from tidegate_messages.outcome import Rejection

WORDS_CHARS_MAX: Final = 256

_FIELD: Final = "constraints_enforced"
_EVERYTHING: Final = {"op": "true"}


def new_files(candidate: Candidate) -> Iterator[Add]:
    """Yield the files with new rows: no moved rows, and no file that only has another vector."""
    content = candidate.content
    for add, (path, _) in zip(content.adds, content.added, strict=True):
        if add.data_change and path not in content.removed:
            yield add


def not_enforced(
    candidate: Candidate, after: TableDefinition, *, has_changed: bool = False
) -> Rejection | None:
    """Return the refusal for a constraint that the writer did not attest for its rows, or None.

    `has_changed` says that the table has changed since the writer read it.
    """
    if not after.expressions or next(new_files(candidate), None) is None:
        return None
    lacking = _lacking(candidate, after)
    if not lacking:
        return None
    return flaw(
        NOT_ENFORCED,
        _FIELD,
        f"lacks the hash of {_described(lacking)}, to which the table holds every new row",
        "read the table, evaluate it on every row and propose again with its hash"
        if has_changed
        else "evaluate it on every row and give its hash, or write by an engine that does",
        advice="rebase" if has_changed else "fix",
    )


def not_validated(
    candidate: Candidate, read: TableDefinition, after: TableDefinition
) -> Rejection | None:
    """Return the refusal for a new constraint that was not checked on the table's rows, or None."""
    new = after.expressions.keys() - read.expressions.keys() if after is not read else None
    if not new:
        return None
    expression = after.expressions[min(new)][:WORDS_CHARS_MAX]
    proposal, reads = candidate.proposal, candidate.reads
    enforced = proposal.constraints_enforced if proposal else ()
    if not new <= set(enforced):
        remedy = "evaluate it on every row of the table and give its hash in constraints_enforced"
        return flaw(NOT_VALIDATED, _FIELD, f"lacks the hash of {expression}, which is new", remedy)
    was_read = reads.whole_table or _EVERYTHING in reads.predicates
    isolation = proposal.isolation if proposal else "default"
    if was_read and isolation != "SnapshotIsolation":
        return None
    field = "isolation" if was_read else "reads"
    problem = f"rows that join meanwhile would not be held to {expression}, which is new"
    remedy = "say that the whole table was read, under WriteSerializable at least"
    return flaw(NOT_VALIDATED, field, problem, remedy)


def statistics_problem(candidate: Candidate, after: TableDefinition) -> Rejection | None:
    """Return which file's statistics disprove a requirement of the table, or None."""
    if not (after.never_null or after.unbounded_variants):
        return None
    for add in new_files(candidate):
        statistics: dict[str, Any] = orjson.loads(add.stats or "{}")
        rejection = _null_at(add, statistics, after) or _bounded_variant(add, statistics, after)
        if rejection is not None:
            return rejection
    return None


def _null_at(add: Add, statistics: dict[str, Any], after: TableDefinition) -> Rejection | None:
    """Return which column has nulls that it may not have, by its statistics, or None.

    If rows are deleted, the counts still include them, so they prove nothing.
    """
    is_exact = add.deletion_vector is None and statistics.get("tightBounds") is not False
    for path in after.never_null:
        if path[0] in after.partition_kinds:
            is_null = not add.partition_values.get(path[0])
        else:
            count = _statistic_at(statistics, "nullCount", path)
            is_null = is_exact and type(count) is int and count > 0
        if is_null:
            return flaw(
                NULL_IN_REQUIRED,
                "actions.add",
                f"{add.path[:128]!r} has rows where {_dotted(path)} is null, which it may not be",
                "leave these rows out, or let the column be nullable",
                path=add.path,
            )
    return None


def _bounded_variant(
    add: Add, statistics: dict[str, Any], after: TableDefinition
) -> Rejection | None:
    """Return which variant has bounds that only a shredded one may have, or None."""
    for path in after.unbounded_variants:
        for name in ("minValues", "maxValues"):
            if _statistic_at(statistics, name, path) is not None:
                return flaw(
                    BOUNDS_OF_VARIANTS,
                    f"actions.add.stats.{name}",
                    f"{add.path[:128]!r} has bounds of the variant {_dotted(path)}, and the table "
                    "takes no shredded ones",
                    "leave them out, or set delta.enableVariantShredding",
                    path=add.path,
                )
    return None


def _lacking(candidate: Candidate, after: TableDefinition) -> tuple[str, ...]:
    """Return the constraints that the proposal does not attest, in words."""
    attested = candidate.proposal.constraints_enforced if candidate.proposal else ()
    if after.expressions.keys() <= set(attested):
        return ()
    return unenforced(expressions(after.required), attested)


def _described(lacking: tuple[str, ...]) -> str:
    first = lacking[0][:WORDS_CHARS_MAX]
    return first if len(lacking) == 1 else f"{first} and of {len(lacking) - 1} more"


def _dotted(path: FieldPath) -> str:
    return repr(".".join(path)[:WORDS_CHARS_MAX])


def _statistic_at(statistics: Any, name: str, path: FieldPath) -> Any:
    for step in (name, *path):
        statistics = statistics.get(step) if isinstance(statistics, dict) else None
    return statistics
