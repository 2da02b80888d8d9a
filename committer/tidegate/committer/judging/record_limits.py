"""What is told fits into its topic, whatever was proposed or written past the gate.

Brokers take about a mebibyte a record where a topic asks for no more. One that none takes would end
whoever tells it, and each heir, who finds it in the log and tells it again.
"""

from typing import Final

import orjson
from pydantic import JsonValue

from tidegate.pipeline.codec import encode
from tidegate.pipeline.outcome import Outcome, Rejection
from tidegate.pipeline.published import TableRecord

VALUE_BYTES_MAX: Final = 768 * 1024
"""What an outcome takes at most: key, headers and what Kafka lays around them come to little."""

TEXT_CHARS_MAX: Final = 8 * 1024
"""Characters of a text that nobody bounded, where it is told; escaped, each takes six bytes."""

LEFT_OUT: Final = "left_out"
"""Under this name an outcome says what of `assigned` is in the log alone."""


def outcome_value(outcome: Outcome) -> bytes:
    """Return an outcome as it is told: all of it, where that fits."""
    value = encode(outcome)
    if len(value) <= VALUE_BYTES_MAX:
        return value
    rejection = outcome.rejection and _cut(outcome.rejection)
    bare = outcome.model_copy(update={"assigned": {}, "rejection": rejection})
    room = VALUE_BYTES_MAX - len(encode(bare)) - TEXT_CHARS_MAX
    return encode(bare.model_copy(update={"assigned": _assigned(outcome, room)}))


def short(text: str | None) -> str | None:
    """Return as much of a text as is told."""
    return text if text is None else text[:TEXT_CHARS_MAX]


def table_value(record: TableRecord) -> bytes:
    """Return a registration as it is told."""
    told = {"reason": short(record.reason), "table_id": short(record.table_id)}
    return encode(record.model_copy(update=told))


def _cut(rejection: Rejection) -> Rejection:
    texts = {name: told for name, told in rejection if isinstance(told, str)}
    return rejection.model_copy(update={name: short(told) for name, told in texts.items()})


def _assigned(outcome: Outcome, room: int) -> dict[str, JsonValue]:
    """Return what was assigned, the smallest parts first, as far as there is room."""
    sizes = {name: len(orjson.dumps(told)) for name, told in outcome.assigned.items()}
    kept: dict[str, JsonValue] = {}
    for name in sorted(sizes, key=sizes.__getitem__):
        room -= sizes[name] + len(name) + len('"":,')
        if room >= 0:
            kept[name] = outcome.assigned[name]
    left_out: list[JsonValue] = [name for name in sorted(sizes) if name not in kept]
    return {**kept, LEFT_OUT: left_out} if left_out else kept
