"""Gives new rows values of identity columns: leased from the committer first, so that none is
given out twice and concurrent writers never conflict.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from tidegate_delta.constraints.identity_columns import IdentityColumn, with_marks
from tidegate_delta.constraints.row_constraints import Invariant, WriteRequirements
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Metadata
from tidegate_delta.schema.field_paths import same_name
from tidegate_delta.schema.sql_column_references import names_column
from tidegate_delta.schema.types import StructType as Fields
from tidegate_messages.proposal import IdentityBlock, IdentityDemand, IdentityUsage
from tidegate_producers.cached_clients import store_for
from tidegate_producers.datasource.spark_schema import from_spark
from tidegate_producers.options import TableLocation
from tidegate_producers.table.new_rows import checked
from tidegate_producers.table.target_frame import quoted
from tidegate_producers.writing.column_checks import lease
from tidegate_producers.writing.table_write import WriteRequest, propose, stamp_for
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client

_TASK: Final = "__tidegate_task"
_NUMBER: Final = "__tidegate_number"
_IN_TASK: Final = (1 << 33) - 1
"""The bits of `monotonically_increasing_id` that count the rows of a task."""


@dataclass(frozen=True)
class Leasing:
    """By whom, and for which proposal, identity values are leased."""

    client: Client
    place: TableLocation
    target: proposal_builders.Target
    request: WriteRequest


def generated(columns: Sequence[IdentityColumn], given: Sequence[str]) -> list[IdentityColumn]:
    """Return the identity columns whose values are generated: those that `given` does not name.

    Raises: InvalidRequest, for a column whose values may not be given.
    """
    generated_columns = []
    for column in columns:
        is_given = any(same_name(column.column, name) for name in given)
        if is_given and not column.allows_explicit:
            raise InvalidRequest(
                f"column {column.column!r} is GENERATED ALWAYS AS IDENTITY, and values are given "
                "for it: leave it out; nothing was proposed",
                error_class="DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED",
            )
        if not is_given:
            generated_columns.append(column)
    return generated_columns


def check_not_numbered(assigned: Iterable[str], columns: Sequence[IdentityColumn]) -> None:
    """Check that an update assigns no identity column. Raises: InvalidRequest."""
    for name in assigned:
        if any(same_name(column.column, name) for column in columns):
            raise InvalidRequest(
                f"{name!r} is an identity column, whose values stay as they are: leave it out of "
                "the update; nothing was proposed",
                error_class="DELTA_IDENTITY_COLUMNS_UPDATE_NOT_SUPPORTED",
            )


def check_before_lease(
    rows: DataFrame, required: WriteRequirements, given: Sequence[str], table: StructType
) -> None:
    """Check rows that have no identity values yet, so that none are leased for rows that are
    refused. What depends on identity values is checked when they are there.

    `given` are the columns with a given value. The rows are computed: they should be cached.
    Raises: Spark's error for a row that violates a constraint, which `refusals_of_tasks` reads.
    """
    early = without_identities(required, from_spark(table))
    checked(rows, early, given, table).count()


def without_identities(required: WriteRequirements, schema: Fields) -> WriteRequirements:
    """Return the requirements that do not depend on identity columns, NOT NULL among them."""
    late_columns = [identity.column for identity in required.identities]

    def is_early(expression: str) -> bool:
        return not any(names_column(expression, (name,), schema) for name in late_columns)

    generated_early = tuple(
        generation for generation in required.generated if is_early(generation.expression)
    )
    late_columns += [
        generation.column for generation in required.generated if generation not in generated_early
    ]
    not_null = [
        Invariant(column.path, column.physical, f"{quoted(column.path[0])} IS NOT NULL")
        for column in required.not_null
        if len(column.path) == 1 and column.path[0] not in late_columns
    ]
    return WriteRequirements(
        checks=tuple(check for check in required.checks if is_early(check.expression)),
        invariants=(
            *not_null,
            *(invariant for invariant in required.invariants if is_early(invariant.expression)),
        ),
        generated=generated_early,
        text_partitions=required.text_partitions,
    )


@dataclass(frozen=True)
class Numbered:
    """Rows with values in identity columns, what the proposal must say of them, and the version
    that leased them; None where nothing was leased.
    """

    rows: DataFrame
    usages: tuple[IdentityUsage, ...] = ()
    version: int | None = None

    def marked(self, metadata: Metadata) -> Metadata:
        """Return metadata with the high-water marks that the lease has set."""
        return with_marks(
            metadata, {usage.column: (usage.low, usage.high) for usage in self.usages}
        )


def numbered(rows: DataFrame, columns: Sequence[IdentityColumn], leasing: Leasing) -> Numbered:
    """Return rows with values in identity columns.

    A value that is there stays. The rows are counted first: they should be cached. The values come
    in the order of tasks and rows.
    Raises: Rejected (`no_identity_values_left`); OutcomeUnknown; Unavailable.
    """
    placed = rows.select(
        "*",
        F.spark_partition_id().alias(_TASK),
        F.monotonically_increasing_id().bitwiseAND(_IN_TASK).alias(_NUMBER),
    )
    counted = placed.groupBy(_TASK).count().collect()
    counts = {int(row[_TASK]): int(row["count"]) for row in counted}
    total = sum(counts.values())
    if total == 0:
        return Numbered(rows)
    demands = [IdentityDemand(column=column.physical, count=total) for column in columns]
    stamp = stamp_for(leasing.client, leasing.request)
    proposal = lease(leasing.target, stamp, *demands)
    store, timeout_s = store_for(leasing.place), leasing.request.timeout_s
    outcome = propose(leasing.client, store, proposal, timeout_s)
    granted = outcome.assigned["identity"]
    assert isinstance(granted, list), "the blocks of a lease"
    blocks = {block.column: block for block in map(IdentityBlock.model_validate, granted)}
    number = _number_of(counts)
    values = {
        column.column: F.coalesce(
            F.col(quoted(column.column)),
            F.lit(blocks[column.physical].first) + number * F.lit(blocks[column.physical].step),
        )
        for column in columns
    }
    usages = tuple(_usage(block, proposal.proposal_id) for block in blocks.values())
    completed = placed.withColumns(values).drop(_TASK, _NUMBER)
    return Numbered(completed, usages, outcome.version)


def _number_of(counts: dict[int, int]) -> Column:
    """Return the number of a row among all; it fails for a row that was not counted."""
    starts, start = [], 0
    for task in range(max(counts) + 1):
        starts.append(start)
        start += counts.get(task, 0)
    ends = [*starts[1:], start]
    first = F.element_at(F.array(*map(F.lit, starts)), F.col(_TASK) + 1)
    end = F.element_at(F.array(*map(F.lit, ends)), F.col(_TASK) + 1)
    number = first.cast("long") + F.col(_NUMBER)
    changed = F.raise_error(
        F.lit(
            "the rows were computed again and came otherwise than they were counted: cache or "
            "checkpoint them before the write; nothing was proposed"
        )
    )
    return F.when(number < end, number).otherwise(changed.cast("long"))


def _usage(block: IdentityBlock, lease_id: object) -> IdentityUsage:
    last = block.first + (block.count - 1) * block.step
    low, high = sorted((block.first, last))
    return IdentityUsage.model_validate(
        {"column": block.column, "low": low, "high": high, "lease": lease_id}
    )
