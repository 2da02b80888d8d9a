"""The layer over Faust on which both followers, checkpointer and change publisher, are built.

Each record of `commits` is handed to a thread, and acknowledged when the service has finished its
turn at the table. A table with more work than one turn allows gets its next turn after those that
are more urgent. Turns of one table run one after the other, those of several tables in parallel. A
pass over all tables runs alone. An error of Kafka, or of all tables, ends the run: records that
were not acknowledged are delivered again. Errors of one table are kept to that table
(`quarantine`).

A few tables have their turns at once (`TurnQueue`), and a free place goes to the most urgent. Turns
share a lock that a pass holds alone (`AsyncRwLock`): a pass waits for a long turn of one table, but
turns of other tables do not wait with it.
"""

import asyncio
import logging
import tempfile
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import UUID

import faust
from mode.threads import ServiceThread

from tidegate_delta.errors import Unavailable
from tidegate_messages.codec import decode
from tidegate_messages.published_records import CommitRecord
from tidegate_messages.record_headers import traceparent_of
from tidegate_runtime.containment import attempted, is_fault, reason_of
from tidegate_runtime.followers.faust_app import (
    DaemonWorkerThread,
    SkippedRecords,
    app_settings,
    ask,
    ends,
    partition,
    translated_error,
    unread,
)
from tidegate_runtime.observability import metrics
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.observability.tracing import continued
from tidegate_runtime.service.runner import Running
from tidegate_runtime.service.settings import ServiceSettings


class TurnQueue:
    """Places for turns. `urgency` is asked when a place becomes free, so it may change meanwhile.

    Law: of two tables that wait, the more urgent one is served first; of two alike, the older one
    """

    def __init__(self, places: int, urgency: Callable[[UUID], float]) -> None:
        self._free = places
        self._urgency = urgency
        self._waiting: dict[UUID, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def turn(self, table: UUID) -> AsyncIterator[None]:
        """Hold a place for a table, which must not have one already."""
        if self._free:
            self._free -= 1
        else:
            await self._called(table)
        try:
            yield
        finally:
            self._leave()

    async def _called(self, table: UUID) -> None:
        called = self._waiting[table] = asyncio.get_running_loop().create_future()
        try:
            await called
        except asyncio.CancelledError:
            if self._waiting.pop(table, None) is None:
                # The place was given to this table while it was cancelled.
                self._leave()
            raise

    def _leave(self) -> None:
        if not self._waiting:
            self._free += 1
            return
        table = max(self._waiting, key=self._urgency)
        self._waiting.pop(table).set_result(None)


class AsyncRwLock:
    """The lock.

    `patience_s` is how long a waiting exclusive holder keeps new sharers out. After that, new ones
    may enter until the long turns have ended, that is, those that were under way at that time.
    Law: while one holder is alone, there is no other.
    """

    def __init__(self, patience_s: float = inf) -> None:
        self._patience_s = patience_s
        self._changed = asyncio.Condition()
        self._sharing: set[object] = set()
        self._long: set[object] = set()
        self._wanted_alone = 0
        self._alone = False

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Hold the lock together with other sharers."""
        turn = object()
        async with self._changed:
            await self._changed.wait_for(self._may_share)
            self._sharing.add(turn)
        try:
            yield
        finally:
            async with self._changed:
                self._sharing.discard(turn)
                self._long.discard(turn)
                self._changed.notify_all()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Hold the lock alone."""
        async with self._changed:
            self._wanted_alone += 1
            try:
                await self._wait_until_idle()
                self._alone = True
            finally:
                self._wanted_alone -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            async with self._changed:
                self._alone = False
                self._changed.notify_all()

    async def idle(self) -> None:
        """Wait until the lock has no holder."""
        async with self._changed:
            await self._changed.wait_for(self._is_idle)

    async def _wait_until_idle(self) -> None:
        try:
            async with asyncio.timeout(self._patience_s if self._patience_s < inf else None):
                await self._changed.wait_for(self._is_idle)
        except TimeoutError:
            # Only once: later turns that also last long do not delay the exclusive holder any
            # further.
            self._long |= self._sharing
            self._changed.notify_all()
            await self._changed.wait_for(self._is_idle)

    def _may_share(self) -> bool:
        return not self._alone and (not self._wanted_alone or bool(self._long))

    def _is_idle(self) -> bool:
        return not self._alone and not self._sharing


JOIN_TIMEOUT_S: Final = 60.0
SETTLE_TIMEOUT_S: Final = 10.0
LEAVE_TIMEOUT_S: Final = 4.0
HELD_MAX: Final = 10_000
"""Records that may be taken from Faust and not yet acknowledged: those of one busy table must leave
room for others while it has a long turn.
"""
THREADS_MAX: Final = 4
GOING_ON_MAX: Final = THREADS_MAX - 1
"""Tables whose next turns run at once: one thread stays free for records of other tables."""
PATIENCE_S: Final = 2.0
"""How long turns of other tables wait for a pass that itself waits for a long one."""
LEFT_BEHIND_S: Final = 10.0
"""Seconds between two checks for records that Faust does not deliver."""
AWAY_S: Final = 600.0
"""How long the brokers may be silent before the follower restarts and resolves their addresses."""
_TICK_S: Final = 0.2
_log = logging.getLogger(__name__)


class FollowerService(Protocol):
    """What a follower does. Its methods run in threads, for one table never two at once."""

    @property
    def name(self) -> str:
        """The Faust app's name. With the topic prefix before it, the consumer group."""

    @property
    def poll_interval_s(self) -> float:
        """Seconds between two passes."""

    @property
    def unfinished(self) -> Collection[UUID]:
        """The tables with more work than their last turn allowed. Read in the event loop."""

    def notice(self, record: CommitRecord) -> None:
        """Act on the notification of a commit, whose trace is continued meanwhile.

        The work done on return is durable, the rest is `unfinished`. It may be called again for
        the same record.
        """

    def go_on(self, table: UUID) -> None:
        """Take the next turn at an unfinished table."""

    def urgency(self, table: UUID) -> float:
        """Return how urgent the next turn of an unfinished table is. Called in the event loop."""

    def poll(self) -> None:
        """Read the registry and the log of every table: once at the start, then periodically.

        No other method runs meanwhile.
        """


def run_follower(service: FollowerService, settings: ServiceSettings, running: Running) -> None:
    """Follow the topic `commits` until a stop is requested.

    Raises: Unavailable, when the brokers do not answer; whatever the service raises.
    """
    with tempfile.TemporaryDirectory(prefix="tidegate-faust-") as folder:
        asyncio.run(_follow(service, settings, running, Path(folder)))


async def _follow(
    service: FollowerService, settings: ServiceSettings, running: Running, folder: Path
) -> None:
    pool = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix=service.name)
    try:
        await _Follower(service, settings, running, pool).run(folder)
    finally:
        # A restarted run must not overlap with this one. A process that ends need not wait.
        pool.shutdown(wait=not running.stopping.is_set(), cancel_futures=True)


@dataclass
class _Taken:
    """A record taken from Faust: its event, and whether its effect is durable."""

    event: Any
    is_done: bool = False


_WaitingRecords = deque[tuple[_Taken, CommitRecord]]
"""The waiting records of one table, in order. While it exists, one task serves the table."""


class _Follower:
    """One run of one Faust app. Everything except the service's calls runs in the event loop."""

    def __init__(
        self,
        service: FollowerService,
        settings: ServiceSettings,
        running: Running,
        pool: ThreadPoolExecutor,
    ) -> None:
        self._service = service
        self._settings = settings
        self._running = running
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._failed: asyncio.Future[None] = self._loop.create_future()
        self._joined = asyncio.Event()
        self._room = asyncio.Semaphore(HELD_MAX)
        self._going_on = TurnQueue(GOING_ON_MAX, service.urgency)
        self._turns = AsyncRwLock(PATIENCE_S)
        self._further_turns = AsyncRwLock(PATIENCE_S)
        self._waiting: dict[UUID, _WaitingRecords] = {}
        self._taken: defaultdict[object, deque[_Taken]] = defaultdict(deque)
        self._parts: set[asyncio.Task[None]] = set()
        self._held = 0
        self._skipped = SkippedRecords()

    async def run(self, folder: Path) -> None:
        """Run the first pass, join the group and follow, until the first failure or a stop."""
        health = self._running.health
        health.ready(False, "looking at the tables")
        if not await self._first_poll_finished():
            return
        app = self._app(folder)
        health.ready(False, "joining the group")
        self._begin(lambda: self._start(app))
        self._begin(lambda: self._watch(app))
        self._begin(self._poll_periodically)
        self._begin(lambda: self._insist(app))
        try:
            while not self._over():
                await asyncio.wait([self._failed], timeout=_TICK_S)
                if app.crash_reason is not None:
                    self._fail(app.crash_reason)
        finally:
            health.ready(False, "stopping")
            # Nothing new starts. Calls in threads may finish, so that their acks are committed.
            await _bounded(self._turns.idle(), SETTLE_TIMEOUT_S)
            if self._joined.is_set():
                # While an earlier commit is under way, Faust's stop would wait for it, and commit
                # nothing that was acknowledged since.
                consumer: Any = app.consumer
                await _bounded(consumer.maybe_wait_for_commit_to_finish(), LEAVE_TIMEOUT_S)
            await _bounded(app.stop(), LEAVE_TIMEOUT_S)
            for task in self._parts:
                task.cancel()
            await asyncio.gather(*self._parts, return_exceptions=True)
        if self._failed.done():
            self._failed.result()

    def _app(self, folder: Path) -> faust.App:
        kafka = self._settings.kafka
        ServiceThread.Worker = DaemonWorkerThread
        app = faust.App(**app_settings(self._service.name, kafka, folder))
        topic = app.topic(kafka.topics.commits, key_serializer="raw", value_serializer="raw")

        async def ring(stream: Any) -> None:
            async for event in stream.noack().events():
                await self._take(event)

        async def joined(_app: Any, /, *assigned: Any, signal: Any, **_: Any) -> None:
            partitions = sorted(
                f"{topic_partition.topic}/{topic_partition.partition}"
                for topic_partition in assigned[0]
            )
            log_event(_log, "assigned", group=app.conf.id, partitions=partitions)
            self._loop.call_soon_threadsafe(self._skipped.assigned)
            self._loop.call_soon_threadsafe(self._joined.set)

        app.agent(topic, name="ring")(ring)
        app.on_partitions_assigned.connect(joined, weak=False)
        return app

    async def _start(self, app: faust.App) -> None:
        """Start Faust and wait until it has joined its group, as a start can hang silently."""
        try:
            async with asyncio.timeout(JOIN_TIMEOUT_S):
                await app.start()
                await self._joined.wait()
        except TimeoutError as error:
            raise Unavailable(
                f"{app.conf.id} did not join its group on {self._settings.kafka.bootstrap_servers} "
                f"within {JOIN_TIMEOUT_S:g} s; it starts again; check whether the brokers answer"
            ) from error
        self._running.health.ready(True)

    async def _take(self, event: Any) -> None:
        """Queue a record for its table, first waiting while too many records are unacknowledged."""
        await self._room.acquire()
        self._held += 1
        taken = _Taken(event)
        self._taken[event.message.tp].append(taken)
        self._skipped.heard(partition(event.message.tp), event.message.offset)
        record = attempted(
            lambda: decode(CommitRecord, event.value), lambda error: _skipped(event.message, error)
        )
        if record is None:
            self._done(taken)
            return
        self._waiting_of(record.table).append((taken, record))

    def _waiting_of(self, table: UUID) -> _WaitingRecords:
        """Return the waiting records of a table, and start a task to serve it if there is none."""
        if table not in self._waiting:
            self._waiting[table] = deque()
            self._begin(lambda: self._serve(table))
        return self._waiting[table]

    async def _serve(self, table: UUID) -> None:
        """Run a table's turns, one after the other, until none of its work waits."""
        waiting = self._waiting[table]
        while waiting or table in self._service.unfinished:
            # Records that arrive meanwhile wait for the turn of what is left.
            for _ in range(len(waiting)):
                await self._notice(*waiting.popleft())
                if self._over():
                    return
            if table in self._service.unfinished:
                async with self._going_on.turn(table), self._further_turns.shared():
                    await self._turn(partial(self._service.go_on, table))
            if self._over():
                return
        del self._waiting[table]

    async def _notice(self, taken: _Taken, record: CommitRecord) -> None:
        trace = traceparent_of((taken.event.headers or {}).items())

        def notice() -> None:
            with continued(trace):
                self._service.notice(record)

        if await self._turn(notice):
            self._done(taken)
            metrics.COMMIT_NOTIFICATIONS.labels(record.name or str(record.table)).inc()

    async def _turn(self, act: Callable[[], None]) -> bool:
        """Run a call of the service in a thread; return False if the run ended before it."""
        async with self._turns.shared():
            if self._over():
                return False
            await self._loop.run_in_executor(self._pool, act)
            return True

    def _done(self, taken: _Taken) -> None:
        """Acknowledge records in the order of their topic partition.

        If a later one is acknowledged first, Faust may commit an offset past one that is not.
        """
        taken.is_done = True
        inline = self._taken[taken.event.message.tp]
        while inline and inline[0].is_done:
            inline.popleft().event.ack()
        self._held -= 1
        self._room.release()
        self._running.health.progress("commits")

    async def _poll(self) -> None:
        # Further turns may be long. Records, whose turns are short, are handled until those end.
        async with self._further_turns.alone(), self._turns.alone():
            if not self._over():
                await self._loop.run_in_executor(self._pool, self._service.poll)
                metrics.POLLS.inc()
                for table in self._service.unfinished:
                    self._waiting_of(table)

    async def _first_poll_finished(self) -> bool:
        """Run the first poll, and return whether it finished. A stop waits for it only briefly."""
        first_poll = self._loop.create_task(self._poll())
        while not first_poll.done() and not self._over():
            await asyncio.wait([first_poll], timeout=_TICK_S)
        if not first_poll.done():
            await _bounded(self._turns.idle(), SETTLE_TIMEOUT_S)
            first_poll.cancel()
            return False
        first_poll.result()
        return True

    async def _poll_periodically(self) -> None:
        while not self._over():
            await asyncio.sleep(self._service.poll_interval_s)
            await self._poll()

    async def _watch(self, app: faust.App) -> None:
        """Report every second that the event loop runs, and how many records wait."""
        health = self._running.health
        health.expect("loop", self._settings.http.stalled_s)
        await self._joined.wait()
        while not self._over():
            health.progress("loop")
            health.work("commits", self._held + await unread(app))
            await asyncio.sleep(1.0)

    async def _insist(self, app: faust.App) -> None:
        """Raise if records wait and are not delivered (`SkippedRecords`), or if no broker answers.

        The service then starts over. Faust keeps the brokers' last addresses: once all of them have
        moved, it never finds them again.
        """
        kafka, clock = self._settings.kafka, self._running.clock
        await self._joined.wait()
        answered_s = clock.boot_s()
        while not self._over():
            await asyncio.sleep(LEFT_BEHIND_S)
            moment, end_offsets = self._skipped.moment, await ends(app)
            if end_offsets is not None:
                answered_s = clock.boot_s()
            elif clock.boot_s() - answered_s > AWAY_S:
                raise Unavailable(
                    f"the brokers have not answered for {AWAY_S:.0f} s; this service connects "
                    f"again to {kafka.bootstrap_servers}"
                )
            suspects = [] if self._held else self._skipped.with_undelivered(end_offsets or {})
            if not suspects:
                continue
            try:
                bounds = await self._loop.run_in_executor(
                    self._pool, ask, kafka, app.conf.id, suspects
                )
            except Unavailable:
                continue
            if left := self._skipped.found(bounds, moment):
                raise Unavailable(
                    f"{left} records of {kafka.topics.commits} wait for {app.conf.id} and are not "
                    "delivered; it joins its group again"
                )

    def _begin(self, part: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = self._loop.create_task(part())
        self._parts.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Forget a task that ended; if it failed, the follower fails."""
        self._parts.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self._failed.done():
            self._failed.set_exception(translated_error(error))

    def _over(self) -> bool:
        return self._running.stopping.is_set() or self._failed.done()


def _skipped(message: Any, error: Exception) -> None:
    """Log that a record can't be read."""
    source = f"{message.topic}/{message.partition}@{message.offset}"
    fault = error if is_fault(error) else None
    fields = {"record": source, "why": reason_of(error)}
    log_event(_log, "malformed", level=logging.ERROR, fault=fault, **fields)
    metrics.DEAD_LETTERS.labels("commit").inc()


async def _bounded(ending: Awaitable[None], timeout_s: float) -> None:
    """Wait for something to end, at most for the timeout: the process ends anyway."""
    try:
        async with asyncio.timeout(timeout_s):
            await ending
    except TimeoutError:
        log_event(_log, "abandoned", level=logging.WARNING, after_s=timeout_s)
