"""An operator's signal to a change stream, in Debezium's words. The topic is `cdc-signals`."""

from typing import Literal
from uuid import UUID

from pydantic import Field, NonNegativeInt, model_validator

from tidegate_messages.message import Message

SignalType = Literal[
    "execute-snapshot",
    "pause-snapshot",
    "resume-snapshot",
    "stop-snapshot",
    "set-position",
    "reset-position",
]
REASON_MAX = 2_000
FILTER_MAX = 10_000


class ChangeSignal(Message):
    """What the publisher is to do with the stream of a table, once, in the order of the topic.

    `execute-snapshot` publishes all rows: at once and instead of all that is not published yet, if
    `snapshot` is `blocking`, or `incremental`, between the versions that follow. The latter may be
    paused, resumed and stopped, and `filter`, a SQL condition as Spark reads it, limits it to rows
    for which it is true. `set-position` goes on behind `version`; versions that it passes over are
    announced as a gap. `reset-position` begins the stream anew. The key is the table's id.
    """

    table: UUID
    type: SignalType
    snapshot: Literal["incremental", "blocking"] = "incremental"
    version: NonNegativeInt | None = None
    reason: str | None = Field(default=None, max_length=REASON_MAX)
    filter: str | None = Field(default=None, min_length=1, max_length=FILTER_MAX)

    @model_validator(mode="after")
    def _has_its_version(self) -> "ChangeSignal":
        if self.type == "set-position" and self.version is None:
            raise ValueError("set-position needs `version`, the last one that is not to follow")
        return self

    @model_validator(mode="after")
    def _filters_what_it_can(self) -> "ChangeSignal":
        is_incremental = self.type == "execute-snapshot" and self.snapshot == "incremental"
        if self.filter is not None and not is_incremental:
            raise ValueError(
                "`filter` is for incremental snapshots: after others readers forget all other rows"
            )
        return self
