"""`Table.detail`: one row about a table, with delta-spark's columns."""

from typing import Any, Final

from tidegate_delta.features.clustering import clustering_columns
from tidegate_delta.log.protocol_versions import reader_features, writer_features
from tidegate_delta.schema.field_paths import dotted
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_producers.cli.formatting import live_bytes
from tidegate_runtime.clock import utc

DETAIL: Final = (
    "format string, id string, name string, description string, location string, "
    "createdAt timestamp, lastModified timestamp, partitionColumns array<string>, "
    "clusteringColumns array<string>, numFiles long, sizeInBytes long, "
    "properties map<string,string>, minReaderVersion int, minWriterVersion int, "
    "tableFeatures array<string>"
)


def detail_of(root: str, snapshot: Snapshot, modified_ms: int | None) -> tuple[Any, ...]:
    """Return the row of DETAIL. Units: `modified_ms`, the last version's time, since the epoch."""
    metadata, protocol = snapshot.metadata, snapshot.protocol
    created_ms = metadata.created_time
    return (
        "delta",
        metadata.id,
        metadata.name,
        metadata.description,
        root,
        None if created_ms is None else utc(created_ms),
        None if modified_ms is None else utc(modified_ms),
        list(metadata.partition_columns),
        [dotted(path) for path in clustering_columns(metadata, snapshot.domains)],
        snapshot.files.num_rows,
        live_bytes(snapshot),
        dict(metadata.configuration),
        protocol.min_reader_version,
        protocol.min_writer_version,
        sorted({*reader_features(protocol), *writer_features(protocol)}),
    )
