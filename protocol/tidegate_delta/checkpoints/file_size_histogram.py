"""A histogram of the sizes of live files, as a version checksum file states it."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import add, sub
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.checkpoints.deletion_vector_totals import count
from tidegate_delta.snapshots.chunked_arrays import exact_sum
from tidegate_delta.value_limits import LONG_MAX

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


def of(sizes: pa.ChunkedArray) -> FileSizes:
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


def of_sizes(sizes: Iterable[int]) -> FileSizes:
    """Return the histogram of some sizes.

    Spec: "File Size Histogram Schema"
    """
    return of(pa.chunked_array([pa.array(list(sizes), pa.int64())]))


def to_body(sizes: FileSizes | None) -> dict[str, Any]:
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


def of_body(body: Mapping[str, Any]) -> FileSizes | None:
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
