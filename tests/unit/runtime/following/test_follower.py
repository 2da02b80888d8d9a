"""A follower without brokers: what its stop waits for."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from faust import App
from mode.threads import ServiceThread

from tidegate.delta.errors import Unavailable
from tidegate.pipeline.published import CommitRecord
from tidegate.runtime.bus import TopicPartition
from tidegate.runtime.clock import SystemClock
from tidegate.runtime.following import follower
from tidegate.runtime.following.faust_app import LooseThread, app_settings
from tidegate.runtime.following.follower import run_follower
from tidegate.runtime.health import Health
from tidegate.runtime.kafka.settings import KafkaSettings
from tidegate.runtime.service import Running
from tidegate.runtime.settings import ServiceSettings

WAIT_S = 20.0


class Hanging:
    """Looks at a store that does not answer."""

    name = "hanging"
    look_s = 30.0

    def __init__(self) -> None:
        self.looks = threading.Event()
        self.answer = threading.Event()

    def notice(self, record: CommitRecord) -> None:
        """Hear nothing: there are no brokers."""

    def look(self) -> None:
        """Wait for the answer."""
        self.looks.set()
        self.answer.wait(WAIT_S)


def test_a_stop_waits_for_a_store_that_hangs_no_longer_than_for_what_may_still_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follower, "SETTLE_TIMEOUT_S", 0.1)
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


def test_brokers_that_are_away_for_long_are_looked_for_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: list[dict[TopicPartition, int] | None] = [{}, None, None, {}, None, None]

    class Steps(SystemClock):
        now_s = 0.0

        def boot_s(self) -> float:
            """Go on by a third of what they may be away."""
            self.now_s += follower.AWAY_S / 3
            return self.now_s

    async def ends(_: object) -> dict[TopicPartition, int] | None:
        return answers.pop(0) if answers else None

    monkeypatch.setattr(follower, "LEFT_BEHIND_S", 0.0)
    monkeypatch.setattr(follower, "ends", ends)
    clock = Steps()
    running = Running(clock, Health(clock))

    async def scene() -> None:
        with ThreadPoolExecutor() as pool:
            one = follower._Follower(Hanging(), ServiceSettings(), running, pool)
            one._joined.set()
            async with asyncio.timeout(WAIT_S):
                await one._insist(App("follower"))

    with pytest.raises(Unavailable, match="connects anew"):
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
    thread = LooseThread(service)
    thread.start()
    thread.join(WAIT_S)
    assert service.has_ended


def test_what_a_thread_of_fausts_ends_over_is_not_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    service = ServiceThread.__new__(ServiceThread)
    LooseThread(service)
    service.on_crash("{0!r} crashed: {1!r}", "the consumer", OSError("the brokers are away"))
    assert capsys.readouterr().err == ""


def test_a_coordinator_that_hangs_is_given_up_within_seconds_and_no_rebalance_before(
    tmp_path: Path,
) -> None:
    for session_ms in (1_000, 6_000, 45_000):
        told = app_settings("f", KafkaSettings(session_timeout_ms=session_ms), tmp_path)
        rebalance_s, request_s = told["broker_rebalance_timeout"], told["broker_request_timeout"]
        assert rebalance_s < request_s <= rebalance_s + 5.0
