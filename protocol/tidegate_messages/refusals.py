"""Why a proposal was not committed: for each rule the cause and the remedy.

The command line, the documents and the metrics all use this table. A rule that is not in it is the
class of an error of a table or its store (`docs/operations.md`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

READ_AGAIN: Final = "read the table as it is and propose again"
"""The remedy for a proposal that rests on an outdated state of the table."""


@dataclass(frozen=True)
class RefusalRule:
    """A rule in words: why it refuses, and what to do."""

    cause: str
    remedy: str


OF_DELETED_ROWS: Final[Mapping[str, RefusalRule]] = {
    "file_not_live": RefusalRule("rows are deleted of a file that is not in the table", READ_AGAIN),
    "other_vector": RefusalRule(
        "the file had another deletion vector when it was read than the proposal says", READ_AGAIN
    ),
    "rows_deleted_before": RefusalRule(
        "a row that the proposal deletes was deleted when it read the table", READ_AGAIN
    ),
    "rows_out_of_range": RefusalRule(
        "a row to delete lies past the end of its file, or the file has another number of rows",
        "count rows from 0, and repeat the file's `numRecords`",
    ),
    "no_row_count": RefusalRule(
        "the file whose rows are deleted has no `numRecords`, without which that is not possible",
        "rewrite the file",
    ),
    "vector_unreadable": RefusalRule(
        "a file of deletion vectors that decides or that it brings is missing or torn",
        "write or restore it, whole, and propose again",
    ),
    "deletion_vectors_off": RefusalRule(
        "the table takes no new deletion vectors",
        "rewrite the files instead, or set `delta.enableDeletionVectors`",
    ),
    "vectors_not_allowed": RefusalRule(
        "a file comes with a deletion vector, and the table takes no new ones",
        "rewrite the files instead, or set `delta.enableDeletionVectors`",
    ),
    "vector_without_count": RefusalRule(
        "a file with a deletion vector does not say how many rows it has, or too few",
        "write `numRecords`, deleted rows included",
    ),
    "vector_with_tight_bounds": RefusalRule(
        "a file has a deletion vector, and bounds that are not said to be wide",
        "say `tightBounds: false`",
    ),
}

OF_NEW_ROWS: Final[Mapping[str, RefusalRule]] = {
    "constraints_not_enforced": RefusalRule(
        "the writer did not attest that the new rows satisfy a CHECK constraint, an invariant or "
        "a generated column of the table",
        "evaluate it on every row and give its hash in `constraints_enforced`; where a winner "
        "brought the constraint, read the table first",
    ),
    "constraint_not_validated": RefusalRule(
        "a constraint is new, and its writer does not say that it holds for every row there is",
        "read the whole table, evaluate it, and give its hash in `constraints_enforced`",
    ),
    "null_in_required_column": RefusalRule(
        "a file has nulls, by its statistics or partition values, in a column that takes none",
        "leave these rows out, or let the column be nullable",
    ),
    "bounds_of_variants": RefusalRule(
        "a file has bounds of a variant, which are for shredded variants alone",
        "leave them out, or set `delta.enableVariantShredding`",
    ),
    "change_files_missing": RefusalRule(
        "the table has a change feed, rows leave and join, or a partition changes, and no change "
        "file says which rows changed",
        "write change files and name them in `cdc` actions; where no row that leaves comes back, "
        "say `cdc_mode: implicit`",
    ),
    "wrong_cdc_mode": RefusalRule(
        "`cdc_mode` says something else of the change feed than the actions do",
        "say `explicit` with change files, `implicit` without, `none` where no row changes",
    ),
    "columns_change_with_rows": RefusalRule(
        "the table has a change feed, and columns are mapped, renamed or dropped in a version in "
        "which files join or leave",
        "change the columns in a proposal of its own, then the rows",
    ),
    "identity_values_not_told": RefusalRule(
        "files hold new values of an identity column, and the proposal does not say which",
        "name the least and the greatest in `identity_usage`",
    ),
    "identity_values_taken": RefusalRule(
        "values of an identity column are not beyond what has been given out, or were used before",
        "write the files again with values from the one on that the answer names, or lease a block "
        "first (`identity_leases`): its values are nobody else's",
    ),
    "identity_lease_unknown": RefusalRule(
        "the lease of identity values is unknown, older than what is remembered of the log, or "
        "lapsed because the column's high-water mark was set back",
        "lease values again; or propose with the `read_version` of before the lease",
    ),
    "outside_identity_lease": RefusalRule(
        "values of an identity column are none of the lease that the proposal names",
        "use the values that the lease's outcome names",
    ),
    "no_identity_column": RefusalRule(
        "a column is named that is no identity column", "give its physical name"
    ),
    "no_identity_values_left": RefusalRule(
        "the block that is asked for would end beyond 64 bits", "lease fewer values"
    ),
}
"""Part of `REFUSALS`."""


__all__ = ("OTHER", "REFUSALS", "RefusalRule", "label_of")

OTHER: Final = "other"
"""The metrics label for rules that are not in the table, so that labels stay bounded."""

_RERUN: Final = "run the operation again: it reads the newest version"

REFUSALS: Final[Mapping[str, RefusalRule]] = {
    "concurrent_append": RefusalRule(
        "a winner added a file that may hold rows which the proposal should have read", _RERUN
    ),
    "concurrent_delete_read": RefusalRule("a winner removed a file that the proposal read", _RERUN),
    "concurrent_delete_delete": RefusalRule(
        "a winner removed a file that the proposal removes too",
        f"{_RERUN}; two jobs that rewrite the same files are better run one after the other",
    ),
    "concurrent_row_delete": RefusalRule(
        "a winner deleted or updated a row that the proposal deletes or updates, or took the row's "
        "file away",
        _RERUN,
    ),
    "duplicate_actions": RefusalRule(
        "a file that a winner repeated without its row ids is removed by the proposal too", _RERUN
    ),
    "concurrent_transaction": RefusalRule(
        "a winner moved an application whose version the proposal had read",
        "find the second instance of that application or query and end it; then run again",
    ),
    "domain_metadata_changed": RefusalRule(
        "a winner wrote a metadata domain that the proposal writes or had read, or one domain "
        "twice",
        _RERUN,
    ),
    "metadata_changed": RefusalRule(
        "a winner changed schema, partitioning or properties in a way that the proposal does not "
        "survive",
        f"{_RERUN}, with the new schema",
    ),
    "protocol_changed": RefusalRule(
        "a winner changed the protocol, as the proposal does, or dropped a feature that its writer "
        "counted on",
        _RERUN,
    ),
    "feature_binds_writers": RefusalRule(
        "a winner added a feature that asks something of files which are written already", _RERUN
    ),
    "dropped_feature_in_use": RefusalRule(
        "the proposal drops a feature, and after the winner the table still uses it",
        "take the new traces of the feature out of the table, then drop it again",
    ),
    "row_ids_of_no_table": RefusalRule(
        "the proposal gives row ids or takes them away, and after a winner the table knows of none",
        "list the feature rowTracking in the table's protocol first",
    ),
    "backfill_of_more_than_files": RefusalRule(
        "a winner touched files while the proposal gives row ids, and holds more than files",
        _RERUN,
    ),
    "unbackfill_meets_backfill": RefusalRule(
        "a winner gave row ids that the proposal takes away",
        "end one of the two jobs, then run the other again",
    ),
    "row_ids_without_statistics": RefusalRule(
        "the table tracks rows, and a new file does not say how many it has",
        "write the file's statistics: `numRecords` at least",
    ),
    "unclear_table": RefusalRule(
        "properties of the table contradict each other, or its isolation level is not one of "
        "Delta's",
        "set the property that the answer names, alone, then run again",
    ),
    "protocol_unsupported": RefusalRule(
        "a winner asks for a version or feature that this release does not know",
        "upgrade the committer, or drop the feature from the table",
    ),
    "app_txn_seen": RefusalRule(
        "the table has the application at that version (`app_version`), or, by Delta's rule for "
        "`app_txn`, at a later one",
        "skip the work if only one writer uses the id; a later version by another says nothing of "
        "these rows",
    ),
    "app_txn_conflict": RefusalRule(
        "the table has the application at `app_version`, where the proposal expected "
        "`expected_app_version`: another writer went on, or this one has an older position",
        "ask for the position (`app_versions`, `tidegate table snapshot`), and go on from there "
        "under a new id; after a denial, whose position the table has not reached, send first what "
        "is missing",
    ),
    "table_exists": RefusalRule(
        "there is a table at that root, or its folder is registered under another root",
        "write to it; bring it under the gate with `tidegate table register` if it is not there",
    ),
    "cancelled": RefusalRule(
        "its writer gave it up, by hand or by program",
        "propose the work again, under a new id, if it is still wanted",
    ),
    "deadline_passed": RefusalRule(
        "its own deadline passed before its turn came",
        f"{_RERUN}, with a later deadline; find out why the committer was behind",
    ),
    "files_too_old": RefusalRule(
        "its oldest file (by `files_since_ms`, else `created_ms`, else its record's time) is of an "
        "age at which vacuum may have taken it",
        "write the files again and propose them sooner (`committer.files_age_max_ms`)",
    ),
    "other_table": RefusalRule(
        "the table at that root is not the one that its writer read: it was recreated", READ_AGAIN
    ),
    "other_metadata": RefusalRule(
        "the metadata that the patch was made for is not that of the version that it names",
        READ_AGAIN,
    ),
    "other_root": RefusalRule(
        "the id is registered with another root",
        "propose with the root that `tidegate table list` shows",
    ),
    "poison": RefusalRule(
        "the committer died three times in a row over the record, which is not handled again",
        "propose the work in another form: smaller, or less deeply nested; and report it",
    ),
    "fault": RefusalRule(
        "the committer failed over the record, or over a table to be created, in a way that nobody "
        "foresaw",
        "propose the work in another form, and report it: the traceback is in the committer's log",
    ),
    "malformed": RefusalRule(
        "the record or an action is not what the schema of proposals or PROTOCOL.md says",
        "correct the program that wrote it: the answer names the field",
    ),
    "wrong_topic": RefusalRule(
        "an operator's request (`halt`, `reopen`, `drop`, `move`) came on the topic `proposals`, "
        "or something else on `admin`",
        "send the same bytes to the topic that the answer names (`topic`), on the same partition "
        "number",
    ),
    "unknown_kind": RefusalRule(
        "the record says a kind that no release has had",
        "correct the program that wrote it, or upgrade the committer if it is newer",
    ),
    "bad_predicate": RefusalRule(
        "a predicate of the read set is not in the grammar",
        "use the grammar of read sets, or say `opaque`, which matches everything",
    ),
    "duplicate_action": RefusalRule(
        "an action that may stand once stands twice", "give each file, domain and change once"
    ),
    "not_supported": RefusalRule(
        "it asks for what this release does not do: the answer names the feature or the kind",
        "leave it out, or see docs/features.md for who can",
    ),
    "too_large": RefusalRule(
        "it is past a limit of the operator",
        "propose in several steps or with a claim check, or have the limit raised",
    ),
    "claim_check": RefusalRule(
        "the file with its actions is missing, lies elsewhere, is no regular file of the table's "
        "own folder (a pipe, a device, a link that leads out), or holds other bytes; `denied`: it "
        "could not be read for ten minutes",
        "write the file first, whole, under the name that the answer gives, then propose",
    ),
    "file_missing": RefusalRule(
        "its files are verified (`verify_files`), and one that it adds is not there, or is no "
        "regular file of the table's own folder; `denied`: the store did not answer for ten "
        "minutes",
        "write the file first, whole, and propose again under a new id",
    ),
    "wrong_file_size": RefusalRule(
        "its files are verified (`verify_files`), and one that it adds has another size",
        "take `size` from the finished file, and propose again under a new id",
    ),
    "bad_path": RefusalRule(
        "a path leads out of the table's root, or is not written as PROTOCOL.md says",
        "write files below the root, and name them relative to it",
    ),
    "place_not_allowed": RefusalRule(
        "a new file, or its deletion vector, is named by a URI of a place under none of "
        "`committer.roots`, where the files of shallow clones may lie",
        "write files below the table's root, or have the prefix of the place added",
    ),
    "partition_values": RefusalRule(
        "the values are not those of the table's partition columns, or of another type",
        "give a value for each partition column, by its physical name",
    ),
    "rows_from_nowhere": RefusalRule(
        "a file says that it changes no data, and nothing leaves that had its rows",
        "say `dataChange`, or remove the files whose rows it holds",
    ),
    "added_file_live": RefusalRule(
        "a file that it adds is in the table already", "write new rows under a new name"
    ),
    "removed_file_not_live": RefusalRule(
        "a file that it removes is not in the table, not under that form of its path, or has "
        "another deletion vector",
        READ_AGAIN,
    ),
    **OF_DELETED_ROWS,
    "row_ids_not_kept": RefusalRule(
        "rows move to a new file of a table that tracks rows, and it is not said to hold their ids",
        "write the ids into the columns of row tracking, and say `keeps_row_ids`",
    ),
    "append_only": RefusalRule(
        "the table only takes appends (`delta.appendOnly`)",
        "unset the property first, or leave the rows",
    ),
    **OF_NEW_ROWS,
    "isolation_not_allowed": RefusalRule(
        "the isolation level that it asks for is weaker than the operator allows",
        "ask for a stronger one, or have `committer.weakest_isolation` changed",
    ),
    "bad_metadata": RefusalRule(
        "the schema, the partitioning or a property that it writes is not legal for this table",
        "correct what the answer names",
    ),
    "bad_protocol": RefusalRule(
        "the protocol that it writes is not legal, or takes away what the table has",
        "keep the versions and features that the table has, and add to them",
    ),
    "unknown_feature": RefusalRule(
        "the protocol names a feature that this release does not know",
        "correct the name, or upgrade the committer",
    ),
    "feature_not_listed": RefusalRule(
        "the metadata uses a feature that the protocol does not list",
        "list the feature, or leave its use out",
    ),
    "feature_by_hand": RefusalRule(
        "the metadata uses a feature that is added to an existing table by hand alone",
        "set the property that the answer names, `delta.feature.NAME`, to `supported`",
    ),
    "feature_status": RefusalRule(
        "a property asks for a feature with another word than `supported`",
        "say `supported`",
    ),
    "version_not_a_number": RefusalRule(
        "a property asks for a protocol version that is no number",
        "give the number, or leave it out",
    ),
    "version_out_of_range": RefusalRule(
        "a property asks for a protocol version that does not exist",
        "give a number of the range that the answer names, or leave it out",
    ),
    "features_of_readers_alone": RefusalRule(
        "properties ask for features of readers, and for a writer version without features",
        "ask for writer version 7",
    ),
    "feature_in_use": RefusalRule(
        "a feature is dropped while the table still has traces of it",
        "take every trace out of the table first",
    ),
    "rows_without_ids": RefusalRule(
        "row tracking is turned on while files of the table carry no row ids",
        "give every file row ids first, as `ROW TRACKING BACKFILL`, then turn it on",
    ),
    "domains_not_supported": RefusalRule(
        "a metadata domain is written that the table has no feature for",
        "add the feature `domainMetadata`, or the domain's own, first",
    ),
    "reserved_domain": RefusalRule(
        "a metadata domain is written that is not a writer's", "leave it out: the gate keeps it"
    ),
    "read_version_ahead": RefusalRule(
        "the version that it read is not in the log: the log was restored, or the root is another",
        READ_AGAIN,
    ),
    "read_version_too_far": RefusalRule(
        "more versions came since the one that it read than the committer keeps in memory",
        READ_AGAIN,
    ),
    "id_reused": RefusalRule(
        "its id came before with other bytes",
        "take a new id for other work; send the same bytes for the same work",
    ),
    "unknown_table": RefusalRule(
        "the table is not registered",
        "`tidegate table register ROOT`, then propose under the id and the topic partition that "
        "`tidegate table list` shows",
    ),
    "other_partition": RefusalRule(
        "the table belongs to another topic partition than the proposal came on",
        "send the same bytes to the partition that the answer names (`topic_partition`), and read "
        "the outcome on that number; our client does so by itself",
    ),
    "table_halted": RefusalRule(
        "the table's log cannot be served, or an operator halted it: the answer says why",
        "have the log repaired, or the table reopened; then send the same bytes again",
    ),
    "no_such_partition": RefusalRule(
        "a table is to move to a partition that the topic `proposals` does not have",
        "give the number of one that it has, from 0 on, or add partitions first",
    ),
    "root_not_allowed": RefusalRule(
        "the root lies under none of `committer.roots`, or leads by a symbolic link to a place "
        "under none of them",
        "choose another place, or have the prefix added",
    ),
    "bad_root": RefusalRule(
        "the root is not written as in the registry, or is too long, or its store cannot be opened",
        "give the URI that the answer names, as the registry has it: `file:///…`, `s3://…`, "
        "`gs://…`, `abfss://…`",
    ),
    "bad_name": RefusalRule(
        "the name is empty, too long, or neither one word nor `catalog.schema.table`",
        "choose another",
    ),
    "name_taken": RefusalRule("another table has the name", "choose another"),
    "NotADeltaTable": RefusalRule(
        "there is no Delta table at that root", "create it first, or correct the root"
    ),
    "being_created": RefusalRule(
        "a table is just being created at that root, or under that name, by another proposal",
        "ask again when that is decided",
    ),
    "root_given_out": RefusalRule(
        "the root is given out to another table that is not there yet",
        "choose another root, or propose under the id that it was given to",
    ),
    "table_dropped": RefusalRule(
        "the table was dropped, and is not registered again",
        "take another root, or make another table there and `tidegate table register` it",
    ),
    "verbatim_not_allowed": RefusalRule(
        "the operator takes no verbatim bytes: `committer.verbatim` is off",
        "propose actions, or have it switched on",
    ),
    "version_taken": RefusalRule(
        "verbatim bytes for a version that holds other bytes",
        "read the table, and make them again for the version after `head_version`",
    ),
    "version_ahead": RefusalRule(
        "verbatim bytes for a version that is not the next one",
        "make them for the version after the head",
    ),
    "staged_file": RefusalRule(
        "the staged file is missing, is no regular file of the table's own folder, holds other "
        "bytes than the proposal says, or could not be read for ten minutes",
        "write it first, whole; then propose again",
    ),
    "already_committed": RefusalRule(
        "the same work, by its `txnId`, is in the table under other bytes",
        "take the version that the answer names for yours",
    ),
    "reserved_provenance": RefusalRule(
        "the commitInfo of verbatim bytes has the committer's own provenance",
        "leave `tidegate` out of it",
    ),
    "no_timestamp": RefusalRule(
        "verbatim bytes lack the in-commit timestamp that the table asks for",
        "put `inCommitTimestamp` into commitInfo",
    ),
    "timestamp_not_later": RefusalRule(
        "the in-commit timestamp of verbatim bytes is not later than the version before",
        "make them again with a later one",
    ),
    "timestamp_ahead": RefusalRule(
        "verbatim bytes are dated more than a day ahead of the committer's clock, and of the "
        "version before",
        "set the writer's clock; make them again",
    ),
    "no_row_ids": RefusalRule(
        "verbatim bytes add a file without the row ids that the table asks for",
        "assign `baseRowId` and `defaultRowCommitVersion`",
    ),
    "row_mark_behind": RefusalRule(
        "verbatim bytes give row ids past the high-water mark that they leave, or take it back",
        "write the domain `delta.rowTracking` with the greatest id that is given",
    ),
    "too_many_refusals": RefusalRule(
        "so many proposals for the table were refused just now that this one was not written down",
        "send the same bytes later for an answer that holds; find out who floods the table",
    ),
}


def label_of(rule: str) -> str:
    """Return the metrics label of a rule."""
    return rule if rule in REFUSALS else OTHER
