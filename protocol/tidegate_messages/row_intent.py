"""A row intent: rows that a proposal deletes from one live file, which stays.

It names the rows, not the file's new deletion vector. So several writers can delete rows of one
file at once, and the committer merges them into one vector.
"""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import JsonValue, StringConstraints

from tidegate_messages.message import Message
from tidegate_messages.strict_types import Count

ROW_INTENT: Final = "dv_intent"
"""The key of a row intent on its line of a claim check file."""

Purpose = Literal["delete", "update"]


class RowIntent(Message):
    """Rows to delete from a file that stays.

    `base` is the unique id of the deletion vector that the file had at `read_version`, absent if it
    had none. `rows` is a deletion vector descriptor in Delta's form, inline or in a file below the
    table root. It holds the rows to delete, without those that `base` holds. `num_records` is the
    number of physical rows of the file. With `update` the proposal adds new images of these rows,
    so no other proposal may have deleted them.
    Spec: "Deletion Vector Descriptor Schema"
    """

    path: Annotated[str, StringConstraints(min_length=1)]
    base: str | None = None
    rows: Mapping[str, JsonValue]
    num_records: Count
    op: Purpose = "delete"
