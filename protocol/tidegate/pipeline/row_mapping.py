"""A row mapping: where the rows of the files that a compaction put together lie in the new file.

With it a delete and a compaction of the same file both commit, whichever comes first.
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, JsonValue, NonNegativeInt, StringConstraints

from tidegate.pipeline.message import Message

Path = Annotated[str, StringConstraints(min_length=1)]


class Source(Message):
    """A file whose rows a new file holds, in their order, from row `offset` on.

    `rows` is how many they are: those that the vector which the file had when it was read left.
    `base` is that vector, where it is not the one with which the file was removed in the end: the
    committer says so of a compaction that came after a delete.
    Spec: "Deletion Vector Descriptor Schema"
    """

    path: Path
    offset: NonNegativeInt
    rows: NonNegativeInt
    base: Mapping[str, JsonValue] | None = None


class RowMapping(Message):
    """The sources of a new file, in order: together all of its rows.

    `keeps_row_ids` says that the file holds the ids of its rows in the columns of row tracking,
    without which rows that move would be other rows.
    Spec: "Row Tracking"
    """

    path: Path
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]
    keeps_row_ids: bool = False
