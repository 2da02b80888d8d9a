"""What a table holds, as values that compare: by our readers, by delta-spark, and by its log."""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tests.conformance.runner_entry_points import read_changes, read_table

COUNTS: Final = (
    "numDeletedRows",
    "numUpdatedRows",
    "numTargetRowsInserted",
    "numTargetRowsUpdated",
    "numTargetRowsDeleted",
    "numDeletionVectorsAdded",
)
"""Metrics that do not depend on how an engine lays out its files."""
OWN_PROPERTIES: Final = (
    "maxColumnId",
    "materializedRow",
    "inCommitTimestampEnablement",
    "rowTracking.",
)
"""Properties that an engine counts, makes up or dates by itself."""
OWN_METADATA: Final = (
    "delta.columnMapping.",
    "parquet.field.nested.ids",
    "delta.identity.highWaterMark",
)

_VARIANT: Final = {"metadata": pa.binary(), "value": pa.binary()}


def told_apart(value: pa.Scalar) -> Any:
    """Return an Arrow value such that NaN equals NaN, and -0.0 is not 0.0."""
    if not value.is_valid:
        return None
    kind = value.type
    if pa.types.is_struct(kind):
        parts = {kind.field(at).name: kind.field(at).type for at in range(kind.num_fields)}
        if parts == _VARIANT:  # Which part is first is of no meaning.
            return ("variant", value["metadata"].as_py().hex(), value["value"].as_py().hex())
        # By place: two fields may differ in case only.
        return {kind.field(at).name: told_apart(value[at]) for at in range(kind.num_fields)}
    if pa.types.is_map(kind):
        pairs = [(told_apart(pair[0]), told_apart(pair[1])) for pair in _pairs(value)]
        return ("map", sorted(pairs, key=repr))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [told_apart(item) for item in value]
    if pa.types.is_floating(kind):
        number = value.as_py()
        return "nan" if number != number else struct.pack(">d", number).hex() + f" {number!r}"
    if pa.types.is_timestamp(kind):
        return ("us", value.cast(pa.timestamp("us", kind.tz)).value)
    if pa.types.is_date(kind):
        return ("day", value.value)
    if pa.types.is_decimal(kind):
        return str(value.as_py())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return ("bytes", value.as_py().hex())
    return value.as_py()


def _pairs(value: pa.Scalar) -> Sequence[Any]:
    entries = value.values
    return [] if entries is None else [(item[0], item[1]) for item in entries]


def lines(table: pa.Table) -> list[str]:
    """Return the rows of a table as text, sorted."""
    columns = [[told_apart(value) for value in column] for column in table.columns]
    return sorted(repr(row) for row in zip(*columns, strict=True))


def plain_rows(path: str, version: int | None = None, *, without: Sequence[str] = ()) -> list[str]:
    """Return a table's rows, without some columns, as our reader without Spark reads them."""
    return lines(read_table(path, version).drop_columns(list(without)))


def spark_rows(spark: SparkSession, path: str, version: int | None = None) -> list[str]:
    """Return a table's rows as delta-spark reads them."""
    reader = spark.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    return frame_rows(reader.load(path))


def frame_rows(frame: DataFrame) -> list[str]:
    """Return the rows of a DataFrame as text, sorted."""
    if "variant" in frame.schema.simpleString():
        # PySpark's toArrow fails at a null variant, in a cast that changes nothing here.
        batches = frame._collect_as_arrow()  # type: ignore[operator]  # not in the stubs
        return lines(pa.Table.from_batches(batches)) if batches else []
    return lines(frame.toArrow())


def plain_changes(path: str, start: int, end: int, *, without: Sequence[str] = ()) -> list[str]:
    """Return the changes of some versions, without version, time and some columns."""
    changes = read_changes(path, start, end)
    return lines(changes.drop_columns(["_commit_version", "_commit_timestamp", *without]))


@dataclass(frozen=True)
class Logged:
    """What the log says of a table, without what an engine makes up."""

    schema: Any
    partition_columns: Sequence[str]
    configuration: Mapping[str, str]
    protocol: tuple[int, int]
    features: Sequence[str]
    clustering: Any
    history: Sequence[tuple[str, Mapping[str, str]]]

    @property
    def identities(self) -> list[str]:
        """The identity columns: which row gets which number depends on an engine's tasks."""
        fields = self.schema["fields"]
        return [item["name"] for item in fields if "delta.identity.start" in item["metadata"]]


def logged(path: str, since: int) -> Logged:
    """Return what the log says, with the history after a version."""
    metadata: dict[str, Any] = {}
    protocol: dict[str, Any] = {}
    domains: dict[str, Any] = {}
    history = []
    for file in sorted(Path(path, "_delta_log").glob("*.json")):
        if not file.stem.isdigit():
            continue
        for line in file.read_text("utf-8").splitlines():
            action = json.loads(line)
            metadata = action.get("metaData", metadata)
            protocol = action.get("protocol", protocol)
            if domain := action.get("domainMetadata"):
                domains[domain["domain"]] = domain
            if (info := action.get("commitInfo")) and int(file.stem) > since:
                metrics = info.get("operationMetrics") or {}
                kept = {name: metrics[name] for name in COUNTS if name in metrics}
                history.append((info["operation"], kept))
    schema = json.loads(metadata["schemaString"])
    features = {*protocol.get("readerFeatures", ()), *protocol.get("writerFeatures", ())}
    return Logged(
        _without_own(schema),
        metadata["partitionColumns"],
        {
            name: value
            for name, value in metadata.get("configuration", {}).items()
            if not any(own in name for own in OWN_PROPERTIES)
        },
        (protocol["minReaderVersion"], protocol["minWriterVersion"]),
        sorted(features),
        _clustering(domains, schema),
        history,
    )


def name_partitions_in_other_case(path: str) -> None:
    """Rewrite a log so that its partition columns are spelt otherwise than in its schema."""
    for file in Path(path, "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        for line in lines:
            if metadata := line.get("metaData"):
                names = metadata["partitionColumns"]
                metadata["partitionColumns"] = [name.swapcase() for name in names]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    for file in Path(path, "_delta_log").glob("*.crc"):
        file.unlink()


def _without_own(kind: Any) -> Any:
    """Return a type of a schema without physical names and ids."""
    if isinstance(kind, list):
        return [_without_own(item) for item in kind]
    if isinstance(kind, dict):
        return {
            name: _without_own(value)
            for name, value in kind.items()
            if not name.startswith(OWN_METADATA)
        }
    return kind


def _clustering(domains: Mapping[str, Any], schema: Any) -> Any:
    """Return the logical names of the clustering columns."""
    domain = domains.get("delta.clustering")
    if domain is None or domain.get("removed"):
        return None
    physical = {
        item["metadata"].get("delta.columnMapping.physicalName", item["name"]): item["name"]
        for item in schema["fields"]
    }
    columns = json.loads(domain["configuration"])["clusteringColumns"]
    return [[physical.get(path[0], path[0]), *path[1:]] for path in columns]
