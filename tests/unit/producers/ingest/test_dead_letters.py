"""Dead letters in their topic: what is one and the same, and what stays one."""

from tests.fakes.memory_bus import MemoryBus
from tidegate_producers.ingest.dead_letters import DeadLetter, read_all, send, sent_ahead
from tidegate_producers.ingest.positions import SourcePartition

TOPIC = "ingest-dead-letters"
A, B = SourcePartition("orders", "Xy", 0), SourcePartition("orders", "Xy", 1)
BEFORE = SourcePartition("orders", "old", 0)


def letter(
    source: SourcePartition, offset: int, root: str = "file:///t", attempt: int = 1
) -> DeadLetter:
    headers = (("kind", b"order"),)
    return DeadLetter(root, source, offset, "is no int", "id", b"k", b"\x00", headers, attempt)


def sent(*letters: DeadLetter) -> MemoryBus:
    bus = MemoryBus({TOPIC: 1})
    assert send(bus.producer(), TOPIC, letters) == len(letters)
    return bus


def test_a_letter_is_read_as_it_was_sent() -> None:
    given = [letter(A, 5), letter(A, 5, attempt=2), letter(BEFORE, 5)]
    assert [each for _, each in read_all(sent(*given).reader(), TOPIC)] == given


def test_what_a_repeated_batch_sends_is_one_letter() -> None:
    given = [letter(A, 5), letter(A, 5), letter(A, 6)]
    found = list(read_all(sent(*given).reader(), TOPIC))
    assert [(offset, each.offset) for offset, each in found] == [(0, 5), (2, 6)]


def test_letters_beyond_the_positions_stay_letters() -> None:
    """A job may have died between sending them and its commit, and be started otherwise."""
    given = [
        letter(A, 4),
        letter(A, 5),
        letter(B, 0),
        letter(BEFORE, 9),
        letter(A, 6, "file:///other"),
    ]
    reader = sent(*given).reader()
    assert sent_ahead(reader, TOPIC, "file:///t", {A: 4, B: -1}) == ["orders/0@5", "orders/1@0"]
