"""Changes of one version before they are encoded, and what all changes of the version share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal
from uuid import UUID

import pyarrow as pa

from tidegate_cdc_publisher.record_form import PLAIN, PayloadEncoder, RecordForm
from tidegate_cdc_publisher.row_diff import Images

Op = Literal["c", "u", "d", "r"]


@dataclass(frozen=True)
class InlineSchemas:
    """The Connect schemas of the records of one version; None where the format has none.

    Those of deletes follow the table's schema before the version, the others the one after it.
    """

    value: str | None = None
    key: str | None = None
    value_of_deletes: str | None = None
    key_of_deletes: str | None = None

    @property
    def size_bytes(self) -> int:
        """The size that the schemas add to a record, about."""
        return len(self.value or "") + len(self.key or "")


NO_SCHEMAS: Final = InlineSchemas()


@dataclass(frozen=True)
class SourceBlock:
    """What all changes of one version share.

    `logical_name` is the installation's name (the topic prefix). The fields of `more` are copied
    into `source` unchanged. `schemas` are those of the version's records, which have this `form`.
    `traceparent` is the context of the span in which they are published, if one is recorded.
    `registry` is set if the form needs one.
    Units: `timestamp_ms` is the version's commit timestamp.
    """

    table: UUID
    table_name: str
    logical_name: str
    version: int
    timestamp_ms: int
    more: Mapping[str, str | int] = field(default_factory=dict)
    schemas: InlineSchemas = NO_SCHEMAS
    form: RecordForm = PLAIN
    traceparent: str | None = None
    topic: str = ""
    registry: PayloadEncoder | None = None


@dataclass(frozen=True)
class Batch:
    """Changes of one kind; `start` is the index of the first in its version.

    `before` and `after` are set where the kind has them; if both are set, their rows correspond.
    `ends` says that the last row is the last of a snapshot; `is_incremental`, that the rows are of
    one that is published beside the versions.
    """

    op: Op
    start: int
    before: Images | None = None
    after: Images | None = None
    ends: bool = False
    is_incremental: bool = False

    def __len__(self) -> int:
        """Return how many changes there are."""
        return len(self._images)

    @property
    def size_bytes(self) -> int:
        """The size of the images' text."""
        return sum(
            images.texts.nbytes for images in (self.before, self.after) if images is not None
        )

    @property
    def keys(self) -> pa.Array | None:
        """The keys of the rows, or None for a stream without keys."""
        return self._images.keys

    @property
    def _images(self) -> Images:
        images = self.after if self.after is not None else self.before
        assert images is not None, "a change has an image"
        return images

    def slice(self, start: int, length: int) -> "Batch":
        """Return `length` changes from `start` on; they keep their indices."""
        return Batch(
            self.op,
            self.start + start,
            None if self.before is None else self.before.slice(start, length),
            None if self.after is None else self.after.slice(start, length),
            self.ends and start + length >= len(self),
            self.is_incremental,
        )
