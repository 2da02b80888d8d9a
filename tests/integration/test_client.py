"""`tidegate.Client` beside a real broker and committer: each piece of work is done once."""

import re
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.integration.conftest import Line
from tidegate import Client, InvalidRequest, Rejected

pytestmark = pytest.mark.broker

README = Path(__file__).parents[2] / "README.md"


def client_for(line: Line, application: str | None = None) -> Client:
    options = {"topicPrefix": line.kafka.topic_prefix}
    return Client(line.kafka.bootstrap_servers, options, application=application)


def ids(root: str) -> list[int]:
    values: list[int] = DeltaTable(root).to_pyarrow_table()["id"].to_pylist()
    return sorted(values)


def rows(*values: int) -> pa.Table:
    return pa.table({"id": list(values), "day": ["a"] * len(values)})


def test_work_is_done_once_by_batches_and_by_positions(line: Line) -> None:
    line.started("committer")
    root = str(line.tables / "events")
    with client_for(line) as client:
        created = client.create(root, rows(1).schema, partition_by=["day"])
        assert (created.version, client.register(root).version) == (0, 0)
        for _ in range(2):
            client.append(root, rows(1), positions={"topic-0": (-1, 9)})
        with pytest.raises(Rejected) as refused:
            client.append(root, rows(7), positions={"topic-0": (4, 12)})
        assert refused.value.rule == "app_txn_conflict"
        assert client.app_versions(root, ["topic-0", "topic-1"]) == {"topic-0": 9, "topic-1": -1}
    with client_for(line, "loader") as client:
        assert [client.append(root, rows(2), batch_id=0) is None for _ in range(2)] == [False, True]
        assert client.delete(root, "id = 1 AND day = 'a'", batch_id=1) is not None
        assert client.delete(root, "id = 2", batch_id=1) is None, "batch 1 is done"
        with pytest.raises(InvalidRequest, match="older than batch 1"):
            client.append(root, rows(3), batch_id=0)
    assert ids(root) == [2]


def test_a_table_of_another_engine_is_registered_and_its_constraints_hold(line: Line) -> None:
    line.started("committer")
    root = str(line.tables / "theirs")
    write_deltalake(root, rows(1))
    DeltaTable(root).alter.add_constraint({"positive": "id > 0"})
    with client_for(line) as client:
        client.register(root, "theirs")
        with pytest.raises(InvalidRequest, match=r"positive \(id > 0\)"):
            client.append(root, rows(2, -2))
        assert client.append(root, rows(2)) is not None
    assert ids(root) == [1, 2]


def test_the_example_of_the_readme_runs(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(import pyarrow.*?)```", README.read_text(), re.DOTALL)
    line.started("committer")
    monkeypatch.setenv("TIDEGATE__KAFKA__TOPIC_PREFIX", line.kafka.topic_prefix)
    code = code.replace("127.0.0.1:9092", line.kafka.bootstrap_servers)
    root = str(line.tables / "readings")
    for _ in range(2):
        exec(code.replace("/tmp/lake/readings", root), {})
    assert DeltaTable(root).to_pyarrow_table().to_pylist() == [{"sensor": "c", "value": 2.5}]
