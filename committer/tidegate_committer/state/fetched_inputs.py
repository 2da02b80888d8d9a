"""`FetchedInputs`: what was read from the store for a decision, beyond the table's state.

The state holds only the path and the deletion vector's text of each live file. Merging vectors also
needs the file's add action and the rows in the vectors. `required_reads` says what a batch needs.
It is read into the table committer's cache and passed in as values, so that deciding stays pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_actions import vector_text
from tidegate_committer.intake.row_intents import RowDelete
from tidegate_delta.deletion_vectors.descriptors import is_inline
from tidegate_delta.deletion_vectors.roaring_bitmap import NO_ROWS, Bitmap
from tidegate_delta.log.actions import Add, DeletionVector

Growth = tuple[str, str]
"""The keys of a file's deletion vector before and after a version."""

ReplacedFile = tuple[str, int]
"""The canonical path of a file that a compaction replaced, and the version that did."""

NO_VECTOR: Final = ""
"""The key that means no deletion vector."""


@dataclass(frozen=True)
class FetchedInputs:
    """What was read.

    `files` are add actions of live files, by canonical path. `rows` are the rows of deletion
    vectors by `key_of`, or a sentence why they can't be read. `growths` says of a pair of vectors
    whether the second holds all rows of the first. `adds` are the files that a version added, by
    version. `replaced` are files as they were before a version that compacted them, by canonical
    path and version; None where the log no longer says.
    """

    files: Mapping[str, Add] = field(default_factory=dict)
    rows: Mapping[str, Bitmap | str] = field(default_factory=dict)
    growths: Mapping[Growth, bool] = field(default_factory=dict)
    adds: Mapping[int, Sequence[Add]] = field(default_factory=dict)
    replaced: Mapping[ReplacedFile, Add | None] = field(default_factory=dict)

    def rows_of(self, vector: DeletionVector | None) -> Bitmap:
        """Return the rows of a vector."""
        if vector is None:
            return NO_ROWS
        rows = self.rows[key_of(vector)]
        assert isinstance(rows, Bitmap), "an unreadable vector is noticed before its rows count"
        return rows

    def meant_by(self, intent: RowDelete) -> Bitmap:
        """Return the rows that an intent deletes."""
        return self.rows_of(intent.vector) if intent.inline is None else intent.inline


NOTHING: Final = FetchedInputs()


def key_of(vector: DeletionVector | None) -> str:
    """Return the key of a vector's rows in `FetchedInputs.rows`."""
    return NO_VECTOR if vector is None else vector_text(vector)


def new_vectors(candidate: Candidate, live: Mapping[str, str | None]) -> dict[str, DeletionVector]:
    """Return the deletion vectors of a proposal that the table does not have yet, by key.

    Inline vectors are left out.
    """
    content = candidate.content
    if not content.vectors:
        return {}
    return {
        key_of(vector): vector
        for add, (path, _) in zip(content.adds, content.added, strict=True)
        if (vector := add.deletion_vector) is not None
        and not is_inline(vector)
        and live.get(path) != key_of(vector)
    }


def size_of(vectors: Mapping[str, DeletionVector]) -> int:
    """Return the total size of vectors. In bytes."""
    return sum(vector.size_in_bytes for vector in vectors.values())


def unique_id(vector: DeletionVector | None) -> str | None:
    """Return the vector's part of a logical file's key."""
    return None if vector is None else vector.unique_id
