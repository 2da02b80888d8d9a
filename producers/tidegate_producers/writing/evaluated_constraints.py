"""Checks rows against a table's constraints without Spark, as far as that is possible.

A constraint is evaluated here if it is one of the conditions of `conditions/sql_condition.py`,
whose result is surely Spark's: comparisons, IN, BETWEEN and IS NULL of columns and values, with
AND, OR and NOT. Rows that need any other are refused by `column_checks.check_new_rows`.
"""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.constraints.row_constraints import (
    CheckConstraint,
    Invariant,
    WriteRequirements,
    hashes,
    requirements,
)
from tidegate_delta.data_skipping.partition_predicates import Predicate, columns_of, evaluate
from tidegate_delta.errors import InvalidRequest, UnsupportedFeature
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.schema.field_paths import dotted
from tidegate_delta.schema.types import parse_schema
from tidegate_runtime.conditions.sql_condition import predicate_of


@dataclass(frozen=True)
class ConstraintCheck:
    """Constraints that each row must meet, by their descriptions; null meets none of them."""

    constraints: tuple[tuple[str, Predicate], ...] = ()

    def check(self, rows: pa.Table) -> None:
        """Refuse rows that violate a constraint. Raises: InvalidRequest, naming it and a row."""
        for description, predicate in self.constraints:
            meets = pc.fill_null(evaluate(predicate, rows), False)
            violating = pc.index(meets, pa.scalar(False)).as_py()
            if violating >= 0:
                names = sorted(columns_of(predicate))
                row = {name: rows.column(name)[violating].as_py() for name in names}
                raise InvalidRequest(
                    f"{description} is not true for a row with {row}: correct the rows, or leave "
                    "such rows out; nothing was proposed",
                    error_class="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
                )


def evaluable_constraints(
    metadata: Metadata, protocol: Protocol
) -> tuple[ConstraintCheck, tuple[str, ...]]:
    """Return the check of a table's constraints that can be evaluated here, and their hashes.

    Raises: BrokenLog, for constraints that can't be read.
    """
    required = requirements(metadata, protocol)
    if not (required.checks or required.invariants):
        return ConstraintCheck(), ()
    schema = parse_schema(metadata.schema_string)
    evaluated: list[tuple[str, Predicate]] = []
    enforced: list[str] = []
    constraints: tuple[CheckConstraint | Invariant, ...] = (*required.checks, *required.invariants)
    for constraint in constraints:
        try:
            predicate = predicate_of(constraint.expression, schema)
        except (InvalidRequest, UnsupportedFeature):
            continue
        evaluated.append((_description(constraint), predicate))
        enforced += hashes(_alone(constraint))
    return ConstraintCheck(tuple(evaluated)), tuple(enforced)


def _alone(constraint: CheckConstraint | Invariant) -> WriteRequirements:
    if isinstance(constraint, CheckConstraint):
        return WriteRequirements(checks=(constraint,))
    return WriteRequirements(invariants=(constraint,))


def _description(constraint: CheckConstraint | Invariant) -> str:
    if isinstance(constraint, CheckConstraint):
        return f"the CHECK constraint {constraint.name} ({constraint.expression})"
    return f"the invariant of column {dotted(constraint.path)} ({constraint.expression})"
