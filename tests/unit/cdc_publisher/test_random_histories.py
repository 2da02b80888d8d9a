"""Random histories that delta-rs writes: what a subscriber has is the table at every version."""

import json
import random
from base64 import b64encode
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.fakes.memory_bus import MemoryBus
from tests.integration.all_cases import SCHEMA, JudgedTable, Row, row
from tests.unit.cdc_publisher.memory_change_topic import Topic, stream
from tests.unit.cdc_publisher.written_table import WrittenTable
from tidegate_runtime.client.change_stream import ChangeStream, TableCopy
from tidegate_runtime.kafka.client_protocols import TopicPartition

TOPIC = "cdc.t"
STEPS = 14
KEYS = {"tidegate.cdc.keyColumns": "region, id"}
SEEDS = [*range(2), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 100))]


class History(JudgedTable):
    """A table that changes at random; keys stay unique."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        super().__init__(folder)
        self.dice = dice
        self.next_id = 1
        self.more = 0

    def fresh(self, count: int) -> list[Row]:
        """Return rows with new keys."""
        rows = [row(self.next_id + n, self.dice.choice(["eu", "us"])) for n in range(count)]
        self.next_id += count
        return rows

    def some(self, share: float) -> list[Row]:
        """Return some of the table's rows, with the columns of the beginning."""
        names = SCHEMA.names
        chosen = [row for row in self.rows() if self.dice.random() < share]
        return [{name: item[name] for name in names} for item in chosen]

    def step(self) -> str:
        """Write a version; return what it did."""
        number = self.dice.randrange(1, 9)
        where = f"id % {number} = {self.dice.randrange(number)}"
        verbs = {
            "append": lambda: self._append(self.fresh(self.dice.randrange(1, 6))),
            "update": lambda: self.table.update({"ratio": "ratio * 2 + id"}, predicate=where),
            "update to null": lambda: self.table.update({"day": "null"}, predicate=where),
            "delete": lambda: self.table.delete(where),
            "merge": self._merge_some,
            "changed keys": self._change_keys,
            "insert again": self._insert_again,
            "compact": lambda: self.table.optimize.compact(),
            "overwrite": self._overwrite,
            "add column": self._add_column,
            "restore": self._restore,
        }
        verb = self.dice.choice([*verbs, "append", "update", "merge"])
        verbs[verb]()
        return verb

    def _append(self, rows: list[Row]) -> None:
        # The table may have more columns by now.
        content = pa.Table.from_pylist(rows, schema=SCHEMA)
        write_deltalake(self.folder, content, mode="append", schema_mode="merge")

    def _merge_some(self) -> None:
        changed = [{**item, "ratio": self.dice.random()} for item in self.some(0.3)]
        self._merge_in(changed + self.fresh(2))

    def _change_keys(self) -> None:
        step = self.next_id
        self.next_id = 3 * step
        self.table.update({"id": f"id + {step}"}, predicate=f"id < {step} AND id % 3 = 0")

    def _insert_again(self) -> None:
        again = self.some(0.4)
        ids = ", ".join(str(one["id"]) for one in again) or "-1"
        self.table.delete(f"id IN ({ids})")
        kept = {(row["region"], row["id"]) for row in self.rows()}
        self._append([item for item in again if (item["region"], item["id"]) not in kept])

    def _overwrite(self) -> None:
        content = self.some(0.6) + self.fresh(1)
        table = pa.Table.from_pylist(content, schema=SCHEMA)
        write_deltalake(self.folder, table, mode="overwrite", schema_mode="overwrite")

    def _add_column(self) -> None:
        self.more += 1
        wider = SCHEMA.append(pa.field(f"more{self.more}", pa.int32()))
        content = [{**item, f"more{self.more}": 7} for item in self.fresh(2)]
        table = pa.Table.from_pylist(content, schema=wider)
        write_deltalake(self.folder, table, mode="append", schema_mode="merge")

    def _restore(self) -> None:
        newest = self.table.version()
        if newest > 1:
            self.table.restore(self.dice.randrange(max(1, newest - 4), newest))


def shown(value: Any) -> Any:
    """Return a value as the stream has it, parsed from JSON."""
    match value:
        case datetime():
            text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
            return text if value.tzinfo is None else f"{text}Z"
        case date():
            return value.isoformat()
        case bytes():
            return b64encode(value).decode()
        case Decimal():
            return f"{value:f}"
        case _:
            return value


def canonical(rows: list[Any]) -> list[str]:
    return sorted(json.dumps(dict(row), sort_keys=True) for row in rows)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_subscriber_has_the_table_at_every_version(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path / "t", random.Random(seed))
    history._append(history.fresh(6))
    history.table.alter.set_table_properties(KEYS, False)
    table, topic = WrittenTable(tmp_path / "t"), Topic()
    published = stream(table, topic, chunk_rows=7)
    bus, copy, sent = MemoryBus({TOPIC: 1}), TableCopy(), 0
    at, version = TopicPartition(TOPIC, 0), 0
    verbs = list[str]()
    with ChangeStream(bus, TOPIC) as follower:
        while len(verbs) < STEPS:
            verbs.append(history.step())
            while version < history.table.version():
                version += 1
                published.catch_up(version)
                for record in topic.records[sent:]:
                    result = [(name, one) for name, one in record.headers if isinstance(one, bytes)]
                    bus.append(at, record.key, record.value, tuple(result))
                sent = len(topic.records)
                for change in follower.changes(quiet_s=0.02):
                    copy.apply(change)
                rows = history.rows(version)
                wanted = [{name: shown(one) for name, one in each.items()} for each in rows]
                assert canonical(copy.rows) == canonical(wanted), (version, verbs)
    assert version >= STEPS // 2
