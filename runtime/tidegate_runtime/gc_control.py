"""Python's garbage collector, out of the way: of rows that are read at once, and of whoever waits.

Left alone it looks through whatever was made since it did so last, at a moment of its own choice:
a service that keeps much and makes no cycles stands still for a tenth of a second, and frees
nothing.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

AT_LEISURE: Final = 2_000
"""Objects made and not freed since the last look, after which those are looked through while nobody
waits: about a millisecond's work."""

AT_ONCE: Final = 10_000
"""The same while somebody waits."""

LOOKS: Final = 5
"""Looks after which all that was found alive in them is looked through once more, and then left."""

WHOLE_S: Final = 60 * 60.0
"""How long nothing older is looked through, if somebody may wait later: it takes up to seconds."""

WHOLE_MAX_S: Final = 24 * 60 * 60.0
"""The same, whoever waits."""

BY_ITSELF: Final = (50_000, 1_000, 1_000_000)
"""When the collector looks all the same, as `gc.set_threshold` counts: within one long step."""


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


@dataclass
class GarbageSweeper:
    """Looks for garbage between two steps of a service, a little at a time.

    Units: `whole_s` is when all was looked through, by `Clock.boot_s`.
    """

    whole_s: float

    def begin(self) -> None:
        """Take it over from the collector; what is there now stays, and is not looked through."""
        gc.set_threshold(*BY_ITSELF)
        if gc.get_freeze_count():
            # A run was before this one, and what it left behind would stay, too: clients of a store
            # are full of cycles, and old by then.
            gc.unfreeze()
            gc.collect()
        else:
            gc.collect(1)
        gc.freeze()

    def sweep(self, now_s: float, at_leisure: bool, is_idle: bool) -> None:
        """Look through what is new, if it is much. `at_leisure`: nobody waits for a moment;
        `is_idle`: nobody has anything under way.
        """
        if now_s - self.whole_s >= (WHOLE_S if is_idle else WHOLE_MAX_S):
            self.whole_s = now_s
            gc.collect()
            return
        young, looks, _ = gc.get_count()
        if young >= (AT_LEISURE if at_leisure else AT_ONCE):
            gc.collect(1 if looks >= LOOKS else 0)
