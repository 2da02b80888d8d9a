"""Random histories by us, delta-spark and delta-rs: a subscriber has the table at every version.

The verbs are chosen at random, and so is who does each. The change stream is published into memory;
delta-spark says what the table holds at a version.
"""

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from delta import DeltaTable as SparkTable
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from tests.fakes.memory_bus import MemoryBus
from tests.integration.conftest import Line
from tests.integration.test_spark_judge import spark as judging_session
from tests.unit.cdc_publisher.memory_change_topic import Topic, stream
from tests.unit.cdc_publisher.test_random_histories import canonical, shown
from tests.unit.cdc_publisher.written_table import WrittenTable
from tidegate_producers.table import Table
from tidegate_runtime.client.change_stream import ChangeStream, TableCopy
from tidegate_runtime.kafka.client_protocols import TopicPartition

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.nightly,
    pytest.mark.timeout(1_200),
]

spark = judging_session
TOPIC = "cdc.t"
STEPS = 16
COLUMNS = (
    "region string NOT NULL, id long NOT NULL, amount decimal(12,2), day date, at timestamp, "
    "note string, place struct<city: string, zip: int>"
)
KEYS = {"tidegate.cdc.keyColumns": "region, id"}
PLAIN: Mapping[str, str] = {}
MARKED = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}
MAPPED = {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"}


class History:
    """A table that three engines change at random; keys stay unique."""

    def __init__(
        self, spark: SparkSession, line: Line, properties: Mapping[str, str], dice: random.Random
    ) -> None:
        self.spark = spark
        self.path = str(line.tables / "t")
        self.options = line.spark_options
        self.dice = dice
        self.next_id = 1
        self.added = 0
        self.is_mapped = properties is MAPPED
        self.by_delta_rs = properties is PLAIN
        Table.create(spark, self.path, COLUMNS, (), {**KEYS, **properties}, self.options)
        self.write(self.fresh(6), "ours")

    def version(self) -> int:
        """Return the newest version."""
        return DeltaTable(self.path).version()

    def rows(self, version: int) -> list[dict[str, Any]]:
        """Return the rows at a version, as the stream shows them."""
        frame = self.spark.read.format("delta").option("versionAsOf", version).load(self.path)
        rows = frame.toArrow().to_pylist()
        return [{name: shown(value) for name, value in row.items()} for row in rows]

    def step(self) -> str:
        """Write a version or two; return who did what."""
        side = self.dice.choice(["ours", "theirs"])
        verbs: dict[str, Callable[[str], object]] = {
            "append": lambda side: self.write(self.fresh(self.dice.randrange(1, 6)), side),
            "update": lambda side: self.of(side).update(
                self.where(), {"amount": "amount * 2 + id", "place.zip": "place.zip + 1"}
            ),
            "update to null": lambda side: self.of(side).update(self.where(), {"day": "NULL"}),
            "delete": lambda side: self.of(side).delete(self.where()),
            "merge": self.merge,
            "changed keys": self.change_keys,
            "overwrite": self.overwrite,
            "compact": self.compact,
            "restore": self.restore,
            "add column": self.add_column,
        }
        if self.is_mapped:
            verbs |= {"rename column": self.rename_column, "drop column": self.drop_column}
        if self.by_delta_rs:
            verbs |= {"delete by delta-rs": self.delete_by_delta_rs}
        verb = self.dice.choice([*verbs, "append", "update", "merge"])
        verbs[verb](side)
        return f"{side} {verb}"

    def of(self, side: str) -> Any:
        """Return the table as a side has it."""
        if side == "ours":
            return Table(self.spark, self.path, self.options)
        return SparkTable.forPath(self.spark, self.path)

    def where(self) -> str:
        """Return a condition that some rows meet."""
        number = self.dice.randrange(1, 9)
        return f"id % {number} = {self.dice.randrange(number)}"

    def columns(self) -> list[str]:
        """Return the table's columns."""
        return self.spark.read.format("delta").load(self.path).columns

    def fresh(self, count: int) -> DataFrame:
        """Return rows with new keys, and the columns of the beginning that the table still has."""
        first, self.next_id = self.next_id, self.next_id + count
        frame = self.spark.sql(
            "SELECT IF(id % 2 = 0, 'eu', 'us') AS region, id, "
            "cast(id / 8 AS decimal(12,2)) AS amount, "
            "IF(id % 7 = 0, NULL, date_add(date'1969-12-01', cast(id * 9 AS int))) AS day, "
            "timestamp_micros(id * 86399123456) AS at, IF(id % 5 = 0, NULL, concat('ö', id)) note, "
            "named_struct('city', concat('c', id), 'zip', cast(id AS int)) AS place "
            f"FROM range({first}, {first + count}, 1, 1)"
        )
        if not Path(self.path, "_delta_log/00000000000000000001.json").exists():
            return frame
        return frame.select(*(name for name in frame.columns if name in self.columns()))

    def write(self, frame: DataFrame, side: str) -> None:
        """Append rows."""
        if side == "ours":
            self.of(side).append(frame)
        else:
            frame.write.format("delta").mode("append").save(self.path)

    def merge(self, side: str) -> None:
        """Change some rows, and insert others."""
        old = self.spark.read.format("delta").load(self.path).where(self.where())
        fresh = self.fresh(2)
        collected = [*old.select(fresh.columns).collect(), *fresh.collect()]
        source = self.spark.createDataFrame(collected, fresh.schema).alias("s")
        merge = self.of(side).alias("t").merge(source, "t.region = s.region AND t.id = s.id")
        merge = merge.whenMatchedUpdate(set={"amount": "s.amount + 1"})
        merge.whenNotMatchedInsert(values={c: f"s.`{c}`" for c in fresh.columns}).execute()

    def change_keys(self, side: str) -> None:
        """Give some rows other keys."""
        step = self.next_id
        self.next_id = 3 * step
        self.of(side).update(f"id < {step} AND id % 3 = 0", {"id": f"id + {step}"})

    def overwrite(self, side: str) -> None:
        """Replace the rows of a region by one, or by none."""
        region = self.dice.choice(["eu", "us"])
        condition = f"concat(region, '') = '{region}'"
        rows = self.fresh(1).where(condition)
        if side == "ours":
            self.of(side).overwrite(rows, condition)
        else:
            writer = rows.write.format("delta").mode("overwrite")
            writer.option("replaceWhere", condition).save(self.path)

    def compact(self, side: str) -> None:
        """Pack the files; the rows stay."""
        self.of(side).optimize().executeCompaction()

    def restore(self, side: str) -> None:
        """Go back to one of the last versions."""
        newest = self.version()
        if newest > 1:
            to = self.dice.randrange(max(1, newest - 4), newest)
            if side == "ours":
                self.of(side).restore_to_version(to)
            else:
                self.of(side).restoreToVersion(to)

    def add_column(self, side: str) -> None:
        """Add a column."""
        self.added += 1
        name = f"more{self.added}"
        if side == "ours":
            self.of(side).add_column(name, "int")
        else:
            self.spark.sql(f"ALTER TABLE delta.`{self.path}` ADD COLUMNS ({name} int)")

    def rename_column(self, side: str) -> None:
        """Rename a column that is no key."""
        name = self.dice.choice([name for name in self.columns() if name not in ("region", "id")])
        self.added += 1
        new = f"named{self.added}" if name in ("note", "day") or name[0] in "mn" else name
        if new == name:
            return
        if side == "ours":
            self.of(side).rename_column(name, new)
        else:
            self.spark.sql(f"ALTER TABLE delta.`{self.path}` RENAME COLUMN {name} TO {new}")

    def drop_column(self, side: str) -> None:
        """Drop a column that was added or renamed."""
        droppable = [name for name in self.columns() if name.startswith(("more", "named"))]
        if not droppable:
            return
        name = self.dice.choice(droppable)
        if side == "ours":
            self.of(side).drop_column(name)
        else:
            self.spark.sql(f"ALTER TABLE delta.`{self.path}` DROP COLUMN {name}")

    def delete_by_delta_rs(self, side: str) -> None:
        """Delete some rows with the third engine."""
        DeltaTable(self.path).delete(self.where())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "properties", [PLAIN, MARKED, MAPPED], ids=["plain", "marked with a feed", "mapped and marked"]
)
def test_a_subscriber_has_the_table_at_every_version(
    line: Line, spark: SparkSession, properties: Mapping[str, str], seed: int
) -> None:
    line.started("committer")
    history = History(spark, line, properties, random.Random(seed))
    topic, bus, copy, sent = Topic(), MemoryBus({TOPIC: 1}), TableCopy(), 0
    published = stream(WrittenTable(Path(history.path)), topic, chunk_rows=7)
    at, version, verbs = TopicPartition(TOPIC, 0), 0, list[str]()
    with ChangeStream(bus, TOPIC) as follower:
        while len(verbs) < STEPS:
            verbs.append(history.step())
            while version < history.version():
                version += 1
                published.catch_up(version)
                for record in topic.records[sent:]:
                    pairs = [(name, it) for name, it in record.headers if isinstance(it, bytes)]
                    bus.append(at, record.key, record.value, tuple(pairs))
                sent = len(topic.records)
                for change in follower.changes(quiet_s=0.02):
                    copy.apply(change)
                assert canonical(copy.rows) == canonical(history.rows(version)), (
                    version,
                    ", ".join(verbs),
                )
    assert version >= STEPS // 2
