"""Loading one table: what its log says of it, asked for while the loop goes on."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidegate.committer import recovery
from tidegate.committer.doors import Doors
from tidegate.committer.entries import Entry
from tidegate.committer.state import TableState
from tidegate.committer.telling import NOBODY
from tidegate.pipeline.published import TableRecord
from tidegate.runtime.log_store import LogStore
from tidegate.runtime.metrics import LOADS

LOOK_SHARE: Final = 0.1
LOOK_MIN_S: Final = 0.001
LOOK_MAX_S: Final = 0.05
"""How long a load is not looked after: a share of what it has taken so far, within bounds."""


class Loaded(NamedTuple):
    """A table as its log tells it, and what of it is to be told; `viewed_s` is how young that is.

    Units: `viewed_s` by `Clock.boot_s`.
    """

    state: TableState
    news: list[Entry]
    viewed_s: float


@dataclass
class Loading:
    """The load of a table, if one is under way: since `since_s`, by `Clock.boot_s`."""

    doors: Doors
    root: str
    since_s: float = 0.0
    answer: Future[Loaded] | None = None

    def end(self, read: Callable[[], Loaded]) -> Loaded | None:
        """Return what was read, or None while it is being read. Raises: as `read`."""
        if self.answer is None:
            self.since_s = self.doors.clock.boot_s()
            self.answer = self.doors.loads.begin(self.root, read)
        if not self.answer.done():
            return None
        answer, self.answer = self.answer, None
        return answer.result()

    def forget(self) -> None:
        """Wait for it no more."""
        if self.answer is not None:
            self.answer.cancel()
        self.answer = None

    def is_young(self, viewed_s: float) -> bool:
        """Whether what was seen of the log then may still be relied on."""
        return self.doors.clock.boot_s() - viewed_s <= self.doors.settings.view_age_max_s

    @property
    def looked_after_s(self) -> float:
        """When to look whether it is over. By `Clock.boot_s`."""
        now_s = self.doors.clock.boot_s()
        pause_s = LOOK_SHARE * (now_s - self.since_s)
        return now_s + min(LOOK_MAX_S, max(LOOK_MIN_S, pause_s))


def read(store: LogStore, doors: Doors, record: TableRecord, *, is_registered: bool) -> Loaded:
    """LOAD and RECONCILE: return a table from its log, and what of it is to be told.

    Raises: BrokenLog; UnsupportedFeature; InvalidRequest; Unavailable.
    """
    with LOADS.labels(record.name if is_registered else NOBODY).time():
        return _read(store, doors, record, is_registered)


def _read(store: LogStore, doors: Doors, record: TableRecord, is_registered: bool) -> Loaded:
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
