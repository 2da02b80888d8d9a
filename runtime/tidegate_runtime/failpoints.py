"""Named points at which a test can kill a process without warning, as a machine failure would.

`TIDEGATE_FAILPOINT=name` kills at the first passage, `name:3` at the third, `name@id` at the first
one that is about this id. `suspend:name:3` stops the process at the third passage alone, until it
is sent SIGCONT. `raise:name@id:2` kills nothing: the first two passages raise an exception of an
unknown class. If the variable is unset, a point costs one comparison.
"""

import os
import signal
from collections import Counter
from typing import Final

VARIABLE: Final = "TIDEGATE_FAILPOINT"
RAISE: Final = "raise:"
SUSPEND: Final = "suspend:"

_requested: Final = os.environ.get(VARIABLE, "")
_armed, _, _count = _requested.removeprefix(RAISE).removeprefix(SUSPEND).partition(":")
_passages: Counter[str] = Counter()


class Unforeseen(Exception):
    """An exception of a class that no service handles specifically, raised by tests."""


def reach(name: str, object_id: object = "") -> None:
    """Pass a named point; kill or stop the process if the environment says so.

    Raises: Unforeseen, if the environment asks for that.
    """
    if not _armed or _armed not in (name, f"{name}@{object_id}"):
        return
    _passages[name] += 1
    if _requested.startswith(RAISE):
        if _passages[name] <= int(_count or "1"):
            raise Unforeseen(f"passage {_passages[name]} of {name}")
    elif _requested.startswith(SUSPEND):
        if _passages[name] == int(_count or "1"):
            os.kill(os.getpid(), signal.SIGSTOP)
    elif _passages[name] >= int(_count or "1"):
        os.kill(os.getpid(), signal.SIGKILL)
