"""A table of PostgreSQL, by Debezium's connector and `tidegate ingest`: the Delta table is equal.

Random transactions go on while the job is killed and a column is added. The connector is set as
docs/ingest.md says. Runs at night; Maven Central and Debian have the programs.
"""

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from math import isfinite
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable

from tests.integration.conftest import Line
from tests.integration.connect_sink import Connect, Postgres, connect, postgres
from tests.integration.test_ingest import IngestProcess, letter_headers, rows_by_id, versions
from tests.integration.test_real_clients import in_postgres

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.broker]

WAIT_S: Final = 300.0
GUIDE: Final = Path(__file__).parents[2] / "docs" / "ingest.md"
TABLE: Final = """CREATE TABLE customers (
    id bigint PRIMARY KEY, name text, amount numeric(20,4), joined timestamptz, woken timestamp,
    born date, ok boolean, ratio double precision, data bytea, doc jsonb, tags text[],
    counts bigint[])"""
COLUMNS: Final = (
    "id BIGINT, name STRING, amount DECIMAL(20,4), joined TIMESTAMP, woken TIMESTAMP_NTZ, "
    "born DATE, ok BOOLEAN, ratio DOUBLE, data BINARY, doc STRING, tags ARRAY<STRING>, "
    "counts ARRAY<BIGINT>"
)
TYPES: Final = {
    "amount": "decimal(20,4)",
    "joined": "timestamp",
    "woken": "timestamp_ntz",
    "born": "date",
    "ok": "boolean",
    "ratio": "double",
    "data": "binary",
    "doc": "string",
    "note": "string",
}
TEXTS: Final = ("", "é 😀", "it''s", '"a" } { \\ "b"', "two\nlines\t", "null", " 7 ")
LARGE: Final = "(SELECT string_agg(md5('{}' || i), '') FROM generate_series(1, 3200) i)"
"""A hundred thousand characters that PostgreSQL can't make much shorter."""


def literal(rng: Random, name: str) -> str:
    """Return a random value of a column as SQL has it."""
    if rng.random() < 0.2:
        return "NULL"
    day = f"{rng.randint(1600, 9990)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    fraction = rng.choice(("", ".1", ".120", ".123456", ".999999"))
    at = f"{day} {rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}{fraction}"
    number = rng.choice((0, 1, -1, 2**53 + 1, -(2**62), rng.randrange(10**6)))
    text = rng.choice((*TEXTS, f"text {number}"))
    match name:
        case "name" | "note":
            return f"'{text}'"
        case "amount":
            return f"{rng.randrange(-(10**20) + 1, 10**20)}e-4"
        case "joined":
            return f"'{at}{rng.choice(('Z', '+05:30', '-11:00'))}'"
        case "woken":
            return f"'{at}'"
        case "born":
            return f"'{day}'"
        case "ok":
            return rng.choice(("true", "false"))
        case "ratio":
            return rng.choice(("'NaN'", "'-Infinity'", repr(rng.uniform(-1e300, 1e300)), "1e-300"))
        case "data":
            return f"'\\x{rng.randbytes(rng.randrange(9)).hex()}'"
        case "doc":
            return f"jsonb_build_object('number', {number}, 'text', '{text}', 'none', NULL)"
        case "tags":
            return rng.choice(("'{}'", f"ARRAY['{text}', NULL, 'b']"))
        case _:
            return rng.choice(("'{}'", f"ARRAY[{number}, NULL]::bigint[]"))


class Customers:
    """The table in PostgreSQL, and the random changes of it."""

    def __init__(self, server: Postgres, seed: int) -> None:
        self._server, self._rng = server, Random(seed)
        self.names = re.findall(r"(\w+) [A-Z]+", COLUMNS)[1:]
        self._ids: list[int] = []
        self._next = 0
        server.query(TABLE)

    def change(self, transactions: int, large: float = 0.0) -> None:
        """Commit transactions; `large` is how many of the new names are large, of one."""
        for _ in range(transactions):
            statements = [self._statement(large) for _ in range(self._rng.randint(1, 8))]
            self._server.query(f"BEGIN; {'; '.join(statements)}; COMMIT")

    def _statement(self, large: float) -> str:
        rng = self._rng
        kind = rng.choices(("insert", "update", "delete", "move"), (4, 5, 1, 1))[0]
        values = {name: literal(rng, name) for name in self.names}
        if rng.random() < large:
            values["name"] = LARGE.format(rng.random())
        if kind == "insert" or not self._ids:
            self._next += 1
            # An id that a delete or a move has left comes again.
            id_ = rng.choice([i for i in range(self._next) if i not in self._ids])
            self._ids.append(id_)
            names = ", ".join(("id", *values))
            return f"INSERT INTO customers ({names}) VALUES ({id_}, {', '.join(values.values())})"
        at = rng.randrange(len(self._ids))
        id_ = self._ids[at]
        if kind == "delete":
            del self._ids[at]
            return f"DELETE FROM customers WHERE id = {id_}"
        if kind == "move":
            self._ids[at] = self._next = self._next + 1
            return f"UPDATE customers SET id = {self._next} WHERE id = {id_}"
        some = rng.sample(self.names, rng.randint(1, 4))
        wanted = ", ".join(f"{name} = {values[name]}" for name in some)
        return f"UPDATE customers SET {wanted} WHERE id = {id_}"

    def add_column(self) -> None:
        self._server.query("ALTER TABLE customers ADD COLUMN note text")
        self.names.append("note")

    def rows(self) -> dict[int, dict[str, Any]]:
        """Return the rows by id, the document as the text that it is."""
        sql = "SELECT to_jsonb(c) || jsonb_build_object('doc', doc::text) FROM customers c"
        lines = self._server.query(sql).splitlines()
        rows = [json.loads(line, parse_float=Decimal) for line in lines]
        return {row.pop("id"): row for row in rows}


def copied(table: Path) -> dict[int, dict[str, Any]]:
    """Return the Delta table's rows as PostgreSQL's to_jsonb gives its own."""
    names = {float("inf"): "Infinity", float("-inf"): "-Infinity"}

    def shown(value: Any) -> Any:
        if isinstance(value, float) and not isfinite(value):
            return names.get(value, "NaN")
        return value

    rows = rows_by_id(table).items()
    return {
        id_: in_postgres({name: shown(value) for name, value in row.items()}) for id_, row in rows
    }


def guide_settings() -> dict[str, str]:
    """Return the connector's settings that docs/ingest.md shows."""
    [block] = re.findall(r"```properties\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    pairs = (line.partition("=") for line in block.splitlines() if line)
    return {name: value for name, _, value in pairs}


@contextmanager
def captured(line: Line, folder: Path, server: Postgres, **more: str) -> Iterator[Connect]:
    """Run Debezium's connector, set as the guide says besides the places of this test."""
    places = {
        "name": "source",
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": "postgres",
        "database.password": "none",
        "database.dbname": "sink",
        "topic.prefix": f"{line.kafka.topic_prefix}shop",
        "topic.creation.default.partitions": "3",
        "topic.creation.default.replication.factor": "1",
    }
    settings = {**guide_settings(), **places, **more}
    formats = {name: value for name, value in settings.items() if ".converter" in name}
    brokers = line.kafka.bootstrap_servers
    with connect(brokers, folder, settings, formats, "postgres") as worker:
        until_s = time.monotonic() + WAIT_S
        topic = f"{places['topic.prefix']}.public.customers"
        while (
            topic not in AdminClient({"bootstrap.servers": brokers}).list_topics(timeout=10).topics
        ):
            worker.check()
            assert time.monotonic() < until_s, worker.log.read_text()[-4000:]
            time.sleep(0.5)
        yield worker


def wait_equal(job: IngestProcess, table: Path, source: Customers, worker: Connect) -> None:
    wanted = source.rows()
    job.wait_for(lambda: copied(table) == wanted)
    worker.check()
    rows = copied(table)
    assert rows.keys() == wanted.keys()
    for id_, row in wanted.items():
        assert rows[id_] == row, id_


def change_while_killed(
    job: IngestProcess, table: Path, source: Customers, worker: Connect
) -> None:
    """Change the table while the job runs, is killed, and runs again; add a column meanwhile."""
    job.start()
    job.wait_for(lambda: versions(table) >= 2)
    begun, until_s = versions(table), time.monotonic() + WAIT_S
    while versions(table) < begun + 2:
        source.change(3)
        job.check_alive()
        assert time.monotonic() < until_s, "it hangs"
    job.kill()
    source.change(15)
    source.add_column()
    source.change(15)
    job.start()
    source.change(15)
    wait_equal(job, table, source, worker)


def lose_no_large_value(
    job: IngestProcess, table: Path, source: Customers, server: Postgres, letters: Sequence[str]
) -> None:
    """Update a row beside its large text: the row stays as it was, and a dead letter says why."""
    server.query(f"INSERT INTO customers (id, name, ok) VALUES (-1, {LARGE.format('a')}, true)")
    job.wait_for(lambda: -1 in copied(table))
    before = copied(table)[-1]
    assert before["name"] == source.rows()[-1]["name"]
    server.query("UPDATE customers SET ok = false WHERE id = -1")
    job.wait_for(lambda: bool(letter_headers(*letters)))
    [letter] = letter_headers(*letters)
    assert letter["field"] == b"name"
    assert b"ALTER TABLE" in letter["reason"], letter["reason"]
    assert copied(table)[-1] == before
    server.query("ALTER TABLE customers REPLICA IDENTITY FULL")
    server.query("UPDATE customers SET ok = false WHERE id = -1")


@pytest.mark.timeout(1_500)
@pytest.mark.parametrize("has_schemas", ["false", "true"])
def test_a_delta_table_equals_the_table_in_postgresql(
    line: Line, tmp_path: Path, has_schemas: str
) -> None:
    table, prefix = line.tables / "customers", line.kafka.topic_prefix
    letters = (line.kafka.bootstrap_servers, f"{prefix}ingest-dead-letters")
    formats = {f"{part}.converter.schemas.enable": has_schemas for part in ("key", "value")}
    line.started("committer")
    with postgres(tmp_path / "pg", wal_level="logical") as server:
        source = Customers(server, seed=20_264)
        source.change(30)
        with captured(line, tmp_path / "connect", server, **formats) as worker:
            upsert = ["--mode", "upsert", "--key", "id", "--envelope", "debezium"]
            upsert += ["--value-schema", COLUMNS]
            topic = f"{prefix}shop.public.customers"
            job = IngestProcess(line, topic, table, tmp_path / "ingest.log", *upsert)
            try:
                change_while_killed(job, table, source, worker)
                assert not letter_headers(*letters)
                lose_no_large_value(job, table, source, server, letters)
                source.change(15, large=0.5)
                wait_equal(job, table, source, worker)
                types = {f.name: f.type for f in DeltaTable(str(table)).schema().fields}
                named = {name: json.loads(types[name].to_json()) for name in TYPES}
                assert named == TYPES
                assert len(letter_headers(*letters)) == 1
            finally:
                job.kill()
