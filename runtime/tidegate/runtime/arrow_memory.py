"""Where Arrow's columns lie: the allocator of a process that opens large tables."""

import os
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
