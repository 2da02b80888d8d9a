"""Engines that write beside the gate without put-if-absent: warned of, or their table is halted.

On S3 no log store of delta-spark writes a version by a conditional PUT: the default one looks and
then writes, the one on DynamoDB excludes only its like. On a local or mounted file system it looks
and then renames, and keeps apart only the threads of its own process. Such an engine overwrites
what we commit in the same instant. What it says of itself in a version is how we know that it
writes at all.
"""

from collections.abc import Iterable, Mapping
from typing import Final, get_args

from tidegate.committer.proposals.policy import UnsafeWriters
from tidegate.committer.tables.entries import Entry
from tidegate.delta.errors import BrokenLog
from tidegate.pipeline.published import TableRecord

PROPERTY: Final = "tidegate.unsafeWriters"
"""The table's own word, `warn` or `halt`: it stands above the operator's."""

_WORDS: Final = get_args(UnsafeWriters)
_STORES: Final = ("s3://", "file://")


def is_unsafe(entry: Entry, record: TableRecord) -> bool:
    """Return whether a version was written by an engine that may overwrite one on this store."""
    return (
        entry.provenance is None and entry.by_delta_spark and record.table_root.startswith(_STORES)
    )


def wrong_word(configuration: Mapping[str, str]) -> str | None:
    """Return what a table says that is neither of the words, or None."""
    said = configuration.get(PROPERTY)
    return None if said is None or said.lower() in _WORDS else said


def halts(configuration: Mapping[str, str], default: UnsafeWriters) -> bool:
    """Return whether a table with these properties is halted for such a version."""
    said = configuration.get(PROPERTY, "").lower()
    return (said if said in _WORDS else default) == "halt"


def what_halts(
    news: Iterable[Entry],
    record: TableRecord,
    configuration: Mapping[str, str],
    default: UnsafeWriters,
) -> BrokenLog | None:
    """Return the error of the first version for which a table is halted, or None."""
    if not halts(configuration, default):
        return None
    return next((unsafe(entry, record) for entry in news if is_unsafe(entry, record)), None)


def unsafe(entry: Entry, record: TableRecord) -> BrokenLog:
    """Return the error of a table that is halted for it."""
    return BrokenLog(
        f"version {entry.version} of {record.table_root} was written past the gate by delta-spark, "
        "whose log stores on S3 and on files overwrite versions of others: end that job, or let it "
        "write through the gate; then, once every version is as it was, set "
        f"committer.unsafe_writers or the table's {PROPERTY} to `warn`",
        error_class="UnsafeWriter",
    )
