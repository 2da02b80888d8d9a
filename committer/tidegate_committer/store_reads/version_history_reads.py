"""Reads history: versions before a table's window, for proposals that read a very old version.

A thread reads them beside the loop, which goes on with the table's other proposals. They stay in
the table's state for the next such proposal (`state/version_history.py`).
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from tidegate_committer.state.log_entry import Entry
from tidegate_committer.state.version_history import BYTES_MAX, weight
from tidegate_committer.store_reads import recovery
from tidegate_runtime.storage.log_store import LogStore

FETCHED_MAX: Final = 64
"""Versions before the window that are read while the table waits; more count as history."""

SLICE: Final = 128
"""Versions that are read at a time."""

REMOTE_READS: Final = 16
"""Concurrent requests to an object store. A local disk is as fast with one at a time."""


@dataclass
class VersionHistory:
    """The versions before a table's window that have been read, newest first.

    `is_whole`: the log holds none before them. `is_full`: no more may be kept.
    """

    store: LogStore
    entries: dict[int, Entry] = field(default_factory=dict)
    size_bytes: int = 0
    is_whole: bool = False
    is_full: bool = False

    def holds(self, versions: range) -> bool:
        """Return whether all of some versions were read, except those that the log no longer holds
        and a few that a fetch may read.
        """
        if self.is_whole:
            return True
        return len(versions) - sum(version in self.entries for version in versions) <= FETCHED_MAX

    def read(self, versions: range) -> "VersionHistory":
        """Read some versions, newest first, until one is missing or no more may be kept.

        Raises: BrokenLog; Unavailable.
        """
        for version, entry in self._read(versions):
            if entry is None:
                self.is_whole = True
                break
            self.entries[version] = entry
            self.size_bytes += weight(entry)
            if self.size_bytes > BYTES_MAX:
                self.is_full = True
                break
        return self

    def _read(self, versions: range) -> Iterator[tuple[int, Entry | None]]:
        left = [version for version in reversed(versions) if version not in self.entries]
        if urlsplit(self.store.root).scheme in ("file", "memory"):
            for version in left:
                yield version, recovery.read_entry(self.store, version)
            return
        with ThreadPoolExecutor(REMOTE_READS, thread_name_prefix="history") as threads:
            for start in range(0, len(left), SLICE):
                batch = left[start : start + SLICE]
                read = threads.map(lambda version: recovery.read_entry(self.store, version), batch)
                yield from zip(batch, read, strict=True)
