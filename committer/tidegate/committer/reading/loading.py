"""Loading one table: what its log says of it, asked for while the loop goes on."""

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
    """A table as its log tells it, and what of it is to be told; `viewed_s` is how young that is.

    Units: `viewed_s` by `Clock.boot_s`.
    """

    state: TableState
    news: list[Entry]
    viewed_s: float


def read(store: LogStore, doors: Doors, record: TableRecord) -> Loaded:
    """LOAD and RECONCILE: return a table from its log, and what of it is to be told.

    Raises: BrokenLog; UnsupportedFeature; InvalidRequest; Unavailable.
    """
    with LOADS.labels(record.name).time():
        return _read(store, doors, record, is_registered=True)


def read_anew(
    store: LogStore, doors: Doors, record: TableRecord, others: Sequence[TableRecord]
) -> Loaded:
    """Return the same of a table that is not registered: its store has to pass first, and none of
    the others may be in its folder.

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
    # What was listed may be of long ago by now, and a listing may know less than a name.
    asked_s = doors.clock.boot_s()
    state, _ = recovery.refresh(store, state)
    if not is_registered:
        through = recovery.taken_for_told(state)
    state = recovery.reach_back(store, state, through - 1)
    recovery.check_told(store, state, record)
    news = recovery.untold(store, state, through)
    is_young = asked_s - began_s <= doors.settings.view_age_max_s
    return Loaded(state, news, asked_s if is_young else began_s)
