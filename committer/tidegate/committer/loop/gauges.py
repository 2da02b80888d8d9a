"""The committer's gauges: the states of its tables, and how much waits."""

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, Literal, get_args
from uuid import UUID

from tidegate.committer.loop.desk import Desk
from tidegate.committer.loop.lane import Lane
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

_shown: Final[set[str]] = set()
"""The labels of tables whose version is exported; they are taken back when others serve them."""

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
    return sum(
        len(desk.line) + len(lane.routing.asked.get(desk.record.table, ()))
        for lane in lanes
        for desk in lane.busy
        if desk.rests_until_s > now_s or desk.waits_for
    )


def observe(lanes: Iterable[Lane], paused: int, now_s: float) -> None:
    """Set all gauges."""
    lanes = list(lanes)
    desks = [desk for lane in lanes for desk in lane.routing.desks.values()]
    found = Counter(state_of(desk, now_s) for desk in desks)
    for state in STATES:
        TABLES.labels(state).set(found[state])
    _take_back(desk.label for desk in desks)
    for desk in desks:
        if desk.is_registered and desk.state is not None and desk.state.version >= 0:
            EXTERNAL_VERSIONS.labels(desk.label)  # shown at 0: what begins at 1 has no increase
            TABLE_VERSION.labels(desk.label).set(desk.state.version)
            TABLE_LAST_COMMIT.labels(desk.label).set(desk.state.timestamp / 1000)
            _shown.add(desk.label)
    _show_waits(desks, now_s)
    TOPIC_PARTITIONS.set(len(lanes))
    TOPIC_PARTITIONS_PAUSED.set(paused)
    IN_FLIGHT.set(sum(lane.unsettled for lane in lanes))
    # The first of a line need not be the oldest: lines are fair between producers.
    since_s = (one.since_s for desk in desks for one in desk.line.waiting)
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


def _take_back(tables: Iterable[str]) -> None:
    """Remove the gauges of tables that we no longer serve: their values would stand still."""
    for gone in _shown.difference(tables):
        _shown.discard(gone)
        for gauge in (TABLE_VERSION, TABLE_LAST_COMMIT):
            with suppress(KeyError):
                gauge.remove(gone)
