"""`Table.overwrite`: other rows instead of those for which a condition is true."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from tidegate_producers.datasource.spark_schema import from_spark
from tidegate_producers.table.append import filled, filled_names
from tidegate_producers.table.identity_values import generated
from tidegate_producers.table.new_rows import (
    Expression,
    as_column,
    computed,
    stored,
    with_null_texts,
)
from tidegate_producers.table.row_changes import ACTION, DELETED, INSERTED
from tidegate_producers.table.row_level_change import NewRows, Opened, RowChange
from tidegate_producers.table.target_frame import FILE, POSITION, quoted
from tidegate_producers.table.task_refusals import MISMATCH
from tidegate_producers.table.update import aliased, reads_of, text_of
from tidegate_producers.writing.column_checks import check_frame
from tidegate_runtime.conditions.sql_condition import is_row_by_row


def overwriting(rows: DataFrame, condition: Expression, alias: str | None, zone: str) -> RowChange:
    """Return the change that deletes the rows for which a condition is true, and inserts others.

    Raises, as it runs: InvalidRequest, for a row that does not match, or a column that the table
    lacks. `zone` is that of timestamps without one.
    """

    def changed(frame: DataFrame, opened: Opened) -> NewRows:
        new, given = _inserted(rows, opened, frame.schema)
        new = _matching(aliased(new, alias), condition)
        names = opened.schema.names
        old = (F.col(quoted(name)) for name in names)
        gone = aliased(frame, alias).where(as_column(condition, "condition"))
        nothing = [F.lit(None).cast(frame.schema[name].dataType).alias(name) for name in names]
        deleted = gone.select(
            F.lit(DELETED).alias(ACTION), FILE, POSITION, *nothing, *opened.kept(old)
        )
        # What a new row lacks, its place and the row before it, is null.
        return NewRows(deleted.unionByName(new, allowMissingColumns=True), given)

    text = text_of(condition)
    return RowChange(
        "WRITE",
        text,
        reads_of(condition, zone, alias),
        changed,
        {"mode": "Overwrite", "predicate": text},
        is_row_by_row=is_row_by_row(text),
    )


def _inserted(rows: DataFrame, opened: Opened, table: StructType) -> tuple[DataFrame, list[str]]:
    """Return new rows as the table stores them, and the columns that they were given."""
    required = opened.required
    check_frame(from_spark(rows.schema), opened.schema, "the table", filled_names(required))
    completed, given = filled(rows, required, table)
    generated(required.identities, given)
    values = {name: F.col(quoted(name)) for name in completed.columns if name != ACTION}
    new = completed.select(
        F.lit(INSERTED).alias(ACTION), *stored(completed, values, table, fills=True)
    )
    # The condition may name a generated column.
    return with_null_texts(computed(new, required, given, table), required), given


def _matching(rows: DataFrame, condition: Expression) -> DataFrame:
    """Return rows, which fail where the overwrite would not have replaced them."""
    matches = F.coalesce(as_column(condition, "condition"), F.lit(False))
    failure = F.raise_error(
        F.lit(
            f"{MISMATCH}: the rows to write do not all match {text_of(condition)!r}: filter them, "
            "or widen the condition; nothing was proposed"
        )
    ).cast("boolean")
    return rows.where(matches | failure)
