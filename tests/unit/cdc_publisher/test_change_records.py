"""Sending one chunk while the next is prepared, in order."""

import threading
from functools import partial

import pytest

from tidegate_cdc_publisher.change_records import SendThread
from tidegate_delta.errors import Fenced


def test_what_is_handed_over_is_sent_while_the_caller_goes_on() -> None:
    sending, go_on, sent = SendThread(), threading.Event(), list[str]()

    def send() -> None:
        assert go_on.wait(30), "the caller waited for it"
        sent.append("sent")

    sending.hand_over(send)
    assert sent == []
    go_on.set()
    sending.wait()
    assert sent == ["sent"]


def test_all_is_sent_in_order_and_one_at_a_time() -> None:
    sending, sent = SendThread(), list[int]()
    for number in range(20):
        sending.hand_over(partial(sent.append, number))
        assert sent[:number] == list(range(number))
    sending.wait()
    assert sent == list(range(20))


def test_after_a_failure_nothing_more_is_sent() -> None:
    sending, sent = SendThread(), list[str]()

    def fail() -> None:
        raise Fenced("another has the table")

    sending.hand_over(fail)
    with pytest.raises(Fenced):
        sending.hand_over(lambda: sent.append("sent"))
    with pytest.raises(Fenced):
        sending.hand_over(lambda: sent.append("sent"))
    with pytest.raises(Fenced):
        sending.wait()
    assert sent == []
