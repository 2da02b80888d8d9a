"""W3C trace context: the header that links the spans of one proposal.

It is passed on and never acted upon, as a header is unverified.
"""

import re
from collections.abc import Iterable
from typing import Final

TRACEPARENT: Final = "traceparent"
"""The header's name in W3C's standard. As an environment variable it is TRACEPARENT."""

TRACE_ID_BITS: Final = 128
SPAN_ID_BITS: Final = 64
LENGTH_MAX: Final = 512
"""Longer headers of a newer version are not passed on. In characters."""

_FORM: Final = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
    r"(?P<more>-[!-~]*)?"
)


def is_traceparent(text: str) -> bool:
    """Return whether a text is a trace context that W3C allows to be passed on."""
    match = _FORM.fullmatch(text) if len(text) <= LENGTH_MAX else None
    return match is not None and not (match["version"] == "00" and match["more"])


def compose(trace_id: int, span_id: int, flags: int = 0) -> str:
    """Return a context; without flags it is "not sampled". Neither id may be zero.

    Law: is_traceparent(compose(t, s)) for 0 < t < 2**128 and 0 < s < 2**64.
    """
    assert 0 < trace_id < 1 << TRACE_ID_BITS, "a trace id has 128 bits and is not zero"
    assert 0 < span_id < 1 << SPAN_ID_BITS, "a span id has 64 bits and is not zero"
    return f"00-{trace_id:032x}-{span_id:016x}-{flags & 0xFF:02x}"


def trace_id(headers: Iterable[tuple[str, bytes]]) -> str | None:
    """Return the trace id in some headers, as its 32 hex digits, or None.

    Law: trace_id([(TRACEPARENT, compose(t, s).encode())]) == f"{t:032x}".
    """
    traceparent = traceparent_of(headers)
    return None if traceparent is None else traceparent.split("-")[1]


def traceparent_of(headers: Iterable[tuple[str, bytes]]) -> str | None:
    """Return the trace context in some headers, or None.

    Law: traceparent_of([(TRACEPARENT, compose(t, s).encode())]) == compose(t, s).
    """
    return next((value.decode("ascii") for _, value in passed_on(headers)), None)


def passed_on(headers: Iterable[tuple[str, bytes]]) -> tuple[tuple[str, bytes], ...]:
    """Return the headers to copy from a record to those that it causes: its trace, if it has one.

    Law: where `headers` hold a valid trace, it comes back, once, byte for byte; nothing else does.
    """
    for name, value in headers:
        if name == TRACEPARENT and is_traceparent(value.decode("ascii", "replace")):
            return ((TRACEPARENT, value),)
    return ()
