"""Merge the row deletes of all members of an entry into one deletion vector for each file.

The file is removed and added again with a vector that holds the rows of the old vector and those of
every member. Small vectors may be inline. The others go into one file, which is written before the
entry under a name that no other attempt uses.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from tidegate_committer.intake.action_reader import ActionLine, add_line, body_of
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_actions import (
    EMPTY,
    CheckedActions,
    canonical,
    vector_text,
    vectors_of,
)
from tidegate_committer.state.fetched_inputs import FetchedInputs
from tidegate_committer.state.log_entry import Revision, revisions
from tidegate_delta.deletion_vectors.descriptors import placed
from tidegate_delta.deletion_vectors.roaring_bitmap import NO_ROWS, Bitmap
from tidegate_delta.features.row_tracking import physical_records
from tidegate_delta.log.actions import Add, DeletionVector, Remove


class FileDeletes:
    """The deleted rows of one file: those in its vector, and those of the members so far."""

    def __init__(self, file: Add, before: Bitmap) -> None:
        self.file = file
        self._before = before
        self._by_members = NO_ROWS

    @property
    def count(self) -> int:
        """How many rows the members deleted first."""
        return len(self._by_members)

    def take(self, rows: Bitmap) -> int:
        """Add rows, and return how many of them were not deleted yet."""
        count = self.count
        self._by_members |= rows - self._before
        return self.count - count

    def holds_any(self, rows: Bitmap) -> bool:
        """Return whether a member deleted some of these rows."""
        return not rows.isdisjoint(self._by_members)

    @property
    def rows(self) -> Bitmap:
        """All deleted rows."""
        return self._before | self._by_members


@dataclass
class MergedDeletes:
    """What the members of a group delete, by file; local to one decision."""

    tallies: dict[str, FileDeletes] = field(default_factory=dict)

    def are_apart_from(self, candidate: Candidate, known: FetchedInputs) -> bool:
        """Return whether a candidate touches no row or file that the members' row deletes touch."""
        if not candidate.content.removed.isdisjoint(self.tallies):
            return False
        if not candidate.followed.isdisjoint(self.tallies):
            return False
        return not any(
            self.tallies[intent.path].holds_any(known.meant_by(intent))
            for intent in candidate.intents
            if intent.path in self.tallies
        )

    def take(self, candidate: Candidate, known: FetchedInputs) -> tuple[dict[str, Bitmap], int]:
        """Add a member. Return its deletes by file, and how many rows were not deleted yet.

        A file whose rows were all deleted already is left out: nothing happens to it.
        """
        deletes: dict[str, Bitmap] = {}
        count = 0
        for intent in candidate.intents:
            rows = known.meant_by(intent)
            tally = self.tallies.get(intent.path)
            if tally is None:
                file = known.files[intent.path]
                tally = self.tallies[intent.path] = FileDeletes(
                    file, known.rows_of(file.deletion_vector)
                )
            newly_deleted = tally.take(rows)
            count += newly_deleted
            if newly_deleted:
                deletes[intent.path] = rows
        return deletes, count


@dataclass(frozen=True)
class MergeEffects:
    """The actions and vectors by which an entry carries out merged row deletes.

    `content` are the removes and adds, `files` the adds by canonical path. `rows` are the rows of
    the new vectors, by key, `revised` the vectors before and after. `written` is the path and bytes
    of the file of vectors, if there is one.
    """

    content: CheckedActions = EMPTY
    files: Mapping[str, Add] = field(default_factory=dict)
    rows: Mapping[str, Bitmap] = field(default_factory=dict)
    revised: Mapping[str, Revision] = field(default_factory=dict)
    written: tuple[str, bytes] | None = None

    def as_written(self, lines: Iterable[ActionLine]) -> "MergeEffects":
        """Return the effects with only the files whose add lines are among these log lines."""
        if not self.files:
            return self
        written = {line for line in lines if isinstance(line, bytes)}
        files = {path: file for path, file in self.files.items() if add_line(file) in written}
        return replace(self, files=files)


NO_EFFECTS: Final = MergeEffects()


def effects(merges: MergedDeletes, name: UUID, inline_bytes_max: int = 0) -> MergeEffects:
    """Return the effects of merged deletes; `name`, a new UUID, names the file of vectors.

    Vectors of up to `inline_bytes_max` are inline. delta-spark's VACUUM fails on a table that has
    such a vector, or a tombstone with one.
    """
    tallies = [tally for _, tally in sorted(merges.tallies.items()) if tally.count]
    if not tallies:
        return NO_EFFECTS
    sets = [tally.rows for tally in tallies]
    pairs = list(zip(tallies, sets, strict=True))
    needed = [
        None if len(rows) == physical_records(tally.file.stats) else rows for tally, rows in pairs
    ]
    stored, written = placed([rows for rows in needed if rows is not None], name, inline_bytes_max)
    following = iter(stored)
    vectors = [None if rows is None else next(following) for rows in needed]
    removes = tuple(removal_of(tally.file) for tally in tallies)
    back = [
        _revised(tally.file, vector)
        for tally, vector in zip(tallies, vectors, strict=True)
        if vector is not None
    ]
    coming = EMPTY.with_more(back)
    content = replace(
        coming,
        lines=(*map(body_of, removes), *coming.lines),
        removes=removes,
        removed=frozenset(canonical(tally.file.path) for tally in tallies),
        removed_vectors=vectors_of(removes),
    )
    return MergeEffects(
        content=content,
        files={canonical(file.path): file for file in back},
        rows={
            vector_text(vector): rows
            for vector, rows in zip(vectors, sets, strict=True)
            if vector is not None
        },
        revised=revisions(removes, back),
        written=written,
    )


def removal_of(file: Add) -> Remove:
    """Return the action that removes a live file, with the deletion vector that it has."""
    return Remove(
        path=file.path,
        data_change=True,
        extended_file_metadata=True,
        partition_values=file.partition_values,
        size=file.size,
        tags=file.tags,
        deletion_vector=file.deletion_vector,
        base_row_id=file.base_row_id,
        default_row_commit_version=file.default_row_commit_version,
    )


def _revised(file: Add, vector: DeletionVector) -> Add:
    """Return the same file with another vector: its rows keep their ids, its bounds are wide."""
    stats = None if file.stats is None else with_wide_bounds(file.stats)
    return file.with_(deletion_vector=vector, data_change=True, stats=stats)


def with_wide_bounds(stats: str) -> str:
    """Return the statistics with `tightBounds` false. Every number stays as it was written.

    Law: json.loads(with_wide_bounds(s)) == {**json.loads(s), "tightBounds": False}
    """
    for start, end in _values_of(stats, "tightBounds"):
        return f"{stats[:start]}false{stats[end:]}"
    body = stats.rstrip()
    assert body.endswith("}"), "statistics are an object"
    comma = "" if body[:-1].rstrip().endswith("{") else ","
    return f'{body[:-1]}{comma}"tightBounds":false}}'


def _values_of(text: str, name: str) -> list[tuple[int, int]]:
    """Return where the values of a top-level key of a JSON object begin and end."""
    decoder = json.JSONDecoder()
    position = text.index("{") + 1
    spans = []
    while (position := _past_space(text, position)) < len(text) and text[position] != "}":
        key, position = decoder.raw_decode(text, position)
        start = _past_space(text, _past_space(text, position) + 1)
        _, position = decoder.raw_decode(text, start)
        if key == name:
            spans.append((start, position))
        position = _past_space(text, position)
        position += text[position : position + 1] == ","
    return spans


def _past_space(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position
