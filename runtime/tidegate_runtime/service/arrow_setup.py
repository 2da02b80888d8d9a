"""Where Arrow's columns lie: the allocator of a process that opens large tables."""

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

import pyarrow as pa

CHOSEN: Final = "ARROW_DEFAULT_MEMORY_POOL"
"""The environment variable by which Arrow itself is told; it has the last word."""


def settle() -> str:
    """Let Arrow take memory from jemalloc where it is built in, and return what it takes it from.

    Arrow's own choice asks for huge pages, which the kernel may have to make room for first: that
    can cost more time than a checkpoint takes to read, and holds more memory than is used.
    """
    if not os.environ.get(CHOSEN) and "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())
    return str(pa.default_memory_pool().backend_name)


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
