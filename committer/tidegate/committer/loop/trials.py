"""Trials: a record that kills the process is found, judged alone, and in the end judged no more.

Who is killed leaves no word. But with the group's offset travels a note, in the same request, that
says whose process is at work: a heir who finds another's name there, and records without an answer,
knows that somebody died over them. From the second death on they are judged one by one, each after
its name stands in the note. The record over which the third one died is refused unread. Once a
death is on record, only those count that came while records were under judgement.

The note is a hint, as offsets are. Whoever was only suspended counts as dead: that costs pace, and
a record its commit at worst, never its promise.
"""

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

from tidegate.delta.commit import sha256
from tidegate.delta.errors import MalformedRecord
from tidegate.pipeline.codec import parse_json
from tidegate.runtime.bus import Bus, Consumer, Offset, Record, TopicPartition

DEATHS_MAX: Final = 3
"""Deaths in a row after which the record that is judged alone is to blame."""

ALONE_FROM: Final = 2
"""Deaths in a row from which on records are judged alone."""

GUILTY_MAX: Final = 32
"""Records that are remembered: their writers may send the same bytes again."""

SUSPECTS_MAX: Final = 5_000
"""Records that one committer has in hand at most when it dies."""

DIGEST_CHARS: Final = 32


@dataclass(frozen=True)
class Note:
    """What travels with an offset.

    `owner` is the process at work, none after a clean stop; `deaths` how many died in a row before
    the offset had passed `until`; `alone` says that the records up to there are judged one by one,
    `trial` which one is, by its digest, and `against` which one was at the last death. `judging`
    says, where somebody died before, that records are under judgement. `guilty` are records that
    killed, and whether even their refusal did. `topic` is the id of the topic whose offset it is.
    """

    owner: str = ""
    deaths: int = 0
    until: int = 0
    alone: bool = False
    trial: str = ""
    judging: bool = False
    against: str = ""
    guilty: Mapping[str, bool] = field(default_factory=dict)
    topic: str = ""

    def at_peace(self) -> "Note":
        """Return the note once the records in question are answered."""
        return Note(self.owner, guilty=self.guilty, topic=self.topic)

    def clean(self) -> "Note":
        """Return the note of who goes alive: who died before him stays counted."""
        return self.taken_by("")

    def taken_by(self, owner: str) -> "Note":
        """Return the note of somebody who judges nothing yet."""
        return replace(self, owner=owner, trial="", judging=False)


def read_note(text: str) -> Note:
    """Return what a note says; nothing where it is none of ours."""
    try:
        body = parse_json(text.encode())
        return Note(
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
        return Note()


def note_text(note: Note) -> str:
    """Return a note as it travels: what says nothing is left out.

    Law: read_note(note_text(note)) == note
    """
    body: dict[str, Any] = {
        "owner": note.owner,
        "deaths": note.deaths,
        "until": note.until,
        "alone": note.alone,
        "trial": note.trial,
        "judging": note.judging,
        "against": note.against,
        "guilty": dict(note.guilty),
        "topic": note.topic,
    }
    said = {key: value for key, value in body.items() if value}
    return json.dumps(said, separators=(",", ":")) if said else ""


def inherited(found: Note, process: str, unanswered: range) -> Note:
    """Return the note of who takes over, given the offsets of the records without an answer.

    Law: a clean stop, and one's own name, count no death
    """
    again = unanswered.start < found.until
    if found.owner in ("", process):
        same = found.taken_by(process)
        return same if again else same.at_peace()
    if not unanswered:
        return Note(process, guilty=found.guilty, topic=found.topic)
    heir = replace(found.taken_by(process), until=unanswered.stop)
    if not again:
        return replace(heir, deaths=1, alone=False, against="")
    if found.alone:
        return _accused(heir, found.trial) if found.trial else heir
    # Who dies as he starts, or as he reads a table, dies of no record.
    deaths = found.deaths + 1 if found.judging else found.deaths
    return replace(heir, deaths=deaths, alone=deaths >= ALONE_FROM)


def _accused(heir: Note, trial: str) -> Note:
    """Return the note after a death over a record that was judged alone."""
    is_same = heir.against in ("", trial)
    deaths = heir.deaths + 1 if is_same else 1
    if deaths < DEATHS_MAX:
        return replace(heir, deaths=deaths, against=trial)
    # What dies from here on dies of something else.
    guilty = {**_without(heir.guilty, trial), trial: trial in heir.guilty}
    kept = dict(islice(guilty.items(), max(0, len(guilty) - GUILTY_MAX), None))
    return replace(heir, deaths=0, against="", guilty=kept)


def digest_of(record: Record) -> str:
    """Return the name of a record in a note: a copy of it has the same one."""
    return sha256(record.value or b"")[:DIGEST_CHARS]


@dataclass
class Trials:
    """The records of one topic partition that are under suspicion.

    `recorded` is the group's offset; `held` are records that were read and wait to be
    judged alone.
    """

    note: Note
    recorded: Offset
    held: deque[Record] = field(default_factory=deque)

    def holds(self, record: Record) -> bool:
        """Return whether a record has to wait for its turn."""
        return bool(self.held) or (self.note.alone and record.offset < self.note.until)

    def is_over(self) -> bool:
        """Return whether the next one is beyond suspicion, and those behind it."""
        return bool(self.held) and self.held[0].offset >= self.note.until

    def name_next(self) -> None:
        """Name the next one in the note; nobody where there is none."""
        trial = digest_of(self.held[0]) if self.held else ""
        self.note = replace(self.note, trial=trial)

    @property
    def owes_word(self) -> bool:
        """Whether the note has to say that records are judged, before one is."""
        return bool(self.note.deaths) and not (self.note.alone or self.note.judging)

    def own_up(self) -> None:
        """Say in the note that records are judged."""
        self.note = replace(self.note, judging=True)

    def told(self, offset: Offset) -> str:
        """Return the note that travels with an offset."""
        if offset >= self.note.until and not self.held:
            self.note = self.note.at_peace()
        return note_text(self.note)

    def guilt(self, record: Record) -> bool | None:
        """Return whether even refusing a record killed; None where it is guilty of nothing."""
        return self.note.guilty.get(digest_of(record)) if self.note.guilty else None


def take_over(
    bus: Bus, consumer: Consumer, at: TopicPartition, process: str, topic_id: str
) -> Trials:
    """Return what is under suspicion as a topic partition becomes ours. Raises: Unavailable."""
    recorded, text = consumer.noted(at)
    found = read_note(text)
    # Whoever stopped, or was called back, just after the topic was made anew knew nothing of that.
    is_of_another = recorded is not None and found.topic not in ("", topic_id)
    if is_of_another:
        recorded, found = None, Note()
    found = replace(found, topic=topic_id)
    if recorded is not None and found.owner in ("", process):
        return Trials(inherited(found, process, range(recorded, recorded)), recorded)
    reader = bus.reader()
    try:
        first, end = reader.bounds(at)
    finally:
        reader.close()
    start = first if recorded is None else recorded
    if is_of_another:
        consumer.seek(at, start)
    unanswered = range(start, min(end, start + SUSPECTS_MAX))
    return Trials(inherited(found, process, unanswered), start)


def _without(guilty: Mapping[str, bool], digest: str) -> dict[str, bool]:
    return {one: worse for one, worse in guilty.items() if one != digest}
