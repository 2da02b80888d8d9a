"""Control of Python's garbage collector, so that it does not delay reads and waiting writers.

By itself it scans new objects at a moment of its own choice: a service that keeps many objects and
makes no cycles stops for a tenth of a second, and nothing is freed.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

AT_LEISURE: Final = 2_000
"""New objects since the last collection that trigger the next one while no writer waits: about a
millisecond's work.
"""

AT_ONCE: Final = 10_000
"""The same while a writer waits."""

LOOKS: Final = 5
"""Collections of generation 0 after which generation 1 is collected, too."""

WHOLE_S: Final = 60 * 60.0
"""Seconds between two full collections of an idle service: one takes up to seconds."""

WHOLE_MAX_S: Final = 24 * 60 * 60.0
"""The same for a busy service."""

BY_ITSELF: Final = (50_000, 1_000, 1_000_000)
"""`gc.set_threshold` for automatic collections, which then occur only within one long step."""


@contextmanager
def paused() -> Iterator[None]:
    """Pause the collector. Objects outside cycles are still freed.

    Rows of JSON are many small objects without cycles: scanning them costs as much as reading them.
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
    """Collects garbage between two steps of a service, a little at a time.

    Units: `whole_s` is the time of the last full collection, by `Clock.boot_s`.
    """

    whole_s: float

    def begin(self) -> None:
        """Take over from the automatic collector. Existing objects are frozen and never scanned."""
        gc.set_threshold(*BY_ITSELF)
        if gc.get_freeze_count():
            # There was a run before this one, and its garbage would be frozen, too: store clients
            # are full of cycles, and old by then.
            gc.unfreeze()
            gc.collect()
        else:
            gc.collect(1)
        gc.freeze()

    def sweep(self, now_s: float, at_leisure: bool, is_idle: bool) -> None:
        """Collect new objects, if there are many.

        `at_leisure`: no writer waits at this moment. `is_idle`: no work is in flight.
        """
        if now_s - self.whole_s >= (WHOLE_S if is_idle else WHOLE_MAX_S):
            self.whole_s = now_s
            gc.collect()
            return
        young, young_collections, _ = gc.get_count()
        if young >= (AT_LEISURE if at_leisure else AT_ONCE):
            gc.collect(1 if young_collections >= LOOKS else 0)
