"""What a committer looks like from outside: what goes on at its desks, as gauges."""

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
"""What goes on at a table's desk."""

_shown: Final[set[str]] = set()
"""The tables of which this process shows a version, as long as it has them."""

STORE_WAIT_MIN_S: Final = 10.0
"""How long a table has to wait for its store before that is shown: most wait a moment."""

_waiting: Final[dict[UUID, float]] = {}
"""Since when tables wait for their stores. Units: by `Clock.boot_s`."""

_waits_shown: Final[set[str]] = set()
"""The names by which they are shown."""

STATES: Final[tuple[State, ...]] = get_args(State)


def state_of(desk: Desk, now_s: float) -> State:
    """Return what goes on at a table. Units: `now_s` by `Clock.boot_s`."""
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
    """Return how many proposals wait for a store that failed or hangs, or for others who win.

    To start the committer anew helps none of them, and takes the other tables away from it.
    """
    return sum(
        len(desk.line) + len(lane.routing.asked.get(desk.record.table, ()))
        for lane in lanes
        for desk in lane.busy
        if desk.rests_until_s > now_s or desk.waits_for
    )


def observe(lanes: Iterable[Lane], paused: int, now_s: float) -> None:
    """Set the gauges to what there is."""
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
    # Who stands first need not have come first: lines are fair, and some go before others.
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
    # Of whom nothing is known waits on, however often he was asked about: nothing came back.
    return _waiting.get(desk.record.table, since_s)


def _show_waits(desks: Iterable[Desk], now_s: float) -> None:
    """Show who waits: nothing else tells of a store that hangs, and on a mount for ever."""
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
    """Show no more what others serve now, or nobody: it would stand still here for ever."""
    for gone in _shown.difference(tables):
        _shown.discard(gone)
        for gauge in (TABLE_VERSION, TABLE_LAST_COMMIT):
            with suppress(KeyError):
                gauge.remove(gone)
