"""The loop with many tables: its cost follows the work due, not the number of tables."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar
from unittest import mock
from uuid import UUID

import pytest

from tests.builders import TABLE, Gate, add, create, proposal
from tests.fakes.memory_clients import MemoryReader
from tidegate_committer.loop.scheduling import PROBES_PER_S
from tidegate_committer.loop.served_tables import STALE_S
from tidegate_committer.loop.table_committer import TableCommitter
from tidegate_committer.settings import CommitterSection
from tidegate_committer.store_executor import InlineExecutor
from tidegate_committer.store_reads.log_audit import Pace
from tidegate_messages.topics import Topics
from tidegate_runtime.kafka.client_protocols import Record, Starts, TopicPartition
from tidegate_runtime.table_registry import _read_on

T = TypeVar("T")


def fill(gate: Gate, count: int) -> None:
    """Create `count` more tables."""
    for number in range(count):
        fields: dict[str, Any] = {"table": UUID(int=1_000 + number)}
        gate.send(create(**fields, table_root=f"memory://tables/t{number}"))
    gate.settle(60)


class CountedLookups(dict[UUID, TableCommitter]):
    """Table committers that count lookups."""

    count = 0

    def __getitem__(self, table: UUID) -> TableCommitter:
        CountedLookups.count += 1
        return super().__getitem__(table)

    def get(self, table: UUID, default: Any = None) -> Any:
        CountedLookups.count += 1
        return super().get(table, default)

    def __iter__(self) -> Iterator[UUID]:
        CountedLookups.count += len(self)
        return super().__iter__()

    def values(self) -> Any:
        CountedLookups.count += len(self)
        return super().values()

    def items(self) -> Any:
        CountedLookups.count += len(self)
        return super().items()


def lookups(gate: Gate, steps: int) -> int:
    """Return how many table committers are looked up in some steps."""
    [worker] = gate.loop.workers.values()
    worker.tables.committers, CountedLookups.count = CountedLookups(worker.tables.committers), 0
    gate.loop.gauges.due_s = gate.clock.boot_s() + 1e9
    for _ in range(steps):
        gate.loop.step()
    return CountedLookups.count


def test_a_step_visits_the_tables_with_work(gate: Gate) -> None:
    fill(gate, 40)
    assert lookups(gate, 5) == 0
    gate.send(proposal(add("a")))
    assert 0 < lookups(gate, 5) < 40
    gate.settle()
    assert gate.outcomes()[-1].version == 1


def test_tables_are_read_without_visiting_those_that_wait_for_their_turn(gate: Gate) -> None:
    fill(gate, 40)
    gate.restart()
    gate.loop.step()
    gate.loop.step()
    [worker] = gate.loop.workers.values()
    unread = sum(
        table_committer.cache.state is None for table_committer in worker.tables.committers.values()
    )
    assert unread >= 38
    assert lookups(gate, 30) < 30 * 10
    assert (
        sum(
            table_committer.cache.state is None
            for table_committer in worker.tables.committers.values()
        )
        == unread - 30
    )
    gate.settle(20)
    assert not worker.tables.scheduler.unread
    assert not gate.loop.step(), "nothing is left to be done at once"


def test_a_table_polled_repeatedly_has_one_due_time(gate: Gate) -> None:
    for number in range(30):
        gate.ask(proposal(add(f"f{number}"), read_version=number))
    [worker] = gate.loop.workers.values()
    assert len(worker.tables.scheduler.later) <= 2


class Counting(InlineExecutor):
    """Counts the reads that no proposal waits for."""

    count = 0

    def begin(
        self, root: str, work: Callable[[], T], /, behind: Future[Any] | None = None
    ) -> Future[T]:
        self.count += 1
        return super().begin(root, work, behind)


@pytest.mark.parametrize(("tables", "reads"), [(4, 12 * 4 + 8), (120, 13 * PROBES_PER_S + 60)])
def test_many_idle_tables_are_probed_and_audited_less_often(tables: int, reads: int) -> None:
    background = Counting()
    section = CommitterSection(
        roots=("memory://tables",), audit_s=8.0, audit_versions=20, external_probe_s=1.0
    )
    gate = Gate(section, background=background)
    fill(gate, tables)
    background.count = 0
    for _ in range(48):
        gate.loop.step()
        gate.clock.boot += 0.25
    assert reads / 2 <= background.count <= reads


def test_a_turn_comes_later_with_more_tables_and_comes() -> None:
    pace = Pace(10.0)
    assert [pace.turn_s(1.0, 1.2) for _ in range(4)] == pytest.approx([1.2, 1.2, 1.3, 1.4])
    assert pace.turn_s(1.0, 1.2, 8) == pytest.approx(2.2)
    assert pace.turn_s(7.0, 8.0) == 8.0


def test_nothing_is_kept_of_a_table_that_was_dropped(gate: Gate) -> None:
    gate.settle(60)
    [worker] = gate.loop.workers.values()
    assert TABLE in worker.schedule.audits
    gate.ask(proposal(kind="drop"))
    gate.clock.boot += 1e9
    gate.settle()
    scheduler = worker.tables.scheduler
    assert TABLE not in (*worker.schedule.audits, *worker.schedule.probes, *worker.publisher.tables)
    assert not any((scheduler.due, scheduler.later, scheduler.put_off, scheduler.unread))


def test_the_registry_is_read_once_for_all_topic_partitions_of_an_assignment() -> None:
    with mock.patch("tidegate_runtime.table_registry._read_on", wraps=_read_on) as asked:
        gate = Gate(topics=Topics(partitions=7))
        while not gate.loop.workers:
            gate.loop.step()
    assert len(gate.loop.workers) == 7
    assert asked.call_count == 1


def test_a_creation_and_a_stranger_read_no_record_of_the_registry_twice(gate: Gate) -> None:
    at = TopicPartition(gate.topics.table_state, 0)
    for number in range(30):
        gate.ask(proposal(add(f"f{number}"), read_version=number))
    read, offsets = MemoryReader.read_several, list[int]()

    def spied(self: MemoryReader, starts: Starts, timeout_s: float) -> Sequence[Record]:
        records = read(self, starts, timeout_s)
        offsets.extend(record.offset for record in records if record.at == at)
        return records

    with mock.patch.object(MemoryReader, "read_several", spied):
        for number in range(3):
            gate.clock.boot += STALE_S + 1
            fields: dict[str, Any] = {"table": UUID(int=100 + number)}
            gate.ask(create(**fields, table_root=f"memory://tables/t{number}"))
            gate.clock.boot += STALE_S + 1
            gate.ask(proposal(add("x"), table=UUID(int=200 + number)))
    assert len(offsets) == len(set(offsets))
