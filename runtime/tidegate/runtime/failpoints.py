"""Named points at which a test may kill a process, as the machine would: without warning.

`TIDEGATE_FAILPOINT=name` kills at the first passage, `name:3` at the third, `name@id` at the first
one that is about this id. Unset, a point costs one comparison.
"""

import os
import signal
from collections import Counter
from typing import Final

VARIABLE: Final = "TIDEGATE_FAILPOINT"

_armed, _, _count = os.environ.get(VARIABLE, "").partition(":")
_passages: Counter[str] = Counter()


def reach(name: str, about: object = "") -> None:
    """Pass a named point; die there by SIGKILL when the environment says so."""
    if not _armed or _armed not in (name, f"{name}@{about}"):
        return
    _passages[name] += 1
    if _passages[name] >= int(_count or "1"):
        os.kill(os.getpid(), signal.SIGKILL)
