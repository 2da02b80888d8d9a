"""What can be wrong with a table; the check of a data file against what the log says of it."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import pyarrow as pa

from tidegate_delta.errors import BrokenLog, UnsupportedFeature
from tidegate_delta.log.actions import DeletionVector
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.deletion_vector_reader import read_vector
from tidegate_runtime.table_io.parquet_footers import read_row_count
from tidegate_runtime.table_io.table_files import open_table_file

Repair = Literal["remove_file", "delete_checkpoint", "move_hint", "delete_checksum"]
Kind = Literal[
    "gap",
    "unreadable_commit",
    "overwritten_commit",
    "torn_checkpoint",
    "lying_checkpoint",
    "stale_hint",
    "lying_checksum",
    "missing_file",
    "wrong_size",
    "wrong_row_count",
    "unreadable_file",
    "broken_vector",
    "orphans",
]


@dataclass(frozen=True)
class Finding:
    """Something wrong with a table: a file of the log or a path, what it is, and what to do.

    `repair` is what `--repair` does about it; None leaves it to a person.
    """

    kind: Kind
    about: str
    what: str
    remedy: str
    repair: Repair | None = None


RESTORE: Final = "restore the file from a backup, or the table to a version without it"


def missing_file(path: str) -> Finding:
    """Return that a live file is not there."""
    return Finding(
        "missing_file",
        path,
        "the log names it as live, and it is not there: readers fail, its rows are lost",
        f"{RESTORE}; --repair takes it out of the table, its rows with it",
        "remove_file",
    )


def wrong_size(path: str, found_bytes: int, stated_bytes: int) -> Finding:
    """Return that a live file has another size than the log states."""
    return Finding(
        "wrong_size",
        path,
        f"it has {found_bytes} bytes, the log states {stated_bytes}: it was replaced, torn, or "
        "stated wrongly",
        f"{RESTORE}; if it can be read, rewrite its rows",
    )


def file_findings(
    store: LogStore, file: Mapping[str, Any], stated_rows: int | None
) -> Iterator[Finding]:
    """Yield what is wrong with a live file, a row of ADD_SCHEMA: it is missing, or its size, footer
    or deletion vector is wrong. One in another store is not looked at.

    Raises: as `content_findings`.
    """
    path = str(file["path"])
    try:
        with open_table_file(store, path) as opened:
            size_bytes = opened.seek(0, os.SEEK_END)
    except FileNotFoundError:
        yield missing_file(path)
        return
    except UnsupportedFeature:
        return
    if size_bytes != file["size"]:
        yield wrong_size(path, size_bytes, file["size"])
    yield from content_findings(store, file, stated_rows)


def content_findings(
    store: LogStore, file: Mapping[str, Any], stated_rows: int | None
) -> Iterator[Finding]:
    """Yield what is wrong with the footer of a data file and with its deletion vector; nothing of
    one that is gone. `file` is a row of ADD_SCHEMA, of which `path` and `deletionVector` are read.

    Raises: Unavailable; BrokenLog (`CorruptDeletionVector`) for a malformed descriptor.
    """
    path = file["path"]
    try:
        with open_table_file(store, path) as opened:
            rows = read_row_count(opened)
    except FileNotFoundError:
        return
    except UnsupportedFeature as error:
        yield Finding("unreadable_file", path, str(error), "read it with another engine")
        return
    except (ValueError, OSError, pa.ArrowException) as error:
        yield Finding("unreadable_file", path, f"it is no whole Parquet file: {error}", RESTORE)
        return
    if stated_rows is not None and stated_rows != rows:
        yield Finding(
            "wrong_row_count",
            path,
            f"it has {rows} rows, its statistics state {stated_rows}: queries may count or skip "
            "wrong",
            "rewrite its rows; see which writer states wrong statistics",
        )
    if file["deletionVector"] is not None:
        yield from _vector(store, file, rows)


def _vector(store: LogStore, file: Mapping[str, Any], rows: int) -> Iterator[Finding]:
    vector = DeletionVector.model_validate(file["deletionVector"])
    try:
        deleted_rows = read_vector(store, vector, file["path"])
    except (BrokenLog, UnsupportedFeature) as error:
        if getattr(error, "error_class", "") != "DeletionVectorMissing":
            yield Finding("broken_vector", file["path"], str(error), RESTORE)
        return
    if len(deleted_rows) != vector.cardinality:
        problem = (
            f"its deletion vector deletes {len(deleted_rows)} rows, and states {vector.cardinality}"
        )
        yield Finding("broken_vector", file["path"], problem, RESTORE)
