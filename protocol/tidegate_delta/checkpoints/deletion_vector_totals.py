"""Totals of a table's deletion vectors, as a version checksum file states them."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import add, sub
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.log.actions import FileAction
from tidegate_delta.snapshots.chunked_arrays import total
from tidegate_delta.value_limits import LONG_MAX

BINS: Final = (0, 1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 2**31 - 1)
"""The least number of deleted rows of a file in each bin of the histogram."""


@dataclass(frozen=True)
class Deletions:
    """The deleted rows, the number of deletion vectors, and a histogram of deleted rows per file.

    Law: the counts add up to the number of files.
    Spec: "Version Checksum File Schema"
    """

    records: int
    vectors: int
    counts: tuple[int, ...]

    def moved(self, added: Sequence[FileAction], removed: Sequence[FileAction]) -> "Deletions":
        """Return the totals after some files were added and some live files were removed.

        Spec: "Version Checksum File Schema"
        """
        joined, left = _of_actions(added), _of_actions(removed)
        counts = map(sub, map(add, self.counts, joined.counts), left.counts)
        return Deletions(
            self.records + joined.records - left.records,
            self.vectors + joined.vectors - left.vectors,
            tuple(counts),
        )


def none_in(files: int) -> Deletions:
    """Return the totals of a number of files without deletion vectors.

    Spec: "Version Checksum File Schema"
    """
    return Deletions(0, 0, (files, *[0] * (len(BINS) - 1)))


def of_files(files: pa.Table) -> Deletions | None:
    """Return the totals of live files, a table of ADD_SCHEMA; None where they exceed a long.

    Spec: "Version Checksum File Schema"
    """
    vectors = files["deletionVector"]
    if vectors.null_count == len(vectors):
        return none_in(len(vectors))
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


def to_body(deletions: Deletions | None) -> dict[str, Any]:
    """Return the totals as fields of a version checksum file; none where they are unknown.

    Spec: "Version Checksum File Schema"
    """
    if deletions is None:
        return {}
    return {
        "numDeletedRecordsOpt": deletions.records,
        "numDeletionVectorsOpt": deletions.vectors,
        "deletedRecordCountsHistogramOpt": {"deletedRecordCounts": list(deletions.counts)},
    }


def of_body(body: Mapping[str, Any]) -> Deletions | None:
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
    Spec: "Version Checksum File Schema"
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
