"""Detect a committed version whose file was overwritten, by the SHA-256 in the registry.

An engine that writes without put-if-absent overwrites silently, and what was committed is lost.
"""

from typing import Final

from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.commit import sha256
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_messages.published_records import CommittedFile, TableRecord
from tidegate_runtime.storage.log_store import LogStore

SERVE_ANEW: Final = (
    "if the table was made anew on purpose, serve it with `tidegate table reopen --made-anew`"
)


def overwritten(root: str, committed: CommittedFile) -> BrokenLog:
    """Return the error for a version whose file was overwritten."""
    return BrokenLog(
        f"version {committed.version} of {root} is another file than the one that was committed: "
        "somebody overwrote it, or made another table in the folder; restore the one whose SHA-256 "
        f"is {committed.sha256} from a backup, or {SERVE_ANEW}",
        error_class="CorruptCommit",
    )


def check_not_overwritten(store: LogStore, committed: CommittedFile | None) -> None:
    """Refuse a log with an overwritten version, until it is restored or has been cleaned up.

    Raises: BrokenLog (`CorruptCommit`); Unavailable.
    """
    if committed is None:
        return
    content = store.read(in_log(commit_name(committed.version)))
    if content is not None and sha256(content) != committed.sha256:
        raise overwritten(store.root, committed)


def check_promised(store: LogStore, record: TableRecord) -> None:
    """Refuse the log of a halted table whose last version is not the one that was published.

    An open table is not checked here: it is halted as soon as an overwritten version is found.
    Raises: BrokenLog (`CorruptCommit`); Unavailable.
    """
    if record.status != "halted":
        return
    check_not_overwritten(store, record.overwritten)
    if record.sha256 is not None and record.published_through >= 0:
        last = CommittedFile(version=record.published_through, sha256=record.sha256)
        check_not_overwritten(store, last)
