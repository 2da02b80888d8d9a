"""`Table.append` and `Table.overwrite`: rows that Spark completes and checks, as new files.

An append is one proposal. An overwrite puts other rows instead of those for which a condition is
true.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import orjson
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from tidegate_delta.constraints.row_constraints import (
    WriteRequirements,
    expressions,
    hashes,
    requirements,
)
from tidegate_delta.log.actions import Add
from tidegate_delta.schema.field_paths import same_name
from tidegate_messages.outcome import Outcome
from tidegate_producers.cached_clients import client_for, clock, store_for
from tidegate_producers.datasource.spark_schema import from_spark, to_spark
from tidegate_producers.options import WriteOptions, app_txn_of
from tidegate_producers.parquet.data_file_writer import FileWriter, actions_of
from tidegate_producers.table.identity_values import (
    Leasing,
    check_before_lease,
    generated,
    numbered,
)
from tidegate_producers.table.new_rows import (
    Expression,
    as_column,
    checked,
    computed,
    stored,
    with_null_texts,
)
from tidegate_producers.table.row_changes import ACTION, DELETED, INSERTED
from tidegate_producers.table.row_level_change import NewRows, Opened, RowChange
from tidegate_producers.table.spark_jobs import MISMATCH, naming_refusals, refusals_of_tasks
from tidegate_producers.table.target_frame import FILE, POSITION, quoted
from tidegate_producers.table.update import aliased, reads_of, text_of
from tidegate_producers.writing.column_checks import Attestation, check_frame, check_given
from tidegate_producers.writing.table_write import (
    WritePlan,
    WriteRequest,
    check_mode,
    check_open_to,
    check_served,
    commit,
    plan,
    target_of,
)
from tidegate_runtime.conditions.sql_condition import is_row_by_row
from tidegate_runtime.table_io.open_table import head_version, open_keys


@refusals_of_tasks()
def append(
    rows: DataFrame,
    options: WriteOptions,
    request: WriteRequest | None = None,
    *,
    ready: Callable[[], object] = lambda: None,
) -> Outcome | None:
    """Append rows to a table, completed and checked as the table requires; return the outcome.

    The request is that of the options, unless another is given. `ready` is called once the rows are
    read and written, before they are proposed; what it raises is raised.
    Raises: InvalidRequest, for a row that violates a constraint; UnsupportedFeature; Rejected;
    OutcomeUnknown; Spark's errors for rows that can't be computed.
    """
    client, store = client_for(options.kafka), store_for(options.place)
    request = request or WriteRequest.of(options, app_txn_of(options))
    check_mode(options, "append")
    if head_version(store) is None:
        planned = plan(client, from_spark(rows.schema), "append", options)
        adds = _written(rows, planned)
        ready()
        return commit(client, planned, adds, request)
    live_keys = open_keys(store)
    required = requirements(live_keys.metadata, live_keys.protocol)
    schema = check_open_to(live_keys, options.place.root)
    table = to_spark(schema)
    check_given(from_spark(rows.schema), schema, options.place.root, filled_names(required))
    completed, given_names = filled(rows, required, table)
    columns = generated(required.identities, given_names)
    frame = from_spark(checked(completed, required, given_names, table).drop(ACTION).schema)
    planned = plan(client, frame, "append", options, is_computed=True)
    check_served(client, planned, options.kafka.bootstrap_servers)
    attestation = Attestation(tuple(hashes(expressions(required))))
    if not columns:
        adds = _written(checked(completed, required, given_names, table), planned)
        ready()
        return commit(client, planned, adds, replace(request, attestation=attestation))
    target = target_of(client.require(options.place.root, request.timeout_s), planned)
    cached = completed.persist()
    try:
        check_before_lease(cached, required, given_names, table)
        leasing = Leasing(client, options.place, target, request)
        complete = numbered(cached, columns, leasing)
        if planned.definition:
            # The lease has changed the metadata on which the new definition must build.
            planned = plan(client, frame, "append", options, is_computed=True)
        adds = _written(checked(complete.rows, required, given_names, table), planned)
    finally:
        cached.unpersist()
    ready()
    numbered_attestation = replace(attestation, identity_usage=complete.usages)
    return commit(client, planned, adds, replace(request, attestation=numbered_attestation))


def filled_names(required: WriteRequirements) -> set[str]:
    """Return the columns that get a value where rows lack them."""
    names = {default.column for default in required.defaults}
    names |= {generation.column for generation in required.generated}
    return names | {identity.column for identity in required.identities}


def filled(
    rows: DataFrame, required: WriteRequirements, table: StructType
) -> tuple[DataFrame, list[str]]:
    """Return rows with ACTION and the table's missing columns, and the names of those given.

    A missing column gets its default, or null; generated columns stay missing. Columns that the
    table lacks stay as they are: whether they may come is the writer's question.
    """
    table_names = {
        column: next((name for name in table.names if same_name(name, column)), column)
        for column in rows.columns
    }
    given_names = list(table_names.values())
    defaults = {default.column: F.expr(default.expression) for default in required.defaults}
    computed = {computed_column.column for computed_column in required.generated}
    missing = [
        defaults.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name)
        for field in table.fields
        if field.name not in given_names and field.name not in computed
    ]
    completed = rows.select(
        *(F.col(quoted(column)).alias(name) for column, name in table_names.items()),
        *missing,
        F.lit(INSERTED).alias(ACTION),
    )
    return completed, given_names


def _written(rows: DataFrame, planned: WritePlan) -> Sequence[Add]:
    """Write rows to data files on the executors, and return their actions.

    Raises: InvalidRequest, for a row that violates a constraint; as `FileWriter`.
    """
    names = [name for name in rows.columns if name != ACTION]
    place, layout = planned.place, planned.layout

    def on_executor(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        number = task.partitionId() if task is not None else 0
        writer = FileWriter(store_for(place), layout, clock(), number)
        with naming_refusals():
            for batch in batches:
                writer.write(pa.RecordBatch.from_arrays(batch.columns, names=names))
            added_rows = orjson.dumps([add.to_row() for add in writer.finish()])
        yield pa.record_batch([pa.array([added_rows], pa.binary())], names=["added"])

    # mapInArrow takes no column with a dot in its name.
    plain = rows.select(
        *(F.col(quoted(name)).alias(f"_{index}") for index, name in enumerate(names))
    )
    added_rows = plain.mapInArrow(on_executor, "added binary").collect()
    return [add for row in added_rows for add in actions_of(orjson.loads(bytes(row["added"])))]


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
