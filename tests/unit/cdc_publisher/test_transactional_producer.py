"""The transactional producer without any broker."""

from collections import defaultdict
from concurrent.futures import Future
from unittest import mock
from uuid import UUID

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError
from confluent_kafka.admin import AdminClient

from tidegate_cdc_publisher import transactional_producer
from tidegate_cdc_publisher.transactional_producer import ChangeWriter, read_positions
from tidegate_delta.errors import Misconfigured, Unavailable
from tidegate_runtime.kafka.librdkafka import LibraryLog
from tidegate_runtime.kafka.settings import KafkaSettings

MISSPELT = KafkaSettings(client={"socket.keepalive.enabel": "true"})


def test_an_unknown_setting_of_the_library_is_a_misconfiguration_of_the_writer() -> None:
    writer = ChangeWriter(MISSPELT, UUID(int=1), timeout_ms=1000)
    with pytest.raises(Misconfigured, match=r"correct `kafka\.client`"):
        writer.take_over()


def test_an_unknown_setting_of_the_library_is_a_misconfiguration_of_the_reader() -> None:
    with pytest.raises(Misconfigured, match=r"correct `kafka\.client`"):
        read_positions(MISSPELT, timeout_s=1.0)


def test_a_transaction_may_be_shorter_than_a_request_of_other_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transactional_producer, "_WAIT_S", 0.1)
    settings = KafkaSettings(bootstrap_servers="127.0.0.1:1", client={"log_level": "0"})
    with pytest.raises(Unavailable):
        ChangeWriter(settings, UUID(int=1), timeout_ms=2_000).take_over()


def test_brokers_that_do_not_answer_in_time_are_away_and_no_fault_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def silent(*_: object, **__: object) -> None:
        raise TimeoutError

    # The library's admin client raises TimeoutError when its own timeout and ours end together.
    monkeypatch.setattr(AdminClient, "list_topics", silent)
    with pytest.raises(Unavailable, match=r"kafka\.bootstrap_servers"):
        read_positions(KafkaSettings(client={"log_level": "0"}), timeout_s=1.0)


def test_positions_whose_end_is_unknown_are_not_taken_for_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Between two leaders the library gives no offset, and no error either. A publisher that took
    # the topic for empty would publish everything again.
    positions = mock.Mock(error=None, partitions=[0])
    metadata = mock.Mock(topics=defaultdict(lambda: positions))
    monkeypatch.setattr(AdminClient, "list_topics", lambda *_, **__: metadata)
    answer = Future[mock.Mock]()
    answer.set_result(mock.Mock(offset=OFFSET_INVALID))
    monkeypatch.setattr(
        AdminClient, "list_offsets", lambda _, specs, **__: dict.fromkeys(specs, answer)
    )
    with pytest.raises(Unavailable):
        read_positions(KafkaSettings(client={"log_level": "0"}), timeout_s=1.0)


def test_unavailable_brokers_are_logged_once_for_the_clients_of_all_tables(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transactional_producer, "LIBRARY", LibraryLog())
    for _ in range(50):
        transactional_producer._note(
            KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
        )
    [line] = caplog.records
    assert "1/1 brokers are down" in line.getMessage()
