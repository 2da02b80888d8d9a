"""The sweep: what proposals left in a table's folder goes, once nobody can ask for it any more.

A file of actions is of use as long as its proposal may be read from its topic. A staged version is
of use until it is decided on and published; one that is not yet stays, however old.
"""

from typing import Final

from tidegate_delta.log.file_names import STAGED_FOLDER, in_log, staged_version
from tidegate_runtime.storage.log_store import FileStat, LogStore

CLAIM_FOLDER: Final = "_tidegate/proposals"
DAY_MS: Final = 24 * 60 * 60 * 1000
"""What is kept beyond the retention of proposals: clocks differ."""


def sweep(store: LogStore, head: int, before_ms: int) -> int:
    """Delete what is left of proposals and was written before a time; return how many files.

    `head` is a version that stands in the log.
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
