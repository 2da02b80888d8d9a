"""Loads a whole table from its log, or its old versions, in a thread beside the loop.

Old versions are those before a table's window, for proposals that read a very old version. The loop
meanwhile goes on with the table's other proposals. They stay in the table's state for the next such
proposal (`state/version_history.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidegate_committer.dependencies import Dependencies
from tidegate_committer.state.log_entry import Entry
from tidegate_committer.state.table_state import TableState
from tidegate_committer.state.version_history import BYTES_MAX, weight
from tidegate_committer.store_reads import recovery
from tidegate_committer.store_reads.unique_root_check import check_alone
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.observability.metrics import LOADS
from tidegate_runtime.storage.log_store import LogStore


class LoadedTable(NamedTuple):
    """A loaded state. `unpublished_entries` are to be published; the log was read at `viewed_s`.

    Units: `viewed_s` by `Clock.boot_s`.
    """

    state: TableState
    unpublished_entries: list[Entry]
    viewed_s: float


def read(store: LogStore, dependencies: Dependencies, record: TableRecord) -> LoadedTable:
    """Load a registered table: its state, and the versions that are not yet published.

    Raises: BrokenLog; UnsupportedFeature; InvalidRequest; Unavailable.
    """
    with LOADS.time():
        return _read(store, dependencies, record, is_registered=True)


def read_unregistered(
    store: LogStore, dependencies: Dependencies, record: TableRecord, others: Sequence[TableRecord]
) -> LoadedTable:
    """Load a table that is not registered. First its store must pass qualification; then no other
    registered table may be in its folder.

    Raises: as `read`; Misconfigured.
    """
    dependencies.vet(store)
    with LOADS.time():
        loaded = _read(store, dependencies, record, is_registered=False)
    check_alone(store, loaded.state, record, others, dependencies)
    return loaded


def _read(
    store: LogStore, dependencies: Dependencies, record: TableRecord, *, is_registered: bool
) -> LoadedTable:
    began_s = dependencies.clock.boot_s()
    published_through = record.published_through
    state = recovery.load(store, record.table, dependencies.policy.window)
    if state.version < 0 and not is_registered:
        return LoadedTable(state, [], began_s)
    # Loading takes time, and a listing may lag, so ask by name for the versions after its last one.
    listed_s = dependencies.clock.boot_s()
    state, _ = recovery.refresh(store, state)
    if not is_registered:
        published_through = recovery.counts_as_published(state)
    state = recovery.reach_back(store, state, published_through - 1)
    recovery.check_published(store, state, record)
    unpublished_entries = recovery.unpublished(store, state, published_through)
    unpublished_entries = recovery.as_they_came(store, unpublished_entries)
    is_young = listed_s - began_s <= dependencies.settings.view_age_max_s
    return LoadedTable(state, unpublished_entries, listed_s if is_young else began_s)


FETCHED_MAX: Final = 64
"""Versions before the window that are read while the table waits; more count as history."""


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
        """Return whether these versions were read, but for those that the log no longer holds and
        the few that a fetch may read.
        """
        if self.is_whole:
            return True
        return len(versions) - sum(version in self.entries for version in versions) <= FETCHED_MAX

    def read(self, versions: range) -> "VersionHistory":
        """Read some versions, newest first, until one is missing or no more may be kept.

        Raises: BrokenLog; Unavailable.
        """
        left = [version for version in reversed(versions) if version not in self.entries]
        for version, entry in zip(left, recovery.read_entries(self.store, left), strict=True):
            if entry is None:
                self.is_whole = True
                break
            self.entries[version] = entry
            self.size_bytes += weight(entry)
            if self.size_bytes > BYTES_MAX:
                self.is_full = True
                break
        return self
