"""Why rows are refused: how some are deleted; of new ones, what the table asks of them."""

from collections.abc import Mapping
from typing import Final

from tidegate.pipeline.refusal import READ_AGAIN, Refusal

OF_DELETED_ROWS: Final[Mapping[str, Refusal]] = {
    "file_not_live": Refusal("rows are deleted of a file that is not in the table", READ_AGAIN),
    "other_vector": Refusal(
        "the file had another deletion vector when it was read than the proposal says", READ_AGAIN
    ),
    "rows_deleted_before": Refusal(
        "a row that the proposal deletes was deleted when it read the table", READ_AGAIN
    ),
    "rows_out_of_range": Refusal(
        "a row to delete lies past the end of its file, or the file has another number of rows",
        "count rows from 0, and repeat the file's `numRecords`",
    ),
    "no_row_count": Refusal(
        "the file whose rows are deleted has no `numRecords`, without which that is not possible",
        "rewrite the file",
    ),
    "vector_unreadable": Refusal(
        "a file of deletion vectors that decides or that it brings is missing or torn",
        "write or restore it, whole, and propose again",
    ),
    "deletion_vectors_off": Refusal(
        "the table takes no new deletion vectors",
        "rewrite the files instead, or set `delta.enableDeletionVectors`",
    ),
    "vectors_not_allowed": Refusal(
        "a file comes with a deletion vector, and the table takes no new ones",
        "rewrite the files instead, or set `delta.enableDeletionVectors`",
    ),
    "vector_without_count": Refusal(
        "a file with a deletion vector does not say how many rows it has, or too few",
        "write `numRecords`, deleted rows included",
    ),
    "vector_with_tight_bounds": Refusal(
        "a file has a deletion vector, and bounds that are not said to be wide",
        "say `tightBounds: false`",
    ),
}

OF_NEW_ROWS: Final[Mapping[str, Refusal]] = {
    "constraints_not_enforced": Refusal(
        "rows are added without the word of their writer that a CHECK constraint, an invariant or "
        "a generated column of the table holds for them",
        "evaluate it on every row and give its hash in `constraints_enforced`; where a winner "
        "brought the constraint, read the table first",
    ),
    "constraint_not_validated": Refusal(
        "a constraint is new, and its writer does not say that it holds for every row there is",
        "read the whole table, evaluate it, and give its hash in `constraints_enforced`",
    ),
    "null_in_required_column": Refusal(
        "a file has nulls, by its statistics or partition values, in a column that takes none",
        "leave these rows out, or let the column be nullable",
    ),
    "bounds_of_variants": Refusal(
        "a file has bounds of a variant, which are for shredded variants alone",
        "leave them out, or set `delta.enableVariantShredding`",
    ),
    "change_files_missing": Refusal(
        "the table has a change feed, rows leave and join, or a partition changes, and no change "
        "file says which rows changed",
        "write change files and name them in `cdc` actions; where no row that leaves comes back, "
        "say `cdc_mode: implicit`",
    ),
    "wrong_cdc_mode": Refusal(
        "`cdc_mode` says something else of the change feed than the actions do",
        "say `explicit` with change files, `implicit` without, `none` where no row changes",
    ),
    "columns_change_with_rows": Refusal(
        "the table has a change feed, and columns are mapped, renamed or dropped in a version in "
        "which files join or leave",
        "change the columns in a proposal of its own, then the rows",
    ),
    "identity_values_not_told": Refusal(
        "files hold new values of an identity column, and the proposal does not say which",
        "name the least and the greatest in `identity_usage`",
    ),
    "identity_values_taken": Refusal(
        "values of an identity column are not beyond what has been given out, or were used before",
        "write the files anew with values from the one on that the answer names, or lease a block "
        "first (`identity_leases`): its values are nobody else's",
    ),
    "identity_lease_unknown": Refusal(
        "the lease of identity values is unknown, older than what is remembered of the log, or "
        "lapsed because the column's high-water mark was set back",
        "lease values anew; or propose with the `read_version` of before the lease",
    ),
    "outside_identity_lease": Refusal(
        "values of an identity column are none of the lease that the proposal names",
        "use the values that the lease's outcome names",
    ),
    "no_identity_column": Refusal(
        "a column is named that is no identity column", "give its physical name"
    ),
    "no_identity_values_left": Refusal(
        "the block that is asked for would end beyond 64 bits", "lease fewer values"
    ),
}
"""A part of `refusals.REFUSALS`."""
