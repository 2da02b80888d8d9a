"""Appends, deletes, updates, merges and compactions at once: each version follows from the one
before by the changes that were told to be committed as that version, one after the other.
"""

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.integration.conftest import Line
from tests.integration.spark_session import open_session
from tidegate_producers.table import Table
from tidegate_runtime.client.client import Rejected
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.table_io.data_file_reader import read_table
from tidegate_runtime.table_io.open_table import open_snapshot

pytestmark = [pytest.mark.spark, pytest.mark.broker]

Rows = Mapping[int, int]
"""The values of a table's rows by key."""

VECTORS = {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}
KEYS = 60


@dataclass(frozen=True)
class Change:
    """A change of a table: what runs it, and what it does to the rows."""

    name: str
    run: Callable[[Table], int | None]
    after: Callable[[Rows], Rows]


def append(dice: random.Random, fresh: Iterator[int]) -> Change:
    keys = [next(fresh) for _ in range(dice.randint(1, 5))]

    def run(table: Table) -> int | None:
        rows = table._spark.createDataFrame([(key, 0) for key in keys], "k long, v long")
        return table.append(rows.coalesce(1))

    return Change(f"append {keys}", run, lambda rows: {**rows, **dict.fromkeys(keys, 0)})


def delete(dice: random.Random) -> Change:
    part, of = dice.randrange(9), 9
    return Change(
        f"delete k % {of} = {part}",
        lambda table: table.delete(f"k % {of} = {part}"),
        lambda rows: {k: v for k, v in rows.items() if k % of != part},
    )


def update(dice: random.Random) -> Change:
    part, of, more = dice.randrange(4), 4, dice.randrange(9)
    return Change(
        f"update v = v * 3 + {more}, k % {of} = {part}",
        lambda table: table.update(f"k % {of} = {part}", set={"v": f"(v * 3 + {more}) % 100003"}),
        lambda rows: {
            k: (v * 3 + more) % 100_003 if k % of == part else v for k, v in rows.items()
        },
    )


def merge(dice: random.Random) -> Change:
    source = {dice.randrange(KEYS): dice.randrange(100) for _ in range(4)}

    def run(table: Table) -> int | None:
        rows = table._spark.createDataFrame(list(source.items()), "k long, v long").coalesce(1)
        building = table.alias("t").merge(rows.alias("s"), "t.k = s.k")
        building = building.whenMatchedDelete("t.v % 7 = 0")
        building = building.whenMatchedUpdate(set={"v": "t.v * 5 % 100003 + s.v"})
        return building.whenNotMatchedInsertAll().execute()

    def after(rows: Rows) -> Rows:
        result = dict(rows)
        for key, value in source.items():
            if key not in rows:
                result[key] = value
            elif rows[key] % 7 == 0:
                del result[key]
            else:
                result[key] = rows[key] * 5 % 100_003 + value
        return result

    return Change(f"merge {source}", run, after)


def compact(table: Table) -> None:
    with suppress(Rejected):
        table.optimize().executeCompaction()


def rows_at(table: Table, version: int) -> Rows:
    store = LocalStore(table.root)
    result = read_table(store, open_snapshot(store, version)).to_pylist()
    rows = {row["k"]: row["v"] for row in result}
    assert len(rows) == len(result), f"a key is twice in version {version}"
    return rows


def follows(before: Rows, after: Rows, changes: list[Change]) -> bool:
    """Return whether the changes, in some order, lead from one version to the next."""
    for order in itertools.permutations(changes):
        rows = before
        for change in order:
            rows = change.after(rows)
        if rows == after:
            return True
    return False


@pytest.mark.parametrize(
    ("properties", "writers", "rounds"),
    [
        pytest.param(VECTORS, 3, 3, id="vectors"),
        pytest.param(VECTORS, 6, 40, id="vectors, long", marks=pytest.mark.nightly),
        pytest.param(FEED, 6, 25, id="copies, long", marks=pytest.mark.nightly),
    ],
)
def test_each_version_follows_from_the_one_before(
    shared_line: Line, properties: Mapping[str, str], writers: int, rounds: int
) -> None:
    shared_line.started("committer")
    options = {
        "kafka.bootstrap.servers": shared_line.kafka.bootstrap_servers,
        "topicPrefix": shared_line.kafka.topic_prefix,
        "outcomeTimeout": "120s",
    }
    spark: SparkSession = open_session()
    path = str(shared_line.tables / f"mixed {len(properties)} {rounds}")
    table = Table.create(spark, path, "k long, v long", (), properties, options)
    fresh = itertools.count(KEYS)
    table.append(spark.range(KEYS).selectExpr("id AS k", "id AS v").repartition(3))
    start = table.version()
    committed: dict[int, list[Change]] = defaultdict(list)
    seed = random.randrange(2**32)

    def write(writer: int) -> int:
        dice, own = random.Random(seed + writer), Table(spark, path, options)
        refused = 0
        for _ in range(rounds):
            changes = (append(dice, fresh), delete(dice), update(dice), merge(dice))
            change = dice.choices(changes, (1, 1, 2, 2))[0]
            try:
                version = change.run(own)
            except Rejected:
                refused += 1
                continue
            if version is not None:
                committed[version].append(change)
            if dice.random() < 0.2:
                compact(own)
        return refused

    with ThreadPoolExecutor(writers) as pool:
        refused = sum(pool.map(write, range(writers)))
    last = table.version()
    assert refused <= writers * rounds // 2, "most changes are committed"
    before = rows_at(table, start)
    for version in range(start + 1, last + 1):
        changes, after = committed.pop(version, []), rows_at(table, version)
        result = [change.name for change in changes]
        assert follows(before, after, changes), f"seed {seed}, version {version}: {result}"
        before = after
    assert not committed
    if properties is FEED:
        foreign = DeltaTable(path).to_pyarrow_table().to_pylist()
        assert {row["k"]: row["v"] for row in foreign} == before
