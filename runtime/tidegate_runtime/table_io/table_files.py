"""Files that the log names by path: data files, change files, files of deletion vectors.

Not every file below a table's root may be the table's: a folder with a `_delta_log` in it, at any
depth below the root, is another table: no file in it is this table's. Such a table may be a shallow
clone, which names files of the table above.

`referenced` says which files below the root actions name: data files and deletion vectors.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from typing import BinaryIO, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.deletion_vectors.descriptors import is_inline, path_of
from tidegate_delta.errors import BrokenLog, InvalidRequest, UnsupportedFeature
from tidegate_delta.log.actions import DeletionVector
from tidegate_delta.log.file_names import LOG_FOLDER
from tidegate_delta.log.file_paths import (
    canonical_path,
    canonical_paths,
    canonical_place,
    is_absolute,
    is_hidden,
)
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.storage.object_store import ObjectStore
from tidegate_runtime.storage.open_store import ReadOnlyFolder, open_store
from tidegate_runtime.table_io.open_table import open_snapshot


def open_table_file(store: LogStore, path: str) -> BinaryIO:
    """Return a reader of the file at a path of the log, below the table root or not.

    A path is a URI: `./` and the like are removed, as they are for comparing paths.
    Raises: FileNotFoundError; UnsupportedFeature for a file in another store; Unavailable.
    """
    if (key := key_below(store.root, path)) is not None:
        return store.open(key)
    uri = canonical_place(path)
    folder, _, encoded = uri.rpartition("/")
    is_here = folder != "file://" and not re.match("file://[^/]", uri)
    if is_here and uri.partition("://")[0] == store.root.partition("://")[0]:
        options = store.options if isinstance(store, ObjectStore) else {}
        return open_store(folder, options).open(unquote(encoded))
    raise UnsupportedFeature(
        f"table {store.root} names the file {path!r}, which lies outside of its store: copy the "
        "table's files into its root, or read it with another engine",
        feature="absolute paths",
    )


def key_below(root: str, path: str) -> str | None:
    """Return the path, from the table's root, of a file at a path of the log; None if it lies
    elsewhere.
    """
    if not is_absolute(path):
        return canonical_path(path)
    uri = canonical_place(path)
    return unquote(uri.removeprefix(f"{root}/")) if uri.startswith(f"{root}/") else None


ABSOLUTE: Final = r"^([A-Za-z][A-Za-z0-9+.\-]*:)?/"
"""Matches a path of the log that names a place of its own, whatever the table's root (RE2)."""


def referenced(root: str, files: pa.Table) -> pa.ChunkedArray:
    """Return the paths from the root of the files that rows of actions name, vectors included.

    Files that lie elsewhere are left out.
    Shape: `files` has the columns `path` and `deletionVector`, as ADD_SCHEMA and REMOVE_SCHEMA.
    Raises: BrokenLog (`CorruptDeletionVector`).
    """
    return pa.chunked_array(
        [*data_files(root, files["path"]).chunks, vector_files(root, files["deletionVector"])],
        pa.string(),
    )


def data_files(root: str, paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the paths from the root of files at paths of the log, without those elsewhere."""
    return pc.drop_null(keys_below(root, paths))


def keys_below(root: str, paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the path from the root of the file at each path of the log; null for one elsewhere.

    Only absolute paths become Python strings.
    """
    keys = canonical_paths(paths)
    is_absolute = pc.match_substring_regex(paths, ABSOLUTE)
    if not pc.any(is_absolute, min_count=0).as_py():
        return keys
    placed = [key_below(root, path) for path in paths.filter(is_absolute).to_pylist()]
    mask = is_absolute.combine_chunks()
    below = pc.replace_with_mask(keys.combine_chunks(), mask, pa.array(placed, pa.string()))
    return pa.chunked_array([below])


def vector_files(root: str, vectors: pa.ChunkedArray) -> pa.Array:
    """Return the paths from the root of the files that hold vectors, each once.

    Raises: BrokenLog (`CorruptDeletionVector`).
    """
    stored = vectors.filter(pc.is_valid(vectors)).combine_chunks()
    files: dict[str, None] = {}
    seen: set[tuple[str, str]] = set()
    for row in stored.to_pylist():
        name = (row["storageType"], row["pathOrInlineDv"])
        if name in seen:
            continue
        seen.add(name)
        try:
            vector = DeletionVector.model_validate(row)
            key = None if is_inline(vector) else key_below(root, path_of(vector))
        except ValueError as error:
            raise BrokenLog(
                f"a deletion vector of table {root} is malformed in the log: {error}; restore the "
                "table to a version before it",
                error_class="CorruptDeletionVector",
            ) from error
        if key is not None:
            files[key] = None
    return pa.array(files, pa.string())


LISTED_SCHEMA: Final = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("size_bytes", pa.int64()),
        pa.field("modified_ms", pa.int64()),
    ]
)
"""The files that a listing of a table's root finds. `path` is relative to the root."""

_BATCH: Final = 65_536


@dataclass(frozen=True)
class Listing:
    """The files below a root that are not hidden, and the folders of tables below it.

    Shape: `files` has LISTED_SCHEMA. Files of tables below are left out.
    """

    files: pa.Table
    tables_below: tuple[str, ...]


def list_own_files(store: LogStore, partition_columns: Collection[str]) -> Listing:
    """Return the files below a table's root that are not hidden and of no table below it.

    A store may list a folder's files before its `_delta_log`, so tables are taken out at the end.
    Hidden folders, the table's own log apart, are searched for tables, too. Raises: Unavailable.
    """
    tables: set[str] = set()

    def is_wanted(folder: str) -> bool:
        parent, _, name = folder.rpartition("/")
        if name != LOG_FOLDER:
            return True
        if parent:
            tables.add(parent)
        return False

    @cache
    def is_shown(path: str) -> bool:
        parent, _, name = path.rpartition("/")
        return not is_hidden(name, partition_columns) and (not parent or is_shown(parent))

    batches: list[pa.RecordBatch] = []
    rows: list[tuple[str, int, int]] = []
    for stat in store.list_tree(is_wanted):
        folder, _, name = stat.path.rpartition("/")
        if not is_hidden(name, partition_columns) and (not folder or is_shown(folder)):
            rows.append((stat.path, stat.size, stat.modified_ms))
        if len(rows) == _BATCH:
            batches.append(_batch(rows))
            rows = []
    files = pa.Table.from_batches([*batches, _batch(rows)])
    return Listing(without_tables(files, tables), tuple(sorted(tables)))


def without_tables(files: pa.Table, tables: Collection[str]) -> pa.Table:
    """Return the rows whose `path` lies in none of these folders of tables below the root."""
    if not tables:
        return files
    others = [f for f in _folders(files) if any(above in tables for above in _with_parents(f))]
    is_other = pc.is_in(_folder_column(files["path"]), pa.array(others, pa.string()))
    return files.filter(pc.invert(is_other))


def named_by_tables_below(store: LogStore, tables: Collection[str]) -> dict[str, pa.ChunkedArray]:
    """Return, by root, the files of this table that tables below it name: shallow clones do.

    Raises: BrokenLog (`TableBelowUnreadable`), as it is not known what such a table needs;
    Unavailable.
    """
    named: dict[str, pa.ChunkedArray] = {}
    for folder in tables:
        below = ReadOnlyFolder(store, folder)
        try:
            snapshot = open_snapshot(below)
            parts = [referenced(store.root, part) for part in _file_tables(snapshot)]
        except InvalidRequest:
            continue
        except (BrokenLog, UnsupportedFeature) as error:
            raise BrokenLog(
                f"the table at {below.root} lies below the table at {store.root}, and which of its "
                f"files it needs can't be read: {error}; repair the one below, or move it away",
                error_class="TableBelowUnreadable",
            ) from error
        named[below.root] = pa.chunked_array([c for p in parts for c in p.chunks], pa.string())
    return named


def _file_tables(snapshot: Snapshot) -> Iterator[pa.Table]:
    """Yield the actions that may name a file of another table: their paths are absolute."""
    for part in (snapshot.files, snapshot.tombstones):
        keys = part.select(["path", "deletionVector"])
        yield keys.filter(pc.match_substring_regex(keys["path"], ABSOLUTE))


def _folders(files: pa.Table) -> list[str]:
    return list(pc.unique(_folder_column(files["path"])).to_pylist())


def _folder_column(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.replace_substring_regex(paths, r"/?[^/]*$", "")


def _with_parents(folder: str) -> Iterator[str]:
    while folder:
        yield folder
        folder = folder.rpartition("/")[0]


def _batch(rows: list[tuple[str, int, int]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ((),) * len(LISTED_SCHEMA)
    arrays = [
        pa.array(column, field.type) for column, field in zip(columns, LISTED_SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=LISTED_SCHEMA)
