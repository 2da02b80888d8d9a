"""Services convert to Arrow without pandas; a caller that asks for a data frame still gets one.

Their programs load no NumPy either: their images have none.
"""

import subprocess
import sys

import pytest

SERVICE = """
import sys
import pyarrow as pa
from tidegate_runtime.service.arrow_setup import leave_out_pandas
leave_out_pandas()
pa.Table.from_pylist([{"a": 1}])
assert "pandas" not in sys.modules, "Arrow looked for it"
frame = pa.table({"a": [1]}).to_pandas()
assert list(frame["a"]) == [1]
leave_out_pandas()
assert sys.modules["pandas"] is not None
"""


def test_a_conversion_loads_no_pandas_and_a_data_frame_does() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SERVICE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("service", ["committer", "checkpointer", "cdc_publisher"])
def test_a_service_starts_without_numpy_and_pandas(service: str) -> None:
    code = (
        f"import sys, tidegate_{service}.__main__; print({{'numpy', 'pandas'}} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "set()\n", done.stderr


def test_the_maintainer_can_import_pandas_which_pyspark_needs() -> None:
    code = "import tidegate_producers.maintenance.__main__, pandas"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
