"""The committer's gauges: the states of its tables, and how much waits."""

import math
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal, get_args
from uuid import UUID

from tidegate.committer.loop.desk import Desk
from tidegate.committer.loop.lane import Lane
from tidegate.runtime import metrics
from tidegate.runtime.clock import Clock
from tidegate.runtime.metrics import (
    EXTERNAL_VERSIONS,
    IN_FLIGHT,
    QUEUE_AGE,
    STORE_WAIT,
    TABLE_LAST_COMMIT,
    TABLE_VERSION,
    TABLES,
    TOPIC_PARTITIONS,
    TOPIC_PARTITIONS_PAUSED,
)

State = Literal["unread", "idle", "waiting", "writing", "resting", "halted", "stopped"]
"""The state of a table: docs/committer.md explains each."""

OBSERVED_S: Final = 0.5
"""How often the gauges are set: scrapes are rarer, and a busy loop steps far oftener."""

OBSERVED_SHARE: Final = 0.02
"""What share of the loop's time that may take: of very many tables they are set less often."""

KEPT_S: Final = 600.0
"""How long what was counted of a table is shown after it: scrapes have the last of it by then."""

_shown: Final[dict[str, tuple[int, int]]] = {}
"""The version and its time that this process shows of each of its tables."""

_counted: Final[dict[str, float]] = {}
"""The tables of which it counts anything: until when, for ever as long as it has them."""

STORE_WAIT_MIN_S: Final = 10.0
"""How long a table must wait for its store before that is exported: most waits are short."""

_waiting: Final[dict[UUID, float]] = {}
"""Since when tables wait for their stores. Units: by `Clock.boot_s`."""

_waits_shown: Final[set[str]] = set()
"""The labels of the exported ones."""

STATES: Final[tuple[State, ...]] = get_args(State)


def state_of(desk: Desk, now_s: float) -> State:
    """Return the state of a table. Units: `now_s` by `Clock.boot_s`."""
    if desk.record.halted_by_hand is not None:
        return "stopped"
    if desk.halted is not None:
        return "halted"
    if desk.rests_until_s > now_s:
        return "resting"
    if desk.flying is not None:
        return "writing"
    if desk.line:
        return "waiting"
    return "unread" if desk.state is None else "idle"


def stranded(lanes: Iterable[Lane], now_s: float) -> int:
    """Return how many proposals wait for a store that failed or hangs, or while others win.

    A restart would not help these, and would interrupt the other tables: they do not count as
    stalled.
    """
    found = 0
    for lane in lanes:
        for desk in lane.busy:
            found += len(desk.line.aside)
            if desk.rests_until_s > now_s or desk.waits_for:
                table = desk.record.table
                found += len(desk.line) + len(lane.routing.asked.get(table, ()))
                found += lane.routing.unsettled.held(table)
    return found


@dataclass
class Gauges:
    """When a loop's gauges are set again. Units: by `Clock.boot_s`."""

    due_s: float = -math.inf

    def set_if_due(self, lanes: Iterable[Lane], paused: int, clock: Clock) -> bool:
        """Set all gauges, where they are due; return whether they were."""
        began_s = clock.boot_s()
        if began_s < self.due_s:
            return False
        observe(lanes, paused, began_s)
        took_s = clock.boot_s() - began_s
        self.due_s = began_s + max(OBSERVED_S, took_s / OBSERVED_SHARE)
        return True


def observe(lanes: Iterable[Lane], paused: int, now_s: float) -> None:
    """Set all gauges."""
    lanes = list(lanes)
    desks = [desk for lane in lanes for desk in lane.routing.desks.values()]
    found = Counter(state_of(desk, now_s) for desk in desks)
    for state in STATES:
        TABLES.labels(state).set(found[state])
    served = {desk.record.name for desk in desks if desk.is_registered}
    _take_back(served)
    _forget(served, now_s)
    for desk in desks:
        if desk.is_registered and desk.state is not None and desk.state.version >= 0:
            _show(desk.record.name, (desk.state.version, desk.state.timestamp))
    _show_waits(desks, now_s)
    TOPIC_PARTITIONS.set(len(lanes))
    TOPIC_PARTITIONS_PAUSED.set(paused)
    IN_FLIGHT.set(sum(lane.unsettled for lane in lanes))
    # The first of a line need not be the oldest: lines are fair between producers.
    since_s = (one.since_s for desk in desks for one in (*desk.line.waiting, *desk.line.aside))
    QUEUE_AGE.set(now_s - min(since_s, default=now_s))


def _waits_since_s(desk: Desk, now_s: float) -> float | None:
    """Return since when a table waits for its store, or None where it does not."""
    if desk.halted is not None or desk.record.halted_by_hand is not None:
        return None
    since_s = None
    if desk.rests_until_s > now_s:
        since_s = now_s
    elif desk.waits_for is not None:
        since_s = desk.waits_for.since_s
    elif desk.flying is not None:
        since_s = desk.flying.since_s
    if desk.state is not None:
        return since_s
    # A table that was never loaded has waited since the first try, however many there were.
    return _waiting.get(desk.record.table, since_s)


def _show_waits(desks: Iterable[Desk], now_s: float) -> None:
    """Export how long tables wait: a store or mount may hang for ever, and log no error."""
    waits = {desk.record.table: (_waits_since_s(desk, now_s), desk.label) for desk in desks}
    _waiting.clear()
    shown: dict[str, float] = {}
    for table, (since_s, label) in waits.items():
        if since_s is not None:
            _waiting[table] = since_s
            shown[label] = max(now_s - since_s, shown.get(label, 0.0))
    shown = {label: waited_s for label, waited_s in shown.items() if waited_s >= STORE_WAIT_MIN_S}
    for gone in _waits_shown.difference(shown):
        _waits_shown.discard(gone)
        with suppress(KeyError):
            STORE_WAIT.remove(gone)
    for label, waited_s in shown.items():
        STORE_WAIT.labels(label).set(waited_s)
        _waits_shown.add(label)


def _show(table: str, version: tuple[int, int]) -> None:
    """Show a version and its time, where they are new: there may be very many tables."""
    if _shown.get(table) == version:
        return
    EXTERNAL_VERSIONS.labels(table)  # shown at 0: what begins at 1 has no increase
    TABLE_VERSION.labels(table).set(version[0])
    TABLE_LAST_COMMIT.labels(table).set(version[1] / 1000)
    _shown[table] = version


def _take_back(tables: Collection[str]) -> None:
    """Remove the gauges of tables that we no longer serve: their values would stand still."""
    for gone in [table for table in _shown if table not in tables]:
        del _shown[gone]
        for gauge in (TABLE_VERSION, TABLE_LAST_COMMIT):
            with suppress(KeyError):
                gauge.remove(gone)


def _forget(tables: Collection[str], now_s: float) -> None:
    """Drop what was counted of tables that are long gone: there may be new ones for ever."""
    _counted.update(dict.fromkeys(tables, math.inf))
    for gone in _counted.keys() - tables:
        _counted[gone] = min(_counted[gone], now_s + KEPT_S)
    forgotten = {gone for gone, until_s in _counted.items() if now_s >= until_s}
    metrics.forget(forgotten)
    for gone in forgotten:
        del _counted[gone]
