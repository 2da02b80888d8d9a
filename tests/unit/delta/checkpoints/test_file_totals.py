from bisect import bisect_right

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.definitions import one_file
from tidegate_delta.checkpoints import file_totals
from tidegate_delta.checkpoints.file_totals import (
    BOUNDS,
    Deletions,
    FileSizes,
    deletions_of_body,
    deletions_of_files,
    deletions_to_body,
    histogram_of,
    histogram_of_sizes,
    no_deletions_in,
)
from tidegate_delta.log.actions import Add, DeletionVector
from tidegate_delta.snapshots.file_action_columns import ADD_SCHEMA, adds_to_columns
from tidegate_delta.value_limits import LONG_MAX


def add(path: str, deleted: int | None) -> Add:
    vector = None
    if deleted is not None:
        vector = DeletionVector(
            storage_type="u", path_or_inline_dv=path, offset=1, size_in_bytes=1, cardinality=deleted
        )
    return one_file(path, deletion_vector=vector)


ADDS = [add(str(at), rows) for at, rows in enumerate([None, 0, 1, 9, 10, 10**7, 2**31 - 1])]
TOTALS = Deletions(20 + 10**7 + 2**31 - 1, 6, (2, 2, 1, 0, 0, 0, 0, 0, 1, 1))


def test_totals_count_rows_vectors_and_files_by_how_many_rows_are_deleted() -> None:
    assert deletions_of_files(adds_to_columns(ADDS)) == TOTALS
    assert deletions_of_files(adds_to_columns(ADDS[:1])) == no_deletions_in(1)
    assert deletions_of_files(ADD_SCHEMA.empty_table()) == no_deletions_in(0)


def test_totals_move_with_the_files_that_join_and_leave() -> None:
    assert no_deletions_in(0).moved(ADDS, []) == TOTALS
    assert TOTALS.moved([], ADDS) == no_deletions_in(0)
    assert TOTALS.moved(ADDS[:2], ADDS[2:]) == deletions_of_files(adds_to_columns(ADDS[:2] * 2))


def test_totals_are_written_as_they_are_read() -> None:
    assert deletions_of_body(deletions_to_body(TOTALS)) == TOTALS
    assert deletions_of_body(deletions_to_body(None)) is None
    assert deletions_of_body({**deletions_to_body(TOTALS), "numDeletionVectorsOpt": None}) is None


def test_a_histogram_of_other_bins_is_refused() -> None:
    body = {
        **deletions_to_body(TOTALS),
        "deletedRecordCountsHistogramOpt": {"deletedRecordCounts": [1]},
    }
    with pytest.raises(ValueError, match="1 bins"):
        deletions_of_body(body)


SIZES = st.lists(st.one_of(st.integers(-5, LONG_MAX), st.sampled_from(BOUNDS), st.none()))


def counted(sizes: list[int | None]) -> FileSizes:
    """Count one by one."""
    files, size_bytes = [0] * len(BOUNDS), [0] * len(BOUNDS)
    for size in sizes:
        known = max(size or 0, 0)
        at = bisect_right(BOUNDS, known) - 1
        files[at], size_bytes[at] = files[at] + 1, size_bytes[at] + known
    return FileSizes(tuple(files), tuple(size_bytes))


@given(SIZES, SIZES, st.booleans())
def test_files_are_counted_whether_they_are_few_or_many(
    some: list[int | None], more: list[int | None], are_many: bool
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(file_totals, "_FEW", 0 if are_many else 1_000)
        if not some and are_many:
            return
        result = histogram_of(pa.chunked_array([pa.array(some, pa.int64())]))
    assert result == counted(some)
    both = result + histogram_of(pa.chunked_array([pa.array(more, pa.int64())]))
    assert both == counted([*some, *more])
    assert both - counted(more) == result


def test_what_is_written_is_read_and_other_bins_are_unknown() -> None:
    sizes = histogram_of_sizes([1, 9_000, 5 << 40])
    body = file_totals.histogram_to_body(sizes)
    assert file_totals.histogram_of_body(body) == sizes
    assert file_totals.histogram_of_body({}) is None
    others = {"sortedBinBoundaries": [0, 10], "fileCounts": [1, 0], "totalBytes": [4, 0]}
    assert file_totals.histogram_of_body({"fileSizeHistogram": others}) is None
    assert file_totals.histogram_to_body(histogram_of_sizes([LONG_MAX, LONG_MAX])) == {}
    body["fileSizeHistogram"]["fileCounts"][0] = -1
    with pytest.raises(ValueError, match="no count"):
        file_totals.histogram_of_body(body)
