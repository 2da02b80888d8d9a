"""Totals over live files, which can be added and subtracted: files, bytes, deletion vectors.

Totals of deletion vectors and the histogram of file sizes have the form in which a version checksum
file states them.

Spec: "Version Checksum File Schema"
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add, sub
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.log.actions import FileAction
from tidegate_delta.snapshots.chunked_arrays import exact_sum, total
from tidegate_delta.value_limits import LONG_MAX

BINS: Final = (0, 1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 2**31 - 1)
"""The least number of deleted rows of a file in each bin of the histogram."""


@dataclass(frozen=True)
class Deletions:
    """The deleted rows, the number of deletion vectors, and a histogram of deleted rows per file.

    Law: the counts add up to the number of files.
    """

    records: int
    vectors: int
    counts: tuple[int, ...]

    def moved(self, added: Sequence[FileAction], removed: Sequence[FileAction]) -> "Deletions":
        """Return the totals after some files were added and some live files were removed."""
        joined, left = _of_actions(added), _of_actions(removed)
        counts = map(sub, map(add, self.counts, joined.counts), left.counts)
        return Deletions(
            self.records + joined.records - left.records,
            self.vectors + joined.vectors - left.vectors,
            tuple(counts),
        )


def no_deletions_in(files: int) -> Deletions:
    """Return the totals of a number of files without deletion vectors."""
    return Deletions(0, 0, (files, *[0] * (len(BINS) - 1)))


def deletions_of_files(files: pa.Table) -> Deletions | None:
    """Return the totals of live files, a table of ADD_SCHEMA; None where they exceed a long."""
    vectors = files["deletionVector"]
    if vectors.null_count == len(vectors):
        return no_deletions_in(len(vectors))
    cardinalities = pc.fill_null(pc.struct_field(vectors, "cardinality"), 0)
    rows = pc.max_element_wise(cardinalities, pa.scalar(0, pa.int64()))
    records = total(rows)
    if records is None:
        return None
    at_least = [pc.sum(pc.greater_equal(rows, least)).as_py() or 0 for least in BINS]
    return Deletions(
        records,
        len(vectors) - vectors.null_count,
        tuple(map(sub, at_least, [*at_least[1:], 0])),
    )


def deletions_to_body(deletions: Deletions | None) -> dict[str, Any]:
    """Return the totals as fields of a version checksum file; none where they are unknown."""
    if deletions is None:
        return {}
    return {
        "numDeletedRecordsOpt": deletions.records,
        "numDeletionVectorsOpt": deletions.vectors,
        "deletedRecordCountsHistogramOpt": {"deletedRecordCounts": list(deletions.counts)},
    }


def deletions_of_body(body: Mapping[str, Any]) -> Deletions | None:
    """Return the totals in the fields of a version checksum file; None unless all fields are there.

    Raises: ValueError, for a histogram of other bins or a value that is no count.
    Spec: "Deleted Record Counts Histogram Schema"
    """
    records, vectors = body.get("numDeletedRecordsOpt"), body.get("numDeletionVectorsOpt")
    histogram = body.get("deletedRecordCountsHistogramOpt")
    if records is None or vectors is None or histogram is None:
        return None
    counts = tuple(map(count, histogram["deletedRecordCounts"]))
    if len(counts) != len(BINS):
        raise ValueError(f"a histogram of {len(counts)} bins")
    return Deletions(count(records), count(vectors), counts)


def count(value: Any) -> int:
    """Return a count of a version checksum file.

    Raises: ValueError, for what is no whole number from 0 to 2^63 - 1.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LONG_MAX:
        raise ValueError(f"{value!r} is no count")
    return value


def _of_actions(files: Sequence[FileAction]) -> Deletions:
    counts = [0] * len(BINS)
    vectors = [file.deletion_vector for file in files]
    rows = [0 if vector is None else max(vector.cardinality, 0) for vector in vectors]
    for number in rows:
        counts[bisect_right(BINS, number) - 1] += 1
    return Deletions(sum(rows), len(vectors) - vectors.count(None), tuple(counts))


_KIB: Final = 1 << 10
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
BOUNDS: Final = (
    0,
    *(_KIB << power for power in range(3, 10)),
    *(_MIB << power for power in range(3)),
    *range(8 * _MIB, 40 * _MIB, 4 * _MIB),
    *range(40 * _MIB, 120 * _MIB, 8 * _MIB),
    *range(120 * _MIB, 144 * _MIB, 4 * _MIB),
    *range(144 * _MIB, 576 * _MIB, 16 * _MIB),
    *range(576 * _MIB, 1_408 * _MIB, 64 * _MIB),
    *range(1_408 * _MIB, 2 * _GIB, 128 * _MIB),
    *range(2 * _GIB, 4 * _GIB, 256 * _MIB),
    *(_GIB << power for power in range(2, 9)),
)
"""The least size of a file in each bin, in bytes: those that delta-spark and the kernels use, who
compare histograms bin by bin.
"""

_FEW: Final = 1_024
_NONE: Final = (0,) * len(BOUNDS)


@dataclass(frozen=True)
class FileSizes:
    """The number of files in each bin, and their bytes; exact, whatever their size.

    Law: of(a) + of(b) == of(a and b together)
    Spec: "File Size Histogram Schema"
    """

    files: tuple[int, ...] = _NONE
    size_bytes: tuple[int, ...] = _NONE

    def __add__(self, other: "FileSizes") -> "FileSizes":
        return FileSizes(
            tuple(map(add, self.files, other.files)),
            tuple(map(add, self.size_bytes, other.size_bytes)),
        )

    def __sub__(self, other: "FileSizes") -> "FileSizes":
        return FileSizes(
            tuple(map(sub, self.files, other.files)),
            tuple(map(sub, self.size_bytes, other.size_bytes)),
        )

    @property
    def is_possible(self) -> bool:
        """Whether each number is a count that fits into a long."""
        return min(*self.files, *self.size_bytes) >= 0 and max(self.size_bytes) <= LONG_MAX


def histogram_of(sizes: pa.ChunkedArray) -> FileSizes:
    """Return the histogram of a column of sizes; a missing or negative one counts as 0.

    Spec: "File Size Histogram Schema"
    """
    known = pc.max_element_wise(sizes, pa.scalar(0, pa.int64()))
    files, size_bytes = list(_NONE), list(_NONE)
    if len(known) <= _FEW:
        for size in known.to_pylist():
            bin_number = _bin_of(size)
            files[bin_number] += 1
            size_bytes[bin_number] += size
        return FileSizes(tuple(files), tuple(size_bytes))
    ends = pc.min_max(known).as_py()
    for bin_number in range(_bin_of(ends["min"]), _bin_of(ends["max"]) + 1):
        # What is left are the sizes of this bin and of those above it.
        above = pc.greater_equal(known, pa.scalar((*BOUNDS, LONG_MAX)[bin_number + 1], pa.int64()))
        part = known.filter(pc.invert(above)) if bin_number < len(BOUNDS) - 1 else known
        files[bin_number], size_bytes[bin_number] = len(part), exact_sum(part)
        known = known.filter(above)
    return FileSizes(tuple(files), tuple(size_bytes))


def histogram_of_sizes(sizes: Iterable[int]) -> FileSizes:
    """Return the histogram of some sizes.

    Spec: "File Size Histogram Schema"
    """
    return histogram_of(pa.chunked_array([pa.array(list(sizes), pa.int64())]))


def histogram_to_body(sizes: FileSizes | None) -> dict[str, Any]:
    """Return the field of a version checksum file; none where a number exceeds a long.

    Spec: "File Size Histogram Schema"
    """
    if sizes is None or not sizes.is_possible:
        return {}
    return {
        "fileSizeHistogram": {
            "sortedBinBoundaries": list(BOUNDS),
            "fileCounts": list(sizes.files),
            "totalBytes": list(sizes.size_bytes),
        }
    }


def histogram_of_body(body: Mapping[str, Any]) -> FileSizes | None:
    """Return the histogram of a version checksum file; None without one, or for one of other bins.

    Raises: ValueError, TypeError or KeyError, for a value that is no count or no histogram.
    Spec: "File Size Histogram Schema"
    """
    histogram = body.get("fileSizeHistogram")
    if histogram is None or tuple(histogram["sortedBinBoundaries"]) != BOUNDS:
        return None
    files, size_bytes = (
        tuple(map(count, histogram[name])) for name in ("fileCounts", "totalBytes")
    )
    if not len(files) == len(size_bytes) == len(BOUNDS):
        raise ValueError(f"a histogram of {len(files)} counts and {len(size_bytes)} sums")
    return FileSizes(files, size_bytes)


def _bin_of(size: int) -> int:
    return bisect_right(BOUNDS, size) - 1


_NO_COUNTS: Final = (0,) * len(BINS)


@dataclass(frozen=True)
class FileTotals:
    """Totals of some files, exact whatever their size.

    Law: of(a) + of(b) == of(a and b together)
    Units: `size_bytes` in bytes, `deleted_rows` in rows.
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


def totals_of(files: pa.Table) -> FileTotals:
    """Return the totals of files with the columns `size` and `deletionVector`.

    A missing or negative size or number of deleted rows counts as 0.
    """
    count, vectors = files.num_rows, files["deletionVector"]
    size_bytes = exact_sum(files["size"])
    sizes = histogram_of(files["size"])
    if vectors.null_count == count:
        counts = (count, *_NO_COUNTS[1:])
        return FileTotals(count, size_bytes, deleted_counts=counts, sizes=sizes)
    rows = pc.fill_null(pc.struct_field(vectors, "cardinality"), 0)
    rows = pc.max_element_wise(rows, pa.scalar(0, pa.int64()))
    at_least = [pc.sum(pc.greater_equal(rows, least)).as_py() or 0 for least in BINS]
    counts = tuple(map(sub, at_least, [*at_least[1:], 0]))
    return FileTotals(count, size_bytes, count - vectors.null_count, exact_sum(rows), counts, sizes)


def totals_together(totals: Iterable[FileTotals]) -> FileTotals:
    """Return the sum of some totals."""
    return sum(totals, FileTotals())
