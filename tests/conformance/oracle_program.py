"""Let delta-spark decide concurrent transactions: a case per input line, a result per output line.

It is a separate process, like delta_spark_program. Exit status 75: delta-spark's jar is not
available. Each case is executed: the base is written as a log, a transaction starts and reads, the
winners' files are written behind its back, and it commits.

A case is a conflict vector whose `reads.files` may name more than the scans find: further files
read by path. The result has `files`, all that was read, and `expected`.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import py4j.java_gateway
import py4j.protocol
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from tests.conformance.delta_spark_program import NO_JAR, session
from tests.conformance.oracle_scala import Operations, Scala

LONG_AGO_S: Final = 1_600_000_000
"""Modification time of log files where the case gives none."""

NEAR_MS: Final = 3_600_000
"""A timestamp this close to the present came from the clock."""

ENABLEMENT_MS: Final = "delta.inCommitTimestampEnablementTimestamp"
KEPT: Final = ("operation", "isBlindAppend", "isolationLevel", "readVersion", "tags")
"""The fields of commitInfo that the vectors keep, if present."""

CONCURRENT: Final = "DeltaConcurrentModificationException"
SETTINGS: Final = {"history.metricsEnabled": "false", "writeChecksumFile.enabled": "false"}
"""No metrics, since no query runs; no checksums, since nothing reads them."""

TABLES_MAX: Final = 100
"""Tables after which delta-spark's log cache is cleared."""


@dataclass
class Outcome:
    """The result of one attempt: the exception, or the committed actions."""

    raised: Any = None
    trace: str = ""
    committed: Sequence[Mapping[str, Any]] = ()
    version: int | None = None
    files: Sequence[str] = field(default_factory=list)


class Oracle:
    """Runs cases through delta-spark's committer, one after the other."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        """Take a session and a folder for the tables."""
        self._spark = spark
        self._folder = folder
        self._scala = Scala(spark)
        self._operations = Operations(self._scala)
        self._tables = 0
        self._learn_opaque()
        for key, value in SETTINGS.items():
            spark.conf.set(f"spark.databricks.delta.{key}", value)

    def decide(self, case: Mapping[str, Any]) -> dict[str, Any]:
        """Return `files`, all that the transaction read, and `expected`, in the vectors' form."""
        winners = len(case["winners"])
        found = self._attempt(case, winners)
        result: dict[str, Any] = {"name": case["name"], "files": found.files}
        if found.raised is None:
            return {**result, "expected": self._committed(case, found)}
        at = self._winner_at(case, found)
        return {**result, "expected": self._refused(found, at), "said": _message(found.raised)}

    def _attempt(self, case: Mapping[str, Any], winners: int) -> Outcome:
        """Return the result of a case with only its first winners."""
        place = self._place()
        log = place / "_delta_log"
        log.mkdir(parents=True)
        base = case["table"]["base"]
        for version, actions in enumerate(base):
            _write(log, version, actions, None)
        (log / f"{len(base) - 1:020}.crc").write_text(json.dumps(_checksum(base)), "utf-8")
        result = Outcome()
        try:
            transaction = self._delta_log(place).startTransaction(
                self._scala.none, self._scala.none
            )
            result.files = self._read(transaction, case)
            times = case.get("winner_mtimes_ms") or []
            for at, actions in enumerate(case["winners"][:winners]):
                _write(log, len(base) + at, actions, times[at] if at < len(times) else None)
            operation = self._operations.of(case, transaction.metadata())
            actions = self._scala.seq(map(self._scala.action, case["actions"]))
            transaction.commit(actions, operation)
        except Py4JJavaError as error:
            result.raised = error.java_exception
            result.trace = self._scala.jvm.org.apache.spark.util.Utils.exceptionString(
                result.raised
            )
        version = len(base) + winners
        written = log / f"{version:020}.json"
        if written.exists():
            # An error after the commit does not undo it.
            result.raised, result.version = None, version
            result.committed = [json.loads(line) for line in written.read_text().splitlines()]
        shutil.rmtree(place)
        return result

    def _place(self) -> Path:
        self._tables += 1
        if self._tables % TABLES_MAX == 0:
            self._scala.delta.DeltaLog.clearCache()
        return self._folder / f"t{self._tables}"

    def _delta_log(self, place: Path) -> Any:
        return self._scala.delta.DeltaLog.forTable(self._spark._jsparkSession, str(place))

    def _read(self, transaction: Any, case: Mapping[str, Any]) -> list[str]:
        """Execute a case's reads; return the paths of all files read."""
        reads, result = case["reads"], set[str]()
        schema = transaction.metadata().schema()
        adds = [row for row in case["actions"] if "add" in row]
        for predicate in reads["predicates"]:
            if predicate.get("kind") == "dynamic_overwrite":
                transaction.filterFiles(self._scala.seq(map(self._scala.action, adds)))
                continue
            filters = self._scala.seq(self._conjuncts(predicate["sql"], schema))
            files = transaction.filterFiles(filters, False)
            result.update(files.apply(at).path() for at in range(files.size()))
        by_path = set(reads["files"]) - result
        if by_path:
            live = _live(case["table"]["base"])
            tracked = [
                self._scala.action({"add": live.get(item, _stranger(item))}) for item in by_path
            ]
            transaction.trackFilesRead(self._scala.seq(tracked))
        if reads["whole_table"]:
            transaction.readWholeTable()
        for app_id in reads["app_ids"]:
            transaction.txnVersion(app_id)
        return sorted(result | by_path)

    def _conjuncts(self, sql: str, schema: Any) -> list[Any]:
        """Return the conjuncts of a predicate, resolved against a table's columns."""
        rows = self._scala.jvm.java.util.ArrayList()
        frame = self._spark._jsparkSession.createDataFrame(rows, schema)
        condition = frame.where(sql).queryExecution().analyzed().condition()
        return list(_split(condition))

    def _winner_at(self, case: Mapping[str, Any], found: Outcome) -> int | None:
        """Return the version of the winner that made a transaction fail."""
        first, count = len(case["table"]["base"]), len(case["winners"])
        if not count or "checkForConflicts" not in found.trace:
            return None
        for winners in range(1, count):
            if self._attempt(case, winners).raised is not None:
                return first + winners - 1
        return first + count - 1

    def _committed(self, case: Mapping[str, Any], found: Outcome) -> dict[str, Any]:
        return {
            "verdict": "committed",
            "version": found.version,
            "committed": [_comparable(row) for row in found.committed],
        }

    def _refused(self, found: Outcome, winner: int | None) -> dict[str, Any]:
        raised = found.raised
        jvm = self._scala.jvm
        concurrent = CONCURRENT in _ancestry(raised)
        is_delta = jvm.java.lang.Class.forName("org.apache.spark.SparkThrowable").isInstance(raised)
        return {
            "verdict": "conflict" if concurrent else "invalid",
            "exception": raised.getClass().getSimpleName(),
            "error_class": raised.getCondition() if is_delta else None,
            "sqlstate": raised.getSqlState() if is_delta else None,
            "winner_version": winner,
        }

    def _learn_opaque(self) -> None:
        """Register the vectors' opaque functions, which return false.

        The integer one is not null-safe, so the analyser adds a null check; the text one is.
        """
        jvm = self._scala.jvm
        false = self._scala.map({}).keySet()
        kinds = {"opaque_int": "PrimitiveIntEncoder$", "opaque_str": "StringEncoder$"}
        result = getattr(_nested(jvm, "PrimitiveBooleanEncoder$"), "MODULE$")
        for name, kind in kinds.items():
            encoder = getattr(_nested(jvm, kind), "MODULE$")
            made = jvm.org.apache.spark.sql.expressions.SparkUserDefinedFunction(
                false,
                result.dataType(),
                self._scala.seq([self._scala.some(encoder)]),
                self._scala.some(result),
                self._scala.some(name),
                True,
                True,
            )
            self._spark._jsparkSession.udf().register(name, made)


def _nested(jvm: Any, name: str) -> Any:
    package = jvm.org.apache.spark.sql.catalyst.encoders
    return getattr(package, f"AgnosticEncoders${name}")


def _split(condition: Any) -> Iterator[Any]:
    if condition.getClass().getSimpleName() == "And":
        yield from _split(condition.left())
        yield from _split(condition.right())
    else:
        yield condition


def _write(
    log: Path, version: int, actions: Sequence[Mapping[str, Any]], written_ms: int | None
) -> None:
    path = log / f"{version:020}.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in actions), "utf-8")
    at = LONG_AGO_S + version if written_ms is None else written_ms / 1000
    os.utime(path, (at, at))


def _live(base: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Mapping[str, Any]]:
    result: dict[str, Mapping[str, Any]] = {}
    for row in (row for actions in base for row in actions):
        if "add" in row:
            result[row["add"]["path"]] = row["add"]
        elif "remove" in row:
            result.pop(row["remove"]["path"], None)
    return result


def _checksum(base: Sequence[Sequence[Mapping[str, Any]]]) -> Mapping[str, Any]:
    """Return a checksum of the base, which spares delta-spark from computing its state."""
    rows = [row for actions in base for row in actions]
    last = {kind: body for row in rows for kind, body in row.items()}
    files = _live(base).values()
    return {
        "tableSizeBytes": sum(file["size"] for file in files),
        "numFiles": len(files),
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": list(
            {row["txn"]["appId"]: row["txn"] for row in rows if "txn" in row}.values()
        ),
        "domainMetadata": [
            item
            for item in {
                row["domainMetadata"]["domain"]: row["domainMetadata"]
                for row in rows
                if "domainMetadata" in row
            }.values()
            if not item["removed"]
        ],
        "metadata": last["metaData"],
        "protocol": last["protocol"],
    }


def _stranger(path: str) -> Mapping[str, Any]:
    return {
        "path": path,
        "partitionValues": {},
        "size": 1,
        "modificationTime": 0,
        "dataChange": True,
    }


def _comparable(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an action in the vectors' form, without the fields that differ in every commit."""
    if "metaData" in row:
        own = row["metaData"].get("configuration", {})
        if _is_near(own.get(ENABLEMENT_MS)):
            changed = {**own, ENABLEMENT_MS: None}
            return {"metaData": {**row["metaData"], "configuration": changed}}
    if "commitInfo" not in row:
        return row
    result = row["commitInfo"]
    info = {key: result[key] for key in KEPT if result.get(key) not in (None, {})}
    if "inCommitTimestamp" in result:
        at = result["inCommitTimestamp"]
        info["inCommitTimestamp"] = None if _is_near(at) else at
    return {"commitInfo": info}


def _is_near(at_ms: Any) -> bool:
    return at_ms is not None and abs(int(at_ms) - time.time() * 1000) < NEAR_MS


def _ancestry(raised: Any) -> Iterator[str]:
    """Yield the names of an exception's class and its superclasses."""
    kind = raised.getClass()
    while kind is not None:
        yield kind.getSimpleName()
        kind = kind.getSuperclass()


def _message(raised: Any) -> str:
    return str(raised.getMessage())[:500]


def main() -> int:
    """Write a result for each line of standard input."""
    try:
        spark = session()
    except (PySparkException, PySparkRuntimeError):
        return NO_JAR
    spark.sparkContext.setLogLevel("OFF")
    # Keep the JVM's exceptions: PySpark's conversion loses the cause of some.
    py4j.java_gateway.get_return_value = py4j.protocol.get_return_value
    with tempfile.TemporaryDirectory(prefix="tidegate-oracle-") as folder:
        oracle = Oracle(spark, Path(folder))
        for line in sys.stdin:
            sys.stdout.write(json.dumps(oracle.decide(json.loads(line))) + "\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
