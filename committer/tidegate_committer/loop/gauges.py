"""The committer's gauges: the states of its tables, and how much is waiting."""

import math
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal, get_args
from uuid import UUID

from tidegate_committer.loop.partition_worker import PartitionWorker
from tidegate_committer.loop.table_committer import TableCommitter
from tidegate_runtime.clock import Clock
from tidegate_runtime.observability import metrics
from tidegate_runtime.observability.metrics import (
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

TableActivity = Literal["unread", "idle", "waiting", "writing", "resting", "halted", "stopped"]
"""The state of a table: docs/committer.md explains each."""

OBSERVED_S: Final = 0.5
"""How often the gauges are set: scrapes are rarer, and a busy loop steps far more often."""

OBSERVED_SHARE: Final = 0.02
"""The share of the loop's time that this may take: very many tables are gauged less often."""

KEPT_S: Final = 600.0
"""How long counters of a table outlive it, so that a scrape gets their last values."""

_shown: Final[dict[str, tuple[int, int]]] = {}
"""The version and its timestamp that this process exports for each of its tables."""

_counted: Final[dict[str, float]] = {}
"""The tables with exported counters, and until when; for served tables without an end."""

STORE_WAIT_MIN_S: Final = 10.0
"""How long a table must wait for its store before the wait is exported: most waits are short."""

_waiting: Final[dict[UUID, float]] = {}
"""Since when tables wait for their stores. Units: by `Clock.boot_s`."""

_waits_shown: Final[set[str]] = set()
"""The labels of the exported waits."""

STATES: Final[tuple[TableActivity, ...]] = get_args(TableActivity)


def state_of(table_committer: TableCommitter, now_s: float) -> TableActivity:
    """Return the state of a table. Units: `now_s` by `Clock.boot_s`."""
    if table_committer.record.halted_by_hand is not None:
        return "stopped"
    if table_committer.halted is not None:
        return "halted"
    if table_committer.rests_until_s > now_s:
        return "resting"
    if table_committer.in_flight is not None:
        return "writing"
    if table_committer.queue:
        return "waiting"
    return "unread" if table_committer.cache.state is None else "idle"


def stranded(workers: Iterable[PartitionWorker], now_s: float) -> int:
    """Return how many proposals wait for a store that failed or hangs, or while others keep
    winning.

    A restart would not help these and would interrupt the other tables, so they do not count as
    stalled.
    """
    count = 0
    for worker in workers:
        for table_committer in worker.busy:
            count += len(table_committer.queue.deferred)
            if table_committer.rests_until_s > now_s or table_committer.cache.waits_for:
                table = table_committer.record.table
                queue = table_committer.queue
                count += len(queue) + len(queue.behind) + len(table_committer.requests)
                count += worker.read_ahead.held(table)
    return count


@dataclass
class Gauges:
    """When a loop's gauges are due to be set. Units: by `Clock.boot_s`."""

    due_s: float = -math.inf

    def set_if_due(self, workers: Iterable[PartitionWorker], paused: int, clock: Clock) -> bool:
        """Set all gauges if they are due; return whether they were."""
        began_s = clock.boot_s()
        if began_s < self.due_s:
            return False
        observe(workers, paused, began_s)
        took_s = clock.boot_s() - began_s
        self.due_s = began_s + max(OBSERVED_S, took_s / OBSERVED_SHARE)
        return True


def observe(workers: Iterable[PartitionWorker], paused: int, now_s: float) -> None:
    """Set all gauges."""
    workers = list(workers)
    table_committers = [
        table_committer
        for worker in workers
        for table_committer in worker.tables.committers.values()
    ]
    counts = Counter(state_of(table_committer, now_s) for table_committer in table_committers)
    for state in STATES:
        TABLES.labels(state).set(counts[state])
    served = {
        table_committer.record.name
        for table_committer in table_committers
        if table_committer.is_registered
    }
    _take_back(served)
    _forget(served, now_s)
    for table_committer in table_committers:
        if (
            table_committer.is_registered
            and table_committer.cache.state is not None
            and table_committer.cache.state.version >= 0
        ):
            _show(
                table_committer.record.name,
                (table_committer.cache.state.version, table_committer.cache.state.timestamp),
            )
    _show_waits(table_committers, now_s)
    TOPIC_PARTITIONS.set(len(workers))
    TOPIC_PARTITIONS_PAUSED.set(paused)
    IN_FLIGHT.set(sum(worker.pending for worker in workers))
    # The first proposal of a queue need not be the oldest: queues are fair between producers.
    since_s = (
        queued.since_s
        for table_committer in table_committers
        for queue in (table_committer.queue,)
        for queued in (*queue.waiting, *queue.deferred, *queue.behind)
    )
    QUEUE_AGE.set(now_s - min(since_s, default=now_s))


def _waits_since_s(table_committer: TableCommitter, now_s: float) -> float | None:
    """Return since when a table waits for its store, or None if it does not."""
    if table_committer.halted is not None or table_committer.record.halted_by_hand is not None:
        return None
    since_s = None
    if table_committer.rests_until_s > now_s:
        since_s = now_s
    elif table_committer.cache.waits_for is not None:
        since_s = table_committer.cache.waits_for.since_s
    elif table_committer.in_flight is not None:
        since_s = table_committer.in_flight.since_s
    if table_committer.cache.state is not None:
        return since_s
    # A table that was never loaded has waited since the first try, over all retries.
    return _waiting.get(table_committer.record.table, since_s)


def _show_waits(table_committers: Iterable[TableCommitter], now_s: float) -> None:
    """Export how long tables wait: a store or mount may hang for ever without logging an error."""
    waits = {
        table_committer.record.table: (
            _waits_since_s(table_committer, now_s),
            table_committer.label,
        )
        for table_committer in table_committers
    }
    _waiting.clear()
    waited_by_label: dict[str, float] = {}
    for table, (since_s, label) in waits.items():
        if since_s is not None:
            _waiting[table] = since_s
            waited_by_label[label] = max(now_s - since_s, waited_by_label.get(label, 0.0))
    waited_by_label = {
        label: waited_s
        for label, waited_s in waited_by_label.items()
        if waited_s >= STORE_WAIT_MIN_S
    }
    for stale in _waits_shown.difference(waited_by_label):
        _waits_shown.discard(stale)
        with suppress(KeyError):
            STORE_WAIT.remove(stale)
    for label, waited_s in waited_by_label.items():
        STORE_WAIT.labels(label).set(waited_s)
        _waits_shown.add(label)


def _show(table: str, version: tuple[int, int]) -> None:
    """Export a version and its timestamp if they changed: there may be very many tables."""
    if _shown.get(table) == version:
        return
    EXTERNAL_VERSIONS.labels(table)  # export 0 first: a counter that starts at 1 shows no increase
    TABLE_VERSION.labels(table).set(version[0])
    TABLE_LAST_COMMIT.labels(table).set(version[1] / 1000)
    _shown[table] = version


def _take_back(tables: Collection[str]) -> None:
    """Remove the gauges of tables that we no longer serve: their values would go stale."""
    for stale in [table for table in _shown if table not in tables]:
        del _shown[stale]
        for gauge in (TABLE_VERSION, TABLE_LAST_COMMIT):
            with suppress(KeyError):
                gauge.remove(stale)


def _forget(tables: Collection[str], now_s: float) -> None:
    """Drop the counters of tables that are long gone: new tables may come for ever."""
    _counted.update(dict.fromkeys(tables, math.inf))
    for table in _counted.keys() - tables:
        _counted[table] = min(_counted[table], now_s + KEPT_S)
    forgotten = {table for table, until_s in _counted.items() if now_s >= until_s}
    metrics.forget(forgotten)
    for table in forgotten:
        del _counted[table]
