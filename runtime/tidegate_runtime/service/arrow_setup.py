"""Setup of Arrow: the memory allocator of a process that opens large tables, and no pandas."""

import os
import sys
from typing import Final

import pyarrow as pa

from tidegate_runtime.service.without_numpy import LeftOut

CHOSEN: Final = "ARROW_DEFAULT_MEMORY_POOL"
"""The environment variable by which users choose Arrow's allocator; it takes precedence."""


def choose_memory_pool() -> str:
    """Let Arrow use jemalloc if it is built in, and return the name of the allocator in use.

    Arrow's default allocator asks for huge pages, for which the kernel may first have to free
    memory: that can cost more time than reading a checkpoint, and holds more memory than is used.
    """
    if not os.environ.get(CHOSEN) and "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())
    return str(pa.default_memory_pool().backend_name)


def leave_out_pandas() -> None:
    """Hide pandas when Arrow looks for it, which it does once, at its first conversion.

    Loading it takes longer than opening most tables. Callers that ask Arrow for a data frame still
    get it.
    """
    finder = LeftOut()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)
