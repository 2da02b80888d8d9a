"""librdkafka's warnings in our log, one a minute of each kind."""

import logging

import pytest

from tidegate_runtime.kafka.librdkafka import LibraryLog
from tidegate_runtime.observability.logs import QUIET_S

REFUSED = ("FAIL", "client#1", "Connect to 127.0.0.1:9092 failed: Connection refused")


class Times:
    """A clock that a test sets."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_one_of_a_kind_is_logged_and_the_next_counts_those_suppressed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    times = Times()
    library = LibraryLog(times)
    for _ in range(5):
        library.log(logging.ERROR, "%s [%s] %s", *REFUSED)
    library.log(logging.WARNING, "%s [%s] %s", "ERROR", "client#1", "1/1 brokers are down")
    assert len(messages(caplog)) == 2
    assert "Connection refused" in messages(caplog)[0]
    times.now_s += QUIET_S
    library.log(logging.ERROR, "%s [%s] %s", *REFUSED)
    assert messages(caplog)[2].endswith("held_back=4")
    library.log(logging.ERROR, "%s [%s] %s", *REFUSED)
    assert len(messages(caplog)) == 3


def test_nothing_of_the_librarys_is_more_than_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    LibraryLog(Times()).log(logging.CRITICAL, "%s [%s] %s", *REFUSED)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
