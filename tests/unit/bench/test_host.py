"""CPU time that the hypervisor withheld (steal), from the kernel's counters."""

import pytest

from bench.host import CpuTime

BEFORE = "cpu  100 10 50 1000 40 0 20 30 5 5\ncpu0 50 5 25 500 20 0 10 15 2 2\n"
AFTER = "cpu  160 10 70 9000 90 0 20 50 5 5\n"


def test_the_share_of_the_host_is_of_what_was_wanted_not_of_idle_time() -> None:
    before, after = CpuTime.of(BEFORE), CpuTime.of(AFTER)
    assert before.wanted == 210
    assert after.stolen_since(before) == pytest.approx(20 / 100)


def test_time_of_guests_is_not_counted_twice() -> None:
    assert CpuTime.of("cpu 1 0 0 0 0 0 0 0 7 7").wanted == 1


def test_no_time_at_all_is_no_share() -> None:
    now = CpuTime.of(BEFORE)
    assert now.stolen_since(now) == 0.0
