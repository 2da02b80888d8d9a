"""`tidegate.Client`: Arrow tables in, without Spark, each call once where that is asked for."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.producers.writing.test_table_write import Line
from tidegate import Client, InvalidRequest
from tidegate_delta.errors import UnsupportedFeature
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_producers import client as client_module
from tidegate_producers.writing import once as once_module
from tidegate_producers.writing.evaluated_constraints import evaluable_constraints
from tidegate_runtime.table_io.open_table import open_keys, open_snapshot

ROWS = pa.table({"k": [1, 2, 3], "p": ["a", "b", None]})


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Line:
    result = Line(tmp_path)
    monkeypatch.setattr(client_module, "KafkaBus", lambda settings, client_id: result.gate)
    return result


@pytest.fixture
def client(line: Line) -> Iterator[Client]:
    with Client("localhost:1") as result:
        yield result


def test_an_append_makes_the_table_and_then_adds_to_it(client: Client, line: Line) -> None:
    for version in (0, 1):
        outcome = client.append(str(line.root), ROWS)
        assert outcome is not None
        assert outcome.version == version
    assert [row["k"] for row in line.rows()] == [1, 1, 2, 2, 3, 3]


def test_a_stream_of_batches_is_one_commit(client: Client, line: Line) -> None:
    batches = pa.RecordBatchReader.from_batches(ROWS.schema, ROWS.to_batches(1) * 2)
    outcome = client.append(str(line.root), batches)
    assert outcome is not None
    assert len(line.rows()) == 6


def test_rows_are_deleted_by_a_condition(client: Client, line: Line) -> None:
    client.append(str(line.root), ROWS)
    assert client.delete(str(line.root), "k > 7") is None
    assert client.delete(str(line.root), "p IS NULL OR k = 1") is not None
    assert [row["k"] for row in line.rows()] == [2]


def test_a_table_is_made_with_its_partitions_and_properties(client: Client, line: Line) -> None:
    outcome = client.create(
        str(line.root), ROWS.schema, partition_by=["p"], properties={"delta.appendOnly": "true"}
    )
    assert outcome.version == 0
    metadata = open_snapshot(line.yes.store).metadata
    assert list(metadata.partition_columns) == ["p"]
    assert metadata.configuration["delta.appendOnly"] == "true"


def test_a_batch_of_an_application_comes_once(line: Line) -> None:
    with Client("localhost:1", application="loader") as client:
        for _ in range(2):
            client.append(str(line.root), ROWS, batch_id=0)
        assert client.append(str(line.root), ROWS, batch_id=1) is not None
        assert client.append(str(line.root), ROWS, batch_id=1) is None
        with pytest.raises(InvalidRequest, match="give it batch_id"):
            client.append(str(line.root), ROWS)
    assert len(line.rows()) == 6


def test_a_batch_that_another_process_brings_meanwhile_is_nothing_to_do(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client("localhost:1", application="loader") as client:
        client.append(str(line.root), ROWS, batch_id=0)
        before = open_keys(line.yes.store)
        client.append(str(line.root), ROWS, batch_id=1)
        monkeypatch.setattr(once_module, "open_keys", lambda store: before)
        assert client.append(str(line.root), ROWS, batch_id=1) is None
    assert len(line.rows()) == 6


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("kafka.bootstrap.servers", "other:1", "give them to Client"),
        ("topicPrefix", "other.", "give them to Client"),
        ("replaceWhere", "k = 1", "replaceWhere"),
        ("nosuch", "1", "nosuch"),
    ],
)
def test_an_option_that_an_append_does_not_take_is_refused(
    client: Client, line: Line, option: str, value: str, says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says):
        client.append(str(line.root), ROWS, options={option: value})
    assert not line.root.exists()


def test_a_batch_without_an_application_is_refused(client: Client, line: Line) -> None:
    with pytest.raises(InvalidRequest, match="batch_id=4 is the batch of an application"):
        client.append(str(line.root), ROWS, batch_id=4)
    with pytest.raises(InvalidRequest, match="give one of the two"):
        client.append(str(line.root), ROWS, batch_id=4, positions={"a": (-1, 4)})
    assert not line.root.exists()


def test_an_empty_write_moves_its_positions(client: Client, line: Line) -> None:
    client.append(str(line.root), ROWS, positions={"orders-0": (-1, 2)})
    assert client.append(str(line.root), ROWS.slice(0, 0), positions={"orders-0": (2, 9)})
    assert client.delete(str(line.root), "k > 7", positions={"orders-1": (-1, 0)})
    moved = open_snapshot(line.yes.store).app_transactions
    assert {name: txn.version for name, txn in moved.items()} == {"orders-0": 9, "orders-1": 0}


def test_rows_that_violate_a_constraint_are_refused_before_a_file_is_written(
    client: Client, line: Line
) -> None:
    properties = {
        "delta.constraints.positive": "k > 0",
        "delta.feature.checkConstraints": "supported",
    }
    client.create(str(line.root), ROWS.schema, properties=properties)
    before = sorted(line.root.rglob("*"))
    with pytest.raises(InvalidRequest, match=r"positive \(k > 0\) is not true .*'k': -1"):
        client.append(str(line.root), pa.table({"k": [5, -1], "p": ["a", "b"]}))
    with pytest.raises(InvalidRequest, match=r"positive .*'k': None"):
        client.append(str(line.root), pa.table({"k": [5, None], "p": ["a", "b"]}))
    assert sorted(line.root.rglob("*")) == before
    assert client.append(str(line.root), ROWS) is not None


def test_a_constraint_that_only_spark_evaluates_is_named(client: Client, line: Line) -> None:
    properties = {
        "delta.constraints.odd": "k % 2 = 1",
        "delta.feature.checkConstraints": "supported",
    }
    client.create(str(line.root), ROWS.schema, properties=properties)
    with pytest.raises(UnsupportedFeature, match=r"requires CHECK odd \(k % 2 = 1\) of new rows"):
        client.append(str(line.root), ROWS)


def test_what_can_be_evaluated_is_attested_and_nothing_else() -> None:
    schema = (
        '{"type":"struct","fields":[{"name":"k","type":"long","nullable":true,"metadata":{}},'
        '{"name":"s","type":{"type":"struct","fields":[{"name":"x","type":"long","nullable":true,'
        '"metadata":{}}]},"nullable":true,"metadata":{}}]}'
    )
    metadata = Metadata(
        id="t",
        schema_string=schema,
        configuration={
            "delta.constraints.a": "k BETWEEN 1 AND 9",
            "delta.constraints.b": "length(cast(k AS STRING)) < 3",
            "delta.constraints.c": "s.x IS NOT NULL",
        },
    )
    protocol = Protocol(min_reader_version=1, min_writer_version=3)
    check, enforced = evaluable_constraints(metadata, protocol)
    assert [description for description, _ in check.constraints] == [
        "the CHECK constraint a (k BETWEEN 1 AND 9)",
        "the CHECK constraint c (s.x IS NOT NULL)",
    ]
    assert len(set(enforced)) == 2
    check.check(pa.table({"k": [1], "s": [{"x": 2}]}))
    with pytest.raises(InvalidRequest, match=r"c \(s.x IS NOT NULL\) is not true"):
        check.check(pa.table({"k": [1, 1], "s": [{"x": 2}, {"x": None}]}))
