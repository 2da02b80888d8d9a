"""Scala values and delta-spark operations, created from Python."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyspark.sql import SparkSession

PLAIN: Final[Mapping[str, tuple[str, tuple[Any, ...]]]] = {
    "DELETE": ("Delete", ((),)),
    "UPDATE": ("Update", (None,)),
    "MERGE": ("Merge", (None, None, None, None, (), (), ())),
    "TRUNCATE": ("Truncate", ()),
    "OPTIMIZE": ("Optimize", ((), (), False, None, False)),
    "REORG": ("Reorg", ((), True)),
    "COMPUTE STATS": ("ComputeStats", ((),)),
    "RESTORE": ("Restore", (None, None)),
    "CLONE": ("Clone", ("source", 0)),
    "CONVERT": ("Convert", (0, (), False, None, None)),
    "ROW TRACKING BACKFILL": ("RowTrackingBackfill", (0,)),
    "ROW TRACKING UNBACKFILL": ("RowTrackingUnBackfill", (0,)),
}
"""Operation -> its class and its arguments: an empty Option, and an empty Seq."""


class Scala:
    """Creates Scala values."""

    def __init__(self, spark: SparkSession) -> None:
        """Use a session's JVM."""
        jvm: Any = spark._jvm
        self.jvm = jvm
        self.delta = self.jvm.org.apache.spark.sql.delta
        self.none = self.jvm.scala.Option.empty()

    def seq(self, values: Iterable[Any]) -> Any:
        """Return a Seq."""
        result = self.jvm.java.util.ArrayList()
        for value in values:
            result.add(value)
        return self.jvm.PythonUtils.toSeq(result)

    def some(self, value: Any) -> Any:
        """Return an Option with a value."""
        return self.jvm.scala.Option.apply(value)

    def map(self, values: Mapping[str, Any]) -> Any:
        """Return an immutable Map."""
        result = self.jvm.java.util.HashMap()
        for key, value in values.items():
            result.put(key, value)
        return self.jvm.PythonUtils.toScalaMap(result)

    def action(self, row: Mapping[str, Any]) -> Any:
        """Return an action of the log."""
        return self.delta.actions.Action.fromJson(json.dumps(row))


class Operations:
    """delta-spark's operations by their names in the log."""

    def __init__(self, scala: Scala) -> None:
        """Use these Scala values."""
        self._scala = scala

    def of(self, case: Mapping[str, Any], metadata: Any) -> Any:
        """Return a case's operation on a table with some metadata."""
        name = case["operation"]["name"]
        parameters = case["operation"]["parameters"]
        if name == "WRITE":
            return self._write(parameters)
        if name == "STREAMING UPDATE":
            mode = self._scala.jvm.org.apache.spark.sql.streaming.OutputMode.Append()
            return self._new("StreamingUpdate", mode, "query", 1, self._scala.none)
        if name == "DROP FEATURE":
            return self._new("DropTableFeature", parameters.get("featureName", ""), False)
        if name == "Manual Update":
            return getattr(self._class("ManualUpdate$"), "MODULE$")
        if "REPLACE TABLE" in name:
            return self._replace(name, metadata)
        if name == "CREATE TABLE AS SELECT":
            return self._new("CreateTable", metadata, False, True, self._scala.none)
        if name in PLAIN:
            kind, arguments = PLAIN[name]
            return self._new(kind, *map(self._argument, arguments))
        return self._new("TestOperation", name, self._scala.none)

    def _argument(self, value: Any) -> Any:
        if value is None:
            return self._scala.none
        return self._scala.seq([]) if value == () else value

    def _class(self, name: str) -> Any:
        return getattr(self._scala.delta, f"DeltaOperations${name}")

    def _new(self, name: str, *arguments: Any) -> Any:
        return self._class(name)(*arguments)

    def _write(self, parameters: Mapping[str, Any]) -> Any:
        modes = self._scala.jvm.org.apache.spark.sql.SaveMode
        mode = getattr(modes, parameters.get("mode", "Append"))
        return self._new("Write", mode, *[self._scala.none] * 8)

    def _replace(self, name: str, metadata: Any) -> Any:
        or_create, as_select = name.startswith("CREATE OR"), name.endswith("AS SELECT")
        nothing = [self._scala.none] * 7
        return self._new("ReplaceTable", metadata, False, or_create, as_select, *nothing)
