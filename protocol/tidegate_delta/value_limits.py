"""Limits of values, stated once for all code that writes, checks or reads them.

A proposal with a value past its limit is refused, naming the field. Such a value that is already
in the log is ignored where the protocol lets a reader ignore it, and breaks the log elsewhere.

Spec: "Protocol Evolution"
"""

from typing import Any, Final

LONG_MAX: Final = 2**63 - 1
"""The greatest number in the log: counts, sizes, versions and row ids are signed 64-bit.

Spec: "Add File and Remove File"
"""

TIMESTAMP_MAX: Final = 2**53
"""The latest time of a version, in ms since the Unix epoch. In microseconds it still fits a long,
and every JSON reader represents it exactly. No entry that we write has a later time.

Spec: "In-Commit Timestamps"
"""

AHEAD_MAX_MS: Final = 24 * 60 * 60 * 1000
"""How far past our clock a version of a verbatim entry may be dated: clocks differ by less, and a
version dated far ahead pushes the times of all later versions.

Spec: "In-Commit Timestamps"
"""

DEPTH_MAX: Final = 64
"""The greatest nesting depth that is read in a proposal."""

KEPT_DEPTH_MAX: Final = 2 * DEPTH_MAX
"""The greatest nesting depth that is kept in a log value that nothing depends on. It exceeds the
depth of our own entries, which wrap what was proposed, and is below what JSON encoders accept.

Spec: "Protocol Evolution"
"""

_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"{[")


def is_deeper(value: Any, depth_max: int) -> bool:
    """Return whether a JSON value is nested deeper than `depth_max` levels."""
    level = [value] if type(value) in (dict, list) else []
    for _ in range(depth_max):
        if not level:
            return False
        level = [
            child
            for node in level
            for child in (node.values() if type(node) is dict else node)
            if type(child) is dict or type(child) is list
        ]
    return bool(level)


def may_be_deep(text: bytes) -> bool:
    """Return whether a JSON text may be nested deeper than DEPTH_MAX.

    Counts brackets only, which is fast: a text with few brackets cannot be deep.
    """
    return len(text.translate(None, _NO_BRACKETS)) > DEPTH_MAX


def is_long(value: Any) -> bool:
    """Return whether a JSON number is a 64-bit integer.

    One of very many digits is parsed as a float.
    Spec: "Add File and Remove File"
    """
    return not isinstance(value, int | float) or -LONG_MAX - 1 <= value <= LONG_MAX


def is_text(value: str) -> bool:
    """Return whether a string can be written as UTF-8: it has no unpaired surrogate.

    Spec: "Per-file Statistics"
    """
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_moment(value: Any) -> bool:
    """Return whether a JSON number is a time that a version may have, in ms since 1970.

    Spec: "In-Commit Timestamps"
    """
    return not isinstance(value, int | float) or -TIMESTAMP_MAX <= value <= TIMESTAMP_MAX
