"""Records that are larger than their topic takes: cut, left out and noted, or put into a file."""

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, Literal

import orjson

from tidegate_cdc_publisher.change_records import Headers, RecordPlace, Records
from tidegate_cdc_publisher.envelopes import ENVELOPES, EnvelopeForm
from tidegate_cdc_publisher.record_form import Envelope
from tidegate_delta.errors import InvalidRequest
from tidegate_messages.proposal import ClaimCheck
from tidegate_messages.schema_announcement import CLAIM_CHECK, CLAIMS_FOLDER, TRUNCATED

LargeRows = Literal["fail", "truncate", "dead_letter", "claim_check"]
"""`fail` stops the stream, `truncate` cuts texts, `dead_letter` leaves the row out and notes it on
the topic of dead letters, `claim_check` puts the value into a file beside the table.
"""

_OVERHEAD_BYTES: Final = 16 * 1024
"""What headers and the batch add to a record, at most."""

_CUTS: Final = (65_536, 8_192, 1_024, 64)
"""The lengths to which texts are cut, until the record fits."""

Put = Callable[[str, bytes], object]


@dataclass(frozen=True)
class LargeRowRule:
    """What to do with records above the limit. `put` writes a file of the table, if it is absent.

    Units: `record_bytes_max` is what the topic takes.
    """

    policy: LargeRows
    record_bytes_max: int
    dead_letters: str
    put: Put

    def applied(self, records: Records, topic: str, envelope: Envelope) -> Records:
        """Return the records, each small enough. Raises: InvalidRequest (`RecordTooLarge`)."""
        limit = self.record_bytes_max - _OVERHEAD_BYTES
        if self.policy == "fail" or not any(
            value is not None and len(value) > limit for value in records.values
        ):
            return records
        small = Records(ids_in=records.ids_in)
        for number, value in enumerate(records.values):
            record = records[number : number + 1]
            if value is not None and len(value) > limit:
                large = _Large(value, records.event_ids[number], limit, ENVELOPES[envelope])
                record = self._small(record, large, topic)
            small += record
        return small

    def _small(self, record: Records, large: "_Large", topic: str) -> Records:
        match self.policy:
            case "truncate":
                value, names = large.cut(topic)
                return _with(record, value, [(TRUNCATED, ",".join(names).encode())])
            case "claim_check":
                claim = self._claim(large)
                header = orjson.dumps(claim.model_dump(mode="json", exclude_none=True))
                return _with(record, large.without_images(), [(CLAIM_CHECK, header)])
            case _:
                return self._dead_letter(record, large, topic)

    def _claim(self, large: "_Large") -> ClaimCheck:
        """Put the value into a file; a repetition finds the one that is there."""
        digest = sha256(large.value).hexdigest()
        path = f"{CLAIMS_FOLDER}/{digest}.json"
        self.put(path, large.value)
        return ClaimCheck(path=path, size=len(large.value), sha256=digest)

    def _dead_letter(self, record: Records, large: "_Large", topic: str) -> Records:
        note = {
            "topic": topic,
            "event_id": (large.event_id or b"").decode(),
            "size_bytes": len(large.value),
        }
        reason = f"a record of {len(large.value)} bytes, and {topic} takes {self.record_bytes_max}"
        headers: Headers = [
            *record.shared[0],
            ("reason", reason.encode()),
            ("rule", b"RecordTooLarge"),
            ("source", topic.encode()),
        ]
        records = Records(ids_in=record.ids_in)
        records.append(
            record.keys[0], orjson.dumps(note), headers, RecordPlace(self.dead_letters, 0)
        )
        return records


@dataclass(frozen=True)
class _Large:
    """A value that is too large, and the id of its change."""

    value: bytes
    event_id: bytes | None
    limit: int
    envelope: EnvelopeForm
    parsed: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parsed", orjson.loads(self.value))

    @property
    def payload(self) -> dict[str, Any]:
        """The value without its schema."""
        is_beside = self.parsed.keys() == {"schema", "payload"}
        payload: dict[str, Any] = self.parsed["payload"] if is_beside else self.parsed
        return payload

    def cut(self, topic: str) -> tuple[bytes, list[str]]:
        """Return the value with its texts cut, and the columns whose texts were cut.

        Raises: InvalidRequest (`RecordTooLarge`), if what is no text is too large.
        """
        names: set[str] = set()
        for length in _CUTS:
            self._cut_to(length, names)
            small = orjson.dumps(self.parsed)
            if len(small) <= self.limit:
                return small, sorted(names)
        raise InvalidRequest(
            f"a record for {topic} has {len(self.value)} bytes, more than the topic takes, and "
            "cutting its texts does not help: leave columns out (column_exclude_list), or set "
            "large_rows to claim_check",
            error_class="RecordTooLarge",
        )

    def _cut_to(self, length: int, names: set[str]) -> None:
        for image in self.envelope.images(self.payload):
            for name, content in image.items():
                if isinstance(content, str) and len(content) > length:
                    image[name] = content[:length]
                    names.add(name)

    def without_images(self) -> bytes:
        """Return the value without its rows, which stand in a file."""
        for name in self.envelope.image_fields:
            self.payload[name] = None
        return orjson.dumps(self.parsed)


def _with(record: Records, value: bytes, more: Headers) -> Records:
    record.values[0] = value
    record.shared[0] = [*record.shared[0], *more]
    return record
