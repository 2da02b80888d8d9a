"""Deletes files that proposals left in a table's folder and that nothing needs.

An action file is needed as long as its proposal can be read from the proposals topic. A staged
version is needed until it is decided and published; an unpublished one is kept, however old.
"""

from typing import Final

from tidegate_delta.log.file_names import STAGED_FOLDER, in_log, staged_version
from tidegate_runtime.storage.log_store import FileStat, LogStore

CLAIM_FOLDER: Final = "_tidegate/proposals"
DAY_MS: Final = 24 * 60 * 60 * 1000
"""Added to the retention of proposals, because clocks differ."""


def sweep(store: LogStore, head: int, before_ms: int) -> int:
    """Delete files of proposals that were last modified before a time; return how many.

    `head` is a version that is in the log.
    Units: `before_ms` is a Unix time.
    Raises: Unavailable.
    """
    expired = [
        stat.path
        for folder in (CLAIM_FOLDER, in_log(STAGED_FOLDER))
        for stat in store.list_from(folder, "")
        if stat.modified_ms < before_ms and _is_left_over(stat, head)
    ]
    for path in expired:
        store.delete(path)
    return len(expired)


def _is_left_over(stat: FileStat, head: int) -> bool:
    folder, _, name = stat.path.rpartition("/")
    if folder == CLAIM_FOLDER:
        return name.endswith(".ndjson")
    version = staged_version(name)
    return version is not None and version <= head
