"""Finds records that kill the process (poison records), and has them refused.

A killed process leaves no message. So a note, stored as metadata of the group's committed offset in
the same request, names the process at work. A new owner that finds another process's name in it,
and records without an outcome, counts a death. From the second death in a row on, the suspected
records are handled one by one, each after the note names it. The record over which the third
process dies is refused unread. After the first death, only deaths while records are being handled
count.

The note is a hint, as offsets are. A process that was merely suspended counts as dead: that costs
speed, and at worst refuses a good record, but breaks no promise.
"""

import json
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final
from uuid import UUID

from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_reader import DeadLetter, read_identity
from tidegate_committer.intake.refusals import FAULT, flaw
from tidegate_committer.loop.read_ahead import HANDLED_MAX, RECORDS_MAX
from tidegate_delta.errors import MalformedRecord
from tidegate_delta.log.commit import sha256
from tidegate_messages.codec import parse_json
from tidegate_messages.outcome import Rejection
from tidegate_runtime.containment import reason_of
from tidegate_runtime.kafka.client_protocols import Bus, Consumer, Offset, Record, TopicPartition

DEATHS_MAX: Final = 3
"""Deaths in a row after which the record that was handled alone is refused."""

ALONE_FROM: Final = 2
"""Deaths in a row from which on records are handled one by one."""

GUILTY_MAX: Final = 32
"""How many poison records the note remembers: their writers may send the same bytes again."""

SUSPECTS_MAX: Final = HANDLED_MAX
"""How many records are suspected, from the first without an outcome on, if they are handled in
offset order. That is so from the first death on; before it, any record that was read may be at
fault.
"""

DIGEST_CHARS: Final = 32


@dataclass(frozen=True)
class SuspectNote:
    """The note beside an offset.

    `owner` is the process at work, empty after a clean stop. `deaths` is how many processes died in
    a row before the offset passed `until`. `alone` says that the records before `until` are handled
    one by one; `suspect` is the digest of the one being handled, `against` that of the one at the
    last death. `judging` says, once there was a death, that records are being handled. `guilty`
    maps the digests of poison records to whether even refusing them killed a process. `topic` is
    the topic's id.
    """

    owner: str = ""
    deaths: int = 0
    until: int = 0
    alone: bool = False
    suspect: str = ""
    judging: bool = False
    against: str = ""
    guilty: Mapping[str, bool] = field(default_factory=dict)
    topic: str = ""

    def is_cleared(self) -> "SuspectNote":
        """Return the note once all suspected records have their outcomes."""
        return SuspectNote(self.owner, guilty=self.guilty, topic=self.topic)

    def clean(self) -> "SuspectNote":
        """Return the note of a process that stops cleanly; earlier deaths stay counted."""
        return self.taken_by("")

    def taken_by(self, owner: str) -> "SuspectNote":
        """Return the note of a new owner that has not handled any record."""
        return replace(self, owner=owner, suspect="", judging=False)


def read_note(text: str) -> SuspectNote:
    """Parse a note; return an empty one if the text is no note of a committer."""
    try:
        body = parse_json(text.encode())
        return SuspectNote(
            str(body.get("owner", "")),
            int(body.get("deaths", 0)),
            int(body.get("until", 0)),
            bool(body.get("alone", False)),
            str(body.get("trial", "")),
            bool(body.get("judging", False)),
            str(body.get("against", "")),
            {str(digest): bool(worse) for digest, worse in body.get("guilty", {}).items()},
            str(body.get("topic", "")),
        )
    except (MalformedRecord, ValueError, TypeError, AttributeError):
        return SuspectNote()


def note_text(note: SuspectNote) -> str:
    """Return a note as JSON text, without empty fields.

    Law: read_note(note_text(note)) == note
    """
    body: dict[str, Any] = {
        "owner": note.owner,
        "deaths": note.deaths,
        "until": note.until,
        "alone": note.alone,
        "trial": note.suspect,
        "judging": note.judging,
        "against": note.against,
        "guilty": dict(note.guilty),
        "topic": note.topic,
    }
    filled = {key: value for key, value in body.items() if value}
    return json.dumps(filled, separators=(",", ":")) if filled else ""


def inherited(note: SuspectNote, process: str, unanswered: range) -> SuspectNote:
    """Return the note of a process that takes over; `unanswered` are offsets without an outcome.

    Law: a clean stop, or our own name in the note, counts no death
    """
    is_unfinished = unanswered.start < note.until
    if note.owner in ("", process):
        inherited_note = note.taken_by(process)
        return inherited_note if is_unfinished else inherited_note.is_cleared()
    if not unanswered:
        return SuspectNote(process, guilty=note.guilty, topic=note.topic)
    successor = replace(note.taken_by(process), until=unanswered.stop)
    if not is_unfinished:
        return replace(successor, deaths=1, alone=False, against="")
    if note.alone:
        return _after_death_over(successor, note.suspect) if note.suspect else successor
    # No record is at fault for a death at the start or while a table is loaded.
    deaths = note.deaths + 1 if note.judging else note.deaths
    return replace(successor, deaths=deaths, alone=deaths >= ALONE_FROM)


def _after_death_over(successor: SuspectNote, suspect: str) -> SuspectNote:
    """Return the note after a death over `suspect`, a record that was handled alone."""
    is_same = successor.against in ("", suspect)
    deaths = successor.deaths + 1 if is_same else 1
    if deaths < DEATHS_MAX:
        return replace(successor, deaths=deaths, against=suspect)
    # This record is refused from here on, so further deaths have another cause.
    guilty = {**_without(successor.guilty, suspect), suspect: suspect in successor.guilty}
    kept = dict(islice(guilty.items(), max(0, len(guilty) - GUILTY_MAX), None))
    return replace(successor, deaths=0, against="", guilty=kept)


def digest_of(record: Record) -> str:
    """Return the digest of a record's value, by which notes identify it and its copies."""
    return sha256(record.value or b"")[:DIGEST_CHARS]


@dataclass
class PoisonSuspects:
    """The suspected records of one topic partition.

    `recorded` is the group's committed offset; `held` are records that were read and wait to be
    handled alone.
    """

    note: SuspectNote
    recorded: Offset
    held: deque[Record] = field(default_factory=deque)

    def holds(self, record: Record) -> bool:
        """Return whether a record must wait to be handled alone, or behind such a record."""
        return bool(self.held) or (self.note.alone and record.offset < self.note.until)

    def is_over(self) -> bool:
        """Return whether the next held record, and so all behind it, is not suspected."""
        return bool(self.held) and self.held[0].offset >= self.note.until

    def name_next(self) -> None:
        """Write the digest of the next held record into the note; nothing if none is held."""
        suspect = digest_of(self.held[0]) if self.held else ""
        self.note = replace(self.note, suspect=suspect)

    @property
    def must_note_judging(self) -> bool:
        """Whether the note must say that records are being handled before the next one is."""
        return bool(self.note.deaths) and not (self.note.alone or self.note.judging)

    def note_judging(self) -> None:
        """Write into the note that records are being handled."""
        self.note = replace(self.note, judging=True)

    def note_at(self, offset: Offset) -> str:
        """Return the note to store with an offset."""
        if offset >= self.note.until and not self.held:
            self.note = self.note.is_cleared()
        return note_text(self.note)

    def guilt(self, record: Record) -> bool | None:
        """Return whether even refusing a poison record killed a process; None for other records."""
        return self.note.guilty.get(digest_of(record)) if self.note.guilty else None


def take_over(
    bus: Bus, consumer: Consumer, topic_partition: TopicPartition, process: str, topic_id: str
) -> PoisonSuspects:
    """Return the suspected records of a newly assigned topic partition. Raises: Unavailable."""
    recorded, text = consumer.noted(topic_partition)
    note = read_note(text)
    # The note may be of a deleted topic with the same name: then it means nothing.
    is_of_another = recorded is not None and note.topic not in ("", topic_id)
    if is_of_another:
        recorded, note = None, SuspectNote()
    note = replace(note, topic=topic_id)
    if recorded is not None and note.owner in ("", process):
        return PoisonSuspects(inherited(note, process, range(recorded, recorded)), recorded)
    reader = bus.reader()
    try:
        first, end = reader.bounds(topic_partition)
    finally:
        reader.close()
    start = first if recorded is None else recorded
    if is_of_another:
        consumer.seek(topic_partition, start)
    in_order = note.deaths or note.alone
    unanswered = range(start, min(end, start + (SUSPECTS_MAX if in_order else RECORDS_MAX)))
    return PoisonSuspects(inherited(note, process, unanswered), start)


def _without(guilty: Mapping[str, bool], digest: str) -> dict[str, bool]:
    return {
        suspect: kills_even_refused
        for suspect, kills_even_refused in guilty.items()
        if suspect != digest
    }


POISON: Final = "poison"

_LOOKS_LIKE: Final = re.compile(rb'"(proposal_id|table)"\s{0,8}:\s{0,8}"([0-9a-fA-F-]{36})"')

_WRONG: Final = flaw(
    POISON,
    "(record)",
    "the committer died three times in a row while it handled this record",
    "have a look at its size and its nesting, and propose the work in another form",
)


def read_poison(record: Record, *, even_refusing_kills: bool) -> Candidate | DeadLetter:
    """Return the refusal of a poison record, of which only the identity is parsed.

    If even that killed a process, nothing is parsed. The identity is then what the record's headers
    claim, or what looks like one in its bytes, and the answer is a denial, which promises nothing.
    """
    if not even_refusing_kills:
        return read_identity(record.value, record.offset, _WRONG, record.headers)
    return unparsed(record, _WRONG)


def at_fault(record: Record, error: Exception) -> DeadLetter:
    """Return the dead letter of a record on which the committer failed without dying."""
    problem = f"the committer failed over this record: {reason_of(error)}"
    remedy = "propose the work in another form, and report it with the traceback in our log"
    return unparsed(record, flaw(FAULT, "(record)", problem, remedy))


def unparsed(record: Record, wrong: Rejection) -> DeadLetter:
    """Return the dead letter of a record without parsing it."""
    value = record.value or b""
    ids_in_value = {match[1].decode(): match[2] for match in _LOOKS_LIKE.finditer(value)}
    claims = {**ids_in_value, **dict(record.headers)}
    proposal, table = (_uuid(claims.get(name, b"")) for name in ("proposal_id", "table"))
    return DeadLetter(wrong.rule, wrong.reason, sha256(value), proposal, table)


def _uuid(value: bytes) -> UUID | None:
    try:
        return UUID(value.decode())
    except ValueError:
        return None
