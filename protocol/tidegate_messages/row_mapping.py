"""A row mapping: where the rows of the files that a compaction removes lie in its new files.

With it, a delete of rows and a compaction of the same file can both commit, in either order.
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, JsonValue, StringConstraints

from tidegate_messages.message import Message
from tidegate_messages.strict_types import Count, Flag

FilePath = Annotated[str, StringConstraints(min_length=1)]


class Source(Message):
    """A removed file whose rows a new file holds, in their order, from row `offset` on.

    `rows` is their number, without the rows in the deletion vector that the file had when it was
    read. `base` is that vector, present if the file was removed with another one. The committer
    sets it if rows were deleted after the compaction had read the file. Writers leave it out.
    Spec: "Deletion Vector Descriptor Schema"
    """

    path: FilePath
    offset: Count
    rows: Count
    base: Mapping[str, JsonValue] | None = None


class RowMapping(Message):
    """The sources of a new file at `path`, in the order of its rows, all of which they provide.

    `keeps_row_ids` says that the file holds the ids of its rows in the columns of row tracking. A
    table with row tracking requires it, else moved rows would get new ids.
    Spec: "Row Tracking"
    """

    path: FilePath
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]
    keeps_row_ids: Flag = False
