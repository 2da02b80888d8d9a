"""`Table.update`, and `Table.delete` by a condition that only Spark can evaluate."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tidegate_delta.data_skipping.partition_predicates import Predicate
from tidegate_delta.schema.types import StructType
from tidegate_producers.table.identity_values import check_not_numbered
from tidegate_producers.table.new_rows import (
    Expression,
    as_column,
    by_column,
    check_deterministic,
    stored,
)
from tidegate_producers.table.row_changes import ACTION, DELETED, UPDATED
from tidegate_producers.table.row_level_change import NewRows, Opened, RowChange
from tidegate_producers.table.target_frame import FILE, POSITION, quoted, table_columns
from tidegate_runtime.conditions.sql_condition import is_row_by_row, wider_predicate_of

EVERY_ROW: Final = "true"


def deletion(condition: Expression, alias: str | None, zone: str) -> RowChange:
    """Return the delete of the rows for which a condition is true."""

    def changed(frame: DataFrame, opened: Opened) -> NewRows:
        rows = aliased(frame, alias).where(as_column(condition, "condition"))
        old = (F.col(quoted(name)) for name in opened.schema.names)
        passed_columns = opened.kept(old)
        return NewRows(rows.select(F.lit(DELETED).alias(ACTION), FILE, POSITION, *passed_columns))

    return RowChange(
        "DELETE",
        text_of(condition),
        reads_of(condition, zone, alias),
        changed,
        is_row_by_row=is_row_by_row(text_of(condition)),
    )


def updating(
    condition: Expression, assigned: Mapping[str, Expression], alias: str | None, zone: str
) -> RowChange:
    """Return the update of the rows for which a condition is true."""

    def changed(frame: DataFrame, opened: Opened) -> NewRows:
        columns = opened.schema.names
        current = {name: F.col(quoted(name)) for name in columns}
        table = table_columns(frame.schema)
        unknown = "UNRESOLVED_COLUMN.WITH_SUGGESTION"
        values = by_column(assigned, table, "update", current, alias, unknown)
        check_not_numbered(values, opened.required.identities)
        rows = aliased(frame, alias)
        check_deterministic(rows, values)
        rows = rows.where(as_column(condition, "condition"))
        every, old = {**current, **values}, current.values()
        new = rows.select(
            F.lit(UPDATED).alias(ACTION),
            FILE,
            POSITION,
            *stored(rows, every, frame.schema),
            *opened.kept(old),
        )
        return NewRows(new, list(values))

    return RowChange(
        "UPDATE",
        text_of(condition),
        reads_of(condition, zone, alias, assigned.values()),
        changed,
        is_row_by_row=all(
            is_row_by_row(text_of(expression)) for expression in (condition, *assigned.values())
        ),
    )


def aliased(frame: DataFrame, alias: str | None) -> DataFrame:
    """Return a frame under the table's alias, if it has one."""
    return frame if alias is None else frame.alias(alias)


def text_of(condition: Expression) -> str:
    """Return a condition's text for the table's history."""
    if isinstance(condition, str):
        return condition
    return str(condition).removeprefix("Column<'").removesuffix("'>")


def reads_of(
    condition: Expression, zone: str, alias: str | None, values: Iterable[Expression] = ()
) -> Callable[[StructType], Predicate]:
    """Return what a change reads; the text of a Column quotes nothing, so it proves nothing.

    Raises: UnsupportedFeature, for a sub-query in the condition or a value.
    """

    def predicate(schema: StructType) -> Predicate:
        reads_predicate, *_ = [
            wider_predicate_of(text_of(expression), schema, zone, alias)
            for expression in (condition, *values)
        ]
        if isinstance(condition, str):
            return reads_predicate
        return {"op": "opaque", "columns": [], "text": text_of(condition)}

    return predicate
