"""Whether two roots are one folder: what is written under the one is seen under the other.

Spelling says so of most (`store_paths`). It can't say so of links, of what is mounted twice, of
file systems that take no notice of case, of a bucket's access points, or of names that stand for
ids.
"""

from contextlib import suppress
from typing import Final

from tidegate.delta.errors import Unavailable
from tidegate.runtime.stores.log_store import LogStore
from tidegate.runtime.stores.paths import joined

_FOLDER: Final = "_tidegate"


def is_one_place(store: LogStore, other: LogStore, name: str) -> bool:
    """Return whether two stores are one, by a scratch file called `name`, which nobody else writes.

    Raises: Unavailable.
    """
    path, content = joined(_FOLDER, f"place-{name}"), name.encode()
    store.put(path, content)
    try:
        return other.read(path) == content
    finally:
        # Where nothing may be removed it stays: readers pass over such folders.
        with suppress(Unavailable):
            store.delete(path)
