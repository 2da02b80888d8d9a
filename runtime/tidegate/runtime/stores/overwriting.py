"""A version whose file somebody replaced: what was committed there was promised, and is gone.

An engine without put-if-absent does so without a word. The registry says what was committed.
"""

from tidegate.delta.commit import sha256
from tidegate.delta.errors import BrokenLog
from tidegate.delta.names import commit_name, in_log
from tidegate.pipeline.published import CommittedFile, TableRecord
from tidegate.runtime.stores.log_store import LogStore


def overwritten(root: str, one: CommittedFile) -> BrokenLog:
    """Return the error of a version that is not the file that it was."""
    return BrokenLog(
        f"version {one.version} of {root} is another file than the one that was committed: "
        f"somebody overwrote it; restore the one whose SHA-256 is {one.sha256} from a backup",
        error_class="CorruptCommit",
    )


def check_restored(store: LogStore, one: CommittedFile | None) -> None:
    """Refuse a log of which a version was overwritten, until it is what it was, or cleaned up.

    Raises: BrokenLog (`CorruptCommit`); Unavailable.
    """
    if one is None:
        return
    content = store.read(in_log(commit_name(one.version)))
    if content is not None and sha256(content) != one.sha256:
        raise overwritten(store.root, one)


def check_promised(store: LogStore, record: TableRecord) -> None:
    """Refuse the log of a halted table that is not what was published of it.

    A table that is open costs nothing: whoever halts it has looked.
    Raises: BrokenLog (`CorruptCommit`); Unavailable.
    """
    if record.status != "halted":
        return
    check_restored(store, record.overwritten)
    if record.sha256 is not None and record.published_through >= 0:
        last = CommittedFile(version=record.published_through, sha256=record.sha256)
        check_restored(store, last)
