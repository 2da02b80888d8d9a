"""Pending PUTs, and how long a committer waits for more group members."""

import threading
import time

import pytest

from tests.builders import ROOT
from tidegate_committer.loop.pending_commits import DECISION_AGE_MAX_S, turn_behind
from tidegate_committer.put_executor import (
    LINGER_GROWTH_MAX,
    PUTS_MAX,
    QUIET_SHARE,
    STREAM_SHARE,
    YIELD_SHARE,
    AdaptiveLinger,
    PutCall,
    PutResult,
    PutsInline,
    PutsInThreads,
)
from tidegate_delta.errors import OutcomeUnknown
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.storage.log_store import Put, Turn

WON = PutResult(Put.WON, 0.03)


def test_a_put_at_once_has_landed_when_it_is_returned() -> None:
    flight = PutsInline().start(ROOT, lambda: WON)
    assert flight.done()
    assert flight.result() == WON


def test_a_put_in_a_thread_flies_until_its_store_answers() -> None:
    puts, answers = PutsInThreads(), threading.Event()

    def work() -> PutResult:
        answers.wait()
        return WON

    flight = puts.start(ROOT, work)
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
    puts, answers = PutsInThreads(), threading.Event()

    def work() -> PutResult:
        answers.wait()
        return WON

    def follow() -> PutResult:
        return first.result()

    alone = puts.start(ROOT, lambda: WON)
    alone.result()
    puts.wait(30.0)
    assert slept == [], "nobody was waiting"
    first = puts.start(ROOT, work)
    second = puts.start(ROOT, follow, first)
    answers.set()
    second.result()
    for _ in range(2):
        puts.wait(0.2)
    assert slept == [YIELD_SHARE * 0.2]
    puts.close()


def test_who_waits_for_his_turn_keeps_no_thread_from_others() -> None:
    puts, clock, answers = PutsInThreads(), SystemClock(), threading.Event()

    def work() -> PutResult:
        answers.wait()
        return WON

    def behind(turn: Turn) -> PutCall:
        return lambda: PutResult(Put.WON if turn() else Put.WITHHELD, 0.0)

    for _ in range(PUTS_MAX // 2):
        before = puts.start(ROOT, work)
        turn = turn_behind(before, clock.boot_s() - DECISION_AGE_MAX_S + 0.1, clock)
        puts.start(ROOT, behind(turn), before)
    other = puts.start(ROOT, lambda: WON)
    try:
        assert other.result(30.0) == WON
    finally:
        answers.set()
        puts.close()


def test_what_a_put_raises_is_raised_where_it_is_asked_for() -> None:
    puts = PutsInThreads()

    def work() -> PutResult:
        raise OutcomeUnknown("no answer")

    flight = puts.start(ROOT, work)
    with pytest.raises(OutcomeUnknown):
        flight.result()
    puts.close()


def test_a_lone_writer_waits_for_nobody() -> None:
    pace = AdaptiveLinger()
    for _ in range(3):
        pace.landed(0.03, 1, 0)
    assert pace.lingers_until_s(1, 100.0, 0.5) == 0.0


def test_those_who_were_told_a_moment_ago_are_waited_for() -> None:
    pace = AdaptiveLinger()
    pace.landed(0.03, 32, 0)
    pace.landed(0.05, 32, 32)
    pace.told_s = 100.0
    assert pace.lingers_until_s(40, 99.0, 0.5) == pytest.approx(100.0 + QUIET_SHARE * 0.04)
    assert pace.lingers_until_s(40, 100.001, 0.5) == pytest.approx(100.001 + QUIET_SHARE * 0.04)


def test_few_who_came_early_wait_for_the_many_who_are_still_out() -> None:
    pace = AdaptiveLinger()
    pace.landed(0.04, 64, 0)
    pace.told_s = 100.0
    half = pace.lingers_until_s(32, 100.0, 0.5)
    assert half == pytest.approx(100.0 + QUIET_SHARE * 0.04)
    assert half < pace.lingers_until_s(20, 100.0, 0.5) < pace.lingers_until_s(19, 100.0, 0.5)
    assert pace.lingers_until_s(30, 100.019, 0.5) < pace.lingers_until_s(29, 100.019, 0.5)
    assert pace.lingers_until_s(1, 100.0, 0.5) == pytest.approx(100.0 + LINGER_GROWTH_MAX * 0.02)


def test_company_is_waited_for_no_longer_than_a_share_of_a_put() -> None:
    pace = AdaptiveLinger()
    pace.landed(0.04, 32, 32)
    pace.told_s = 100.0
    assert pace.lingers_until_s(40, 100.018, 0.5) == pytest.approx(100.02)
    assert pace.lingers_until_s(40, 100.0, 0.0) == pytest.approx(100.0)
    assert pace.lingers_until_s(1, 100.0, 0.0) == pytest.approx(100.0)


def test_a_stream_of_arrivals_is_let_in_a_little_longer() -> None:
    pace = AdaptiveLinger()
    pace.landed(0.04, 64, 0)
    pace.told_s = 100.0
    assert pace.lingers_until_s(40, 100.025, 0.5) == pytest.approx(100.025 + STREAM_SHARE * 0.04)
    longest = pytest.approx(100.02 + QUIET_SHARE * 0.04)
    assert pace.lingers_until_s(63, 100.041, 0.5) == longest
    assert pace.lingers_until_s(63, 100.041, 0.0) == pytest.approx(100.0)


def test_nobody_is_waited_for_once_all_are_back() -> None:
    pace = AdaptiveLinger()
    pace.landed(0.03, 32, 32)
    pace.told_s = 100.0
    assert pace.lingers_until_s(64, 100.0, 0.5) == 0.0


def test_a_table_without_a_put_so_far_keeps_nobody_waiting() -> None:
    assert AdaptiveLinger().lingers_until_s(5, 100.0, 0.5) == 0.0
