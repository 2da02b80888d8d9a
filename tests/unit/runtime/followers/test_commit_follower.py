"""A follower without brokers: whose turn it is, and what its stop waits for."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from faust import App
from mode.threads import ServiceThread

from tidegate_delta.errors import Unavailable
from tidegate_messages.codec import encode
from tidegate_messages.published_records import CommitRecord
from tidegate_messages.record_headers import TRACEPARENT, compose_traceparent
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.followers import commit_follower
from tidegate_runtime.followers.commit_follower import AsyncRwLock, run_follower
from tidegate_runtime.followers.faust_app import DaemonWorkerThread, app_settings
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.kafka.settings import KafkaSettings
from tidegate_runtime.observability.tracing import continued_traceparent
from tidegate_runtime.service.health import Health
from tidegate_runtime.service.runner import Running
from tidegate_runtime.service.settings import ServiceSettings

WAIT_S = 20.0
TRACE = compose_traceparent(0xABC, 0xDEF, 1)


class Hanging:
    """Polls a store that does not answer."""

    name = "hanging"
    poll_interval_s = 30.0
    unfinished = ()

    def __init__(self) -> None:
        self.looks = threading.Event()
        self.answer = threading.Event()

    def notice(self, record: CommitRecord) -> None:
        """Do nothing: there are no brokers."""

    def go_on(self, table: UUID) -> None:
        """Do nothing."""

    def urgency(self, table: UUID) -> float:
        """Return nothing of use."""
        return 0.0

    def poll(self) -> None:
        """Wait for the answer."""
        self.looks.set()
        self.answer.wait(WAIT_S)


LARGE, OTHER, SMALL = UUID(int=1), UUID(int=2), UUID(int=3)


@dataclass
class InTurns:
    """Needs a number of further turns at some tables, and records the calls made to it.

    `during` is called in each turn, in its thread.
    """

    left: dict[UUID, int]
    during: Callable[[], None] = lambda: None
    heard: Callable[[], None] = lambda: None
    urgent: dict[UUID, float] = field(default_factory=dict)
    calls: list[UUID | str] = field(default_factory=list)
    name = "in-turns"
    poll_interval_s = 30.0

    @property
    def unfinished(self) -> list[UUID]:
        """Return the tables with turns left."""
        return [table for table, turns in self.left.items() if turns]

    def notice(self, record: CommitRecord) -> None:
        """Call `heard` for a record of the small table."""
        if record.table == SMALL:
            self.heard()

    def go_on(self, table: UUID) -> None:
        """Take a turn."""
        self.calls.append(table)
        self.during()
        self.left[table] -= 1

    def urgency(self, table: UUID) -> float:
        """Return what the test says."""
        return self.urgent.get(table, 0.0)

    def poll(self) -> None:
        """Record the poll."""
        self.calls.append("poll")


class Followed:
    """A follower of one service that receives records and polls from a test."""

    def __init__(self, service: InTurns) -> None:
        self._service = service
        self._one: commit_follower._Follower

    def hear(self, *tables: UUID) -> None:
        """Deliver records of some tables, and wait until no work is left."""
        asyncio.run(self._hear(tables))

    def poll(self) -> None:
        """Request a poll, from the thread of a turn."""
        self._one._loop.call_soon_threadsafe(self._one._begin, self._one._poll)

    def take(self, table: UUID) -> None:
        """Deliver one more record, from the thread of a turn."""
        record = event(table)
        self._one._loop.call_soon_threadsafe(self._one._begin, lambda: self._one._take(record))

    async def _hear(self, tables: Sequence[UUID]) -> None:
        running = Running(SystemClock(), Health(SystemClock()))
        with ThreadPoolExecutor(commit_follower.THREADS_MAX) as pool:
            self._one = commit_follower._Follower(self._service, ServiceSettings(), running, pool)
            async with asyncio.timeout(WAIT_S):
                for table in tables:
                    await self._one._take(event(table))
                while self._one._parts:
                    await asyncio.wait(self._one._parts)
        assert not self._one._failed.done()


def event(table: UUID) -> Any:
    """Return a record of `commits` as Faust hands it over."""
    record = CommitRecord(
        table=table, table_root="file:///t", version=1, sha256="0" * 64, size=1, author="external"
    )
    at = TopicPartition("commits", 0)
    message = SimpleNamespace(tp=at, offset=0, topic="commits", partition=0)
    headers = {TRACEPARENT: TRACE.encode()}
    return SimpleNamespace(message=message, value=encode(record), headers=headers, ack=lambda: None)


def test_a_notification_is_handled_within_the_trace_of_its_version() -> None:
    traces: list[str | None] = []
    Followed(InTurns({}, heard=lambda: traces.append(continued_traceparent()))).hear(SMALL)
    assert traces == [TRACE]
    assert continued_traceparent() is None


def test_a_table_with_more_to_do_has_its_next_turn_at_once_and_not_at_the_next_poll() -> None:
    service = InTurns({LARGE: 3})
    Followed(service).hear(LARGE)
    assert service.calls == [LARGE] * 3


def test_a_poll_that_leaves_work_of_a_table_is_followed_by_its_turns() -> None:
    service = InTurns({LARGE: 1, OTHER: 0})
    followed = Followed(service)

    def poll() -> None:
        if service.calls == [LARGE]:
            service.left[OTHER] = 2
            followed.poll()

    service.during = poll
    followed.hear(LARGE)
    assert service.calls == [LARGE, "poll", OTHER, OTHER]


def test_turns_of_several_tables_alternate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_follower, "GOING_ON_MAX", 1)
    service = InTurns({LARGE: 4, OTHER: 4})
    Followed(service).hear(LARGE, OTHER)
    assert service.calls in ([LARGE, OTHER] * 4, [OTHER, LARGE] * 4)


def test_the_most_urgent_table_has_the_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_follower, "GOING_ON_MAX", 1)
    tables = [UUID(int=number) for number in range(10, 16)]
    urgent = {table: float(table.int % 3) for table in tables}
    service = InTurns(dict.fromkeys(tables, 1), urgent=urgent)
    Followed(service).hear(*tables)
    first, *others = [table for table in service.calls if isinstance(table, UUID)]
    waited = [table for table in tables if table != first]
    assert others == sorted(waited, key=lambda table: -urgent[table])


def test_a_table_that_records_come_of_without_end_has_its_turns() -> None:
    service = InTurns({SMALL: 2})
    followed = Followed(service)
    heard = list[int]()

    def hear_again() -> None:
        heard.append(len(service.calls))
        if len(service.calls) < 2:
            assert len(heard) < 1000, "only records are heard"
            followed.take(SMALL)

    service.heard = hear_again
    followed.hear(SMALL)
    assert service.calls == [SMALL, SMALL]


def test_a_poll_has_its_turn_before_the_next_one_of_a_table() -> None:
    service = InTurns({LARGE: 3})
    followed = Followed(service)
    service.during = lambda: followed.poll() if service.calls == [LARGE] else None
    followed.hear(LARGE)
    assert service.calls == [LARGE, "poll", LARGE, LARGE]


def test_a_record_is_heard_while_more_tables_go_on_than_there_are_threads() -> None:
    heard = threading.Event()
    many = [UUID(int=number) for number in range(10, 10 + 2 * commit_follower.THREADS_MAX)]
    service = InTurns(dict.fromkeys(many, 2), heard=heard.set)
    followed = Followed(service)

    def until_heard() -> None:
        if len(service.calls) == commit_follower.GOING_ON_MAX:
            followed.take(SMALL)
        assert heard.wait(WAIT_S), "every thread is at a table with more to do"

    service.during = until_heard
    followed.hear(*many)
    assert len(service.calls) == 2 * len(many)


def test_a_record_is_received_while_a_poll_waits_for_a_long_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commit_follower, "PATIENCE_S", 10 * WAIT_S)
    heard = threading.Event()
    service = InTurns({LARGE: 1}, heard=heard.set)
    followed = Followed(service)

    def until_heard() -> None:
        followed.poll()
        followed.take(SMALL)
        assert heard.wait(WAIT_S), "other tables wait with the look"

    service.during = until_heard
    followed.hear(LARGE)
    assert service.calls == [LARGE, "poll"]


def test_a_stop_waits_for_a_store_that_hangs_no_longer_than_for_what_may_still_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commit_follower, "SETTLE_TIMEOUT_S", 0.1)
    clock, service = SystemClock(), Hanging()
    running = Running(clock, Health(clock))
    with ThreadPoolExecutor() as pool:
        run = pool.submit(run_follower, service, ServiceSettings(), running)
        try:
            assert service.looks.wait(WAIT_S)
            running.stopping.set()
            run.result(WAIT_S / 2)
        finally:
            service.answer.set()


def test_brokers_that_are_away_for_long_are_resolved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[dict[TopicPartition, int] | None] = [{}, None, None, {}, None, None]

    class Steps(SystemClock):
        now_s = 0.0

        def boot_s(self) -> float:
            """Advance by a third of the tolerated absence."""
            self.now_s += commit_follower.AWAY_S / 3
            return self.now_s

    async def ends(_: object) -> dict[TopicPartition, int] | None:
        return answers.pop(0) if answers else None

    monkeypatch.setattr(commit_follower, "LEFT_BEHIND_S", 0.0)
    monkeypatch.setattr(commit_follower, "ends", ends)
    clock = Steps()
    running = Running(clock, Health(clock))

    async def scene() -> None:
        with ThreadPoolExecutor() as pool:
            one = commit_follower._Follower(Hanging(), ServiceSettings(), running, pool)
            one._joined.set()
            async with asyncio.timeout(WAIT_S):
                await one._insist(App("follower"))

    with pytest.raises(Unavailable, match="connects again"):
        asyncio.run(scene())
    assert not answers, "while they answer now and then, they are there"


def test_who_stops_a_thread_of_fausts_hears_of_its_end_though_it_was_cancelled() -> None:
    class Cancelled:
        has_ended = False

        def _start_thread(self) -> None:
            raise asyncio.CancelledError

        def set_shutdown(self) -> None:
            self.has_ended = True

    service = Cancelled()
    thread = DaemonWorkerThread(service)
    thread.start()
    thread.join(WAIT_S)
    assert service.has_ended


def test_what_a_thread_of_fausts_ends_over_is_not_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    service = ServiceThread.__new__(ServiceThread)
    DaemonWorkerThread(service)
    service.on_crash("{0!r} crashed: {1!r}", "the consumer", OSError("the brokers are away"))
    assert capsys.readouterr().err == ""


def test_a_coordinator_that_hangs_is_given_up_within_seconds_and_no_rebalance_before(
    tmp_path: Path,
) -> None:
    for session_ms in (1_000, 6_000, 45_000):
        result = app_settings("f", KafkaSettings(session_timeout_ms=session_ms), tmp_path)
        rebalance_s, request_s = (
            result["broker_rebalance_timeout"],
            result["broker_request_timeout"],
        )
        assert rebalance_s < request_s <= rebalance_s + 5.0


async def nothing_else_happens() -> None:
    """Let every runnable task run."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_many_share_and_one_who_wants_to_be_alone_waits_and_then_goes_first() -> None:
    async def scene() -> list[str]:
        turns, done = AsyncRwLock(), list[str]()
        release = asyncio.Event()

        async def share(name: str) -> None:
            async with turns.shared():
                done.append(f"{name} begins")
                await release.wait()
            done.append(f"{name} ends")

        async def alone() -> None:
            async with turns.alone():
                done.append("alone")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(share("a"))
            tasks.create_task(share("b"))
            await nothing_else_happens()
            tasks.create_task(alone())
            await nothing_else_happens()
            tasks.create_task(share("late"))
            await nothing_else_happens()
            assert done == ["a begins", "b begins"]
            release.set()
        return done

    done = asyncio.run(scene())
    assert done.index("alone") < done.index("late begins")


def test_behind_one_who_waits_long_to_be_alone_others_wait_no_longer_and_it_goes_first() -> None:
    async def scene() -> list[str]:
        turns, done = AsyncRwLock(patience_s=0), list[str]()
        release = {name: asyncio.Event() for name in ("long", "early", "late")}

        async def share(name: str) -> None:
            async with turns.shared():
                done.append(f"{name} begins")
                await release[name].wait()

        async def alone() -> None:
            async with turns.alone():
                done.append("alone")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(share("long"))
            await nothing_else_happens()
            tasks.create_task(alone())
            await nothing_else_happens()
            tasks.create_task(share("early"))
            await nothing_else_happens()
            assert done == ["long begins", "early begins"]
            release["long"].set()
            await nothing_else_happens()
            tasks.create_task(share("late"))
            await nothing_else_happens()
            assert done == ["long begins", "early begins"], "the long turn has ended"
            for item in release.values():
                item.set()
        return done

    assert asyncio.run(scene())[2:] == ["alone", "late begins"]


def test_idle_waits_for_all_who_act() -> None:
    async def scene() -> None:
        turns, release = AsyncRwLock(), asyncio.Event()

        async def share() -> None:
            async with turns.shared():
                await release.wait()

        sharing = asyncio.create_task(share())
        await nothing_else_happens()
        idle = asyncio.create_task(turns.idle())
        await nothing_else_happens()
        assert not idle.done()
        release.set()
        await idle
        await sharing

    asyncio.run(scene())


def test_one_who_gives_up_waiting_to_be_alone_blocks_nobody() -> None:
    async def scene() -> None:
        turns = AsyncRwLock()

        async def alone() -> None:
            async with turns.alone():
                raise AssertionError("never its turn")

        async with turns.shared():
            waiting = asyncio.create_task(alone())
            await nothing_else_happens()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            async with turns.shared():
                pass

    asyncio.run(scene())
