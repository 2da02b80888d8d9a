"""The trace of this program's work: continued from its caller, or started here."""

import os
import secrets
from typing import Final

from tidegate_messages.trace_context import SPAN_ID_BITS, TRACE_ID_BITS, compose, is_traceparent

VARIABLE: Final = "TRACEPARENT"
"""The environment variable that passes a trace to a started program."""


def traceparent() -> str:
    """Return the environment's trace context, or a new one if it has no valid one."""
    inherited = os.environ.get(VARIABLE, "")
    if is_traceparent(inherited):
        return inherited
    return compose(_random_id(TRACE_ID_BITS), _random_id(SPAN_ID_BITS))


def _random_id(bits: int) -> int:
    return secrets.randbelow((1 << bits) - 1) + 1
