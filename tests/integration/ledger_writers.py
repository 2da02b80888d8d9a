"""Writers of real files by the public producer API, and the ledger of what they committed.

Each writer runs in a thread of its own until the day is over, and ends with the first refusal. The
ledger has a row as soon as its writer has the outcome, so at the end it has all rows of the table.
"""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tests.integration.conftest import Line
from tidegate import Client
from tidegate_delta.schema.arrow_types import from_arrow
from tidegate_producers.cached_clients import store_for
from tidegate_producers.options import for_writing
from tidegate_producers.parquet.data_file_writer import FileWriter
from tidegate_producers.writing.partial_overwrite import ReplaceWhere
from tidegate_producers.writing.table_write import WriteRequest, commit, plan
from tidegate_runtime.conditions.sql_condition import predicate_of

SCHEMA = pa.schema([("writer", pa.string()), ("number", pa.int64()), ("value", pa.int64())])
ROWS = 10
"""Rows of an append."""

UPSERTED = "upserted"
UPSERTED_KEYS = 20
OUTCOME_TIMEOUT = "180s"
"""Nothing takes so long but a fault of ours, or a machine that is busy with something else."""

Key = tuple[str, int]
Row = tuple[str, int, int | None]


@dataclass
class Ledger:
    """What all writers together have committed: the value of each key."""

    values: dict[Key, int | None] = field(default_factory=dict)
    writes: int = 0
    _appended: list[Key] = field(default_factory=list)
    _dice: random.Random = field(default_factory=lambda: random.Random(45))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, *rows: Row, deletable: bool = False) -> None:
        """Note rows that were committed; deleters choose among those that are `deletable`."""
        with self._lock:
            self.writes += 1
            self.values |= {(writer, number): value for writer, number, value in rows}
            if deletable:
                self._appended += [(writer, number) for writer, number, _ in rows]

    def take(self) -> Key | None:
        """Return a committed row that no other deleter gets; None if there is none."""
        with self._lock:
            if not self._appended:
                return None
            place = self._dice.randrange(len(self._appended))
            self._appended[place], last = self._appended[-1], self._appended[place]
            self._appended.pop()
            return last

    def drop(self, key: Key) -> None:
        """Note a row that was deleted."""
        with self._lock:
            self.writes += 1
            del self.values[key]

    @property
    def rows(self) -> list[Row]:
        """All rows, sorted."""
        with self._lock:
            return sorted((*key, value) for key, value in self.values.items())


@dataclass(frozen=True)
class Writers:
    """What the writers of a table share. They pause between writes, and while `may_write` is not
    set.
    """

    line: Line
    root: str
    ledger: Ledger
    over: threading.Event
    may_write: threading.Event

    def append(self, name: str, pause_s: float) -> None:
        """Append some rows at a time."""

        def one(client: Client, turn: int) -> None:
            numbers = range(turn * ROWS, (turn + 1) * ROWS)
            rows: list[Row] = [(name, number, turn) for number in numbers]
            outcome = client.append(self.root, _table(rows))
            assert outcome is not None
            self.ledger.put(*rows, deletable=True)

        self._repeat(name, pause_s, one)

    def delete(self, name: str, pause_s: float) -> None:
        """Delete a row of an appender at a time."""

        def one(client: Client, _: int) -> None:
            key = self.ledger.take()
            if key is not None:
                condition = f"writer = '{key[0]}' AND number = {key[1]}"
                assert client.delete(self.root, condition) is not None, f"{key} was not there"
                self.ledger.drop(key)

        self._repeat(name, pause_s, one)

    def upsert(self, name: str, pause_s: float) -> None:
        """Replace the row of a key, or add it, in one commit."""

        def one(client: Client, turn: int) -> None:
            row = (UPSERTED, turn % UPSERTED_KEYS, turn)
            self._replaced(client, row)
            self.ledger.put(row)

        self._repeat(name, pause_s, one)

    def _replaced(self, client: Client, row: Row) -> None:
        condition = f"writer = '{row[0]}' AND number = {row[1]}"
        given = {**self.line.spark_options, "path": self.root, "replaceWhere": condition}
        options = for_writing({**given, "outcomeTimeout": OUTCOME_TIMEOUT})
        planned = plan(client, from_arrow(SCHEMA), "overwrite", options)
        where = ReplaceWhere(condition, predicate_of(condition, planned.layout.schema))
        planned = replace(planned, replace_where=where)
        files = FileWriter(store_for(planned.place), planned.layout, client.clock)
        files.write(_table([row]))
        assert commit(client, planned, files.finish(), WriteRequest.of(options)) is not None

    def _repeat(self, name: str, pause_s: float, write: Callable[[Client, int], None]) -> None:
        options = {"topicPrefix": self.line.kafka.topic_prefix, "outcomeTimeout": OUTCOME_TIMEOUT}
        with Client(self.line.kafka.bootstrap_servers, options, producer=name) as client:
            turn = 0
            while not self.over.is_set():
                if self.may_write.wait(0.5):
                    write(client, turn)
                    turn += 1
                    self.over.wait(pause_s)


def _table(rows: list[Row]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table([list(column) for column in columns], schema=SCHEMA)
