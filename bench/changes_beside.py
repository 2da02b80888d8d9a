"""How long one table's changes take to subscribers while the publisher compares a large rewrite."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.figures import Figure
from tests.integration.test_cdc_memory import rows
from tidegate import changes
from tidegate_delta.log.actions import Add, Metadata, Protocol
from tidegate_delta.schema.arrow_types import from_arrow
from tidegate_delta.schema.types import format_schema
from tidegate_demo import proof_checks
from tidegate_local.local_stack import LocalStack
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Proposal
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client, result
from tidegate_runtime.client.proposal_builders import Stamp, Target
from tidegate_runtime.clock import SystemClock, new_id
from tidegate_runtime.kafka.confluent_bus import KafkaBus

ROWS: Final = 1_000_000
FILES: Final = 4
PAUSE_S: Final = 0.25
ALONE_S: Final = 15.0
LAG_MAX_S: Final = 5.0
TIMEOUT_S: Final = 400.0
CLOCK: Final = SystemClock()
_PROTOCOL: Final = Protocol(min_reader_version=1, min_writer_version=2)


@dataclass
class _Table:
    """A table whose changes are published, and what its next proposal is made on."""

    folder: Path
    client: Client
    target: Target
    version: int = 0
    live: list[Add] = field(default_factory=list)

    def propose(self, proposal: Proposal) -> Outcome:
        """Return the outcome of a proposal that is committed."""
        outcome = result(self.client.propose(proposal, TIMEOUT_S))
        assert outcome.version is not None, "committed"
        self.version = outcome.version
        return outcome

    def append(self, *parts: pa.Table) -> None:
        """Append files."""
        adds = [self._written(part) for part in parts]
        self.propose(proposal_builders.append(self._seen(), _stamp(), adds))
        self.live += adds

    def overwrite(self, *parts: pa.Table) -> None:
        """Replace all files."""
        adds = [self._written(part) for part in parts]
        self.propose(proposal_builders.overwrite(self._seen(), _stamp(), adds, self.live))
        self.live = adds

    def _seen(self) -> Target:
        return Target(self.target.table, self.target.root, self.version, self.target.table_id)

    def _written(self, part: pa.Table) -> Add:
        name = f"{new_id(CLOCK)}.parquet"
        pq.write_table(part, self.folder / name)
        return Add(
            path=name,
            partition_values={},
            size=(self.folder / name).stat().st_size,
            modification_time=CLOCK.now_ms(),
            data_change=True,
            stats=f'{{"numRecords":{part.num_rows}}}',
        )


def figures(stack: LocalStack, folder: Path) -> list[Figure]:
    """Return the figure: the longest way of a row of a small table, beside a large rewrite."""
    with Client(KafkaBus(stack.kafka, "bench"), stack.kafka.topics) as client:
        large = _created(client, folder / "tables/rewritten", _rows(0, 1).schema)
        small = _created(client, folder / "tables/beside", _rows(0, 1).schema)
        each = ROWS // FILES
        parts = [_rows(number * each, each) for number in range(FILES)]
        large.append(*parts)
        _await(stack, large)
        with _lags(stack, small) as alone:
            time.sleep(ALONE_S)
        began_s = time.monotonic()
        large.overwrite(*(_repriced(part) for part in parts))
        with _lags(stack, small) as beside:
            _await(stack, large)
            took_s = time.monotonic() - began_s
    lag_s, alone_s = max(beside), max(alone)
    return [
        Figure(
            f"longest way of a row to its subscriber beside a rewrite of {ROWS:,} rows",
            f"{lag_s:.2f} s",
            f"alone {alone_s:.2f} s",
            lag_s / alone_s,
            f"<= {LAG_MAX_S:g} s",
            f"from the answer to the writer; {len(beside)} rows in the {took_s:.0f} s that the "
            "rewrite took, every row of it an update",
            is_met=lag_s <= LAG_MAX_S,
            recorded=None,
        )
    ]


@contextmanager
def _lags(stack: LocalStack, table: _Table) -> Iterator[list[float]]:
    """Append a row each quarter second; yield a list that has each row's way in s at the end."""
    seen_s: dict[int, float] = {}
    answered_s: dict[int, float] = {}
    over, first = threading.Event(), table.version + 1

    def read() -> None:
        with changes.follow(table.folder.name, stack.kafka) as stream:
            for change in stream.changes(quiet_s=TIMEOUT_S):
                seen_s.setdefault(change.version, time.monotonic())
                if over.is_set() and change.version == table.version:
                    return

    def write() -> None:
        while not over.wait(PAUSE_S):
            table.append(_rows(table.version + 1, 1))
            answered_s[table.version] = time.monotonic()

    reading, writing = (threading.Thread(target=one, daemon=True) for one in (read, write))
    reading.start()
    time.sleep(1.0)
    writing.start()
    lags: list[float] = []
    yield lags
    over.set()
    writing.join()
    table.append(_rows(table.version + 1, 1))
    reading.join(TIMEOUT_S)
    assert not reading.is_alive(), f"the changes of {table.folder.name} did not come"
    assert answered_s.keys() <= seen_s.keys(), "a row did not come"
    lags += [max(0.0, seen_s[at] - answered_s[at]) for at in answered_s if at >= first]


def _created(client: Client, folder: Path, schema: pa.Schema) -> _Table:
    metadata = Metadata(
        id=str(new_id(CLOCK)),
        schema_string=format_schema(from_arrow(schema)),
        configuration={"tidegate.cdc.keyColumns": "id"},
    )
    target = Target(new_id(CLOCK), folder.as_uri(), name=folder.name)
    result(client.propose(proposal_builders.create(target, _stamp(), _PROTOCOL, metadata)))
    return _Table(folder, client, Target(target.table, target.root, 0, metadata.id))


def _stamp() -> Stamp:
    return Stamp(new_id(CLOCK), CLOCK.now_ms())


def _rows(first: int, count: int) -> pa.Table:
    return rows(first, first + count)


def _repriced(part: pa.Table) -> pa.Table:
    return part.set_column(2, "price", pc.add(part["price"], 1.0))


def _await(stack: LocalStack, table: _Table) -> None:
    """Wait until the last version of a table is published."""
    bus, topics = KafkaBus(stack.kafka, "bench"), stack.kafka.topics
    until_s, key = time.monotonic() + TIMEOUT_S, str(table.target.table)

    def published() -> bool:
        at = proof_checks.positions(bus, topics).get(key, {})
        return bool(at.get("version") == table.version and at.get("complete"))

    while not published():
        assert time.monotonic() < until_s, f"the changes of {table.folder.name} did not come"
        time.sleep(0.5)
