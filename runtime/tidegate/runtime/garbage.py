"""Python's garbage collector, out of the way while many rows are read at once."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Let nothing be collected for a while; what is not part of a cycle is freed all the same.

    Rows of JSON are many small objects without cycles: looking for some costs as much as reading.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
