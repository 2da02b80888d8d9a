"""Loading a whole table from its log, in a thread beside the loop."""

from collections.abc import Sequence
from typing import NamedTuple

from tidegate.committer.doors import Doors
from tidegate.committer.reading import recovery
from tidegate.committer.reading.root_owner import check_alone
from tidegate.committer.tables.entries import Entry
from tidegate.committer.tables.state import TableState
from tidegate.pipeline.published import TableRecord
from tidegate.runtime.metrics import LOADS, NOBODY
from tidegate.runtime.stores.log_store import LogStore


class Loaded(NamedTuple):
    """A loaded state; `news` are its versions to be published; `viewed_s` is when it was read.

    Units: `viewed_s` by `Clock.boot_s`.
    """

    state: TableState
    news: list[Entry]
    viewed_s: float


def read(store: LogStore, doors: Doors, record: TableRecord) -> Loaded:
    """Load a registered table: its state, and the versions that are still to be published.

    Raises: BrokenLog; UnsupportedFeature; InvalidRequest; Unavailable.
    """
    with LOADS.labels(record.name).time():
        return _read(store, doors, record, is_registered=True)


def read_anew(
    store: LogStore, doors: Doors, record: TableRecord, others: Sequence[TableRecord]
) -> Loaded:
    """Load a table that is not registered: its store has to pass the probe first, and no other
    registered table may lie in its folder.

    Raises: as `read`; Misconfigured.
    """
    doors.vet(store)
    with LOADS.labels(NOBODY).time():
        loaded = _read(store, doors, record, is_registered=False)
    check_alone(store, loaded.state, record, others, doors)
    return loaded


def _read(store: LogStore, doors: Doors, record: TableRecord, *, is_registered: bool) -> Loaded:
    began_s = doors.clock.boot_s()
    through = record.published_through
    state = recovery.load(store, record.table, doors.policy.window)
    if state.version < 0 and not is_registered:
        return Loaded(state, [], began_s)
    # Loading takes time, and a listing may lag: ask by name for the versions after its last one.
    asked_s = doors.clock.boot_s()
    state, _ = recovery.refresh(store, state)
    if not is_registered:
        through = recovery.counts_as_published(state)
    state = recovery.reach_back(store, state, through - 1)
    recovery.check_published(store, state, record)
    news = recovery.unpublished(store, state, through)
    is_young = asked_s - began_s <= doors.settings.view_age_max_s
    return Loaded(state, news, asked_s if is_young else began_s)
