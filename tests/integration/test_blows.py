"""Kill and suspend committers repeatedly under load; log, topics and writers must agree.

`--blows` sets the number; `make nightly` asks for more. Two sets of services run at once, because
most of a takeover is waiting for a session to time out.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from random import Random

import pytest

from tests.integration import run_audit
from tests.integration.blows import PASSAGES, SUSPENSION, Limit, Passed, Siege, blows, rain
from tests.integration.competing_writers import Baton, contend
from tests.integration.conftest import Line, own_topics, services
from tests.integration.proposers import (
    TIMEOUT_S,
    Proposer,
    all_outcomes,
    append_with,
    create_table,
    creation,
)
from tests.integration.test_committer_processes import (
    WAIT_S,
    account_of,
    check_all,
    check_offsets_are_safe,
    folder_of,
    rows_of,
)
from tests.linearizability.checker import explain
from tidegate_messages.outcome import Outcome
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.client.client import Client
from tidegate_runtime.kafka.cluster_state import patiently
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.settings import KafkaSettings

pytestmark = pytest.mark.broker

LINES = 2
WRITERS = 3
RIVALS = 2
ROWS_MAX = 1_000_000
FOUNDED_EVERY_S = 2.5
FOUNDED_LATER_S = 0.2
SEED = 20_260
SPARED = frozenset({"poison"})
"""If three committers in a row happen to die with the same proposal, it may be refused."""

S_A_BLOW = 12.0
"""A generous limit, not a measurement: a fault costs a session timeout and a start."""


@dataclass
class Front:
    """Services under load: appending writers, rivals for one file, and one that creates tables."""

    line: Line
    table: TableRecord
    pool: ThreadPoolExecutor
    enough: threading.Event = field(default_factory=threading.Event)
    proposers: list[Proposer] = field(init=False)
    baton: Baton = field(init=False)
    contended: list[Future[list[Outcome]]] = field(init=False)
    founding: Future[list[TableRecord]] = field(init=False)

    def __post_init__(self) -> None:
        kafka = self.line.kafka
        self.baton = Baton(self.table)
        contend(kafka, self.baton, "r", lambda: self.baton.passes == 1)
        self.proposers = append_with(kafka, self.table, WRITERS, ROWS_MAX, self.enough)
        self.contended = [
            self.pool.submit(contend, kafka, self.baton, f"r{number}", self.enough.is_set)
            for number in range(RIVALS)
        ]
        self.founding = self.pool.submit(_found, kafka, self.line.tables, self.enough)

    def heard(self) -> int:
        """Return the number of outcomes that its writers have received."""
        return len(all_outcomes(self.proposers)) + self.baton.passes + self.baton.losses

    def check(self) -> None:
        """Let all writers finish; fail unless log, topics, rows and the writers' memories agree."""
        for proposer in self.proposers:
            proposer.join(WAIT_S)
        outcomes = [item for rival in self.contended for item in rival.result(WAIT_S)]
        founded = self.founding.result(WAIT_S)
        check_all(self.line, self.table, self.proposers, SPARED)
        check_offsets_are_safe(self.line)
        rivals = [name for name, _ in rows_of(self.table) if name.startswith("r")]
        assert rivals == [self.baton.name], "who was named last that he holds it is not who does"
        assert {outcome.status for outcome in outcomes} <= {"committed", "rejected", "denied"}
        assert any(outcome.status == "rejected" for outcome in outcomes), (
            "nobody was in anybody's way"
        )
        assert founded, "nothing was founded under fire"
        explain(account_of(self.line, *founded))
        for table in founded:
            assert list(run_audit.accepted(run_audit.entries(folder_of(table))).values()) == [0]


def _found(kafka: KafkaSettings, folder: Path, enough: threading.Event) -> list[TableRecord]:
    """Create tables from time to time, and return those that exist.

    The intervals grow, because each committer reads all tables when it takes over.
    """
    tables: list[TableRecord] = []
    with Client(KafkaBus(kafka, "founder"), kafka.topics, patience_s=3.0) as client:
        for number in count():
            if enough.wait(FOUNDED_EVERY_S + FOUNDED_LATER_S * number):
                break
            proposal = creation(folder / f"founded-{number}")
            outcome = patiently(partial(client.propose, proposal, TIMEOUT_S), TIMEOUT_S)
            if outcome.status == "committed":
                required = partial(client.require, proposal.table_root)
                tables.append(patiently(required, TIMEOUT_S))
                continue
            assert outcome.rejection is not None
            assert outcome.rejection.rule in SPARED, outcome
    return tables


@pytest.fixture
def lines(broker: str, tmp_path: Path) -> Iterator[list[Line]]:
    folders = [tmp_path / f"line-{number}" for number in range(LINES)]
    with ExitStack() as stack:
        yield [stack.enter_context(services(own_topics(broker), folder)) for folder in folders]


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(LINES * (RIVALS + 1)) as pool:
        yield pool


@pytest.mark.timeout(0)
def test_struck_again_and_again_under_load_committers_lose_and_double_nothing(
    lines: list[Line], pool: ThreadPoolExecutor, pytestconfig: pytest.Config
) -> None:
    wanted: int = pytestconfig.getoption("blows")
    dice = Random(SEED)
    plan = blows(dice)
    fronts = []
    for line in lines:
        first = line.started("committer", "first")
        fronts.append(Front(line, create_table(line.kafka, line.tables / "t"), pool))
        first.child.stop()
    passed = [Passed(line) for line in lines]
    limit = Limit(
        wanted, S_A_BLOW * wanted + WAIT_S, WRITERS + RIVALS, lambda number: passed[number].check()
    )
    sieges = [Siege(line, dice, plan) for line in lines]
    try:
        fallen = rain(sieges, [front.heard for front in fronts], limit)
    finally:
        for front in fronts:
            front.enough.set()
    for siege in sieges:
        siege.lift()
    for front in fronts:
        front.check()

    rounds = wanted // (len(PASSAGES) + 2)
    missed = [point for point in (*PASSAGES, SUSPENSION) if fallen[point] < rounds - 1]
    assert not missed, f"hardly struck: {missed} of {fallen}"
    assert fallen[SUSPENSION] >= rounds
