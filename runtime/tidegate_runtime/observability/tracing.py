"""Where the trace of what this program does begins: with its caller, or here."""

import os
import secrets
from typing import Final

from tidegate_messages.trace_context import SPAN_ID_BITS, TRACE_ID_BITS, compose, is_traceparent

VARIABLE: Final = "TRACEPARENT"
"""The environment variable by which whoever starts a program hands its trace on."""


def traceparent() -> str:
    """Return the environment's trace context, or a new one where it has none that is valid."""
    given = os.environ.get(VARIABLE, "")
    if is_traceparent(given):
        return given
    return compose(_dice(TRACE_ID_BITS), _dice(SPAN_ID_BITS))


def _dice(bits: int) -> int:
    return secrets.randbelow((1 << bits) - 1) + 1
