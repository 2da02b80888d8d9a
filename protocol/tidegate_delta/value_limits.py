"""How far a value may go: the one place that states it, for all who write, admit or read values.

What is proposed is refused past a limit, with the field's name. What stands in a log already is
passed over where the protocol lets a reader ignore it, and breaks the log where it does not.
"""

from typing import Any, Final

LONG_MAX: Final = 2**63 - 1
"""The greatest number of the log: counts, sizes, versions and row ids are 64 bits, with a sign.

Spec: "Add File and Remove File"
"""

MOMENT_MAX: Final = 2**53
"""The latest time of a version, in ms since the Unix epoch: in microseconds it is a long, too, and
every reader of JSON knows it exactly. None that we write lies past it.

Spec: "In-Commit Timestamps"
"""

AHEAD_MAX_MS: Final = 24 * 60 * 60 * 1000
"""How far past our clock a version may be dated that somebody proposes as it is: clocks differ by
less, and a version that is dated far ahead moves all that come after it.

Spec: "In-Commit Timestamps"
"""

DEPTH_MAX: Final = 64
"""Levels of nesting past which nothing that is proposed is read."""

KEPT_DEPTH_MAX: Final = 2 * DEPTH_MAX
"""Levels of nesting past which a value of the log that nothing depends on is not kept: more than an
entry of ours has, which repeats what was proposed, and fewer than encoders take.

Spec: "Protocol Evolution"
"""

_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"{[")


def is_deeper(value: Any, depth_max: int) -> bool:
    """Return whether a value of JSON is nested deeper than so many levels.

    Spec: "Protocol Evolution"
    """
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
    """Return whether the value that a JSON text spells may be nested deeper than DEPTH_MAX.

    Counting brackets is quick, and where there are so few nothing can be.
    Spec: "Protocol Evolution"
    """
    return len(text.translate(None, _NO_BRACKETS)) > DEPTH_MAX


def is_long(value: Any) -> bool:
    """Return whether a number of JSON is a long; one of very many digits is read as a float.

    Spec: "Add File and Remove File"
    """
    return not isinstance(value, int | float) or -LONG_MAX - 1 <= value <= LONG_MAX


def is_text(value: str) -> bool:
    """Return whether a string is text: half of a surrogate pair can't be written as UTF-8.

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
    """Return whether a number of JSON is a time that a version may have, in ms since 1970.

    Spec: "In-Commit Timestamps"
    """
    return not isinstance(value, int | float) or -MOMENT_MAX <= value <= MOMENT_MAX
