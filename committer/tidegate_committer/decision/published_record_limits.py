"""Limits on published records, so that each fits into its topic, whatever was proposed.

By default brokers accept about a mebibyte a record. A larger outcome would end the process that
publishes it, and each next owner as well, which finds it in the log and publishes it again.
"""

from typing import Final

import orjson
from pydantic import JsonValue

from tidegate_messages.codec import encode
from tidegate_messages.outcome import Outcome, Rejection
from tidegate_messages.published_records import TableRecord

VALUE_BYTES_MAX: Final = 768 * 1024
"""The largest value of an outcome: the rest is for key, headers and Kafka's framing."""

TEXT_CHARS_MAX: Final = 8 * 1024
"""How many characters of an unbounded text are published; escaped, each takes up to six bytes."""

LEFT_OUT: Final = "left_out"
"""The key of `assigned` that names the parts which are only in the log."""


def outcome_value(outcome: Outcome) -> bytes:
    """Return an outcome's bytes: whole if they fit, else with parts of `assigned` left out."""
    value = encode(outcome)
    if len(value) <= VALUE_BYTES_MAX:
        return value
    rejection = outcome.rejection and _shortened(outcome.rejection)
    stripped = outcome.model_copy(update={"assigned": {}, "rejection": rejection})
    room = VALUE_BYTES_MAX - len(encode(stripped)) - TEXT_CHARS_MAX
    return encode(stripped.model_copy(update={"assigned": _assigned(outcome, room)}))


def short(text: str | None) -> str | None:
    """Return a text cut to `TEXT_CHARS_MAX`."""
    return text if text is None else text[:TEXT_CHARS_MAX]


def table_value(record: TableRecord) -> bytes:
    """Return a registration's bytes, with unbounded texts cut."""
    texts = {"reason": short(record.reason), "table_id": short(record.table_id)}
    return encode(record.model_copy(update=texts))


def _shortened(rejection: Rejection) -> Rejection:
    texts = {name: text for name, text in rejection if isinstance(text, str)}
    return rejection.model_copy(update={name: short(text) for name, text in texts.items()})


def _assigned(outcome: Outcome, room: int) -> dict[str, JsonValue]:
    """Return the parts of `assigned` that fit, smallest first, and the names of the others."""
    sizes = {name: len(orjson.dumps(part)) for name, part in outcome.assigned.items()}
    kept: dict[str, JsonValue] = {}
    for name in sorted(sizes, key=sizes.__getitem__):
        room -= sizes[name] + len(name) + len('"":,')
        if room >= 0:
            kept[name] = outcome.assigned[name]
    left_out: list[JsonValue] = [name for name in sorted(sizes) if name not in kept]
    return {**kept, LEFT_OUT: left_out} if left_out else kept
