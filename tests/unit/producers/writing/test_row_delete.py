"""How deletes by vectors are counted, by delta-spark's names."""

from uuid import UUID

from tests.builders import add
from tidegate_delta.deletion_vectors.descriptors import placed
from tidegate_delta.deletion_vectors.roaring_bitmap import of_rows
from tidegate_delta.log.actions import Add
from tidegate_producers.writing.row_delete import VectorCounts, vector_counts
from tidegate_runtime.client.proposal_builders import INLINE_VECTOR_BYTES_MAX


def file_of_ten(name: str, deleted: int = 0) -> Add:
    """Return a file of ten rows, the first of which are deleted."""
    row = add(name)["add"]
    if deleted:
        [vector], _ = placed([of_rows(range(deleted))], UUID(int=1), INLINE_VECTOR_BYTES_MAX)
        row["deletionVector"] = vector.model_dump(by_alias=True, exclude_none=True)
    return Add.model_validate(row)


def test_a_file_that_loses_its_last_row_is_removed_and_gets_no_vector() -> None:
    marked = [
        (file_of_ten("new"), of_rows([3])),
        (file_of_ten("grows", 2), of_rows([3])),
        (file_of_ten("whole"), of_rows(range(10))),
        (file_of_ten("rest", 4), of_rows(range(4, 10))),
    ]
    counts = vector_counts(marked)
    assert counts == VectorCounts(added=2, removed=2, updated=1, emptied_files=2)
    assert counts.metrics("numDeletionVectors") == {
        "numDeletionVectorsAdded": 2,
        "numDeletionVectorsRemoved": 2,
        "numDeletionVectorsUpdated": 1,
    }
