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
    """A loaded state. `news` are versions to be published; `viewed_s` is when the log was read.

    Units: `viewed_s` by `Clock.boot_s`.
    """

    state: TableState
    news: list[Entry]
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
    through = record.published_through
    state = recovery.load(store, record.table, dependencies.policy.window)
    if state.version < 0 and not is_registered:
        return LoadedTable(state, [], began_s)
    # Loading takes time, and a listing may lag, so ask by name for the versions after its last one.
    asked_s = dependencies.clock.boot_s()
    state, _ = recovery.refresh(store, state)
    if not is_registered:
        through = recovery.counts_as_published(state)
    state = recovery.reach_back(store, state, through - 1)
    recovery.check_published(store, state, record)
    news = recovery.unpublished(store, state, through)
    is_young = asked_s - began_s <= dependencies.settings.view_age_max_s
    return LoadedTable(state, news, asked_s if is_young else began_s)
