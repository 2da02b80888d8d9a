"""Faults outside the processes: sessions, offsets, topics, clocks, and operators' actions."""

from typing import Final

from tests import builders
from tests.simulation.run_state import Stage
from tests.simulation.tables import TABLES, Table
from tidegate_runtime.kafka.client_protocols import Offset, TopicPartition

DAY_S: Final = 24 * 60 * 60.0
STALE_COUNT_S: Final = 20.0
"""How long some clients see the old number of partitions after one was added."""

SKEW_MS_MAX: Final = 4 * 3_600_000
"""The largest clock error; the age limits of the protocol tolerate a day of it."""


def kill(stage: Stage) -> None:
    """Kill a process between two steps."""
    process = stage.dice.choice(stage.processes)
    if not process.is_running:
        process.end()


def stop(stage: Stage) -> None:
    """Stop a process, whatever it has under way."""
    stage.stop(stage.dice.choice(stage.processes))


def drop_offsets(stage: Stage) -> None:
    """Let the group's offsets expire."""
    stage.bus.drop_offsets(f"{stage.topics.prefix}committer")


def rewind_offsets(stage: Stage) -> None:
    """Restore the group's offsets from an older copy."""
    for number in range(stage.bus.partitions(stage.topics.proposals)):
        at = TopicPartition(stage.topics.proposals, number)
        back = Offset(stage.dice.randint(0, len(stage.bus.logs[at])))
        stage.bus.rewind(f"{stage.topics.prefix}committer", at, back)
        requests = TopicPartition(stage.topics.admin, number)
        stage.bus.rewind(f"{stage.topics.prefix}committer", requests, Offset(0))


def rewind_registry(stage: Stage) -> None:
    """Restore the registry from a copy; its last records are lost."""
    stage.registry_is_lost = True
    for number in range(stage.topics.partitions):
        at = TopicPartition(stage.topics.table_state, number)
        records = stage.bus.logs[at]
        if records:
            older = stage.dice.choice(records)
            stage.bus.append(at, older.key, older.value)


def lose_registry(stage: Stage) -> None:
    """Lose the registry; the operator registers the existing tables again."""
    stage.registry_is_lost = True
    _make_again(stage, stage.topics.table_state)
    _register_all(stage)


def lose_outcomes(stage: Stage) -> None:
    """Lose the outcomes; writers without one send their proposals again."""
    _make_again(stage, stage.topics.outcomes)


def lose_commits(stage: Stage) -> None:
    """Lose the commit records; followers read the logs instead."""
    _make_again(stage, stage.topics.commits)


def recreate_proposals(stage: Stage) -> None:
    """Recreate the proposals topic while no committer is in the group.

    Its records are gone; the operator sends the registrations again, as they may have been among
    them.
    """
    for member in list(stage.members):
        stage.expel(member)
    _make_again(stage, stage.topics.proposals)
    _register_all(stage)


def add_partition(stage: Stage) -> None:
    """Add a partition to each topic; tables stay where they are registered.

    Not every committer sees it at once.
    """
    topics = stage.topics
    stage.weather.spells["stale_count"] = stage.clock.boot + STALE_COUNT_S
    beside = (topics.outcomes, topics.commits, topics.table_state, topics.admin)
    for topic in (topics.proposals, *beside):
        stage.bus.add_partition(topic)


def misdirect(stage: Stage) -> None:
    """Send a past proposal to another topic partition, as by a wrong partition count."""
    table, one = stage.dice.choice(stage.past)
    stage.produce(table.id, builders.value_of(one), elsewhere=stage.dice.randint(1, 2))


def make_twice(stage: Stage) -> None:
    """Create a table on all topic partitions at once, in any order."""
    table = stage.dice.choice(TABLES)
    opening = builders.value_of(table.opening(stage.new_id()))
    count = stage.bus.partitions(stage.topics.proposals)
    for number in stage.dice.sample(range(count), count):
        stage.produce(table.id, opening, elsewhere=number)


def clock_steps(stage: Stage) -> None:
    """Let wall time jump, forwards or backwards."""
    step_ms = stage.dice.choice((-3_600_000, -5_000, 5_000, 3_600_000))
    stage.clock.skew_ms = max(-SKEW_MS_MAX, min(SKEW_MS_MAX, stage.clock.skew_ms + step_ms))


def long_wait(stage: Stage) -> None:
    """Let time pass without events."""
    stage.clock.boot += stage.dice.choice((30.0, 200.0, 700.0, 4 * DAY_S))


def _make_again(stage: Stage, topic: str) -> None:
    stage.bus.create_topic(topic, stage.bus.partitions(topic))


def register_missing(stage: Stage) -> None:
    """Register the tables that the registry lacks; a first attempt may have been refused."""
    stage.look()
    for table in TABLES:
        known = stage.history.registry.get(table.root)
        if known is None or known["status"] == "staged":
            _register(stage, table)


def _register_all(stage: Stage) -> None:
    for table in TABLES:
        _register(stage, table)


def _register(stage: Stage, table: Table) -> None:
    stage.look()
    if stage.log(table).head < 0:
        stage.send(table, table.opening(stage.new_id()))
        return
    result = {"proposal_id": stage.new_id(), "table": table.id, "table_root": table.root}
    stage.send(table, builders.proposal(kind="register", read_version=0, **result))
