"""Totals over live files, which can be added and subtracted: files, bytes, deletion vectors."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import add, sub
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.checkpoints import file_size_histogram
from tidegate_delta.checkpoints.deletion_vector_totals import BINS, Deletions
from tidegate_delta.checkpoints.file_size_histogram import FileSizes
from tidegate_delta.snapshots.chunked_arrays import exact_sum
from tidegate_delta.value_limits import LONG_MAX

_NO_COUNTS: Final = (0,) * len(BINS)


@dataclass(frozen=True)
class FileTotals:
    """Totals of some files, exact whatever their size.

    Law: of(a) + of(b) == of(a and b together)
    Units: `size_bytes` in bytes, `deleted_rows` in rows.
    Spec: "Version Checksum File Schema"
    """

    files: int = 0
    size_bytes: int = 0
    vectors: int = 0
    deleted_rows: int = 0
    deleted_counts: tuple[int, ...] = _NO_COUNTS
    sizes: FileSizes = field(default_factory=FileSizes)

    def __add__(self, other: "FileTotals") -> "FileTotals":
        return FileTotals(
            self.files + other.files,
            self.size_bytes + other.size_bytes,
            self.vectors + other.vectors,
            self.deleted_rows + other.deleted_rows,
            tuple(map(add, self.deleted_counts, other.deleted_counts)),
            self.sizes + other.sizes,
        )

    def __sub__(self, other: "FileTotals") -> "FileTotals":
        return FileTotals(
            self.files - other.files,
            self.size_bytes - other.size_bytes,
            self.vectors - other.vectors,
            self.deleted_rows - other.deleted_rows,
            tuple(map(sub, self.deleted_counts, other.deleted_counts)),
            self.sizes - other.sizes,
        )

    @property
    def deletions(self) -> Deletions | None:
        """The totals of deletion vectors; None where they exceed a long."""
        if self.deleted_rows >= LONG_MAX:
            return None
        return Deletions(self.deleted_rows, self.vectors, self.deleted_counts)


def of(files: pa.Table) -> FileTotals:
    """Return the totals of files with the columns `size` and `deletionVector`.

    A missing or negative size or number of deleted rows counts as 0.
    Spec: "Version Checksum File Schema"
    """
    count, vectors = files.num_rows, files["deletionVector"]
    size_bytes = exact_sum(files["size"])
    sizes = file_size_histogram.of(files["size"])
    if vectors.null_count == count:
        counts = (count, *_NO_COUNTS[1:])
        return FileTotals(count, size_bytes, deleted_counts=counts, sizes=sizes)
    rows = pc.fill_null(pc.struct_field(vectors, "cardinality"), 0)
    rows = pc.max_element_wise(rows, pa.scalar(0, pa.int64()))
    at_least = [pc.sum(pc.greater_equal(rows, least)).as_py() or 0 for least in BINS]
    counts = tuple(map(sub, at_least, [*at_least[1:], 0]))
    return FileTotals(count, size_bytes, count - vectors.null_count, exact_sum(rows), counts, sizes)


def together(totals: Iterable[FileTotals]) -> FileTotals:
    """Return the sum of some totals.

    Spec: "Version Checksum File Schema"
    """
    return sum(totals, FileTotals())
