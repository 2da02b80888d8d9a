"""Does `tidegate` offer what it names, and does it need no PySpark for what needs none."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tidegate

STUB = Path(tidegate.__file__).with_suffix(".pyi")


@pytest.mark.parametrize("name", tidegate.__all__)
def test_each_public_name_is_there(name: str) -> None:
    assert getattr(tidegate, name) is not None


def test_the_stub_for_editors_has_the_same_names() -> None:
    imports = [n for n in ast.parse(STUB.read_text()).body if isinstance(n, ast.ImportFrom)]
    assert sorted(str(a.asname) for n in imports for a in n.names) == sorted(tidegate.__all__)


def test_importing_it_loads_no_pyspark() -> None:
    code = "import sys, tidegate; print(tidegate.Client.__name__, 'pyspark' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["Client", "False"]


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Tables'"):
        _ = tidegate.Tables  # type: ignore[attr-defined]  # it is the point
