"""Dead letters: they fit into their topic, whatever was sent."""

import pytest

from tests.builders import Gate
from tidegate.committer.telling import LETTER_BYTES_MAX, LETTER_HEADERS_BYTES_MAX
from tidegate.runtime.bus import Headers, Record, TopicPartition

MIB = 1024 * 1024
TOPIC_BYTES_MAX = 4 * MIB
OVERHEAD = 20
"""Bytes of lengths that Kafka writes beside each header, and beside key and value, at most."""


def size_of(record: Record) -> int:
    headers = sum(len(name.encode()) + len(value) + OVERHEAD for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + 2 * OVERHEAD


def set_aside(key: bytes | None, value: bytes, headers: Headers) -> Record:
    gate = Gate()
    gate.bus.append(TopicPartition(gate.topics.proposals, 0), key, value, headers)
    gate.settle()
    [letter] = gate.letters()
    return letter


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (b"k" * 4 * MIB, b"{", ()),
        (None, b"[" * 4 * MIB, ()),
        (None, b"{", tuple((f"h{number}", b"") for number in range(200_000))),
        (None, b"{", (("h", b"x" * 4 * MIB),)),
        (b"k" * 4 * MIB, b"[" * 4 * MIB, tuple(("h" * 90, b"x" * 900) for _ in range(4_000))),
    ],
)
def test_a_dead_letter_fits_into_its_topic(
    key: bytes | None, value: bytes, headers: Headers
) -> None:
    letter = set_aside(key, value, headers)
    assert size_of(letter) < TOPIC_BYTES_MAX
    assert (letter.value or b"") == value[:LETTER_BYTES_MAX]
    assert (key or b"").startswith(letter.key or b"")
    told = dict(letter.headers)
    assert told["rule"] == b"malformed"
    assert {"reason", "source", "sha256"} <= told.keys()


def test_what_is_small_is_kept_whole() -> None:
    headers = (("format", b"proposal/1"), ("large", b"x" * (LETTER_HEADERS_BYTES_MAX // 2)))
    letter = set_aside(b"key", b"{", headers)
    assert (letter.key, letter.value, letter.headers[:2]) == (b"key", b"{", headers)
