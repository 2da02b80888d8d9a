"""Keeps the last overview for all browsers: Kafka is read at one pace, and no page waits."""

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from tidegate_console.overview import Overview
from tidegate_delta.errors import TidegateError


@dataclass(frozen=True)
class OverviewReading:
    """The last overview, and why it is not newer; `number` and `change` count up.

    `change` counts the readings that differ from the one before in more than their time.
    """

    overview: Overview | None = None
    problem: str | None = None
    number: int = 0
    change: int = 0


class OverviewKeeper:
    """Reads overviews in a thread of its own."""

    def __init__(self, read: Callable[[], Overview], refresh_s: float) -> None:
        self._read = read
        self._refresh_s = refresh_s
        self._newest = OverviewReading()
        self._is_due, self._over = threading.Event(), threading.Event()
        self._turn = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="overview-keeper", daemon=True)

    @property
    def newest(self) -> OverviewReading:
        """What was read last."""
        return self._newest

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Read no more."""
        self._over.set()
        self._is_due.set()

    def read_now(self) -> OverviewReading:
        """Read at once, after something was changed, and return what was read."""
        with self._turn:
            before = self._newest
            try:
                overview = self._read()
            except TidegateError as error:
                change = before.change + (before.problem is None)
                reading = OverviewReading(before.overview, str(error), before.number + 1, change)
            else:
                is_same = before.problem is None and _without_times(
                    before.overview
                ) == _without_times(overview)
                reading = OverviewReading(
                    overview, None, before.number + 1, before.change + (not is_same)
                )
            self._newest = reading
            return reading

    def _run(self) -> None:
        while not self._over.is_set():
            self.read_now()
            self._is_due.wait(self._refresh_s)
            self._is_due.clear()


def _without_times(overview: Overview | None) -> Hashable:
    """Return what of an overview is more than its time."""
    if overview is None:
        return None
    tables = tuple(
        (table, record.name, record.status, record.reason, record.published_through)
        for table, record in overview.tables.items()
    )
    services = tuple(
        (name, len(group.active), len(group.standby), group.owned, group.waiting)
        for name, group in overview.services.items()
    )
    quarantined = tuple(
        (record.table, record.service)
        for records in overview.quarantined.values()
        for record in records
    )
    return (
        tables,
        services,
        quarantined,
        tuple(overview.streams),
        overview.letters.count,
        tuple(overview.unread.items()),
    )
