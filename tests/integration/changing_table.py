"""A table that changes at random while a block runs, with a notification for each change."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.integration.conftest import Line
from tests.unit.cdc_publisher.written_table import WrittenTable, change_at_random
from tidegate_runtime.kafka.confluent_bus import KafkaBus

PAUSE_S = 0.05
ENDS_S = 30.0


@contextmanager
def changing(table: WrittenTable, dice: random.Random, line: Line) -> Iterator[None]:
    """Write versions in a thread until the block ends; the last one is complete."""
    bell = KafkaBus(line.kafka, "test").producer()
    over = threading.Event()

    def write() -> None:
        while not over.is_set():
            change_at_random(table, dice)
            table.ring(bell, line.kafka.topics)
            over.wait(PAUSE_S)

    writing = threading.Thread(target=write, daemon=True)
    writing.start()
    try:
        yield
    finally:
        over.set()
        writing.join(ENDS_S)
    assert not writing.is_alive(), "the writer ends when it is told to"
