"""Waiting for what processes do."""

import time
from collections.abc import Callable

PATIENCE_S = 180.0


def until(holds: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Wait until a condition holds; fail after the timeout, with what was waited for."""
    ends_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < ends_s, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.05)
