"""What people get wrong with `format("tidegate")` and `Table`, where the check needs no Spark.

Each misuse is a program, and what the first line of its error must say: the column, option or
argument that is wrong, and what to do instead. Nothing is proposed, and no file is left that a
listing does not find. `tests/integration/test_spark_misuses.py` has those that need Spark.
"""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.unit.producers.writing.test_table_write import Line
from tidegate_delta.constraints.row_constraints import expressions, hashes, requirements
from tidegate_delta.errors import TidegateError
from tidegate_delta.schema.types import LONG, STRING, StructField, StructType, parse_type
from tidegate_producers.datasource.batch_reader import check_schema, open_view
from tidegate_producers.datasource.batch_writer import replaces_partitions, with_condition
from tidegate_producers.datasource.spark_schema import to_spark
from tidegate_producers.datasource.stream_source import StreamSource
from tidegate_producers.datasource.stream_writer import StreamWriter
from tidegate_producers.options import (
    app_txn_of,
    for_changes,
    for_reading,
    for_stream_reading,
    for_writing,
)
from tidegate_producers.parquet.data_file_writer import FileWriter
from tidegate_producers.table import Table
from tidegate_producers.table.merge import MergeBuilder
from tidegate_producers.vacuum.vacuum import Claims, VacuumRequest, survey
from tidegate_producers.writing.table_write import (
    WriteMode,
    WriteRequest,
    check_mode,
    commit,
    creating,
    creation,
    plan,
)
from tidegate_runtime.table_io.open_table import open_keys

COLUMNS: Final = StructType(
    (
        StructField("k", LONG, nullable=False),
        StructField("p", STRING),
        StructField("v", parse_type("integer")),
        StructField("tag", STRING, metadata={"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}),
        StructField("s", StructType((StructField("a", LONG),))),
    )
)
"""The columns of the table that is misused; it is partitioned by `p`."""

CHECK: Final = {"delta.constraints.few": "v >= 0"}

USERS: Final = ("table.table", "table.row_level_change", "datasource.stream_writer")
"""The modules that take a client from the options."""

Act = Callable[[Line], object]


class Misuse(NamedTuple):
    """A wrong program, and what the first line of its error names and advises."""

    name: str
    act: Act
    wrong: str
    remedy: str


def table(line: Line, **options: str) -> Table:
    """Return the table, with a session that has settings and no JVM."""
    conf = SimpleNamespace(get=lambda name, default="UTC": default)
    session = cast(SparkSession, SimpleNamespace(conf=conf))
    return Table(session, str(line.root), options)


def verb(call: Callable[[Table], object], **options: str) -> Act:
    return lambda line: call(table(line, **options))


def writing(**given: str) -> Act:
    return lambda line: line.options(**given)


def idempotent(**given: str) -> Act:
    return lambda line: app_txn_of(line.options(**given))


def opening(**given: str) -> Act:
    return lambda line: open_view(for_reading({"path": str(line.root), **given}))


def opening_elsewhere(line: Line) -> object:
    return open_view(for_reading({"path": str(line.root.parent / "nosuch")}))


def streaming(**given: str) -> Act:
    def act(line: Line) -> object:
        options = for_stream_reading({"path": str(line.root), **given})
        return StreamSource(line.yes.store, options).first()

    return act


def feeding(**given: str) -> Act:
    return lambda line: for_changes({"path": str(line.root), "readChangeFeed": "true", **given})


def frame(**columns: str) -> StructType:
    return StructType(tuple(StructField(name, parse_type(kind)) for name, kind in columns.items()))


def planning(columns: StructType, mode: WriteMode = "append", **given: str) -> Act:
    def act(line: Line) -> object:
        options = line.options(constraintsenforced=_checked(line), **given)
        check_mode(options, mode)
        return with_condition(plan(line.client, columns, mode, options), options)

    return act


def planning_anew(columns: StructType, **given: str) -> Act:
    def act(line: Line) -> object:
        options = for_writing({"path": str(line.root.parent / "new"), **given})
        return plan(line.client, columns, "append", options)

    return act


def writing_rows(rows: dict[str, list[Any]], mode: WriteMode = "append", **given: str) -> Act:
    """Return a whole write of rows that only a task can see to be wrong."""

    def act(line: Line) -> object:
        content = pa.table({name: pa.array(values) for name, values in rows.items()})
        options = line.options(constraintsenforced=_checked(line), **given)
        columns = StructType(tuple(item for item in COLUMNS if item.name in rows))
        made = with_condition(plan(line.client, columns, mode, options), options)
        writer = FileWriter(line.yes.store, made.layout, line.client.clock)
        writer.write(content, made.replace_where)
        return commit(line.client, made, writer.finish(), WriteRequest.of(options))

    return act


def merging(build: Callable[[MergeBuilder], object]) -> Act:
    source: Any = SimpleNamespace(columns=["k", "v"])
    return verb(lambda one: build(one.merge(source, "t.k = s.k")))


def by_session(line: Line) -> object:
    checked = _checked(line)
    options = line.options(overwriteschema="true", constraintsenforced=checked)
    same = StructType(COLUMNS.fields[:3])
    kept = line.options(overwriteschema="true", partitioncolumns="p", constraintsenforced=checked)
    return replaces_partitions(plan(line.client, same, "overwrite", kept), options, "dynamic")


def unchecked(line: Line) -> object:
    return plan(line.client, frame(k="long"), "append", line.options())


def _checked(line: Line) -> str:
    """Return the hashes by which a writer says that it has checked the constraints."""
    seen = open_keys(line.yes.store)
    return ",".join(hashes(expressions(requirements(seen.metadata, seen.protocol))))


def stream_writing(folder: str = "t", **given: str) -> Act:
    def act(line: Line) -> object:
        path = str(line.root.parent / folder)
        return StreamWriter(for_writing({"path": path, **given}), frame(k="long"), "append")

    return act


def with_own_schema(line: Line) -> object:
    view = open_view(for_reading({"path": str(line.root)}))
    check_schema(to_spark(frame(k="string")), view.schema, str(line.root))
    return view


def vacuuming(hours: float) -> Act:
    return lambda line: survey(line.yes.store, VacuumRequest(hours), Claims(), 0)


def creating_by(**given: Any) -> Act:
    return lambda line: Table.create(
        cast(SparkSession, None), str(line.root.parent / "new"), to_spark(frame(k="long")), **given
    )


MISUSES: Final = [
    # Options of writes.
    Misuse("unknown option", writing(userMetaDatum="x"), "'userMetaDatum'", "'userMetadata'"),
    Misuse("option of another kind", writing(mergeshema="true"), "'mergeshema'", "'mergeSchema'"),
    Misuse("replaceUsing", writing(replaceUsing="k"), "replaceUsing", "replaceWhere"),
    Misuse("optimizeWrite", writing(optimizeWrite="true"), "optimizeWrite", r"Table\.optimize"),
    Misuse("boolean", writing(mergeSchema="yes"), "mergeSchema=yes", "true, false"),
    Misuse("number", writing(maxRecordsPerFile="0"), "maxRecordsPerFile=0", "whole number from 1"),
    Misuse("number in words", writing(readVersion="one"), "readVersion=one", "whole number from 0"),
    Misuse("duration", writing(outcomeTimeout="soon"), "outcomeTimeout=soon", "90s"),
    Misuse("compression", writing(compression="rar"), "compression=rar", "snappy, zstd"),
    Misuse("isolation", writing(isolationLevel="chaos"), "isolationLevel=chaos", "Serializable"),
    Misuse("dataChange", writing(dataChange="false"), "dataChange=false", "only dataChange=true"),
    Misuse("hash", writing(constraintsEnforced="v>0"), "constraintsEnforced", "SHA-256"),
    Misuse("trace", writing(traceparent="00"), "traceparent=00", "such as 00-"),
    Misuse(
        "overwrite mode",
        writing(partitionOverwriteMode="some"),
        "partitionOverwriteMode",
        "dynamic",
    ),
    Misuse(
        "replaceWhere and dynamic",
        writing(replaceWhere="k = 1", partitionOverwriteMode="dynamic"),
        "replaceWhere",
        "give one of them",
    ),
    Misuse(
        "replaceWhere and overwriteSchema",
        writing(replaceWhere="k = 1", overwriteSchema="true"),
        "overwriteSchema",
        "mergeSchema",
    ),
    Misuse("half a transaction", idempotent(txnAppId="a"), "txnVersion", "give both or neither"),
    Misuse("no path", lambda line: for_writing({}), "no path", r"save\(\.\.\.\)"),
    Misuse(
        "kafka protocol",
        writing(**{"kafka.security.protocol": "TLS"}),
        r"security\.protocol",
        "SASL_SSL",
    ),
    Misuse(
        "kafka servers by another name",
        writing(**{"kafka.metadata.broker.list": "here:1"}),
        r"metadata\.broker\.list",
        r"bootstrap.servers",
    ),
    # Options of reads.
    Misuse("option of a read", opening(version="1"), "'version'", "'versionAsOf'"),
    Misuse(
        "two times", opening(versionAsOf="0", timestampAsOf="2024-01-01"), "versionAsOf", "not both"
    ),
    Misuse("time", opening(timestampAsOf="yesterday"), "timestampAsOf=yesterday", "such as 2013"),
    Misuse("option of a stream", opening(maxFilesPerTrigger="1"), "maxFilesPerTrigger", "leave it"),
    Misuse("version to come", opening(versionAsOf="17"), "17", "newest"),
    Misuse("time to come", opening(timestampAsOf="2190-01-01"), "2190", "newest|latest"),
    Misuse("no table", opening_elsewhere, "nosuch", "check the path|create"),
    Misuse("own schema", with_own_schema, "schema", r"leave \.schema"),
    Misuse("start of a stream", streaming(versionAsOf="1"), "versionAsOf", "startingVersion"),
    Misuse(
        "two starts",
        streaming(startingVersion="1", startingTimestamp="2024-01-01"),
        "startingTimestamp",
        "not both",
    ),
    Misuse("later start", streaming(startingVersion="9"), "startingVersion=9", "up to 1"),
    Misuse("size", streaming(maxBytesPerTrigger="much"), "maxBytesPerTrigger=much", "64m"),
    Misuse("pattern", streaming(excludeRegex="("), "excludeRegex", "regular expression"),
    Misuse(
        "deletes of a feed",
        streaming(readChangeFeed="true", ignoreDeletes="true"),
        "ignoreDeletes",
        "leave one",
    ),
    Misuse("feed without start", feeding(), "readChangeFeed", "startingVersion"),
    Misuse(
        "two ends",
        feeding(startingVersion="0", endingVersion="1", endingTimestamp="2024-01-01"),
        "endingTimestamp",
        "not both",
    ),
    # Columns of appends and overwrites.
    Misuse("unknown column", planning(frame(k="long", q="long")), "'q'", "mergeSchema=true"),
    Misuse(
        "unknown field",
        planning(StructType((COLUMNS.fields[0], StructField("s", frame(b="long"))))),
        r"'s\.b'",
        "mergeSchema=true",
    ),
    Misuse("other type", planning(frame(k="string")), "'k' has type long", "cast it to long"),
    Misuse(
        "wider type",
        planning(frame(k="long", v="long")),
        "'v' has type integer",
        "cast it to integer",
    ),
    Misuse("missing column", planning(frame(p="string")), "'k' is NOT NULL", "add a column"),
    Misuse(
        "other partitioning",
        planning(frame(k="long"), partitionColumns="k"),
        r"not by \['k'\]",
        "leave the option",
    ),
    Misuse(
        "append that replaces",
        planning(frame(k="long"), replaceWhere="k = 1"),
        "replaceWhere",
        r'mode\("overwrite"\)',
    ),
    Misuse(
        "append with columns",
        planning(frame(k="long"), overwriteSchema="true"),
        "overwriteSchema",
        r'mode\("overwrite"\)',
    ),
    Misuse(
        "column of replaceWhere",
        planning(frame(k="long"), "overwrite", replaceWhere="q = 1"),
        "'q'",
        "there are k",
    ),
    Misuse(
        "function in replaceWhere",
        planning(frame(k="long"), "overwrite", replaceWhere="abs(k) = 1"),
        "ABS",
        "use comparisons",
    ),
    Misuse(
        "syntax of replaceWhere",
        planning(frame(k="long"), "overwrite", replaceWhere="k = = 1"),
        "k = = 1",
        "correct what begins with '='",
    ),
    Misuse(
        "property of a table that exists",
        planning(frame(k="long"), "append", **{"delta.appendOnly": "true"}),
        r"delta\.appendOnly",
        r"Table\.alter",
    ),
    Misuse(
        "column without a type",
        planning(frame(k="void", v="long"), "overwrite", overwriteSchema="true"),
        "'k'",
        "cast it",
    ),
    Misuse(
        "merged column without a type",
        planning(frame(k="long", n="void"), mergeSchema="true"),
        "'n'",
        "cast it",
    ),
    Misuse("constraint by the data source", unchecked, "few", r"Table\.append"),
    Misuse(
        "columns of some rows", by_session, r"spark\.sql\.sources\.partitionOverwriteMode", "static"
    ),
    # Rows.
    Misuse("null", writing_rows({"k": [1, None]}), "'k' is NOT NULL", "fill or filter"),
    Misuse("long text", writing_rows({"k": [1], "tag": ["long"]}), "'tag'", "cut them"),
    Misuse(
        "row outside replaceWhere",
        writing_rows({"k": [5]}, "overwrite", replaceWhere="k = 1"),
        "'k': 5|k = 1",
        "filter|correct",
    ),
    # New tables.
    Misuse(
        "illegal name",
        planning_anew(frame(**{"a b": "long"})),
        "'a b'",
        r"delta\.columnMapping\.mode",
    ),
    Misuse("twice the same name", planning_anew(frame(k="long", K="long")), "'K'", "rename"),
    Misuse("no columns", planning_anew(frame()), "at least one column", "table needs"),
    Misuse(
        "unknown partition column",
        planning_anew(frame(k="long"), partitionColumns="q"),
        "'q'",
        "columns are k",
    ),
    Misuse(
        "all columns partition",
        planning_anew(frame(k="long"), partitionColumns="k"),
        "every column",
        "at least one must not",
    ),
    Misuse(
        "misspelt property",
        planning_anew(frame(k="long"), **{"delta.appendOnlly": "true"}),
        r"delta\.appendOnlly",
        r"delta\.appendOnly\b",
    ),
    Misuse(
        "value of a property",
        planning_anew(frame(k="long"), **{"delta.appendOnly": "perhaps"}),
        r"delta\.appendOnly",
        "true",
    ),
    Misuse(
        "property of Table",
        verb(lambda one: one, **{"delta.appendOnly": "true"}),
        r"delta\.appendOnly",
        r"Table\.alter",
    ),
    Misuse(
        "builder without a place",
        lambda line: (
            Table.createIfNotExists(cast(SparkSession, None))
            .addColumn("k", to_spark(frame(k="long"))["k"].dataType)
            .execute()
        ),
        "location",
        r"\.location\(path\)",
    ),
    Misuse(
        "partition column of create", creating_by(partition_columns=["q"]), "'q'", "columns are k"
    ),
    Misuse(
        "property of create",
        creating_by(properties={"delta.logRetentionDuration": "long"}),
        r"delta\.logRetentionDuration",
        "interval",
    ),
    # Streams that write.
    Misuse("stream's partitionBy", stream_writing("new"), "partitionBy", "partitionColumns"),
    Misuse(
        "stream's txnVersion",
        stream_writing(txnAppId="a", txnVersion="1"),
        "txnVersion",
        "leave the option",
    ),
    Misuse("stream's readVersion", stream_writing(readVersion="0"), "readVersion", "leave"),
    Misuse(
        "stream's replaceWhere",
        stream_writing(replaceWhere="k = 1"),
        "replaceWhere",
        "overwrite|foreachBatch",
    ),
    # Verbs.
    Misuse(
        "table that is not there",
        lambda line: Table.for_path(cast(SparkSession, None), str(line.root.parent / "nosuch")),
        "nosuch",
        r"Table\.create",
    ),
    Misuse(
        "sub-query", verb(lambda one: one.delete("k IN (SELECT 1)")), "SELECT 1", r"Table\.merge"
    ),
    Misuse(
        "update of nothing",
        verb(lambda one: one.update("k = 1")),
        "update",
        r"set=\{column: expression\}",
    ),
    Misuse(
        "merge without clauses",
        merging(lambda one: one.execute()),
        "clause",
        "whenMatchedUpdateAll",
    ),
    Misuse(
        "two clauses without a condition",
        merging(lambda one: one.whenMatchedDelete().whenMatchedUpdateAll().execute()),
        "when matched",
        "give the others one",
    ),
    Misuse(
        "clause without values",
        merging(lambda one: one.whenNotMatchedInsert()),
        "values",
        "mapping of columns",
    ),
    Misuse(
        "batch of no application",
        verb(lambda one: one.delete("k = 1", batch_id=3)),
        "batch_id=3",
        "txnAppId",
    ),
    Misuse(
        "application without a batch",
        verb(lambda one: one.delete("k = 1"), txnAppId="a"),
        "txnAppId=a",
        "batch_id",
    ),
    Misuse(
        "foreach_batch of no application",
        verb(lambda one: one.foreach_batch(print)),
        "batch_id",
        "txnAppId",
    ),
    Misuse(
        "version of a whole table",
        verb(lambda one: one, txnAppId="a", txnVersion="1"),
        "txnVersion",
        "batch_id",
    ),
    # Changes of the table.
    Misuse(
        "change of no kind",
        verb(lambda one: one.alter(changes=[{"op": "paint"}])),
        "paint",
        "add_column",
    ),
    Misuse("name of no column", verb(lambda one: one.drop_column("a,b")), "'a,b'", r"parent\.name"),
    Misuse(
        "constraint that is not there",
        verb(lambda one: one.drop_constraint("many")),
        "'many'",
        "there are: few",
    ),
    Misuse(
        "no columns to sort by",
        verb(lambda one: one.optimize(1).executeZOrderBy()),
        "executeZOrderBy",
        "needs columns",
    ),
    Misuse(
        "sorted by no column",
        verb(lambda one: one.optimize(1).executeZOrderBy("q")),
        "'q'",
        r"with statistics \(k, v",
    ),
    Misuse(
        "packed by rows",
        verb(lambda one: one.optimize(1).where("k = 1").executeCompaction()),
        "'k'",
        "partition columns",
    ),
    Misuse(
        "clustered and partitioned",
        verb(lambda one: one.cluster_by("k")),
        "partitioned by p",
        "leave one out",
    ),
    Misuse("manifest", verb(lambda one: one.generate("hive")), "'hive'", "symlink_format_manifest"),
    Misuse("restored version", verb(lambda one: one.restoreToVersion(99)), "99", "newest"),
    Misuse(
        "restored time",
        verb(lambda one: one.restoreToTimestamp("soon")),
        "timestamp=soon",
        "such as 2013",
    ),
    Misuse(
        "unknown feature",
        verb(lambda one: one.dropFeatureSupport("wings")),
        "wings",
        "the table has .*checkConstraints",
    ),
    Misuse(
        "short retention",
        vacuuming(1),
        "retention of 1 hours",
        "Give more hours.*retention_check=False",
    ),
    Misuse("negative retention", vacuuming(-1), "retention of -1", "give 0 or more"),
]


@pytest.fixture
def line(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Line:
    """Return a committer that accepts everything, and a table with a row and a constraint."""
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    made = Line(tmp_path)
    for user in USERS:
        monkeypatch.setattr(f"tidegate_producers.{user}.client_for", lambda _: made.client)
    options = made.options()
    new = creation(made.client, COLUMNS, ["p"], options, CHECK)
    commit(made.client, creating(new, options.place), (), WriteRequest.of(options))
    return made


@pytest.mark.parametrize("misuse", MISUSES, ids=lambda one: one.name)
def test_a_misuse_is_answered_with_the_problem_and_the_remedy(misuse: Misuse, line: Line) -> None:
    before = sorted(line.root.parent.rglob("*"))
    proposed = len(line.gate.sent)
    with pytest.raises((TidegateError, TypeError)) as raised:
        misuse.act(line)
    first = str(raised.value).splitlines()[0]
    assert_names(first, misuse.wrong, misuse.remedy)
    assert len(line.gate.sent) == proposed
    assert sorted(line.root.parent.rglob("*")) == before


def assert_names(told: str, *parts: str) -> None:
    """Check that a message has each of some patterns."""
    for part in parts:
        assert re.search(part, told), f"{part!r} is not in: {told}"
    assert len(told) < 1_000


def test_there_are_as_many_misuses_as_were_promised() -> None:
    assert len({item.name for item in MISUSES}) == len(MISUSES) >= 60
