"""The two engines: what makes a table, and does a verb of a case, by delta-spark and by us."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import singledispatchmethod
from pathlib import Path
from typing import Any, ClassVar

from delta import DeltaTable
from delta.tables import IdentityGenerator
from pyspark.sql import SparkSession

from tests.judge.cases import (
    AddFeature,
    Alter,
    Append,
    Case,
    Clause,
    Clone,
    Delete,
    Merge,
    Optimize,
    Overwrite,
    Restore,
    StreamRead,
    Update,
    Vacuum,
    Verb,
    quoted,
)
from tidegate_producers.table import Table

RETENTION_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
EVOLUTION_OF_MERGES = "spark.databricks.delta.schema.autoMerge.enabled"


@dataclass
class Side:
    """A table in the hands of one engine; the verbs that both name alike are here."""

    name: ClassVar[str]
    spark: SparkSession
    path: str
    options: Mapping[str, str]
    versions: list[int] = field(default_factory=list)
    """The newest version after the first rows, and after each verb."""

    def table(self) -> Any:
        raise NotImplementedError

    def builder(self) -> Any:
        raise NotImplementedError

    def create(self, case: Case) -> None:
        """Make the table of a case, without rows."""
        builder = self.builder().location(self.path)
        for column in case.columns:
            generated: Any = column.generated
            if column.identity is not None:
                generated = IdentityGenerator(*column.identity)
            builder = builder.addColumn(
                column.name,
                column.type,
                nullable=column.nullable,
                generatedAlwaysAs=generated,
                comment=column.comment,
            )
        if case.by:
            builder = builder.partitionedBy(*case.by)
        if case.clustered:
            builder = builder.clusterBy(*case.clustered)
        for name, value in case.properties.items():
            builder = builder.property(name, value)
        builder.execute()

    def head(self) -> int:
        """Return the newest version."""
        return max(int(file.stem) for file in Path(self.path, "_delta_log").glob("*.json"))

    @singledispatchmethod
    def do(self, verb: Verb) -> None:
        """Do a verb."""
        raise NotImplementedError(verb)

    @do.register
    def _(self, verb: Delete) -> None:
        if verb.condition is None:
            self.table().delete()
        else:
            self.table().delete(verb.condition)

    @do.register
    def _(self, verb: Update) -> None:
        self.table().update(verb.condition, dict(verb.assigned))

    @do.register
    def _(self, verb: Merge) -> None:
        if verb.rows is None:
            source = self.spark.read.format("delta").load(self.path)
        else:
            source = self.spark.sql(verb.rows.sql())
        merge = self.table().alias("t").merge(source.alias("s"), verb.condition)
        for clause in verb.clauses:
            merge = _with(merge, clause)
        if verb.evolves:
            merge = merge.withSchemaEvolution()
        merge.execute()

    @do.register
    def _(self, verb: Optimize) -> None:
        optimize = self.table().optimize()
        if verb.where is not None:
            optimize = optimize.where(verb.where)
        if verb.order:
            optimize.executeZOrderBy(*verb.order)
        else:
            optimize.executeCompaction()

    @do.register
    def _(self, verb: Restore) -> None:
        self.table().restoreToVersion(self.versions[verb.step + 1])

    @do.register
    def _(self, verb: Clone) -> None:
        target = f"{self.path}-clone"
        self.table().clone(target, isShallow=True)
        self.path = target

    @do.register
    def _(self, verb: AddFeature) -> None:
        self.table().addFeatureSupport(verb.feature)

    @do.register
    def _(self, verb: StreamRead) -> None:
        rows, target = self.stream(), self.streamed
        (
            rows.writeStream.format("delta")
            .option("checkpointLocation", f"{target}-checkpoint")
            .trigger(availableNow=True)
            .start(target)
            .awaitTermination()
        )

    @property
    def streamed(self) -> str:
        """Where the rows of the table's stream are."""
        return f"{self.path}-streamed"

    def stream(self) -> Any:
        """Return the table as a stream from its first version."""
        raise NotImplementedError


def _with(merge: Any, clause: Clause) -> Any:
    """Return a merge with a clause more."""
    values = None if clause.assigned is None else dict(clause.assigned)
    if clause.when == "matched":
        if clause.does == "delete":
            return merge.whenMatchedDelete(clause.condition)
        if values is None:
            return merge.whenMatchedUpdateAll(clause.condition)
        return merge.whenMatchedUpdate(clause.condition, values)
    if clause.when == "not matched":
        if values is None:
            return merge.whenNotMatchedInsertAll(clause.condition)
        return merge.whenNotMatchedInsert(clause.condition, values)
    if clause.does == "delete":
        return merge.whenNotMatchedBySourceDelete(clause.condition)
    return merge.whenNotMatchedBySourceUpdate(clause.condition, values)


class Theirs(Side):
    """delta-spark."""

    name = "theirs"

    def table(self) -> Any:
        return DeltaTable.forPath(self.spark, self.path)

    def builder(self) -> Any:
        return DeltaTable.create(self.spark)

    def _sql(self, text: str) -> None:
        self.spark.sql(text).collect()

    @singledispatchmethod
    def do(self, verb: Verb) -> None:
        super().do(verb)

    @do.register
    def _(self, verb: Append) -> None:
        rows = self.spark.sql(verb.rows.sql())
        rows.write.format("delta").mode("append").options(**verb.options).save(self.path)

    @do.register
    def _(self, verb: Overwrite) -> None:
        writer = self.spark.sql(verb.rows.sql()).write.format("delta").mode("overwrite")
        writer = writer.options(**verb.options)
        if verb.condition is not None:
            writer = writer.option("replaceWhere", verb.condition)
        if verb.by:
            writer = writer.partitionBy(*verb.by)
        writer.save(self.path)

    @do.register
    def _(self, verb: Alter) -> None:
        self._sql(f"ALTER TABLE delta.{quoted(self.path)} {verb.sql}")

    @do.register
    def _(self, verb: Vacuum) -> None:
        self.spark.conf.set(RETENTION_CHECK, "false")
        self.table().vacuum(0)

    def stream(self) -> Any:
        return self.spark.readStream.format("delta").option("startingVersion", 0).load(self.path)


class Ours(Side):
    """Tidegate."""

    name = "ours"

    def table(self) -> Any:
        return Table(self.spark, self.path, self.options)

    def builder(self) -> Any:
        return Table.builder(self.spark, "create", self.options)

    @singledispatchmethod
    def do(self, verb: Verb) -> None:
        super().do(verb)

    @do.register
    def _(self, verb: Append) -> None:
        rows = self.spark.sql(verb.rows.sql())
        if verb.by_table:
            self.table().append(rows, dict(verb.options))
        else:
            options = {**self.options, **verb.options}
            rows.write.format("tidegate").mode("append").options(**options).save(self.path)

    @do.register
    def _(self, verb: Overwrite) -> None:
        rows = self.spark.sql(verb.rows.sql())
        options = {**self.options, **verb.options}
        if verb.condition is not None:
            if verb.by_table:
                self.table().overwrite(rows, verb.condition)
                return
            options["replaceWhere"] = verb.condition
        if verb.by:
            options["partitionColumns"] = ",".join(map(quoted, verb.by))
        rows.write.format("tidegate").mode("overwrite").options(**options).save(self.path)

    @do.register
    def _(self, verb: Alter) -> None:
        getattr(self.table(), verb.method)(*verb.args, **verb.named)

    @do.register
    def _(self, verb: Vacuum) -> None:
        self.table().vacuum(0, dry_run=False, retention_check=False)

    def stream(self) -> Any:
        reader = self.spark.readStream.format("tidegate").options(**self.options)
        return reader.option("startingVersion", 0).load(self.path)
