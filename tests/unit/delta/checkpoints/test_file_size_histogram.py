"""The histogram of file sizes in version checksums."""

from bisect import bisect_right

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate_delta.checkpoints import file_totals
from tidegate_delta.checkpoints.file_totals import (
    BOUNDS,
    FileSizes,
    histogram_of,
    histogram_of_sizes,
)
from tidegate_delta.value_limits import LONG_MAX

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
