"""A row intent: rows of one live file that a proposal deletes, whatever else happens to that file.

The rows alone are proposed, not the file's new deletion vector: so several writers may each delete
rows of one file, and the committer writes the vector that they make together.
"""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import JsonValue, NonNegativeInt, StringConstraints

from tidegate.pipeline.message import Message

ROW_INTENT: Final = "dv_intent"
"""The name of a row intent on its line of a claim check."""

Purpose = Literal["delete", "update"]


class RowIntent(Message):
    """Rows that leave a file.

    `base` is the unique id of the deletion vector that the file had at `read_version`, absent where
    it had none; `rows` names the rows that leave, and no row of that vector: a descriptor as Delta
    spells it, inline or in a file of deletion vectors below the table root. `num_records` are the
    file's physical rows. With `update` the proposal brings new images of these rows among its
    adds, so they must not have been deleted by anybody else.
    Spec: "Deletion Vector Descriptor Schema"
    """

    path: Annotated[str, StringConstraints(min_length=1)]
    base: str | None = None
    rows: Mapping[str, JsonValue]
    num_records: NonNegativeInt
    op: Purpose = "delete"
