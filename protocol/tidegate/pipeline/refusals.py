"""Why a proposal was not committed, rule by rule: what it means, and what its writer does.

One table for all who tell of it: the command, the documents, the metrics. A rule that is not in
here is the class of an error that a table or its store has (`docs/operations.md`).
"""

from collections.abc import Mapping
from typing import Final

from tidegate.pipeline.refusal import READ_AGAIN, Refusal
from tidegate.pipeline.refusals_of_rows import OF_DELETED_ROWS, OF_NEW_ROWS

__all__ = ("OTHER", "REFUSALS", "Refusal", "label_of")

OTHER: Final = "other"
"""What metrics call a rule that is not in the table: a label's values are ours to choose."""

_RERUN: Final = "run the operation again: it reads the newest version"

REFUSALS: Final[Mapping[str, Refusal]] = {
    "concurrent_append": Refusal(
        "a winner added a file that may hold rows which the proposal should have read", _RERUN
    ),
    "concurrent_delete_read": Refusal("a winner removed a file that the proposal read", _RERUN),
    "concurrent_delete_delete": Refusal(
        "a winner removed a file that the proposal removes too",
        f"{_RERUN}; two jobs that rewrite the same files are better run one after the other",
    ),
    "concurrent_row_delete": Refusal(
        "a winner deleted or updated a row that the proposal deletes or updates, or took the row's "
        "file away",
        _RERUN,
    ),
    "duplicate_actions": Refusal(
        "a file that a winner repeated without its row ids is removed by the proposal too", _RERUN
    ),
    "concurrent_transaction": Refusal(
        "a winner moved an application whose version the proposal had looked at",
        "find the second instance of that application or query and end it; then run again",
    ),
    "domain_metadata_changed": Refusal(
        "a winner wrote a metadata domain that the proposal writes or had read, or one domain "
        "twice",
        _RERUN,
    ),
    "metadata_changed": Refusal(
        "a winner changed schema, partitioning or properties in a way that the proposal does not "
        "survive",
        f"{_RERUN}, with the new schema",
    ),
    "protocol_changed": Refusal(
        "a winner changed the protocol, as the proposal does, or dropped a feature that its writer "
        "counted on",
        _RERUN,
    ),
    "feature_binds_writers": Refusal(
        "a winner added a feature that asks something of files which are written already", _RERUN
    ),
    "dropped_feature_in_use": Refusal(
        "the proposal drops a feature, and after the winner the table still uses it",
        "take the new traces of the feature out of the table, then drop it again",
    ),
    "row_ids_of_no_table": Refusal(
        "the proposal gives row ids or takes them away, and after a winner the table knows of none",
        "list the feature rowTracking in the table's protocol first",
    ),
    "backfill_of_more_than_files": Refusal(
        "a winner touched files while the proposal gives row ids, and holds more than files",
        _RERUN,
    ),
    "unbackfill_meets_backfill": Refusal(
        "a winner gave row ids that the proposal takes away",
        "end one of the two jobs, then run the other again",
    ),
    "row_ids_without_statistics": Refusal(
        "the table tracks rows, and a new file does not say how many it has",
        "write the file's statistics: `numRecords` at least",
    ),
    "unclear_table": Refusal(
        "properties of the table contradict each other, or its isolation level is none",
        "set the property that the answer names, alone, then run again",
    ),
    "protocol_unsupported": Refusal(
        "a winner asks for a version or feature that this release does not know",
        "upgrade the gate, or drop the feature from the table",
    ),
    "app_txn_seen": Refusal(
        "the table has the application at that version or a later one: the work is done, or comes "
        "too late",
        "go on with the next version; nothing is lost",
    ),
    "table_exists": Refusal(
        "there is a table at that root, or its folder is registered under another root",
        "write to it; bring it under the gate with `tidegate table register` if it is not there",
    ),
    "cancelled": Refusal(
        "its writer gave it up, by hand or by program",
        "propose the work anew, under a new id, if it is still wanted",
    ),
    "deadline_passed": Refusal(
        "its own deadline passed before its turn came",
        f"{_RERUN}, with a later deadline; look why the committer was behind",
    ),
    "files_too_old": Refusal(
        "its oldest file (by `files_since_ms`, else `created_ms`, else its record's time) is of an "
        "age at which vacuum may have taken it",
        "write the files anew and propose them sooner (`committer.files_age_max_ms`)",
    ),
    "other_table": Refusal(
        "the table at that root is not the one that its writer read: it was made anew", READ_AGAIN
    ),
    "other_metadata": Refusal(
        "the metadata that the patch was made for is not that of the version that it names",
        READ_AGAIN,
    ),
    "other_root": Refusal(
        "the id is registered with another root",
        "propose with the root that `tidegate table list` shows",
    ),
    "poison": Refusal(
        "the committer died three times in a row over the record, which is not judged any more",
        "propose the work in another form: smaller, or less deeply nested; and report it",
    ),
    "fault": Refusal(
        "the committer failed over the record, or over a table to be created, in a way that nobody "
        "foresaw",
        "propose the work in another form, and report it: the traceback is in the committer's log",
    ),
    "malformed": Refusal(
        "the record or an action is not what the schema of proposals or PROTOCOL.md says",
        "correct the program that wrote it: the answer names the field",
    ),
    "unknown_kind": Refusal(
        "the record says a kind that no release has had",
        "correct the program that wrote it, or upgrade the gate if it is newer",
    ),
    "bad_predicate": Refusal(
        "a predicate of the read set is not in the grammar",
        "use the grammar of read sets, or say `opaque`, which matches everything",
    ),
    "duplicate_action": Refusal(
        "an action that may stand once stands twice", "give each file, domain and change once"
    ),
    "not_supported": Refusal(
        "it asks for what this release does not do: the answer names the feature or the kind",
        "leave it out, or see `tidegate features` for who can",
    ),
    "too_large": Refusal(
        "it is past a limit of the operator",
        "propose in several steps or with a claim check, or have the limit raised",
    ),
    "claim_check": Refusal(
        "the file with its actions is missing, lies elsewhere, is no regular file of the table's "
        "own folder (a pipe, a device, a link that leads out), or holds other bytes; `denied`: it "
        "could not be read for ten minutes",
        "write the file first, whole, under the name that the answer gives, then propose",
    ),
    "bad_path": Refusal(
        "a path leads out of the table's root, or is not spelt as PROTOCOL.md says",
        "write files below the root, and name them relative to it",
    ),
    "partition_values": Refusal(
        "the values are not those of the table's partition columns, or of another type",
        "give a value for each partition column, by its physical name",
    ),
    "rows_from_nowhere": Refusal(
        "a file says that it changes no data, and nothing leaves that had its rows",
        "say `dataChange`, or remove the files whose rows it holds",
    ),
    "added_file_live": Refusal(
        "a file that it adds is in the table already", "write new rows under a new name"
    ),
    "removed_file_not_live": Refusal(
        "a file that it removes is not in the table, not under that spelling, or has another "
        "deletion vector",
        READ_AGAIN,
    ),
    **OF_DELETED_ROWS,
    "row_ids_not_kept": Refusal(
        "rows move to a new file of a table that tracks rows, and it is not said to hold their ids",
        "write the ids into the columns of row tracking, and say `keeps_row_ids`",
    ),
    "append_only": Refusal(
        "the table only takes appends (`delta.appendOnly`)",
        "unset the property first, or leave the rows",
    ),
    **OF_NEW_ROWS,
    "isolation_not_allowed": Refusal(
        "the isolation level that it asks for is weaker than the operator allows",
        "ask for a stronger one, or have `committer.weakest_isolation` changed",
    ),
    "bad_metadata": Refusal(
        "the schema, the partitioning or a property that it writes is not legal for this table",
        "correct what the answer names",
    ),
    "bad_protocol": Refusal(
        "the protocol that it writes is not legal, or takes away what the table has",
        "keep the versions and features that the table has, and add to them",
    ),
    "unknown_feature": Refusal(
        "the protocol names a feature that nobody here has heard of",
        "correct the name, or upgrade the gate",
    ),
    "feature_not_listed": Refusal(
        "the metadata uses a feature that the protocol does not list",
        "list the feature, or leave its use out",
    ),
    "feature_by_hand": Refusal(
        "the metadata uses a feature that is added to an existing table by hand alone",
        "set the property that the answer names, `delta.feature.NAME`, to `supported`",
    ),
    "feature_status": Refusal(
        "a property asks for a feature with another word than `supported`",
        "say `supported`",
    ),
    "version_not_a_number": Refusal(
        "a property asks for a protocol version that is no number",
        "give the number, or leave it out",
    ),
    "version_out_of_range": Refusal(
        "a property asks for a protocol version that does not exist",
        "give a number of the range that the answer names, or leave it out",
    ),
    "features_of_readers_alone": Refusal(
        "properties ask for features of readers, and for a writer version without features",
        "ask for writer version 7",
    ),
    "feature_in_use": Refusal(
        "a feature is dropped while the table still has traces of it",
        "take every trace out of the table first",
    ),
    "rows_without_ids": Refusal(
        "row tracking is turned on while files of the table carry no row ids",
        "give every file row ids first, as `ROW TRACKING BACKFILL`, then turn it on",
    ),
    "domains_not_supported": Refusal(
        "a metadata domain is written that the table has no feature for",
        "add the feature `domainMetadata`, or the domain's own, first",
    ),
    "reserved_domain": Refusal(
        "a metadata domain is written that is not a writer's", "leave it out: the gate keeps it"
    ),
    "read_version_ahead": Refusal(
        "the version that it read is not in the log: the log was restored, or the root is another",
        READ_AGAIN,
    ),
    "read_version_too_far": Refusal(
        "more versions came since the one that it read than the committer keeps in memory",
        READ_AGAIN,
    ),
    "id_reused": Refusal(
        "its id came before with other bytes",
        "take a new id for other work; send the same bytes for the same work",
    ),
    "unknown_table": Refusal(
        "the table is not registered",
        "`tidegate table register ROOT`, then propose under the id and the topic partition that "
        "`tidegate table list` shows",
    ),
    "other_partition": Refusal(
        "the table belongs to another topic partition than the proposal came on",
        "send the same bytes to the partition that the answer names (`topic_partition`), and read "
        "the outcome on that number; our client does so by itself",
    ),
    "table_halted": Refusal(
        "the table's log cannot be served, or an operator halted it: the answer says why",
        "have the log repaired, or the table reopened; then send the same bytes again",
    ),
    "root_not_allowed": Refusal(
        "the root lies under none of `committer.roots`, or leads by a symbolic link to a place "
        "under none of them",
        "choose another place, or have the prefix added",
    ),
    "bad_root": Refusal(
        "the root is not spelt as the registry spells it, or is too long, or its store cannot be "
        "opened",
        "give a canonical URI: `file:///…`, `s3://…`, `gs://…`, `abfss://…`",
    ),
    "bad_name": Refusal(
        "the name is empty, too long, or neither one word nor `catalog.schema.table`",
        "choose another",
    ),
    "name_taken": Refusal("another table has the name", "choose another"),
    "NotADeltaTable": Refusal(
        "there is no Delta table at that root", "create it first, or correct the root"
    ),
    "being_created": Refusal(
        "a table is just being created at that root, or under that name, by another proposal",
        "ask again when that is settled",
    ),
    "root_given_out": Refusal(
        "the root is given out to another table that is not there yet",
        "choose another root, or propose under the id that it was given to",
    ),
    "table_dropped": Refusal(
        "the table was dropped, and its root is not given out again", "take another root"
    ),
    "verbatim_not_allowed": Refusal(
        "the operator takes no ready bytes: `committer.verbatim` is off",
        "propose actions, or have it switched on",
    ),
    "version_taken": Refusal(
        "ready bytes for a version that holds other bytes",
        "read the table, and make them anew for the version after `head_version`",
    ),
    "version_ahead": Refusal(
        "ready bytes for a version that is not the next one",
        "make them for the version after the head",
    ),
    "staged_file": Refusal(
        "the staged file is missing, is no regular file of the table's own folder, holds other "
        "bytes than the proposal says, or could not be read for ten minutes",
        "write it first, whole; then propose again",
    ),
    "already_committed": Refusal(
        "the same work, by its `txnId`, is in the table under other bytes",
        "take the version that the answer names for yours",
    ),
    "reserved_provenance": Refusal(
        "ready bytes speak of themselves as the gate's own", "leave `tidegate` out of commitInfo"
    ),
    "no_timestamp": Refusal(
        "ready bytes lack the in-commit timestamp that the table asks for",
        "put `inCommitTimestamp` into commitInfo",
    ),
    "timestamp_not_later": Refusal(
        "the in-commit timestamp of ready bytes is not later than the version before",
        "make them anew with a later one",
    ),
    "timestamp_ahead": Refusal(
        "ready bytes are dated more than a day ahead of the committer's clock, and of the version "
        "before",
        "set the writer's clock; make them anew",
    ),
    "no_row_ids": Refusal(
        "ready bytes add a file without the row ids that the table asks for",
        "assign `baseRowId` and `defaultRowCommitVersion`",
    ),
    "row_mark_behind": Refusal(
        "ready bytes give row ids past the high-water mark that they leave, or take it back",
        "write the domain `delta.rowTracking` with the greatest id that is given",
    ),
    "too_many_refusals": Refusal(
        "so many proposals for the table were refused just now that this one was not written down",
        "send the same bytes later for an answer that holds; find out who floods the table",
    ),
}


def label_of(rule: str) -> str:
    """Return a rule as a label of metrics."""
    return rule if rule in REFUSALS else OTHER
