"""Which files below a table's root its actions name: data files, and files of deletion vectors."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.deletion_vectors.descriptors import is_inline, path_of
from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.actions import DeletionVector
from tidegate_delta.log.file_paths import canonical_paths
from tidegate_runtime.table_io.table_files import key_below

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
