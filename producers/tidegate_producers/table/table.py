"""`Table`: a Delta table that a Spark program reads, and writes through the committer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, StructField, StructType

from tidegate_delta.data_skipping.partition_predicates import prune
from tidegate_delta.errors import InvalidRequest, UnsupportedFeature
from tidegate_delta.properties.table_properties import FEATURE_PREFIX
from tidegate_delta.schema.types import StructType as Fields
from tidegate_delta.schema.types import parse_schema
from tidegate_delta.schema_evolution.alter_columns import FieldPosition
from tidegate_messages.metadata_patch import PatchChange
from tidegate_messages.outcome import Outcome
from tidegate_messages.published_records import TableRecord
from tidegate_producers.cached_clients import CLIENT_ID, client_for, store_for
from tidegate_producers.datasource.outcome_logging import log_outcome
from tidegate_producers.datasource.spark_schema import from_spark, type_of
from tidegate_producers.datasource.spark_tasks import query_of
from tidegate_producers.history.table_history import HistoryEntry, history
from tidegate_producers.options import WriteOptions, for_writing, time_ms
from tidegate_producers.table.merge import MergeBuilder, may_read_a_table
from tidegate_producers.table.new_files import append, overwriting
from tidegate_producers.table.new_rows import Expression
from tidegate_producers.table.optimize_builder import (
    METRICS,
    CompactionOnExecutors,
    OptimizeBuilder,
    metrics_of,
)
from tidegate_producers.table.parquet_conversion import convert
from tidegate_producers.table.row_level_change import RowChange, change_rows
from tidegate_producers.table.spark_jobs import SparkRunner
from tidegate_producers.table.table_builder import (
    BuilderMode,
    TableBuilder,
    TableSpec,
    with_table_name,
)
from tidegate_producers.table.table_detail import DETAIL, detail_of
from tidegate_producers.table.target_frame import quoted, table_frame
from tidegate_producers.table.update import EVERY_ROW, deletion, updating
from tidegate_producers.vacuum.vacuum import Claims, VacuumRequest, claims_on, survey, vacuum
from tidegate_producers.writing import symlink_manifest
from tidegate_producers.writing.alter_table import (
    add_constraint,
    change,
    drop_constraint,
    move,
    new_column,
    path_from,
    type_from,
)
from tidegate_producers.writing.alter_table import replace as replace_all_columns
from tidegate_producers.writing.clustering import cluster_by
from tidegate_producers.writing.drop_feature import Dropping, drop_feature
from tidegate_producers.writing.once import (
    NO_POSITIONS,
    Batch,
    Positions,
    Verb,
    VerbsOfBatch,
    app_txn_of_batch,
    moving,
    once,
)
from tidegate_producers.writing.optimize import FILE_BYTES, OptimizeRequest, optimize
from tidegate_producers.writing.replace_table import NewTable, create_table, replace_table
from tidegate_producers.writing.rerun import rerun
from tidegate_producers.writing.restore import RestorePoint, restore
from tidegate_producers.writing.row_delete import delete
from tidegate_producers.writing.row_tracking_switch import alter_prepared
from tidegate_producers.writing.shallow_clone import CloneRequest, clone
from tidegate_producers.writing.table_write import WriteRequest, commit, creating, creation
from tidegate_runtime.client.client import TABLE_EXISTS, Rejected
from tidegate_runtime.clock import utc
from tidegate_runtime.conditions.sql_condition import in_zone, predicate_of, wider_predicate_of
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.table_io.open_table import head_version, open_keys, open_snapshot

NO_OPTIONS: Final[Mapping[str, str]] = {}
NO_COMMENTS: Final[Mapping[str, str | None]] = {}
NO_VALUES: Final[Mapping[str, Expression]] = {}
_MAX_FILE_SIZE: Final = "spark.databricks.delta.optimize.maxFileSize"
_ZONE: Final = "spark.sql.session.timeZone"

_RESTORED: Final = (
    "num_restored_files long, num_removed_files long, restored_files_size long, "
    "removed_files_size long, num_of_files_after_restore long, table_size_after_restore long"
)
_HISTORY: Final = (
    "version long, timestamp timestamp, operation string, operationParameters map<string,string>, "
    "readVersion long, isolationLevel string, isBlindAppend boolean, "
    "operationMetrics map<string,string>, userMetadata string, engineInfo string, proposals int"
)


class Table:
    """A table at a path or URI. `options` are those of `format("tidegate")`, such as `kafka.*`.

    The constructor reads nothing; `for_path` checks that the table exists, `create` creates it.
    """

    def __init__(
        self, spark: SparkSession, path: str, options: Mapping[str, str] = NO_OPTIONS
    ) -> None:
        self._spark = spark
        self._alias: str | None = None
        self._views: list[str] = []
        self._verbs: VerbsOfBatch | None = None
        self._positions = NO_POSITIONS
        self._given = dict(options)
        self._options = for_writing({**options, "path": path})
        if self._options.properties:
            raise InvalidRequest(
                f"option {next(iter(self._options.properties))}: give the properties of a new "
                "table to Table.create(properties=...), and those of a table that exists to "
                "Table.alter(properties=...)",
                error_class="DELTA_ILLEGAL_OPTION",
            )
        if self._options.txn_version is not None:
            raise InvalidRequest(
                "txnVersion is an option of one write, not of a table: leave it out, and give each "
                "verb its batch_id",
                error_class="DELTA_ILLEGAL_OPTION",
            )

    @classmethod
    def for_path(
        cls, spark: SparkSession, path: str, options: Mapping[str, str] = NO_OPTIONS
    ) -> Self:
        """Return the table at a path or URI. Raises: InvalidRequest (`NotADeltaTable`)."""
        table = cls(spark, path, options)
        if head_version(store_for(table._options.place)) is None:
            raise InvalidRequest(
                f"{table.root} is no Delta table: check the path, or make one with Table.create",
                error_class="NotADeltaTable",
            )
        return table

    @classmethod
    def isDeltaTable(  # noqa: N802 - delta-spark's name
        cls, spark: SparkSession, path: str, options: Mapping[str, str] = NO_OPTIONS
    ) -> bool:
        """Return whether there is a table at a path or URI."""
        return head_version(store_for(cls(spark, path, options)._options.place)) is not None

    @classmethod
    def convertToDelta(  # noqa: N802 - delta-spark's name
        cls,
        spark: SparkSession,
        identifier: str,
        partitionSchema: StructType | str | None = None,  # noqa: N803 - delta-spark's name
        options: Mapping[str, str] = NO_OPTIONS,
    ) -> Self:
        """Make the Parquet files in a folder a table, and return it; no file is written anew.

        `identifier` is the path, or ``parquet.`path` ``. `partitionSchema` has the columns of the
        folders' names. A folder that holds a table already stays as it is.
        Raises: InvalidRequest, naming the file or the folder; Rejected; OutcomeUnknown.
        """
        path = identifier.strip()
        if path.lower().startswith("parquet."):
            path = path[len("parquet.") :].strip("`")
        table = cls(spark, path, options)
        if head_version(store_for(table._options.place)) is None:
            by = Fields(()) if partitionSchema is None else _fields(partitionSchema)
            table._committed(convert(spark, table._options, by))
        return table

    @classmethod
    def create(
        cls,
        spark: SparkSession,
        path: str,
        schema: StructType | str,
        partition_columns: Sequence[str] = (),
        properties: Mapping[str, str] = NO_OPTIONS,
        options: Mapping[str, str] = NO_OPTIONS,
    ) -> Self:
        """Create an empty table, version 0, and return it; the option `name` sets its name.

        Raises: InvalidRequest, naming the column or property; Rejected; OutcomeUnknown.
        """
        table = cls(spark, path, options)
        table_options = table._options
        client = client_for(table_options.kafka)
        new_table = creation(client, _fields(schema), partition_columns, table_options, properties)
        planned = creating(new_table, table_options.place)
        log_outcome(table.root, commit(client, planned, (), WriteRequest.of(table_options)))
        return table

    @classmethod
    def builder(
        cls, spark: SparkSession, mode: BuilderMode, options: Mapping[str, str] = NO_OPTIONS
    ) -> "TableBuilder[Self]":
        """Return a builder like delta-spark's: `.location(…).addColumn(…).execute()`.

        `execute` returns the table. A replaced table has no rows, and its older versions stay.
        """
        return TableBuilder(mode, lambda spec: cls._made(spark, spec, options))

    @classmethod
    def createIfNotExists(  # noqa: N802 - delta-spark's name
        cls, spark: SparkSession, options: Mapping[str, str] = NO_OPTIONS
    ) -> "TableBuilder[Self]":
        """Return a builder that creates a table, or leaves one that exists as it is."""
        return cls.builder(spark, "create if not exists", options)

    @classmethod
    def replace(
        cls, spark: SparkSession, options: Mapping[str, str] = NO_OPTIONS
    ) -> "TableBuilder[Self]":
        """Return a builder that replaces a table that exists."""
        return cls.builder(spark, "replace", options)

    @classmethod
    def createOrReplace(  # noqa: N802 - delta-spark's name
        cls, spark: SparkSession, options: Mapping[str, str] = NO_OPTIONS
    ) -> "TableBuilder[Self]":
        """Return a builder that creates a table, or replaces one that exists."""
        return cls.builder(spark, "create or replace", options)

    @classmethod
    def _made(cls, spark: SparkSession, spec: TableSpec, options: Mapping[str, str]) -> Self:
        assert spec.path is not None, "the builder has looked"
        given = with_table_name(options, spec)
        new = NewTable(
            from_spark(StructType(spec.fields)),
            spec.partition_columns,
            spec.properties,
            spec.clustered_by,
            spec.comment,
        )
        table = cls(spark, spec.path, given)
        table_options = table._options
        client = client_for(table_options.kafka)
        exists = head_version(store_for(table._options.place)) is not None
        if exists and spec.mode == "create if not exists":
            return table
        if spec.mode == "replace" or (exists and spec.mode == "create or replace"):
            if not exists:
                return cls.for_path(spark, spec.path, given)
            operation = f"{spec.mode.upper()} TABLE"
            table._committed(replace_table(client, table_options, new, operation))
            return table
        try:
            table._committed(create_table(client, table_options, new))
            return table
        except Rejected as rejected:
            if spec.mode == "create if not exists" and rejected.rule == TABLE_EXISTS:
                return table
            raise

    @property
    def root(self) -> str:
        """The canonical URI of the table's root."""
        return self._options.place.root

    def version(self) -> int:
        """Return the newest version. Raises: InvalidRequest (`NotADeltaTable`)."""
        return next(iter(history(store_for(self._options.place), 1))).version

    def alias(self, name: str) -> Self:
        """Return the same table under a name for conditions and expressions, as in `t.id`."""
        table = type(self)(self._spark, self.root, self._given)
        table._alias, table._verbs, table._views = name, self._verbs, self._views
        table._positions = self._positions
        return table

    def moving(self, positions: Positions) -> Self:
        """Return the same table; one verb that changes rows moves applications as well.

        It is done once for each move, as `Client.append` with `positions`: where the table has them
        there already it returns None, and where it has others it raises Rejected, of the rule
        `app_txn_conflict`, and nothing is committed. If no row changes, the positions alone are.
        """
        table = type(self)(self._spark, self.root, self._given)
        table._alias, table._views, table._positions = self._alias, self._views, positions
        return table

    def foreach_batch(
        self, function: Callable[[Self, DataFrame], object]
    ) -> Callable[[DataFrame, int], None]:
        """Return what `writeStream.foreachBatch` takes: it calls a function with this table and the
        batch's rows, and each verb of the table is done once for each batch.

        The table's option `txnAppId` names the application; its verbs are numbered in the order in
        which the function calls them, so that order must be the same when a batch is repeated.
        Raises: InvalidRequest, if no application is named.
        """
        kind, root, given = type(self), self.root, self._given
        app_id = app_txn_of_batch(self._options, 0).app_id

        def of_batch(rows: DataFrame, batch_id: int) -> None:
            table = kind(rows.sparkSession, root, given)
            table._verbs = VerbsOfBatch(app_id, batch_id)
            function(table, rows)

        return of_batch

    def append(
        self,
        rows: DataFrame,
        options: Mapping[str, str] = NO_OPTIONS,
        batch_id: int | None = None,
    ) -> int | None:
        """Append rows to a table of any kind, and return the new version; None without rows.

        Spark computes missing generated columns and defaults, and checks CHECK constraints,
        invariants and given generated columns. Identity columns get values that no other writer
        gets. `options` are those of this write, such as `txnAppId`. With `batch_id` it is done
        once, as `delete` says; a batch that was done before returns None.
        Raises: InvalidRequest, naming the constraint that a row violates; Rejected; OutcomeUnknown;
        UnsupportedFeature; Spark's errors for rows that can't be computed.
        """
        given = {**self._given, **options}
        if self._positions:
            moved = for_writing({**given, "path": self.root})
            return self._once(moved, batch_id, "WRITE", partial(append, rows, moved))
        table_options, batch_id = self._verb(batch_id)
        if batch_id is None and ("txnVersion" in options or table_options.txn_app_id is None):
            return self._committed(append(rows, for_writing({**given, "path": self.root})))
        txn = app_txn_of_batch(table_options, batch_id)
        given |= {"txnAppId": txn.app_id, "txnVersion": str(txn.version)}
        batch_options = for_writing({**given, "path": self.root})
        store = store_for(batch_options.place)
        if head_version(store) is None:
            return self._committed(append(rows, batch_options))
        batch = Batch(txn, query_of(self._spark))
        request = batch.request(batch_options, open_keys(store))
        done = request is None
        return self._committed(None if done else append(rows, batch_options, request))

    def delete(self, condition: Expression = EVERY_ROW, batch_id: int | None = None) -> int | None:
        """Delete the rows for which a condition is true, and return the new version.

        A condition is SQL text or a Column, and Spark evaluates it; one that needs no more than
        the table's statistics and comparisons starts no Spark job. If no row matches, nothing is
        proposed and None is returned. Timestamps without a zone are in the session's time zone.
        With `batch_id` it is done once for each batch of the application that the table's option
        `txnAppId` names, whatever dies or is repeated; a batch that was done before returns None.
        When another commit overtakes it, it runs again on the newest version.
        Raises: Rejected, with rule and winner, if others' commits come first each time;
        OutcomeUnknown; InvalidRequest; UnsupportedFeature; Spark's errors for a wrong condition.
        """
        if self._alias is None and isinstance(condition, str) and self._is_simple(condition):
            options, batch_id = self._verb(batch_id)
            client, runner = client_for(options.kafka), SparkRunner(self._spark)

            def simply(request: WriteRequest) -> Outcome | None:
                return delete(client, options.place, condition, request, runner, self._zone)

            return self._once(options, batch_id, "DELETE", self._again(simply))
        return self._change(deletion(condition, self._alias, self._zone), batch_id)

    def update(
        self,
        condition: Expression | None = None,
        set: Mapping[str, Expression] = NO_VALUES,
        batch_id: int | None = None,
    ) -> int | None:
        """Set columns of the rows for which a condition is true, and return the new version.

        `set` maps columns to SQL text or Columns; without a condition every row is updated. If no
        row matches, nothing is proposed and None is returned. With `batch_id` it is done once, as
        `delete` says.
        Raises: as `delete`; TypeError, for a value that is neither text nor a Column.
        """
        if not set:
            raise InvalidRequest(
                "update needs set={column: expression}; nothing was proposed",
                error_class="DELTA_MISSING_SET_COLUMN",
            )
        chosen = EVERY_ROW if condition is None else condition
        return self._change(updating(chosen, set, self._alias, self._zone), batch_id)

    def overwrite(
        self, rows: DataFrame, condition: Expression = EVERY_ROW, batch_id: int | None = None
    ) -> int | None:
        """Write rows in place of those for which a condition is true; return the new version.

        What the option `replaceWhere` does, with any condition but one with a sub-query: Spark
        evaluates it, and each new row must match it. Missing columns are filled as by `append`. If
        nothing matches and there are no rows, nothing is proposed and None is returned. With
        `batch_id` it is done once, as `delete` says. When another commit overtakes it, it runs
        again on the newest version, unless the rows were read from a table through us.
        Raises: as `append`; InvalidRequest, for a row that does not match.
        """
        change = overwriting(rows, condition, self._alias, self._zone)
        change = replace(change, depends_on_table_only=not may_read_a_table(rows))
        return self._change(change, batch_id)

    def merge(self, source: DataFrame, condition: Expression) -> MergeBuilder:
        """Return a builder of a merge with a source, to which clauses are added.

        `execute` returns the new version, or None if no row changed.
        """
        return MergeBuilder(source, condition, self._change, self._zone).of(self._alias)

    def alter(
        self,
        add_columns: StructType | str | None = None,
        comments: Mapping[str, str | None] = NO_COMMENTS,
        properties: Mapping[str, str] = NO_OPTIONS,
        unset: Sequence[str] = (),
        changes: Sequence[Mapping[str, Any]] = (),
    ) -> int | None:
        """Change columns and properties, and return the new version.

        It conflicts only with changes of the same columns or properties. `add_columns` is a schema,
        `comments` maps columns to comments (None removes one), `unset` names properties to remove.
        `changes` are other changes that docs/writing-from-any-program.md lists, such as
        `{"op": "drop_column", "path": ["x"]}`.
        Raises: InvalidRequest (`BadChange`, `TableNotRegistered`); Rejected; OutcomeUnknown.
        """
        wanted = [
            *(new_column(field) for field in (_fields(add_columns) if add_columns else ())),
            *(
                change(op="comment_on", path=path_from(name), comment=comment)
                for name, comment in comments.items()
            ),
            *(change(op="set_property", key=key, value=value) for key, value in properties.items()),
            *(change(op="unset_property", key=key) for key in unset),
            *(change(**fields) for fields in changes),
        ]
        return self._altered(wanted)

    def add_column(
        self,
        name: str,
        dataType: str | DataType,  # noqa: N803 - as delta-spark's builder calls it
        comment: str | None = None,
        first: bool = False,
        after: str | None = None,
    ) -> int | None:
        """Add a column, or with `parent.name` a field of a struct, and return the new version.

        It is the last one, `first`, or placed `after` another of its struct. Rows have null there.
        Raises: as `alter`.
        """
        *parent, last = path_from(name)
        kind = type_of(dataType, name) if isinstance(dataType, str) else dataType
        field_metadata = {"comment": comment} if comment is not None else {}
        [field] = from_spark(StructType([StructField(last, kind, True, field_metadata)]))
        return self._altered([new_column(field, parent, FieldPosition(first, after))])

    def drop_column(self, name: str) -> int | None:
        """Drop a column of a table with column mapping; its files stay. Raises: as `alter`."""
        return self._altered([change(op="drop_column", path=path_from(name))])

    def rename_column(self, name: str, new_name: str) -> int | None:
        """Rename a column of a table with column mapping. Raises: as `alter`."""
        return self._altered([change(op="rename_column", path=path_from(name), name=new_name)])

    def change_type(self, name: str, dataType: str) -> int | None:  # noqa: N803 - as above
        """Widen a column's type, on a table with `delta.enableTypeWidening`. Raises: as `alter`."""
        return self._altered([type_from(f"{name} {dataType}")])

    def drop_not_null(self, name: str) -> int | None:
        """Let a column hold nulls. Raises: as `alter`."""
        return self._altered([change(op="allow_nulls", path=path_from(name))])

    def set_default(self, name: str, expression: str | None) -> int | None:
        """Set the default of a column for new rows, or with None remove it. Raises: as `alter`."""
        path = path_from(name)
        column = path[0] if len(path) == 1 else name
        return self._altered([change(op="set_default", column=column, expression=expression)])

    def move_column(self, name: str, first: bool = False, after: str | None = None) -> int | None:
        """Place a column first, or after another of its struct; None if it is there.

        It conflicts with each other change of the table's metadata. Raises: as `alter`.
        """
        options, request = self._options, WriteRequest.of(self._options)
        client, place = client_for(options.kafka), FieldPosition(first, after)
        return self._committed(move(client, options.place, path_from(name), place, request))

    def cluster_by(self, *columns: str) -> int | None:
        """Cluster the table by some columns, or by none, and return the new version.

        `ALTER TABLE … CLUSTER BY`: files are sorted by the next `optimize`. None if it is so.
        Raises: InvalidRequest, naming the column; Rejected; OutcomeUnknown.
        """
        options, request = self._options, WriteRequest.of(self._options)
        return self._committed(
            cluster_by(client_for(options.kafka), options.place, columns, request)
        )

    def addFeatureSupport(self, featureName: str) -> int | None:  # noqa: N802, N803 - delta-spark's
        """List a feature in the table's protocol; return the new version. Raises: as `alter`."""
        key = f"{FEATURE_PREFIX}{featureName}"
        return self._altered([change(op="set_property", key=key, value="supported")])

    def dropFeatureSupport(  # noqa: N802 - delta-spark's name
        self,
        featureName: str,  # noqa: N803 - delta-spark's name
        truncateHistory: bool | None = None,  # noqa: N803
    ) -> int | None:
        """Take every trace of a feature out of the table, then drop it; return the last version.

        Files are written anew where the feature asks for it. With `truncateHistory` old checkpoints
        need no protection, once the log holds no version that needs the feature.
        Raises: InvalidRequest, for a feature that is not to be dropped, or a trace that only you
        can remove, such as constraints; Rejected; OutcomeUnknown; UnsupportedFeature.
        """
        options, request = self._options, WriteRequest.of(self._options)
        runner = CompactionOnExecutors(self._spark)
        dropping = Dropping(client_for(options.kafka), options.place, request, runner)
        outcome = drop_feature(dropping, featureName, truncates_history=bool(truncateHistory))
        return self._committed(outcome)

    def upgradeTableProtocol(  # noqa: N802 - delta-spark's name
        self,
        readerVersion: int,  # noqa: N803 - delta-spark's name
        writerVersion: int,  # noqa: N803
    ) -> int | None:
        """Raise the protocol's versions, which lower nothing. Raises: as `alter`."""
        versions = {
            "delta.minReaderVersion": readerVersion,
            "delta.minWriterVersion": writerVersion,
        }
        return self._altered(
            [
                change(op="set_property", key=key, value=str(version))
                for key, version in versions.items()
            ]
        )

    def replace_columns(self, columns: StructType | str) -> int | None:
        """List all columns again, as `ALTER TABLE … REPLACE COLUMNS`, and return the new version.

        Order and comments may change, columns may be added and, with column mapping, dropped. The
        files stay as they are. If the table has these columns, nothing is proposed and None is
        returned.
        Raises: InvalidRequest, naming the column; Rejected; OutcomeUnknown; UnsupportedFeature.
        """
        options = self._options
        request = WriteRequest.of(options)
        client, fields = client_for(options.kafka), _fields(columns)
        outcome = replace_all_columns(client, options.place, fields, request)
        return self._committed(outcome)

    def vacuum(
        self,
        retention_hours: float | None = None,
        dry_run: bool = True,
        lite: bool = False,
        retention_check: bool = True,
    ) -> DataFrame:
        """Return the files that no version needs, each with why it goes; without dry_run they go.

        `retention_hours` is the table's `delta.deletedFileRetentionDuration` if None; fewer are
        refused unless `retention_check` is False. `lite` takes the files from the log. Files
        stay that proposals may still bring, and that the change publisher, lease holders and
        shallow clones below need. Two commits record it: VACUUM START and VACUUM END.
        Raises: InvalidRequest (`VacuumRetentionTooShort`, `TableNotRegistered`); Rejected;
        OutcomeUnknown; UnsupportedFeature; BrokenLog; Unavailable.
        """
        options = self._options
        request = VacuumRequest(retention_hours, lite, retention_check)
        client, topics = client_for(options.kafka), options.kafka.topics
        bus, clock = KafkaBus(options.kafka, CLIENT_ID), client.clock

        def claims(record: TableRecord) -> Claims:
            return claims_on(bus, topics, record, clock.now_ms())

        if dry_run:
            record = client.require(self.root, options.outcome_timeout_s)
            plan = survey(store_for(options.place), request, claims(record), clock.now_ms())
        else:
            write = WriteRequest(options.outcome_timeout_s)
            plan = vacuum(client, options.place, request, claims, write).plan
        gone = plan.going.select(["path", "size_bytes", "why"]).to_pylist()
        rows = [(file["path"], file["size_bytes"], file["why"]) for file in gone]
        return self._spark.createDataFrame(rows, "path string, sizeInBytes long, why string")

    def optimize(self, max_file_size: int | None = None) -> OptimizeBuilder:
        """Return a builder: `.where(…)`, then `.executeCompaction()` or `.executeZOrderBy(…)`.

        Compacted rows keep their order, and nothing that others read or delete meanwhile conflicts
        with it. `max_file_size` is the session's `spark.databricks.delta.optimize.maxFileSize` if
        None, and 128 MiB where that is not set. In bytes.
        """
        size = max_file_size or int(self._conf(_MAX_FILE_SIZE, FILE_BYTES))

        def run(where: str | None, order: Sequence[str]) -> DataFrame:
            request = OptimizeRequest(where, size, self._zone, order=tuple(order), sorts=True)
            return self._optimized(request)

        return OptimizeBuilder(run)

    def purge(self, where: str | None = None) -> DataFrame:
        """Write files with deleted rows anew without these: `REORG TABLE … APPLY (PURGE)`.

        Returns one row with the metrics of `optimize`. `where` chooses partitions.
        """
        return self._optimized(OptimizeRequest(where, zone=self._zone, purges=True))

    def clone(
        self,
        target: str,
        isShallow: bool = True,  # noqa: N803 - delta-spark's name
        replace: bool = False,
        properties: Mapping[str, str] = NO_OPTIONS,
    ) -> Self:
        """Make a shallow clone of the newest version at a path or URI, and return it.

        The clone has this table's columns, properties and files, which stay where they are: a
        vacuum of this table may take them. With `replace` a table at the path becomes the clone,
        and its older versions stay. The option `name` is not the clone's.
        Raises: InvalidRequest, naming the target or the property; UnsupportedFeature, for a deep
        clone; Rejected; OutcomeUnknown; Unavailable.
        """
        return self._cloned(RestorePoint(), target, isShallow, replace, properties)

    def cloneAtVersion(  # noqa: N802 - delta-spark's name
        self,
        version: int,
        target: str,
        isShallow: bool = True,  # noqa: N803 - delta-spark's name
        replace: bool = False,
        properties: Mapping[str, str] = NO_OPTIONS,
    ) -> Self:
        """Make a shallow clone of a version. Raises: as `clone`; InvalidRequest
        (`VersionNotFound`).
        """
        return self._cloned(RestorePoint(version), target, isShallow, replace, properties)

    def cloneAtTimestamp(  # noqa: N802 - delta-spark's name
        self,
        timestamp: str,
        target: str,
        isShallow: bool = True,  # noqa: N803 - delta-spark's name
        replace: bool = False,
        properties: Mapping[str, str] = NO_OPTIONS,
    ) -> Self:
        """Make a shallow clone as of a time, in the session's time zone unless it names one.

        Raises: as `clone`.
        """
        at_ms = time_ms(in_zone(timestamp, self._zone), "timestamp")
        moment = RestorePoint(timestamp_ms=at_ms, text=timestamp)
        return self._cloned(moment, target, isShallow, replace, properties)

    def generate(self, mode: str) -> None:
        """Write symlink manifests of the newest version: the mode is `symlink_format_manifest`.

        Raises: InvalidRequest, for another mode; UnsupportedFeature.
        """
        if mode != symlink_manifest.MODE:
            raise InvalidRequest(
                f"generate({mode!r}): the only mode is {symlink_manifest.MODE!r}; nothing was "
                "written",
                error_class="DELTA_MODE_NOT_SUPPORTED",
            )
        symlink_manifest.generate(self._options.place)

    def restore_to_version(self, version: int) -> DataFrame:
        """Make the table what it was at a version, and return one row with delta-spark's metrics.

        Raises: InvalidRequest (`VersionNotFound`, `DataFileMissing`, for files that a vacuum
        deleted); UnsupportedFeature; Rejected, if others change it meanwhile; OutcomeUnknown.
        """
        return self._restored(RestorePoint(version=version))

    def restore_to_timestamp(self, timestamp: str) -> DataFrame:
        """Make the table what it was at a time, in the session's time zone unless it names one.

        Raises: as `restore_to_version`.
        """
        at_ms = time_ms(in_zone(timestamp, self._zone), "timestamp")
        return self._restored(RestorePoint(timestamp_ms=at_ms, text=timestamp))

    def add_constraint(self, name: str, expression: str) -> int | None:
        """Add a CHECK constraint, after Spark has found it true for every row; return the version.

        Raises: InvalidRequest, with the number of rows that violate it; Rejected, if rows came
        meanwhile that were not held to it (run it again); OutcomeUnknown.
        """

        def violations(version: int) -> int:
            rows = self.to_df(version=version)
            return rows.where(~F.coalesce(F.expr(expression), F.lit(False))).count()

        options, request = self._options, WriteRequest.of(self._options)
        client = client_for(options.kafka)
        return self._committed(
            add_constraint(client, options.place, name, expression, violations, request)
        )

    def drop_constraint(self, name: str) -> int | None:
        """Drop a CHECK constraint, and return the new version. Raises: as `add_constraint`."""
        options, request = self._options, WriteRequest.of(self._options)
        return self._committed(
            drop_constraint(client_for(options.kafka), options.place, name, request)
        )

    def detail(self) -> DataFrame:
        """Return one row about the table, with delta-spark's columns."""
        store = store_for(self._options.place)
        snapshot = open_snapshot(store)
        last = next(iter(history(store, 1)), None)
        row = detail_of(self.root, snapshot, last.timestamp_ms if last else None)
        return self._spark.createDataFrame([row], DETAIL)

    def history(self, limit: int | None = None) -> DataFrame:
        """Return a row for each version that the log still holds, newest first."""
        entries = history(store_for(self._options.place), limit)
        return self._spark.createDataFrame([_row(entry) for entry in entries], _HISTORY)

    def to_df(
        self,
        version: int | None = None,
        timestamp: str | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> DataFrame:
        """Return the table's rows: of the version that is newest now, or as of a version or time.

        Spark reads the files itself where it can, and only the columns that are used. The
        DataFrame stays at its version: call it again to see later commits.
        `where` keeps the rows for which a condition is true; files that can't hold any are not
        opened. `columns` are those to return. A timestamp without a zone is in the session's time
        zone.
        Raises: InvalidRequest (`VersionNotFound`, an unknown column); UnsupportedFeature;
        BrokenLog; Unavailable.
        """
        if version is not None and timestamp is not None:
            raise InvalidRequest(
                "to_df: give version or timestamp, not both", error_class="DELTA_ILLEGAL_OPTION"
            )
        at_ms = None
        if timestamp is not None:
            at_ms = time_ms(in_zone(timestamp, self._zone), "timestamp")
        place = self._options.place
        snapshot = open_snapshot(store_for(place), version, at_ms)
        metadata, files = snapshot.metadata, snapshot.files
        if where is None:
            return table_frame(self._spark, place, metadata, files, columns)
        schema = parse_schema(metadata.schema_string)
        # The condition may name columns that are not returned.
        kept = prune(wider_predicate_of(where, schema, self._zone), files, metadata)
        rows = table_frame(self._spark, place, metadata, kept).where(where)
        return rows if columns is None else rows.select(*map(quoted, columns))

    def register_view(self, name: str) -> None:
        """Register a temporary view of the session with the rows of the newest version.

        Each commit of this object refreshes it. Call it again to see what others committed.
        Raises: as `to_df`.
        """
        self.to_df().createOrReplaceTempView(name)
        if name not in self._views:
            self._views.append(name)

    forPath, toDF = for_path, to_df  # noqa: N815 - delta-spark's names
    restoreToVersion, restoreToTimestamp = restore_to_version, restore_to_timestamp  # noqa: N815

    def _cloned(
        self,
        moment: RestorePoint,
        target: str,
        is_shallow: bool,
        replaces: bool,
        properties: Mapping[str, str],
    ) -> Self:
        if not is_shallow:
            raise UnsupportedFeature(
                f"{self.root}: deep clones, which copy the files, are not there: append "
                "table.to_df() to a new table, or give isShallow=True; nothing was proposed",
                feature="deep clone",
            )
        given = {key: text for key, text in self._given.items() if key.lower() != "name"}
        target_table = type(self)(self._spark, target, given)
        client = client_for(target_table._options.kafka)
        request = CloneRequest(self._options.place, moment, replaces, properties)
        target_table._committed(clone(client, target_table._options, request))
        return target_table

    def _altered(self, changes: Sequence[PatchChange]) -> int | None:
        options, request = self._options, WriteRequest.of(self._options)
        return self._committed(
            alter_prepared(client_for(options.kafka), options.place, changes, request)
        )

    def _optimized(self, request: OptimizeRequest) -> DataFrame:
        options = self._options
        client, runner = client_for(options.kafka), CompactionOnExecutors(self._spark)
        result = optimize(client, options.place, request, WriteRequest.of(options), runner)
        self._refresh_views()
        return self._spark.createDataFrame(metrics_of(self.root, result), METRICS)

    def _restored(self, moment: RestorePoint) -> DataFrame:
        options = self._options
        request = WriteRequest.of(options)
        restoration, outcome = restore(client_for(options.kafka), options.place, moment, request)
        self._committed(outcome)
        return self._spark.createDataFrame([tuple(restoration.metrics.values())], _RESTORED)

    def _is_simple(self, condition: str) -> bool:
        """Return whether our own evaluation of a condition is surely Spark's."""
        schema = parse_schema(open_keys(store_for(self._options.place)).metadata.schema_string)
        try:
            predicate_of(condition, schema, self._zone)
        except (InvalidRequest, UnsupportedFeature):
            return False
        return True

    def _change(self, change: RowChange, batch_id: int | None = None) -> int | None:
        def changing(request: WriteRequest) -> Outcome | None:
            return change_rows(self._spark, self._options, change, request)

        options, batch_id = self._verb(batch_id)
        verb = self._again(changing) if change.depends_on_table_only else changing
        return self._once(options, batch_id, change.operation, verb)

    def _once(
        self, options: WriteOptions, batch_id: int | None, operation: str, verb: Verb
    ) -> int | None:
        """Do a verb once for the positions that it moves, or else for a batch, if one is given."""
        client, query = client_for(options.kafka), partial(query_of, self._spark)
        if self._positions:
            outcome = moving(client, options, self._positions, operation, verb)
        else:
            outcome = once(client, options, batch_id, operation, verb, query)
        return self._committed(outcome)

    def _verb(self, batch_id: int | None) -> tuple[WriteOptions, int | None]:
        """Return the options of the next verb, and the batch that it is of."""
        if self._verbs is None or batch_id is not None:
            return self._options, batch_id
        app_id = self._verbs.next_app_id()
        return replace(self._options, txn_app_id=app_id), self._verbs.batch_id

    def _again(self, verb: Verb) -> Verb:
        """Return a verb that runs again when another commit overtook it."""

        def run(request: WriteRequest) -> Outcome | None:
            clock = client_for(self._options.kafka).clock
            return rerun(lambda: verb(request), self.root, clock, request.timeout_s)

        return run

    def _committed(self, outcome: Outcome | None) -> int | None:
        log_outcome(self.root, outcome)
        self._refresh_views()
        return None if outcome is None else outcome.version

    def _refresh_views(self) -> None:
        """Show the newest version in the views that are still registered."""
        registered = [name for name in self._views if self._spark.catalog.tableExists(name)]
        self._views[:] = registered
        for name in registered:
            self.to_df().createOrReplaceTempView(name)

    def _conf(self, name: str, default: int) -> str:
        value = self._spark.conf.get(name, str(default))
        assert value is not None, "there is a default"
        return value

    @property
    def _zone(self) -> str:
        zone = self._spark.conf.get(_ZONE)
        assert zone is not None, "a session has a time zone"
        return zone


def _fields(schema: StructType | str) -> Fields:
    """Return the columns of a schema. Raises: InvalidRequest; UnsupportedFeature."""
    fields = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(fields, StructType):
        raise InvalidRequest(f"{schema!r} is no list of columns", error_class="ParseException")
    return from_spark(fields)


def _row(entry: HistoryEntry) -> tuple[object, ...]:
    at = entry.timestamp_ms
    return (
        entry.version,
        None if at is None else utc(at),
        entry.operation,
        dict(entry.parameters),
        entry.read_version,
        entry.isolation_level,
        entry.is_blind_append,
        dict(entry.metrics),
        entry.user_metadata,
        entry.engine_info,
        entry.proposals,
    )
