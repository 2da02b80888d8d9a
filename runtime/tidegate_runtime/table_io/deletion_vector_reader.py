"""Read deletion vectors, and select rows by them, batch after batch.

A vector takes the same memory as in its file. A batch is masked by the bits of its own rows.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.deletion_vectors import descriptors
from tidegate_delta.deletion_vectors.descriptors import EVERY_ROW, FILE_VERSION, RowChoice
from tidegate_delta.deletion_vectors.roaring_bitmap import NO_ROWS, Bitmap, mask
from tidegate_delta.errors import BrokenLog, Unavailable
from tidegate_delta.log.actions import DeletionVector
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.table_files import open_table_file

_REMEDY: Final = "restore the file, or the table to a version before it"


@dataclass(frozen=True)
class ChosenRows:
    """Selects rows of a data file by position: those in `rows`, or all others."""

    rows: Bitmap
    are_left_out: bool

    @property
    def is_nothing(self) -> bool:
        """Whether no row is selected."""
        return not (self.are_left_out or self.rows)

    def of_batches(
        self, batches: Iterable[pa.RecordBatch], start: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """Yield the selected rows of each batch; the batches are a file's, in order, from the row
        `start` on.
        """
        for batch in batches:
            chosen = self._of_batch(batch, start)
            start += batch.num_rows
            if chosen.num_rows:
                yield chosen

    def _of_batch(self, batch: pa.RecordBatch, start: int) -> pa.RecordBatch:
        mask = self._mask(start, batch.num_rows)
        if mask is None:
            return batch if self.are_left_out else batch.slice(0, 0)
        if batch.num_columns:
            return batch.filter(mask)
        rows = pa.array([{}] * mask.true_count, pa.struct([]))
        return pa.RecordBatch.from_struct_array(rows)

    def _mask(self, start: int, size: int) -> pa.BooleanArray | None:
        """Return which rows of a range are selected; None if none of them is in `rows`."""
        held = mask(self.rows, start, size)
        return pc.invert(held) if held is not None and self.are_left_out else held


def live_rows(store: LogStore, file: Mapping[str, Any]) -> RowChoice:
    """Return the choice of rows that are live in a live file, a row of ADD_SCHEMA as a mapping.

    Raises: BrokenLog (`CorruptDeletionVector`).
    """
    vector = file.get("deletionVector")
    if vector is None:
        return EVERY_ROW
    try:
        return RowChoice(DeletionVector.model_validate(vector))
    except ValueError as error:
        raise BrokenLog(
            f"the deletion vector of {file['path']!r} of table {store.root} is malformed in the "
            f"log: {error}; restore the table to a version before it",
            error_class="CorruptDeletionVector",
        ) from error


def chosen_rows(store: LogStore, choice: RowChoice, path: str = "") -> ChosenRows:
    """Return the rows of a choice, reading the vectors that it names; `path` is the data file's.

    Raises: as `read_vector`.
    """
    left_out = NO_ROWS if choice.without is None else read_vector(store, choice.without, path)
    if choice.only is None:
        return ChosenRows(left_out, are_left_out=True)
    return ChosenRows(read_vector(store, choice.only, path) - left_out, are_left_out=False)


def read_vector(store: LogStore, vector: DeletionVector, path: str = "") -> Bitmap:
    """Return the rows that a deletion vector deletes; `path` is its data file, if known.

    Raises: BrokenLog (`DeletionVectorMissing`, `CorruptDeletionVector`); UnsupportedFeature for a
    file in another store; Unavailable.
    """
    try:
        if descriptors.is_inline(vector):
            return descriptors.inline_rows(vector)
        return _read_file(store, vector)
    except ValueError as error:
        of_file = f" of {path!r}" if path else ""
        raise _corrupt(store, f"deletion vector {vector.unique_id!r}{of_file}", error) from error


def _corrupt(store: LogStore, subject: str, cause: ValueError) -> BrokenLog:
    return BrokenLog(
        f"{subject} of table {store.root} can't be read: {cause}; {_REMEDY}",
        error_class="CorruptDeletionVector",
    )


def _read_file(store: LogStore, vector: DeletionVector) -> Bitmap:
    path = descriptors.path_of(vector)
    frame = descriptors.frame_of(vector)
    try:
        with open_table_file(store, path) as file:
            version = file.read(len(FILE_VERSION))
            if version != FILE_VERSION:
                raise ValueError(f"it is of the version {version.hex() or 'of an empty file'}")
            size = file.seek(0, 2)
            if size < frame.stop:
                raise ValueError(f"it ends at byte {size}, the vector at byte {frame.stop}")
            file.seek(frame.start)
            return descriptors.framed_rows(vector, file.read(len(frame)))
    except ValueError as error:
        subject = f"{path}, which holds deletion vector {vector.unique_id!r},"
        raise _corrupt(store, subject, error) from error
    except FileNotFoundError as error:
        raise BrokenLog(
            f"{path}, which holds a deletion vector of table {store.root}, is not there, although "
            f"the log names it: {_REMEDY}",
            error_class="DeletionVectorMissing",
        ) from error
    except OSError as error:
        raise Unavailable(f"reading {path!r} of table {store.root} failed: {error}") from error
