"""How long a group of proposals waits for more members."""

import pytest

from tidegate_committer.loop.table_committer import (
    LINGER_GROWTH_MAX,
    QUIET_SHARE,
    STREAM_SHARE,
    AdaptiveLinger,
)


def test_a_lone_writer_waits_for_nobody() -> None:
    linger = AdaptiveLinger()
    for _ in range(3):
        linger.landed(0.03, 1, 0)
    assert linger.lingers_until_s(1, 100.0, 0.5) == 0.0


def test_those_who_were_told_a_moment_ago_are_waited_for() -> None:
    linger = AdaptiveLinger()
    linger.landed(0.03, 32, 0)
    linger.landed(0.05, 32, 32)
    linger.published_s = 100.0
    assert linger.lingers_until_s(40, 99.0, 0.5) == pytest.approx(100.0 + QUIET_SHARE * 0.04)
    assert linger.lingers_until_s(40, 100.001, 0.5) == pytest.approx(100.001 + QUIET_SHARE * 0.04)


def test_few_who_came_early_wait_for_the_many_who_are_still_out() -> None:
    linger = AdaptiveLinger()
    linger.landed(0.04, 64, 0)
    linger.published_s = 100.0
    half = linger.lingers_until_s(32, 100.0, 0.5)
    assert half == pytest.approx(100.0 + QUIET_SHARE * 0.04)
    assert half < linger.lingers_until_s(20, 100.0, 0.5) < linger.lingers_until_s(19, 100.0, 0.5)
    assert linger.lingers_until_s(30, 100.019, 0.5) < linger.lingers_until_s(29, 100.019, 0.5)
    assert linger.lingers_until_s(1, 100.0, 0.5) == pytest.approx(100.0 + LINGER_GROWTH_MAX * 0.02)


def test_company_is_waited_for_no_longer_than_a_share_of_a_put() -> None:
    linger = AdaptiveLinger()
    linger.landed(0.04, 32, 32)
    linger.published_s = 100.0
    assert linger.lingers_until_s(40, 100.018, 0.5) == pytest.approx(100.02)
    assert linger.lingers_until_s(40, 100.0, 0.0) == pytest.approx(100.0)
    assert linger.lingers_until_s(1, 100.0, 0.0) == pytest.approx(100.0)


def test_a_stream_of_arrivals_is_let_in_a_little_longer() -> None:
    linger = AdaptiveLinger()
    linger.landed(0.04, 64, 0)
    linger.published_s = 100.0
    assert linger.lingers_until_s(40, 100.025, 0.5) == pytest.approx(100.025 + STREAM_SHARE * 0.04)
    longest = pytest.approx(100.02 + QUIET_SHARE * 0.04)
    assert linger.lingers_until_s(63, 100.041, 0.5) == longest
    assert linger.lingers_until_s(63, 100.041, 0.0) == pytest.approx(100.0)


def test_nobody_is_waited_for_once_all_are_back() -> None:
    linger = AdaptiveLinger()
    linger.landed(0.03, 32, 32)
    linger.published_s = 100.0
    assert linger.lingers_until_s(64, 100.0, 0.5) == 0.0


def test_a_table_without_a_put_so_far_keeps_nobody_waiting() -> None:
    assert AdaptiveLinger().lingers_until_s(5, 100.0, 0.5) == 0.0
