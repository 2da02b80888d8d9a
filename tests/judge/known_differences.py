"""Where we differ from delta-spark on purpose, or where a comparison means nothing.

A difference that matches is counted, and is none. Each is as narrow as its reason.
"""

import re
from dataclasses import dataclass
from typing import Final

from tests.judge.comparison import Difference


@dataclass(frozen=True)
class Known:
    """A difference that is no fault: regular expressions that match all of a difference's parts."""

    reason: str
    part: str
    verb: str = ".*"
    error_class: str = ".*"
    theirs: str = ".*"
    ours: str = ".*"

    def matches(self, difference: Difference) -> bool:
        """Return whether a difference is this one."""
        return all(
            re.fullmatch(pattern, text, re.DOTALL)
            for pattern, text in (
                (self.part, difference.part),
                (self.verb, difference.verb),
                (self.error_class, difference.error_class),
                (self.theirs, difference.theirs),
                (self.ours, difference.ours),
            )
        )


KNOWN: Final = (
    Known(
        "a change of properties is called so where it upgrades the protocol, too",
        "history",
        "Alter .*|AddFeature",
        theirs=r".*UPGRADE PROTOCOL.*",
    ),
    Known(
        "delta-spark rewrites files though no row changes, and its streams stop there",
        "only they refuse, after a merge of theirs that changed no row",
        "StreamRead",
        "STREAM_FAILED",
        theirs=".*DELTA_SOURCE_TABLE_IGNORE_CHANGES.*",
    ),
    Known(
        "nothing is proposed where nothing changes",
        "history",
        ours=r"\[\]",
    ),
    Known(
        "delta-spark refuses rows without a partition column, or without all others; for us they "
        "have a null",
        "only they refuse",
        "Append.*|Overwrite.*",
        "DELTA_PARTITION_COLUMN_NOT_FOUND|DELTA_NON_PARTITION_COLUMN_ABSENT",
    ),
    Known(
        "a merge that inserts all columns computes generated ones, which delta-spark misses",
        "only they refuse",
        "Merge.*",
        "DELTA_MERGE_UNRESOLVED_EXPRESSION",
        theirs=".*Cannot resolve [gn] in INSERT clause.*",
    ),
    Known(
        "a merge that evolves computes generated columns, which delta-spark can't then",
        "only they refuse",
        "Merge evolving",
        "DELTA_CANNOT_RESOLVE_EXPRESSION",
        theirs=r".*Cannot resolve expression: \('k \+ 1\).*",
    ),
    Known(
        "rows may lack the column that a generated one is computed from: it is null, for us",
        "only they refuse",
        "Append.*|Overwrite.*",
        "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        theirs=r".*\('k \+ 1\) AS g.*",
    ),
    Known(
        "delta-spark can't compute generated columns in such a merge, whatever else is wrong",
        "error class",
        "Merge evolving",
        "DELTA_CANNOT_RESOLVE_EXPRESSION / .*",
        theirs=r".*Cannot resolve expression: \('k \+ 1\).*",
    ),
    Known(
        "delta-spark fails at a row that no clause of a merge changes",
        "only they refuse",
        "Merge.*",
        "USER_RAISED_EXCEPTION",
        theirs=".*Unexpected row: did not match any merge clause.*",
    ),
    Known(
        "names that a table of delta-rs has are no reason to refuse another change",
        "only they refuse",
        "Alter .*",
        "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES",
    ),
    Known(
        "a variant defaults to null alone, by the spec; delta-spark takes any default",
        "we refuse",
        "Alter set_default",
        "DELTA_OPERATION_NOT_SUPPORTED_FOR_DATATYPES",
        ours=".*of type variant can't have the default.*",
    ),
    Known(
        "infinity and NaN are no decimal; delta-spark stores NULL for them in silence",
        "we refuse",
        "Update|Merge.*",
        "DELTA_CAST_OVERFLOW_IN_TABLE_WRITE",
        ours=".*a value of type (double|float) does not fit into column .* of type decimal.*",
    ),
    Known(
        "delta-spark refuses two matches of which only one acts, or none; we take it",
        "only they refuse",
        "Merge.*",
        "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE",
    ),
    Known(
        "delta-spark forgets clustering where df.write overwrites all; we keep it",
        "clustering",
        r"Overwrite( mergeSchema)?( overwriteSchema)?( partitionOverwriteMode)?",
        theirs=r"\[\]",
    ),
    Known(
        "delta-rs lists no feature that the table's columns need, so delta-spark refuses its table",
        "only they refuse",
        error_class="DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH",
        theirs=".*: invariants.*",
    ),
    Known(
        "delta-spark refuses such a table of delta-rs before it looks at the verb",
        "error class",
        error_class="DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH / .*",
        theirs=".*: invariants.*",
    ),
    Known(
        "Spark looks for a statement's columns before Delta does, whose class ours have",
        "error class",
        "Alter .*",
        "(UNRESOLVED_COLUMN.WITH_SUGGESTION|FIELD_NOT_FOUND) / "
        "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"
        "|FIELD_ALREADY_EXISTS / DELTA_DUPLICATE_COLUMNS_FOUND",
    ),
    Known(
        "Spark looks for a NULL in an assigned NOT NULL column, and Delta, too",
        "error class",
        "Update|Merge.*",
        "NOT_NULL_ASSERT_VIOLATION / DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
    ),
    Known(
        "delta-spark says of each constraint that rows do not match replaceWhere",
        "error class",
        "Overwrite where",
        "DELTA_REPLACE_WHERE_MISMATCH / "
        "DELTA_(NOT_NULL_CONSTRAINT_VIOLATED|MISSING_NOT_NULL_COLUMN_VALUE|VIOLATE_CONSTRAINT.*)",
    ),
    Known(
        "a narrower number in a struct is stored as the column's; delta-spark does so outside only",
        "only they refuse",
        "Append.*|Overwrite.*",
        "DELTA_FAILED_TO_MERGE_FIELDS",
    ),
    Known(
        "an overwrite of nothing by nothing is a version of ours",
        "history",
        "Overwrite.*",
        theirs=r"\[\]",
        ours=r"\[\('WRITE', {('numDeletedRows': '0')?}\)\]",
    ),
    Known(
        "replaceWhere of df.write takes plain conditions only; Table.overwrite takes others",
        "we refuse",
        "Overwrite where",
        "PYTHON_DATA_SOURCE_ERROR|DELTA_UNSUPPORTED_EXPRESSION",
        ours=".*which this release can't decide exactly.*",
    ),
    Known(
        "delta-spark counts no rows where an overwrite by a condition writes none",
        "history",
        "Overwrite where",
        theirs=r"\[\('WRITE', {}\)\]",
        ours=r"\[\('WRITE', {'numDeletedRows': '\d+'}\)\]",
    ),
    Known(
        "the committer records in a version what it refuses",
        "history",
        ours=".*TIDEGATE REFUSALS.*",
    ),
    Known(
        "delta-spark can't change rows of a table with a column _metadata",
        "only they refuse",
        "Merge.*|Update|Delete|Overwrite where",
        "AMBIGUOUS_REFERENCE",
        theirs=r".*`_metadata`.*",
    ),
    Known(
        "identity columns, generated ones and defaults are for Table.append, not df.write",
        "we refuse",
        "Append.*|Overwrite.*",
        "PYTHON_DATA_SOURCE_ERROR",
        ours=".*write with Table\\.append, which does.*",
    ),
    Known(
        "delta-spark removes the file of a row that matches, though no clause acts on the row",
        "only they refuse",
        "Merge.*",
        "DELTA_CANNOT_MODIFY_APPEND_ONLY",
    ),
    Known(
        "a Z-order by a struct is refused, with the names of its fields",
        "we refuse",
        "ZOrder",
        "DELTA_ZORDERING_ON_COLUMN_WITHOUT_STATS",
        ours=".*is no column of a plain type.*",
    ),
    Known(
        "two messages say that a column can't be sorted by",
        "error class",
        "ZOrder",
        "DATATYPE_MISMATCH.* / DELTA_ZORDERING_ON_COLUMN_WITHOUT_STATS",
    ),
    Known(
        "bytes that are no text can't be a partition value; delta-spark stores other bytes",
        "we refuse",
        "Create|Append.*|Overwrite.*|Merge.*|Update",
        "DELTA_FAILED_CAST_PARTITION_VALUE|PYTHON_EXCEPTION",
        ours=".*can't be a partition value of type binary.*",
    ),
    Known(
        "delta-spark can't merge into a table partitioned by a column with a dot in its name",
        "only they refuse",
        "Merge.*",
        "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        theirs=r".*name `(\w+)`\.`(\w+)` cannot be resolved\. Did.*`\1\.\2`.*",
    ),
    Known(
        "delta-spark can't change rows of a table with a backtick in a column's name",
        "only they refuse",
        "Merge.*|Update|Delete",
        "INVALID_ATTRIBUTE_NAME_SYNTAX",
        theirs=".*tick`s.*",
    ),
    Known(
        "delta-spark refuses a backtick in a column's name before it looks at the verb",
        "error class",
        "Merge.*|Update|Delete",
        "INVALID_ATTRIBUTE_NAME_SYNTAX / .*",
        theirs=".*tick`s.*",
    ),
    Known(
        "whether a file loses all its rows, or has a vector, depends on how an engine wrote them",
        "history",
        "Delete",
        theirs=r"\[\('DELETE', {'numDeletedRows': '\d+', 'numDeletionVectorsAdded': '1'}\)\]",
        ours=r"\[\('DELETE', {'numDeletedRows': '\d+', 'numDeletionVectorsAdded': '0'}\)\]",
    ),
    Known(
        "there is nothing to pack where an engine wrote one file, and the other two",
        "history",
        "Optimize",
        theirs=r"\[\]|\[\('OPTIMIZE', {}\)\]",
        ours=r"\[\]|\[\('OPTIMIZE', {}\)\]",
    ),
    Known(
        "Spark folds an assignment that overflows though no row is changed by it",
        "only they refuse",
        "Update|Merge.*",
        "ARITHMETIC_OVERFLOW",
        theirs=r".*position 1\) ==\nk \+ 1\n.*",
    ),
    Known(
        "delta-spark fails as it writes the message that a feature must be enabled by hand",
        "error class",
        error_class="INTERNAL_ERROR / DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT",
    ),
    Known(
        "a log that contradicts itself has no error class of its own",
        "error class",
        "Read in another case",
    ),
    Known(
        "a struct that lacks fields is a cast that Spark can't do, where a field is NOT NULL",
        "error class",
        "Update|Merge.*",
        "DATATYPE_MISMATCH.CAST_WITHOUT_SUGGESTION / "
        "(DELTA_UPDATE_SCHEMA_MISMATCH_EXPRESSION|DELTA_NOT_NULL_CONSTRAINT_VIOLATED)",
    ),
    Known(
        "delta-spark refuses values for a NOT NULL field unseen; we look at them",
        "only they refuse",
        "Update|Merge.*",
        "DATATYPE_MISMATCH.CAST_WITHOUT_SUGGESTION",
        theirs=".* NOT NULL.*",
    ),
    Known(
        "optimize().where takes no value that JSON has no number for, and no bytes",
        "we refuse",
        "Optimize|ZOrder",
        "DELTA_UNSUPPORTED_EXPRESSION",
        ours=r".*(CAST\('(-?Infinity|NaN)' AS (DOUBLE|FLOAT)\)|X'|BINARY).*",
    ),
    Known(
        "of two reasons to refuse a verb each engine finds another first",
        "error class",
        error_class=".*DELTA_CANNOT_MODIFY_APPEND_ONLY.*"
        "|DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE / "
        "DELTA_(VIOLATE_CONSTRAINT_WITH_VALUES|NOT_NULL_CONSTRAINT_VIOLATED)"
        "|DELTA_NOT_NULL_CONSTRAINT_VIOLATED / DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"
        "|DELTA_FAILED_TO_MERGE_FIELDS / DELTA_METADATA_MISMATCH"
        "|DELTA_MERGE_UNRESOLVED_EXPRESSION / DELTA_NOT_NULL_CONSTRAINT_VIOLATED"
        "|DELTA_ZORDERING_ON_PARTITION_COLUMN / .*"
        "|DELTA_PARTITION_COLUMN_NOT_FOUND / .*"
        "|FIELD_NOT_FOUND / DELTA_MERGE_UNRESOLVED_EXPRESSION"
        "|DELTA_METADATA_MISMATCH / DELTA_FAILED_TO_MERGE_FIELDS"
        r"|DATATYPE_MISMATCH\.(BINARY_OP_DIFF_TYPES|INVALID_ORDERING_TYPE) / "
        "DELTA_REPLACE_WHERE_MISMATCH",
    ),
    Known(
        "the empty text of a partition is null by the protocol; delta-spark reads it as no bytes",
        "rows: delta-spark reads ours",
        theirs=r'\["[^"]*None[^"]*"\]',
        ours=r"""\["[^"]*\('bytes', ''\)[^"]*"\]""",
    ),
    Known(
        "delta-spark tries, and fails, to write bytes as a partition's folder; we say so before",
        "error class",
        error_class="TASK_WRITE_FAILED / DELTA_FAILED_CAST_PARTITION_VALUE",
    ),
    Known(
        "Spark says of a value that overflows in a struct only that the task failed",
        "error class",
        "Update|Merge.*",
        "TASK_WRITE_FAILED / (DELTA_CAST_OVERFLOW_IN_TABLE_WRITE|ARITHMETIC_OVERFLOW)",
    ),
    Known(
        "delta-spark fails at a null key that it need not insert, where deletion vectors are on, "
        "keys are compared by <=>, and rows not matched by the source change",
        "only they refuse",
        "Merge.*",
        "TASK_WRITE_FAILED",
        theirs=".*Unexpected row: did not match any merge clause.*",
    ),
    Known(
        "a vacuum that deletes nothing writes no version",
        "history",
        "Vacuum",
    ),
    Known(
        "a merge of ours does not say how many rows it did not change",
        "history",
        "Merge.*",
        theirs=r"\[\('MERGE'.*",
        ours=r"\[\('MERGE'.*",
    ),
    Known(
        "values of identity columns are leased by versions of their own",
        "history",
        ours=".*LEASE IDENTITY.*",
    ),
)


def known(difference: Difference) -> Known | None:
    """Return why a difference is none, or None."""
    return next((item for item in KNOWN if item.matches(difference)), None)
