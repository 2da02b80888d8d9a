"""What goes wrong outside the processes: sessions, offsets, topics, clocks, and the operator."""

from typing import Final

from tests import builders
from tests.simulation.stage import Stage
from tests.simulation.tables import TABLES, Table
from tidegate_runtime.kafka.client_protocols import Offset, TopicPartition

DAY_S: Final = 24 * 60 * 60.0
STALE_COUNT_S: Final = 20.0
"""For how long after partitions were added some are told the count before."""

SKEW_MS_MAX: Final = 4 * 3_600_000
"""How wrong a clock may be at most: what is refused for its age allows for a day of it."""


def kill(stage: Stage) -> None:
    """A process dies between two steps."""
    process = stage.dice.choice(stage.processes)
    if not process.is_running:
        process.end()


def stop(stage: Stage) -> None:
    """A process is told to stop, with whatever is under way."""
    stage.stop(stage.dice.choice(stage.processes))


def drop_offsets(stage: Stage) -> None:
    """The group's offsets expire."""
    stage.bus.drop_offsets(f"{stage.topics.prefix}committer")


def rewind_offsets(stage: Stage) -> None:
    """The group's offsets are brought back from a copy."""
    for number in range(stage.bus.partitions(stage.topics.proposals)):
        at = TopicPartition(stage.topics.proposals, number)
        back = Offset(stage.dice.randint(0, len(stage.bus.logs[at])))
        stage.bus.rewind(f"{stage.topics.prefix}committer", at, back)


def rewind_registry(stage: Stage) -> None:
    """The registry is brought back from a copy: what was told last is forgotten."""
    stage.registry_is_lost = True
    for number in range(stage.topics.partitions):
        at = TopicPartition(stage.topics.table_state, number)
        records = stage.bus.logs[at]
        if records:
            older = stage.dice.choice(records)
            stage.bus.append(at, older.key, older.value)


def lose_registry(stage: Stage) -> None:
    """The registry is lost, and the operator registers the tables that are there."""
    stage.registry_is_lost = True
    _make_again(stage, stage.topics.table_state)
    _register_all(stage)


def lose_outcomes(stage: Stage) -> None:
    """The outcomes are lost; writers who miss theirs will ask again."""
    _make_again(stage, stage.topics.outcomes)


def lose_commits(stage: Stage) -> None:
    """What was told of versions is lost; who follows reads the logs."""
    _make_again(stage, stage.topics.commits)


def recreate_proposals(stage: Stage) -> None:
    """The topic of proposals is made anew while no committer is in the group.

    What lay on it is gone; the operator asks again for the tables, lest that was among it.
    """
    for member in list(stage.members):
        stage.expel(member)
    _make_again(stage, stage.topics.proposals)
    _register_all(stage)


def add_partition(stage: Stage) -> None:
    """The topics get one more partition; tables stay where they were registered.

    Not every committer knows of it at once.
    """
    topics = stage.topics
    stage.weather.spells["stale_count"] = stage.clock.boot + STALE_COUNT_S
    for topic in (topics.proposals, topics.outcomes, topics.commits, topics.table_state):
        stage.bus.add_partition(topic)


def misdirect(stage: Stage) -> None:
    """A writer who counts the topic partitions otherwise sends what it has sent to another one."""
    table, one = stage.dice.choice(stage.past)
    stage.produce(table.id, builders.value_of(one), elsewhere=stage.dice.randint(1, 2))


def make_twice(stage: Stage) -> None:
    """A table is asked for on all topic partitions, at the same time, in any order."""
    table = stage.dice.choice(TABLES)
    opening = builders.value_of(table.opening(stage.new_id()))
    count = stage.bus.partitions(stage.topics.proposals)
    for number in stage.dice.sample(range(count), count):
        stage.produce(table.id, opening, elsewhere=number)


def clock_steps(stage: Stage) -> None:
    """Wall time jumps, both ways."""
    step_ms = stage.dice.choice((-3_600_000, -5_000, 5_000, 3_600_000))
    stage.clock.skew_ms = max(-SKEW_MS_MAX, min(SKEW_MS_MAX, stage.clock.skew_ms + step_ms))


def long_wait(stage: Stage) -> None:
    """Nothing happens for a while."""
    stage.clock.boot += stage.dice.choice((30.0, 200.0, 700.0, 4 * DAY_S))


def _make_again(stage: Stage, topic: str) -> None:
    stage.bus.create_topic(topic, stage.bus.partitions(topic))


def register_missing(stage: Stage) -> None:
    """The operator asks once more for what is not in the registry: an answer may have been no."""
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
    told = {"proposal_id": stage.new_id(), "table": table.id, "table_root": table.root}
    stage.send(table, builders.proposal(kind="register", read_version=0, **told))
