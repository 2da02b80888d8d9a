"""The transactional door before any broker is asked."""

from uuid import UUID

import pytest

from tidegate.cdc_publisher.transactions import ChangeWriter, read_positions
from tidegate.delta.errors import Misconfigured
from tidegate.runtime.kafka_settings import KafkaSettings

MISSPELT = KafkaSettings(client={"socket.keepalive.enabel": "true"})


def test_a_misspelt_setting_of_the_library_is_a_misconfiguration_of_whoever_writes() -> None:
    writer = ChangeWriter(MISSPELT, UUID(int=1), timeout_ms=1000)
    with pytest.raises(Misconfigured, match=r"correct `kafka\.client`"):
        writer.take_over()


def test_a_misspelt_setting_of_the_library_is_a_misconfiguration_of_whoever_reads() -> None:
    with pytest.raises(Misconfigured, match=r"correct `kafka\.client`"):
        read_positions(MISSPELT, timeout_s=1.0, until="settled")
