"""`tidegate table fsck` takes lost files out of a table; other readers read the rest."""

from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.integration.conftest import Line
from tests.integration.test_producer_cli import Terminal
from tidegate_checkpointer.cli import table_commands as maintenance
from tidegate_producers.cli import table_commands

pytestmark = pytest.mark.broker


def test_lost_files_are_found_and_taken_out_by_a_commit(line: Line) -> None:
    table = line.tables / "shop"
    for number in (1, 2, 3):
        deltalake.write_deltalake(table, pa.table({"k": [number]}), mode="append")
    lost = Path(deltalake.DeltaTable(table).file_uris()[0])
    lost_rows = pq.read_table(lost).to_pylist()
    line.started("committer")
    terminal = Terminal(line)
    terminal.json(table_commands.app, "register", str(table), "--name", "shop")
    assert terminal.json(maintenance.app, "fsck", "shop")["findings"] == []

    lost.unlink()
    result = terminal.run(maintenance.app, "fsck", "shop")
    assert result.exit_code == 1
    assert f"missing_file: {lost.name}" in result.stdout
    repaired = terminal.run(maintenance.app, "fsck", "shop", "--repair")
    assert repaired.exit_code == 0, repaired.output
    assert "missing files are removed in version 3" in repaired.stdout
    assert terminal.json(maintenance.app, "fsck", "shop")["findings"] == []
    rows = deltalake.DeltaTable(table).to_pyarrow_table().to_pylist()
    assert len(rows) == 2
    assert lost_rows[0] not in rows
    health = terminal.json(maintenance.app, "health", "shop", "--orphans")
    assert (health["version"], health["files"], health["orphans"]) == (3, 2, 0)
    written = terminal.json(maintenance.app, "checkpoint", "shop", "--apply")
    assert (written["written"], written["hint"]) == (True, 3)
    assert deltalake.DeltaTable(table).to_pyarrow_table().num_rows == 2
