"""Files that the log names by path: data files, change files, files of deletion vectors."""

from typing import BinaryIO

from tidegate_delta.errors import UnsupportedFeature
from tidegate_delta.log.file_paths import canonical_path, is_absolute
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.storage.open_store import open_store
from tidegate_runtime.storage.root_paths import SCHEMES


def open_table_file(store: LogStore, path: str) -> BinaryIO:
    """Return a reader of the file at a path of the log, below the table root or not.

    A path is a URI: `./` and the like are removed, as they are for comparing paths.
    Raises: FileNotFoundError; UnsupportedFeature for a file in another store; Unavailable.
    """
    if (key := key_below(store.root, path)) is not None:
        return store.open(key)
    uri = _canonical_place(path)
    folder, _, name = uri.rpartition("/")
    is_local = store.root.startswith("file://") and uri.startswith("file:///")
    if is_local and folder != "file://":
        return open_store(folder).open(name)
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
    uri = _canonical_place(path)
    return uri.removeprefix(f"{root}/") if uri.startswith(f"{root}/") else None


def _canonical_place(path: str) -> str:
    scheme, separator, rest = canonical_path(path).partition("://")
    return f"{SCHEMES.get(scheme, scheme)}{separator}{rest}"
