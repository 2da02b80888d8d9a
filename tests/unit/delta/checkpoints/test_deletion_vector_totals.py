import pytest

from tidegate_delta.checkpoints.file_totals import (
    Deletions,
    deletions_of_body,
    deletions_of_files,
    deletions_to_body,
    no_deletions_in,
)
from tidegate_delta.log.actions import Add, DeletionVector
from tidegate_delta.snapshots.file_action_columns import ADD_SCHEMA, adds_to_columns


def add(path: str, deleted: int | None) -> Add:
    vector = None
    if deleted is not None:
        vector = DeletionVector(
            storage_type="u",
            path_or_inline_dv=path,
            offset=1,
            size_in_bytes=1,
            cardinality=deleted,
        )
    return Add(
        path=path,
        partition_values={},
        size=1,
        modification_time=0,
        data_change=True,
        deletion_vector=vector,
    )


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
