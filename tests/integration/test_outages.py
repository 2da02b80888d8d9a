"""The broker, then the store, is down for a while under load: writers wait, nothing is lost."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.integration.conftest import Line
from tests.integration.proposers import all_outcomes, append_with, create_table
from tests.integration.test_committer_processes import (
    WAIT_S,
    check_all,
    check_offsets_are_safe,
    folder_of,
)
from tests.integration.waiting import until
from tidegate_delta.errors import Misconfigured, Unavailable
from tidegate_local.embedded_kafka import EmbeddedKafka
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

WRITERS = 3
ROWS = 12
AWAY_S = 5.0
"""Longer than a session, so that the group drops its members."""


@contextmanager
def suspended(pid: int) -> Iterator[None]:
    """Suspend a process, so that it sees what happens meanwhile as one step."""
    os.kill(pid, signal.SIGSTOP)
    yield
    os.kill(pid, signal.SIGCONT)


def test_a_broker_that_is_killed_and_stays_away_loses_and_doubles_nothing(
    fragile: EmbeddedKafka, fragile_line: Line
) -> None:
    line = fragile_line
    committer = line.started("committer")
    table = create_table(line.kafka, line.tables / "t")
    proposers = append_with(line.kafka, table, WRITERS, ROWS)
    until(lambda: all(proposer.outcomes for proposer in proposers), "the first outcome of each")
    fragile.kill()
    time.sleep(AWAY_S)
    fragile.start()
    for proposer in proposers:
        proposer.join(WAIT_S)
    assert committer.child.is_alive(), "it starts over, from the logs"
    check_all(line, table, proposers)
    check_offsets_are_safe(line)


def test_a_question_while_the_broker_is_away_is_answered_when_it_is_back(
    fragile: EmbeddedKafka, fragile_line: Line
) -> None:
    kafka = fragile_line.kafka
    bus = KafkaBus(kafka, "test")
    reader, at = bus.reader(), TopicPartition(kafka.topics.outcomes, 0)
    assert reader.bounds(at) == (0, 0)
    fragile.kill()
    with ThreadPoolExecutor() as pool:
        asked = (
            pool.submit(reader.bounds, at, WAIT_S),
            pool.submit(bus.partitions, at.topic, WAIT_S),
        )
        time.sleep(1.0)
        assert not any(one.done() for one in asked)
        with pytest.raises(Unavailable):
            bus.reader().bounds(at, 0.5)
        fragile.start()
        assert [item.result(WAIT_S) for item in asked] == [(0, 0), 1]
    with pytest.raises(Misconfigured, match="tidegate topics apply"):
        reader.bounds(TopicPartition("no-such-topic", 0))


def test_a_store_that_takes_nothing_for_a_while_holds_up_its_table_only(line: Line) -> None:
    committer = line.started("committer")
    table, other = (create_table(line.kafka, line.tables / name) for name in ("t", "u"))
    log = folder_of(table) / "_delta_log"
    aside = log.with_name("_delta_log.away")
    proposers = append_with(line.kafka, table, WRITERS, ROWS)
    until(lambda: all(proposer.outcomes for proposer in proposers), "the first outcome of each")
    with suspended(committer.child.pid):
        # A file in place of the folder fails reads and writes below it, even for root.
        log.rename(aside)
        log.write_text("the disk is away")
    before = len(all_outcomes(proposers))
    others = append_with(line.kafka, other, 1, 3)
    for proposer in others:
        proposer.join(WAIT_S)
    assert len(all_outcomes(proposers)) <= before + WRITERS
    with suspended(committer.child.pid):
        log.unlink()
        aside.rename(log)
    for proposer in proposers:
        proposer.join(WAIT_S)
    assert committer.child.is_alive()
    check_all(line, table, proposers)
    check_offsets_are_safe(line)
