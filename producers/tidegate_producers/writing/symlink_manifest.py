"""Writes the symlink manifests of a table: for engines that read lists of Parquet files."""

from collections.abc import Mapping
from typing import Final

from tidegate_delta.errors import UnsupportedFeature
from tidegate_delta.log.file_paths import canonical_path, is_absolute
from tidegate_delta.schema.column_mapping import ColumnMappingMode, mode_of
from tidegate_delta.schema.partition_values import folder
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_producers.cached_clients import store_for
from tidegate_producers.options import TableLocation
from tidegate_runtime.storage.root_paths import decoded_root
from tidegate_runtime.table_io.open_table import open_snapshot

MODE: Final = "symlink_format_manifest"
FOLDER: Final = "_symlink_format_manifest"


def generate(place: TableLocation) -> list[str]:
    """Write a manifest for each partition of the newest version; return the manifests' paths.

    Manifests of partitions that are gone are deleted. Later versions do not change them: run it
    again.
    Raises: UnsupportedFeature, for files that a list of files does not describe; BrokenLog;
    Unavailable.
    """
    store = store_for(place)
    snapshot = open_snapshot(store)
    lines = _lines(snapshot, place.root)
    written = []
    for name, paths in lines.items():
        path = "/".join(filter(None, (FOLDER, name, "manifest")))
        store.put(path, "".join(f"{file_path}\n" for file_path in paths).encode())
        written.append(path)

    def is_of_manifests(below: str) -> bool:
        return below == FOLDER or below.startswith(f"{FOLDER}/")

    for stat in store.list_tree(is_of_manifests):
        if stat.path.startswith(f"{FOLDER}/") and stat.path not in written:
            store.delete(stat.path)
    return written


def _lines(snapshot: Snapshot, root: str) -> Mapping[str, list[str]]:
    """Return the files of each partition, by the partition's folder.

    Raises: UnsupportedFeature.
    """
    metadata, files = snapshot.metadata, snapshot.files
    if files["deletionVector"].null_count < files.num_rows:
        raise _unsupported(root, "deletionVectors", "has deletion vectors", "Table.purge() first")
    if mode_of(metadata) is not ColumnMappingMode.NONE:
        raise _unsupported(root, "columnMapping", "has column mapping", "a table without it")
    place = decoded_root(root)  # Readers take a line for a path of Hadoop's.
    paths_by_folder: dict[str, list[str]] = {} if metadata.partition_columns else {"": []}
    columns = files.select(["path", "partitionValues"]).to_pylist()
    for file in sorted(columns, key=lambda row: str(row["path"])):
        values = dict(file["partitionValues"] or {})
        name = folder(values, metadata.partition_columns) if metadata.partition_columns else ""
        path = canonical_path(file["path"])
        paths_by_folder.setdefault(name, []).append(
            path if is_absolute(path) else f"{place}/{path}"
        )
    return paths_by_folder


def _unsupported(root: str, feature: str, reason: str, remedy: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"{root} {reason}, which a list of files does not say to its readers: use {remedy}; "
        "nothing was written",
        feature=feature,
    )
