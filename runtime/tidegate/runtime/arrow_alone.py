"""Arrow by itself: no process of ours has a use for pandas, wherever it is installed."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

import pyarrow as pa


def leave_out_pandas() -> None:
    """Let Arrow find no pandas when it looks for one, which it does once, at its first conversion.

    To load it takes longer than to open most tables. Who asks Arrow for a data frame still gets it.
    """
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)


class _NoPandas(MetaPathFinder):
    """Finds no pandas, and leaves everything else to the others."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is left out", name=fullname)
        return None
