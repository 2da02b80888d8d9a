"""Moves of tables: planned so that the load is even, and carried out by the owners."""

from unittest import mock
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import TABLE, Gate, add, create, proposal
from tests.support.registry import table_record
from tidegate_messages.published_records import TableRecord
from tidegate_messages.table_home import partition_of
from tidegate_messages.topics import Topics
from tidegate_producers.writing import table_moves
from tidegate_producers.writing.table_moves import RECENT_S, Move, balanced, recent_rates
from tidegate_runtime.kafka.client_protocols import TopicPartition

PARTITIONS = 3
Rates = list[tuple[int, float]]
"""The partition and the rate of each table."""

rates = st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0.0, 0.1, 1.0, 2.5, 7.0, 100.0])))


def registered(given_rates: Rates) -> tuple[list[TableRecord], dict[UUID, float]]:
    tables = [
        table_record(topic_partition=number).model_copy(update={"table": UUID(int=1 + index)})
        for index, (number, _) in enumerate(given_rates)
    ]
    return tables, {
        table.table: rate for table, (_, rate) in zip(tables, given_rates, strict=True) if rate
    }


def loads(given_rates: Rates, moves: list[Move]) -> list[float]:
    tables, of_table = registered(given_rates)
    homes = {table.table: table.topic_partition for table in tables}
    homes |= {move.table.table: move.to for move in moves}
    result = [0.0] * PARTITIONS
    for table, number in homes.items():
        result[number] += of_table.get(table, 0.0)
    return result


@given(rates)
def test_moves_make_the_busiest_partition_no_busier_and_move_no_table_twice(
    given_rates: Rates,
) -> None:
    moves = balanced(*registered(given_rates), PARTITIONS)
    assert max(loads(given_rates, moves)) <= max(loads(given_rates, [])) + 1e-9
    assert len({move.table.table for move in moves}) == len(moves)
    assert all(move.rate > 0 for move in moves), "an idle table stays"
    assert all(move.to != move.table.topic_partition for move in moves)


def test_a_partition_that_was_added_gets_its_share() -> None:
    given_rates = [(number % 2, 1.0) for number in range(12)]
    moves = balanced(*registered(given_rates), PARTITIONS)
    assert loads(given_rates, moves) == [4.0, 4.0, 4.0]
    assert len(moves) == 4


def test_one_busy_table_alone_is_not_moved_to_and_fro() -> None:
    assert balanced(*registered([(0, 50.0)]), PARTITIONS) == []
    [move] = balanced(*registered([(0, 50.0), (0, 50.0)]), 2)
    assert move.to == 1


def test_the_rate_of_a_table_is_that_of_its_versions_of_late() -> None:
    topics = Topics(partitions=2)
    assert partition_of(TABLE, 2) == 0
    gate = Gate(topics=topics)
    gate.settle()
    for step in (create(), *(proposal(add(name)) for name in "abc")):
        gate.send(step)
        gate.settle()
    now_ms = gate.clock.now_ms()
    assert recent_rates(gate.bus, topics, now_ms) == {TABLE: 4 / RECENT_S}
    assert recent_rates(gate.bus, topics, now_ms + 2_000 * int(RECENT_S)) == {}
    last = gate.records(topics.commits)[-1]
    gate.bus.append(TopicPartition(topics.commits, 1), last.key, last.value, last.headers)
    after_a_move = recent_rates(gate.bus, topics, now_ms)
    assert after_a_move == {TABLE: pytest.approx(5 / RECENT_S)}


def test_where_there_are_too_many_records_the_rate_is_that_of_the_newest() -> None:
    topics = Topics(partitions=1)
    gate = Gate(topics=topics)
    gate.settle()
    for step in (create(), proposal(add("a")), proposal(add("b"))):
        gate.send(step)
        gate.settle()
    stamps = [record.timestamp_ms for record in gate.records(topics.commits)]
    now_ms = stamps[-1] + 4_000
    with mock.patch.object(table_moves, "READ_MAX", 2):
        rates = recent_rates(gate.bus, topics, now_ms)
    assert rates == {TABLE: 2 / ((now_ms - stamps[-2]) / 1_000)}
