"""Named points at which a test may kill a process, as the machine would: without warning.

`TIDEGATE_FAILPOINT=name` kills at the first passage, `name:3` at the third, `name@id` at the first
one that is about this id. `raise:name@id:2` kills nobody: the first two passages raise an exception
of a class that nobody knows. Unset, a point costs one comparison.
"""

import os
import signal
from collections import Counter
from typing import Final

VARIABLE: Final = "TIDEGATE_FAILPOINT"
RAISE: Final = "raise:"

_asked: Final = os.environ.get(VARIABLE, "")
_armed, _, _count = _asked.removeprefix(RAISE).partition(":")
_passages: Counter[str] = Counter()


class Unforeseen(Exception):
    """What a test has raised where nobody expects anything."""


def reach(name: str, about: object = "") -> None:
    """Pass a named point; die there by SIGKILL when the environment says so.

    Raises: Unforeseen, when it says that.
    """
    if not _armed or _armed not in (name, f"{name}@{about}"):
        return
    _passages[name] += 1
    if _asked.startswith(RAISE):
        if _passages[name] <= int(_count or "1"):
            raise Unforeseen(f"passage {_passages[name]} of {name}")
    elif _passages[name] >= int(_count or "1"):
        os.kill(os.getpid(), signal.SIGKILL)
