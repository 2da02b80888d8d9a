"""Files that the log names by path: data files, change files, files of deletion vectors."""

import re
from typing import BinaryIO
from urllib.parse import unquote

from tidegate_delta.errors import UnsupportedFeature
from tidegate_delta.log.file_paths import canonical_path, canonical_place, is_absolute
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.storage.object_store import ObjectStore
from tidegate_runtime.storage.open_store import open_store


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
