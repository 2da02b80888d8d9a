"""Spark starts several Python processes for a write: they load what every write needs, no more."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module", ["tidegate_producers.datasource.data_source", "tidegate_cdc_publisher.__main__"]
)
def test_a_process_starts_without_the_sql_parser(module: str) -> None:
    code = f"import sys, {module}; print('sqlglot' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "False\n", done.stderr
