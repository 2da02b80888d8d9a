"""External writers without put-if-absent: the committer warns of them, or halts their table.

On S3 no log store of delta-spark writes a version by a conditional PUT: the default one checks for
the file and then writes it, and the DynamoDB one excludes only writers that use it too. On a local
or mounted file system it checks and then renames, which is safe only within one process. So it may
overwrite a version that we commit at the same moment. It is recognised by its engineInfo.
"""

from collections.abc import Iterable, Mapping
from typing import Final, get_args

from tidegate_committer.policy import UnsafeWriters
from tidegate_committer.state.log_entry import Entry
from tidegate_delta.errors import BrokenLog
from tidegate_messages.published_records import TableRecord

PROPERTY: Final = "tidegate.unsafeWriters"
"""The table property, `warn` or `halt`, that overrides the operator's setting."""

_WORDS: Final = get_args(UnsafeWriters)
_STORES: Final = ("s3://", "file://")


def is_unsafe(entry: Entry, record: TableRecord) -> bool:
    """Return whether a version was written by an engine that may overwrite one on this store."""
    return (
        entry.provenance is None and entry.by_delta_spark and record.table_root.startswith(_STORES)
    )


def wrong_word(configuration: Mapping[str, str]) -> str | None:
    """Return the property's value if it is neither `warn` nor `halt`, or None."""
    value = configuration.get(PROPERTY)
    return None if value is None or value.lower() in _WORDS else value


def halts(configuration: Mapping[str, str], default: UnsafeWriters) -> bool:
    """Return whether a table with these properties is halted for such a version."""
    value = configuration.get(PROPERTY, "").lower()
    return (value if value in _WORDS else default) == "halt"


def what_halts(
    entries: Iterable[Entry],
    record: TableRecord,
    configuration: Mapping[str, str],
    default: UnsafeWriters,
) -> BrokenLog | None:
    """Return the error of the first version for which a table is halted, or None."""
    if not halts(configuration, default):
        return None
    return next((unsafe(entry, record) for entry in entries if is_unsafe(entry, record)), None)


def unsafe(entry: Entry, record: TableRecord) -> BrokenLog:
    """Return the error with which a table is halted for such a version."""
    return BrokenLog(
        f"version {entry.version} of {record.table_root} was written past the gate by delta-spark, "
        "whose log stores on S3 and on files overwrite versions of others: end that job, or let it "
        "write through the gate; then, once every version is as it was, set "
        f"committer.unsafe_writers or the table's {PROPERTY} to `warn`",
        error_class="UnsafeWriter",
    )
