"""`Table.append`: rows that Spark completes and checks before `format("tidegate")` writes them."""

from collections.abc import Mapping
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from tidegate_delta.constraints.row_constraints import (
    WriteRequirements,
    expressions,
    hashes,
    requirements,
)
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.schema.field_paths import same_name
from tidegate_producers.cached_clients import store_for
from tidegate_producers.datasource.spark_schema import to_spark
from tidegate_producers.options import WriteOptions
from tidegate_producers.table.new_rows import VIOLATED, checked, violation_in
from tidegate_producers.table.row_changes import ACTION, INSERTED
from tidegate_producers.table.target_frame import quoted
from tidegate_producers.writing.table_write import check_open_to
from tidegate_runtime.table_io.open_table import head_version, open_keys

ENFORCED: Final = "constraintsEnforced"


def append(rows: DataFrame, options: WriteOptions, given: Mapping[str, str]) -> None:
    """Append rows to a table, completed and checked as the table requires.

    Raises: InvalidRequest, for a row that violates a constraint; UnsupportedFeature; Spark's error
    for a write that fails.
    """
    writing = dict(given)
    store = store_for(options.place)
    if head_version(store) is not None:
        seen = open_keys(store)
        schema = to_spark(check_open_to(seen, options.place.root))
        required = requirements(seen.metadata, seen.protocol)
        rows = completed(rows, required, schema)
        writing[ENFORCED] = ",".join(hashes(expressions(required)))
    try:
        rows.write.format("tidegate").mode("append").options(**writing).save(options.place.root)
    except PySparkException as error:
        told = violation_in(error)
        if told is None:
            raise
        raise InvalidRequest(told, error_class=VIOLATED) from error


def completed(rows: DataFrame, required: WriteRequirements, table: StructType) -> DataFrame:
    """Return rows with the table's missing columns, which fail where they violate a constraint.

    A missing column gets its generated value, its default, or null. Columns that the table lacks
    stay as they are: whether they may come is the writer's question.
    """
    named = {
        one: next((name for name in table.names if same_name(name, one)), one)
        for one in rows.columns
    }
    given = list(named.values())
    defaults = {one.column: F.expr(one.expression) for one in required.defaults}
    generated = {one.column for one in required.generated}
    missing = [
        defaults.get(one.name, F.lit(None)).cast(one.dataType).alias(one.name)
        for one in table.fields
        if one.name not in given and one.name not in generated
    ]
    whole = rows.select(
        *(F.col(quoted(one)).alias(name) for one, name in named.items()),
        *missing,
        F.lit(INSERTED).alias(ACTION),
    )
    return checked(whole, required, given, table).drop(ACTION)
