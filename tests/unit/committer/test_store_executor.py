"""Calls of stores in threads: PUTs that are pending, and the loop that waits for one of them."""

import threading
import time
from collections.abc import Callable

import pytest

from tests.builders import ROOT
from tidegate_committer.__main__ import PUTS_MAX
from tidegate_committer.loop.entry_put import PutResult
from tidegate_committer.loop.pending_commits import DECISION_AGE_MAX_S, turn_behind
from tidegate_committer.store_executor import YIELD_SHARE, InlineExecutor, StoreThreads
from tidegate_delta.errors import OutcomeUnknown
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.storage.log_store import Put, Turn

WON = PutResult(Put.WON, 0.03)


def test_a_put_at_once_has_landed_when_it_is_returned() -> None:
    flight = InlineExecutor().begin(ROOT, lambda: WON)
    assert flight.done()
    assert flight.result() == WON


def test_a_put_in_a_thread_flies_until_its_store_answers() -> None:
    puts, answers = StoreThreads(PUTS_MAX, "put"), threading.Event()

    def work() -> PutResult:
        answers.wait()
        return WON

    flight = puts.begin(ROOT, work)
    assert not flight.done()
    answers.set()
    puts.wait(30.0)
    assert flight.result() == WON
    puts.close()


def test_who_was_waiting_for_a_put_that_has_landed_is_left_alone_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    puts, answers = StoreThreads(PUTS_MAX, "put"), threading.Event()

    def work() -> PutResult:
        answers.wait()
        return WON

    def follow() -> PutResult:
        return first.result()

    alone = puts.begin(ROOT, lambda: WON)
    alone.result()
    puts.wait(30.0)
    assert slept == [], "nobody was waiting"
    first = puts.begin(ROOT, work)
    second = puts.begin(ROOT, follow, first)
    answers.set()
    second.result()
    for _ in range(2):
        puts.wait(0.2)
    assert slept == [YIELD_SHARE * 0.2]
    puts.close()


def test_who_waits_for_his_turn_keeps_no_thread_from_others() -> None:
    puts, clock, answers = StoreThreads(PUTS_MAX, "put"), SystemClock(), threading.Event()

    def work() -> PutResult:
        answers.wait()
        return WON

    def behind(turn: Turn) -> Callable[[], PutResult]:
        return lambda: PutResult(Put.WON if turn() else Put.WITHHELD, 0.0)

    for _ in range(PUTS_MAX // 2):
        before = puts.begin(ROOT, work)
        turn = turn_behind(before, clock.boot_s() - DECISION_AGE_MAX_S + 0.1, clock)
        puts.begin(ROOT, behind(turn), before)
    other = puts.begin(ROOT, lambda: WON)
    try:
        assert other.result(30.0) == WON
    finally:
        answers.set()
        puts.close()


def test_an_error_of_a_put_is_raised_where_its_result_is_read() -> None:
    puts = StoreThreads(PUTS_MAX, "put")

    def work() -> PutResult:
        raise OutcomeUnknown("no answer")

    flight = puts.begin(ROOT, work)
    with pytest.raises(OutcomeUnknown):
        flight.result()
    puts.close()
