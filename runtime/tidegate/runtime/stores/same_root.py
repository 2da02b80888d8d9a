"""Whether two roots are one folder: whether a file written under one is there under the other.

Most roots of one folder have the same canonical spelling (`paths`). Not so with links, folders that
are mounted twice, file systems that ignore case, a bucket's access points, and names beside ids.
"""

from contextlib import suppress
from typing import Final

from tidegate.delta.errors import Unavailable
from tidegate.runtime.stores.log_store import LogStore
from tidegate.runtime.stores.paths import joined

_FOLDER: Final = "_tidegate"


def is_one_place(store: LogStore, other: LogStore, name: str) -> bool:
    """Return whether two stores are one folder, by a scratch file with the unique name `name`.

    Raises: Unavailable.
    """
    path, content = joined(_FOLDER, f"place-{name}"), name.encode()
    store.put(path, content)
    try:
        return other.read(path) == content
    finally:
        # If it may not be deleted it stays: readers ignore folders that begin with `_`.
        with suppress(Unavailable):
            store.delete(path)
