"""A table that changes at random while a block runs, with a notification for each change."""

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tests.integration.conftest import Line
from tests.unit.cdc_publisher.written_table import WrittenTable, change_at_random
from tidegate_delta.errors import OutcomeUnknown, Unavailable
from tidegate_runtime.kafka.confluent_bus import KafkaBus

VERSIONS_PER_S = 20.0
FILES_MAX = 10
ROWS_MAX = 2_000
ENDS_S = 30.0


@contextmanager
def changing(
    table: WrittenTable,
    dice: random.Random,
    line: Line,
    per_s: float = VERSIONS_PER_S,
    is_paused: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Write so many versions a second in a thread until the block ends; the last one is complete.

    None are written while `is_paused()`: on a busy machine a reader must not fall behind for ever.
    Now and then the table is compacted or half of it deleted, so that no version takes long.
    A version whose notification the brokers do not take is found by the publisher's look.
    """
    bell = KafkaBus(line.kafka, "test").producer()
    over = threading.Event()

    def write() -> None:
        began_s = time.monotonic()
        for number in itertools.count(1):
            while is_paused():
                if over.wait(1.0 / per_s):
                    return
            if len(table.files) > FILES_MAX:
                table.compact()
            elif len(table.content) > ROWS_MAX:
                table.rewrite(lambda old: old[len(old) // 2 :])
            else:
                change_at_random(table, dice)
            with suppress(Unavailable, OutcomeUnknown):
                table.notify(bell, line.kafka.topics)
            if over.wait(max(0.0, began_s + number / per_s - time.monotonic())):
                return

    writing = threading.Thread(target=write, daemon=True)
    writing.start()
    try:
        yield
    finally:
        over.set()
        writing.join(ENDS_S)
    assert not writing.is_alive(), "the writer ends when it is told to"
