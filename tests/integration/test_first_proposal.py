"""The code in docs/first-proposal.md does what the page says, without Spark."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.integration.conftest import Line

pytestmark = pytest.mark.broker

PAGE = Path(__file__).parents[2] / "docs" / "first-proposal.md"


def test_twenty_lines_create_a_table_and_append_to_it(line: Line, tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(code.splitlines()) <= 21
    assert "pyspark" not in code
    program = tmp_path / "first.py"
    program.write_text(code)
    table = str(line.tables / "people")
    environ = {
        **os.environ,
        "KAFKA_BOOTSTRAP_SERVERS": line.kafka.bootstrap_servers,
        "TIDEGATE__KAFKA__TOPIC_PREFIX": line.kafka.topic_prefix,
    }
    line.started("committer")
    for version in range(2):
        argv = [sys.executable, str(program), table]
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)
        assert done.stdout == f"the rows are in version {version}\n", done.stderr
    rows = DeltaTable(table).to_pyarrow_table().sort_by("id").to_pylist()
    assert [row["name"] for row in rows] == ["ada", "ada", "grace", "grace", None, None]


def test_the_client_alone_imports_neither_spark_nor_arrow_readers() -> None:
    code = (
        "import sys, tidegate_runtime.client.client; "
        "sys.exit(str({'pyspark', 'sqlglot', 'faust'} & set(sys.modules) or ''))"
    )
    argv = [sys.executable, "-c", code]
    assert subprocess.run(argv, capture_output=True, text=True, check=False).stderr == "\n"
