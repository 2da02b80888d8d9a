"""The publisher while brokers restart and end its transactions: it repeats and loses nothing."""

import os
import random
import signal
import time
from pathlib import Path

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # public

from tests.integration.changing_table import changing
from tests.integration.conftest import Line
from tests.integration.test_cdc_publisher import (
    PATIENCE_S,
    check_stream,
    check_transactions,
    made,
    publisher,
    wait_for_progress,
    wait_published,
)
from tests.integration.waiting import until
from tests.unit.cdc_publisher.written_table import rows
from tidegate_local.embedded_kafka import EmbeddedKafka

pytestmark = [pytest.mark.broker, pytest.mark.nightly, pytest.mark.timeout(400)]

RESTARTS = 5


def is_suspended(pid: int) -> bool:
    """Return whether the system has stopped a process."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def end(line: Line, topic: str, committed: bool) -> int:
    """Return where partition 0 ends: for readers of committed records, or of all."""
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    admin = AdminClient({"bootstrap.servers": line.kafka.bootstrap_servers})
    asked = {TopicPartition(topic, 0): OffsetSpec.latest()}  # type: ignore[no-untyped-call]  # no annotations
    (answer,) = admin.list_offsets(asked, isolation_level=level).values()
    return int(answer.result(PATIENCE_S).offset)


def test_brokers_that_restart_under_load_make_it_repeat_and_lose_nothing(
    fragile: EmbeddedKafka, fragile_line: Line
) -> None:
    line, dice = fragile_line, random.Random(17)
    table = made(line)
    table.append(rows(*range(500)))
    service = publisher(line, provide_transaction_metadata="true")
    service.start()
    with changing(table, dice, line):
        for _ in range(RESTARTS):
            wait_for_progress(line, table)
            time.sleep(dice.random())
            fragile.kill()
            fragile.start()
    wait_published(line, table)
    check_transactions(line, check_stream(line, table))
    assert service.child.is_alive(), service.child.tail()


@pytest.mark.parametrize("point", ["publisher.in_transaction", "publisher.before_commit"])
def test_a_transaction_that_the_brokers_end_is_published_again(line: Line, point: str) -> None:
    table = made(line)
    table.append(rows(*range(70)))
    service = publisher(line, failpoint=f"suspend:{point}:2", provide_transaction_metadata="true")
    service.start()
    until(lambda: is_suspended(service.child.pid), f"{point}, for the second time")

    # The brokers end it once its five seconds are over, and look for such every ten seconds.
    topic = line.kafka.topics.changes("t")
    until(lambda: end(line, topic, True) == end(line, topic, False), "its end")
    table.append(rows(*range(100, 130)))
    os.kill(service.child.pid, signal.SIGCONT)
    wait_published(line, table)
    check_transactions(line, check_stream(line, table))
    assert service.child.is_alive(), service.child.tail()
