"""Short scripts of changes of tables, each run by delta-spark and by us; a step may be refused.

A step whose names are the same in both engines is written once; for the others the first is
delta-spark's SQL, in which `{t}` is the table, and the second our verb.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from delta.tables import IdentityGenerator

from tests.integration.judged_scenarios import Target
from tidegate_producers.table import Table

Step = Callable[[Target], object]

COLUMNS: Final = "k bigint NOT NULL, p string, v int, s struct<a: int, b: string>"
ROWS: Final = (
    "SELECT id AS k, IF(id % 2 = 0, 'x', NULL) AS p, cast(id * 10 AS int) AS v, "
    "named_struct('a', cast(id AS int), 'b', 'r') AS s FROM range(0, 6, 1, 2)"
)
MAPPED: Final = {"delta.columnMapping.mode": "name"}
WIDENING: Final = {"delta.enableTypeWidening": "true"}
VECTORS: Final = {"delta.enableDeletionVectors": "true"}
FEED: Final = {"delta.enableChangeDataFeed": "true"}
TRACKED: Final = {"delta.enableRowTracking": "true"}
DEFAULTS: Final = {"delta.feature.allowColumnDefaults": "supported"}

SHORTER = "delta-spark refuses shorter integers than the column's; we widen them"
NO_TYPE = "delta-spark adds a column without a type; we ask for one"
LEASED: Final = "values of identity columns are leased by versions of their own"
DROPPED: Final = "no tombstones of vectors and empty commits; the property is false, not gone"
OWN_FILES: Final = "copied rows and changed rows of an update lie in files of their own"
UPGRADED: Final = "a change of properties is called so where it upgrades the protocol, too"


@dataclass(frozen=True)
class Script:
    """Steps, and the properties and partition columns of the table that they begin with."""

    name: str
    steps: tuple[Step, ...]
    properties: Mapping[str, str] = field(default_factory=dict)
    by: tuple[str, ...] = ()
    differs: Mapping[str, str] = field(default_factory=dict)
    """The parts in which we are not like delta-spark, and why: as in docs/writing-from-spark.md."""


def either(theirs: str, ours: Callable[[Table], object]) -> Step:
    """Return a step that is SQL for delta-spark, and a verb for us."""

    def step(t: Target) -> object:
        if t.side == "ours":
            return ours(Table(t.spark, t.path, t.options))
        return t.spark.sql(theirs.format(t=f"delta.`{t.path}`")).collect()

    return step


def alter(theirs: str, ours: Callable[[Table], object]) -> Step:
    return either(f"ALTER TABLE {{t}} {theirs}", ours)


def verb(call: Callable[[Any], object]) -> Step:
    """Return a step that calls the same method of both."""
    return lambda t: call(t.table())


def append(query: str, **options: str) -> Step:
    return lambda t: t.write(query, "append", (), **options)


def appended(query: str) -> Step:
    """Return an append that ours does by `Table.append`."""

    def step(t: Target) -> object:
        if t.side == "ours":
            return Table(t.spark, t.path, t.options).append(t.spark.sql(query))
        t.write(query, "append")
        return None

    return step


def upsert(query: str) -> Step:
    def step(t: Target) -> object:
        merge = t.table().merge(t.spark.sql(query).alias("s"), "t.k = s.k")
        return merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    return step


def built(mode: str, build: Callable[[Any], Any]) -> Step:
    """Return a step by one of the builders, at the table's own place."""

    def step(t: Target) -> object:
        given = (t.spark, t.options) if t.side == "ours" else (t.spark,)
        return build(getattr(t.kind, mode)(*given).location(t.path)).execute()

    return step


def properties(**given: str) -> Step:
    """Return a step that sets properties, named with `_` instead of dots."""
    named = {name.replace("_", "."): value for name, value in given.items()}
    return set_properties(named)


def set_properties(named: Mapping[str, str]) -> Step:
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in named.items())
    return alter(f"SET TBLPROPERTIES ({listed})", lambda t: t.alter(properties=named))


FOUR: Final = tuple(
    append(f"SELECT {k}L AS k, 'x' AS p, {k} AS v, named_struct('a', 1, 'b', 'q') AS s")
    for k in (20, 21, 22)
)
MORE: Final = "SELECT 30L AS k, 'x' AS p, 5 AS v, named_struct('a', 1, 'b', 'q') AS s"

ADD_W: Final = alter("ADD COLUMN w INT", lambda t: t.add_column("w", "int"))
RENAME_V: Final = alter("RENAME COLUMN v TO w", lambda t: t.rename_column("v", "w"))
DROP_V: Final = alter("DROP COLUMN v", lambda t: t.drop_column("v"))
WIDEN_V: Final = alter("ALTER COLUMN v TYPE BIGINT", lambda t: t.change_type("v", "bigint"))
FEW: Final = alter(
    "ADD CONSTRAINT few CHECK (v < 100)", lambda t: t.add_constraint("few", "v < 100")
)
DELETE_ONE: Final = verb(lambda t: t.delete("k = 1"))
UPDATE_ONE: Final = verb(lambda t: t.update("k = 2", {"v": "v + 1"}))
OPTIMIZE: Final = verb(lambda t: t.optimize().executeCompaction())

SCRIPTS: Final = [
    # Columns.
    Script(
        "add a column",
        (ADD_W, append("SELECT 9L AS k, 1 AS w"), verb(lambda t: t.update("k = 1", {"w": "v"}))),
    ),
    Script(
        "add a column first",
        (alter("ADD COLUMN w INT FIRST", lambda t: t.add_column("w", "int", first=True)),),
    ),
    Script(
        "add a column after",
        (alter("ADD COLUMN w INT AFTER k", lambda t: t.add_column("w", "int", after="k")),),
    ),
    Script(
        "add a field",
        (
            alter("ADD COLUMN s.c DOUBLE", lambda t: t.add_column("s.c", "double")),
            verb(lambda t: t.update("k = 1", {"s.c": "2.5"})),
        ),
    ),
    Script(
        "add a column with a comment",
        (
            alter(
                "ADD COLUMN w INT COMMENT 'why'", lambda t: t.add_column("w", "int", comment="why")
            ),
        ),
    ),
    Script(
        "add columns",
        (alter("ADD COLUMNS (w INT, x STRING)", lambda t: t.alter(add_columns="w int, x string")),),
    ),
    Script(
        "add a column that is there",
        (alter("ADD COLUMN V INT", lambda t: t.add_column("V", "int")),),
    ),
    Script("add a column to a mapped table", (ADD_W, append("SELECT 9L AS k, 1 AS w")), MAPPED),
    Script(
        "rename a column",
        (RENAME_V, append("SELECT 9L AS k, 1 AS w"), verb(lambda t: t.delete("w = 20"))),
        MAPPED,
    ),
    Script("rename a column without mapping", (RENAME_V,)),
    Script(
        "rename a field",
        (
            alter("RENAME COLUMN s.a TO c", lambda t: t.rename_column("s.a", "c")),
            verb(lambda t: t.update("s.c = 1", {"s.c": "7"})),
        ),
        MAPPED,
    ),
    Script(
        "rename to a name that is there",
        (alter("RENAME COLUMN v TO K", lambda t: t.rename_column("v", "K")),),
        MAPPED,
    ),
    Script(
        "rename the partition column",
        (
            alter("RENAME COLUMN p TO q", lambda t: t.rename_column("p", "q")),
            append("SELECT 9L AS k, 'y' AS q"),
        ),
        MAPPED,
        ("p",),
    ),
    Script("drop a column", (DROP_V, append("SELECT 9L AS k"), DELETE_ONE), MAPPED),
    Script("drop a field", (alter("DROP COLUMN s.b", lambda t: t.drop_column("s.b")),), MAPPED),
    Script(
        "drop a column and add it again",
        (
            DROP_V,
            alter("ADD COLUMN v STRING", lambda t: t.add_column("v", "string")),
            append("SELECT 9L AS k, 'n' AS v"),
        ),
        MAPPED,
    ),
    Script("drop a column without mapping", (DROP_V,)),
    Script(
        "drop the partition column",
        (alter("DROP COLUMN p", lambda t: t.drop_column("p")),),
        MAPPED,
        ("p",),
    ),
    Script(
        "widen a column",
        (
            WIDEN_V,
            append("SELECT 9L AS k, 90000000000L AS v"),
            verb(lambda t: t.update("v = 20", {"v": "v * 10000000000"})),
        ),
        WIDENING,
    ),
    Script("widen without the property", (WIDEN_V,)),
    Script(
        "narrow a column",
        (alter("ALTER COLUMN v TYPE SMALLINT", lambda t: t.change_type("v", "smallint")),),
        WIDENING,
    ),
    Script(
        "widen a field",
        (
            alter("ALTER COLUMN s.a TYPE BIGINT", lambda t: t.change_type("s.a", "bigint")),
            DELETE_ONE,
        ),
        WIDENING,
    ),
    Script(
        "move a column first",
        (alter("ALTER COLUMN v FIRST", lambda t: t.move_column("v", first=True)),),
    ),
    Script(
        "move a column after",
        (alter("ALTER COLUMN p AFTER v", lambda t: t.move_column("p", after="v")), DELETE_ONE),
    ),
    Script(
        "comment on a column",
        (alter("ALTER COLUMN v COMMENT 'why'", lambda t: t.alter(comments={"v": "why"})),),
    ),
    Script(
        "let a column be null",
        (
            alter("ALTER COLUMN k DROP NOT NULL", lambda t: t.drop_not_null("k")),
            append("SELECT 1 AS v"),
        ),
    ),
    Script("null in a column that has none", (append("SELECT cast(NULL AS bigint) AS k"),)),
    Script(
        "set a default",
        (
            alter("ALTER COLUMN v SET DEFAULT 7", lambda t: t.set_default("v", "7")),
            appended("SELECT 9L AS k"),
            upsert("SELECT 40L AS k, 'y' AS p, 1 AS v, named_struct('a', 1, 'b', 'q') AS s"),
        ),
        DEFAULTS,
    ),
    Script(
        "drop a default",
        (
            alter("ALTER COLUMN v SET DEFAULT 7", lambda t: t.set_default("v", "7")),
            alter("ALTER COLUMN v DROP DEFAULT", lambda t: t.set_default("v", None)),
            appended("SELECT 9L AS k"),
        ),
        DEFAULTS,
    ),
    # Properties, protocol, features.
    Script(
        "set properties",
        (set_properties({"delta.logRetentionDuration": "interval 7 days", "mine": "1"}),),
    ),
    Script(
        "unset a property",
        (
            set_properties({"mine": "1"}),
            alter("UNSET TBLPROPERTIES ('mine')", lambda t: t.alter(unset=["mine"])),
        ),
    ),
    Script("set a property that delta does not know", (set_properties({"delta.nosuch": "1"}),)),
    Script(
        "set a property to what it can't be", (set_properties({"delta.appendOnly": "perhaps"}),)
    ),
    Script("append only", (set_properties({"delta.appendOnly": "true"}), DELETE_ONE, *FOUR[:1])),
    Script("vectors from now on", (set_properties(VECTORS), DELETE_ONE, UPDATE_ONE)),
    Script("a change feed from now on", (set_properties(FEED), UPDATE_ONE, DELETE_ONE)),
    Script(
        "column mapping from now on",
        (set_properties(MAPPED), RENAME_V, append("SELECT 9L AS k, 1 AS w")),
    ),
    Script(
        "row tracking from now on",
        (set_properties(TRACKED), *FOUR[:1]),
        differs={"history": UPGRADED},
    ),
    Script(
        "in-commit timestamps from now on",
        (set_properties({"delta.enableInCommitTimestamps": "true"}), *FOUR[:1]),
    ),
    Script("add support of a feature", (verb(lambda t: t.addFeatureSupport("deletionVectors")),)),
    Script("add support of no feature", (verb(lambda t: t.addFeatureSupport("wings")),)),
    Script(
        "drop vectors",
        (DELETE_ONE, verb(lambda t: t.dropFeatureSupport("deletionVectors"))),
        VECTORS,
        differs={"properties": DROPPED, "history": DROPPED},
    ),
    Script(
        "drop a feature that is not there",
        (verb(lambda t: t.dropFeatureSupport("deletionVectors")),),
    ),
    Script("upgrade the protocol", (verb(lambda t: t.upgradeTableProtocol(2, 5)),)),
    Script("lower the protocol", (verb(lambda t: t.upgradeTableProtocol(1, 1)),)),
    # Constraints, generated and identity columns.
    Script(
        "add a constraint",
        (
            FEW,
            append("SELECT 9L AS k, 100 AS v"),
            appended("SELECT 9L AS k, 99 AS v"),
            verb(lambda t: t.update("k = 1", {"v": "100"})),
        ),
    ),
    Script(
        "add a constraint that rows violate",
        (alter("ADD CONSTRAINT few CHECK (v < 10)", lambda t: t.add_constraint("few", "v < 10")),),
    ),
    Script(
        "drop a constraint",
        (
            FEW,
            alter("DROP CONSTRAINT few", lambda t: t.drop_constraint("few")),
            append("SELECT 9L AS k, 100 AS v"),
        ),
    ),
    Script(
        "drop a constraint that is not there",
        (alter("DROP CONSTRAINT few", lambda t: t.drop_constraint("few")),),
    ),
    Script(
        "a merge meets a constraint",
        (
            FEW,
            upsert("SELECT 1L AS k, 'x' AS p, 99 AS v, named_struct('a', 1, 'b', 'q') AS s"),
            upsert(f"{MORE.replace('5 AS v', '500 AS v')}"),
        ),
    ),
    Script(
        "generated columns",
        (
            built(
                "replace",
                lambda b: (
                    b.addColumn("k", "bigint")
                    .addColumn("at", "date")
                    .addColumn("year", "int", generatedAlwaysAs="year(at)")
                ),
            ),
            appended("SELECT 1L AS k, date'2024-05-01' AS at"),
            verb(lambda t: t.update("k = 1", {"at": "date'2025-01-01'"})),
            appended("SELECT 2L AS k, date'2024-05-01' AS at, 1999 AS year"),
        ),
    ),
    Script(
        "identity columns",
        (
            built(
                "replace",
                lambda b: b.addColumn(
                    "n", "bigint", generatedAlwaysAs=IdentityGenerator(5, 2)
                ).addColumn("k", "bigint"),
            ),
            appended("SELECT 1L AS k"),
            appended("SELECT 2L AS k"),
            appended("SELECT 3L AS k, 9L AS n"),
        ),
        differs={"history": LEASED},
    ),
    # Builders.
    Script(
        "create if it is not there",
        (built("createIfNotExists", lambda b: b.addColumn("other", "int")),),
    ),
    Script(
        "replace by a clustered table",
        (
            built(
                "replace", lambda b: b.addColumn("k", "bigint").addColumn("v", "int").clusterBy("v")
            ),
            append("SELECT 1L AS k, 1 AS v"),
        ),
    ),
    # Maintenance.
    Script("optimize", (*FOUR, OPTIMIZE, OPTIMIZE)),
    Script(
        "optimize partitions",
        (*FOUR, verb(lambda t: t.optimize().where("p = 'x'").executeCompaction())),
        {},
        ("p",),
    ),
    Script("optimize by rows", (verb(lambda t: t.optimize().where("k = 1").executeCompaction()),)),
    Script("z-order", (*FOUR, verb(lambda t: t.optimize().executeZOrderBy("k", "v")))),
    Script(
        "z-order by the partition", (verb(lambda t: t.optimize().executeZOrderBy("p")),), {}, ("p",)
    ),
    Script("z-order by no column", (verb(lambda t: t.optimize().executeZOrderBy("q")),)),
    Script(
        "optimize a table with vectors",
        (DELETE_ONE, *FOUR, OPTIMIZE, UPDATE_ONE),
        {**VECTORS, **FEED},
    ),
    Script("optimize a table that tracks rows", (*FOUR, OPTIMIZE, UPDATE_ONE), TRACKED),
    Script(
        "cluster by",
        (alter("CLUSTER BY (v, k)", lambda t: t.cluster_by("v", "k")), *FOUR, OPTIMIZE),
    ),
    Script(
        "cluster by none",
        (
            alter("CLUSTER BY (v)", lambda t: t.cluster_by("v")),
            alter("CLUSTER BY NONE", lambda t: t.cluster_by()),
        ),
    ),
    Script("cluster by no column", (alter("CLUSTER BY (q)", lambda t: t.cluster_by("q")),)),
    Script(
        "cluster a partitioned table",
        (alter("CLUSTER BY (v)", lambda t: t.cluster_by("v")),),
        {},
        ("p",),
    ),
    Script(
        "purge", (DELETE_ONE, either("REORG TABLE {t} APPLY (PURGE)", lambda t: t.purge())), VECTORS
    ),
    Script("restore", (DELETE_ONE, *FOUR[:1], verb(lambda t: t.restoreToVersion(1)))),
    Script(
        "restore columns",
        (ADD_W, append("SELECT 9L AS k, 1 AS w"), verb(lambda t: t.restoreToVersion(1))),
    ),
    Script("restore under a constraint", (FEW, UPDATE_ONE, verb(lambda t: t.restoreToVersion(2)))),
    Script(
        "restore a constraint",
        (
            FEW,
            UPDATE_ONE,
            alter("DROP CONSTRAINT few", lambda t: t.drop_constraint("few")),
            verb(lambda t: t.restoreToVersion(2)),
        ),
    ),
    Script("restore a version that is not there", (verb(lambda t: t.restoreToVersion(9)),)),
    Script(
        "restore with vectors",
        (DELETE_ONE, UPDATE_ONE, verb(lambda t: t.restoreToVersion(2))),
        VECTORS,
    ),
    Script(
        "restore with a feed",
        (DELETE_ONE, UPDATE_ONE, verb(lambda t: t.restoreToVersion(1))),
        FEED,
        differs={"history": OWN_FILES},
    ),
    # Appends.
    Script(
        "append shorter integers",
        (append("SELECT cast(9 AS smallint) AS k, cast(9 AS tinyint) AS v"),),
        differs={"refused": SHORTER, "rows": SHORTER, "history": SHORTER},
    ),
    Script("append longer integers", (append("SELECT 9L AS k, 9L AS v"),)),
    Script("append text as a number", (append("SELECT 9L AS k, '9' AS v"),)),
    Script(
        "append by other cases",
        (append("SELECT 9L AS K, 9 AS V, named_struct('A', 1, 'b', 'q') AS S"),),
    ),
    Script(
        "append fields in another order",
        (append("SELECT 9L AS k, named_struct('b', 'q', 'a', 1) AS s"),),
    ),
    Script("append fewer fields", (append("SELECT 9L AS k, named_struct('b', 'q') AS s"),)),
    Script(
        "append nulls",
        (append("SELECT 9L AS k, NULL AS v, cast(NULL AS struct<a: int, b: string>) AS s"),),
    ),
    Script(
        "a column of nulls",
        (
            append("SELECT 9L AS k, NULL AS w", mergeSchema="true"),
            DELETE_ONE,
            append("SELECT 10L AS k, 'x' AS w", mergeSchema="true"),
        ),
        differs={"refused": NO_TYPE, "rows": NO_TYPE, "history": NO_TYPE},
    ),
    Script(
        "columns of nulls, built",
        (
            built("replace", lambda b: b.addColumn("k", "int").addColumn("w", "void")),
            append("SELECT 9 AS k, NULL AS w"),
            append("SELECT 10 AS k"),
            verb(lambda t: t.update("k = 9", {"k": "11"})),
        ),
    ),
    Script(
        "partitions of nulls",
        (
            built(
                "replace",
                lambda b: b.addColumn("k", "int").addColumn("w", "void").partitionedBy("w"),
            ),
        ),
    ),
    Script("append no rows", (append(f"{MORE} WHERE false"),)),
    Script(
        "append once",
        (
            append(MORE, txnAppId="a", txnVersion="1"),
            append(MORE, txnAppId="a", txnVersion="1"),
            append(MORE, txnAppId="a", txnVersion="2"),
        ),
    ),
    Script(
        "append many files",
        (append("SELECT id AS k FROM range(40, 60, 1, 1)", maxRecordsPerFile="5"),),
    ),
    Script("append with a note", (append(MORE, userMetadata="why"),)),
    Script(
        "append to partitions",
        (
            append("SELECT 9L AS k, 'a b/c=%' AS p"),
            append("SELECT 10L AS k, '' AS p"),
            verb(lambda t: t.delete("p = 'a b/c=%'")),
        ),
        {},
        ("p",),
    ),
    Script("append twice the same column", (append("SELECT 9L AS k, 1 AS v, 2 AS V"),)),
    # One verb after another.
    Script(
        "every verb, by copies",
        (*FOUR[:1], DELETE_ONE, UPDATE_ONE, upsert(MORE), verb(lambda t: t.delete("v > 15"))),
        FEED,
    ),
    Script(
        "every verb, by vectors",
        (*FOUR[:1], DELETE_ONE, UPDATE_ONE, upsert(MORE), verb(lambda t: t.delete("v > 15"))),
        {**VECTORS, **FEED},
    ),
    Script("every verb, with row ids", (*FOUR[:1], DELETE_ONE, UPDATE_ONE, upsert(MORE)), TRACKED),
    Script(
        "every verb, mapped",
        (
            RENAME_V,
            *(one for one in (DELETE_ONE,)),
            verb(lambda t: t.update("k = 2", {"w": "w + 1"})),
            append("SELECT 9L AS k, 1 AS w"),
        ),
        {**MAPPED, **FEED},
    ),
    Script("delete twice", (DELETE_ONE, DELETE_ONE), FEED),
    Script("delete all", (verb(lambda t: t.delete()), *FOUR[:1]), {**VECTORS, **FEED}),
    Script("update all", (verb(lambda t: t.update(set={"v": "0"})),), FEED),
    Script("update nothing", (verb(lambda t: t.update("k = 99", {"v": "0"})),), FEED),
]
