"""Loads a whole table from its log, in a thread beside the loop."""

from collections.abc import Sequence
from typing import NamedTuple

from tidegate_committer.dependencies import Dependencies
from tidegate_committer.state.log_entry import Entry
from tidegate_committer.state.table_state import TableState
from tidegate_committer.store_reads import recovery
from tidegate_committer.store_reads.unique_root_check import check_alone
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.observability.metrics import LOADS, NOBODY
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
    with LOADS.labels(record.name).time():
        return _read(store, dependencies, record, is_registered=True)


def read_unregistered(
    store: LogStore, dependencies: Dependencies, record: TableRecord, others: Sequence[TableRecord]
) -> LoadedTable:
    """Load a table that is not registered. First its store must pass qualification; then no other
    registered table may be in its folder.

    Raises: as `read`; Misconfigured.
    """
    dependencies.vet(store)
    with LOADS.labels(NOBODY).time():
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
    is_young = listed_s - began_s <= dependencies.settings.view_age_max_s
    return LoadedTable(state, unpublished_entries, listed_s if is_young else began_s)
