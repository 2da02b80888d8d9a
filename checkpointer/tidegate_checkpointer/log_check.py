"""`fsck` of a table's log: gaps, commits, checkpoints and the hint to them. Changes nothing."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from tidegate_checkpointer.finding import CheckRequest, Finding, Progress
from tidegate_checkpointer.log_cleaner import contradiction
from tidegate_delta.errors import BrokenLog, UnsupportedFeature
from tidegate_delta.log.commit import Commit, sha256
from tidegate_delta.log.file_names import (
    LAST_CHECKPOINT,
    LOG_FOLDER,
    LogFile,
    LogFileKind,
    commit_name,
    in_log,
    parse,
)
from tidegate_delta.log.log_segment import complete_checkpoints
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.checkpoint_presence import whole_checkpoint
from tidegate_runtime.table_io.checkpoint_writer import hinted_version
from tidegate_runtime.table_io.open_table import lacks_older_files


def check_log(store: LogStore, request: CheckRequest, progress: Progress) -> Iterator[Finding]:
    """Yield what is wrong with the files of a table's log. Raises: Unavailable."""
    progress("the log")
    listed = [
        file
        for stat in store.list_from(LOG_FOLDER, "")
        if (file := parse(stat.path.rpartition("/")[2])) is not None
    ]
    commits = sorted(file.version for file in listed if file.kind is LogFileKind.COMMIT)
    yield from _gaps(commits, listed)
    yield from _commits(store, commits, request, progress)
    yield from _checkpoints(store, listed, request, progress)


def _gaps(commits: Sequence[int], listed: list[LogFile]) -> Iterator[Finding]:
    bridged = max(complete_checkpoints(listed), default=-1)
    for before, after in pairwise(commits):
        if after == before + 1:
            continue
        first, last = before + 1, after - 1
        reach = (
            "the table can't be read" if bridged < last else "they can't be read, later ones can"
        )
        yield Finding(
            "gap",
            commit_name(first),
            f"versions {first} to {last} are missing between others: {reach}",
            "restore the files from a backup or from the store's versioning",
        )


def _commits(
    store: LogStore, commits: Sequence[int], request: CheckRequest, progress: Progress
) -> Iterator[Finding]:
    progress(f"{len(commits)} commits")
    committed = request.committed
    for version in commits:
        content = store.read(in_log(commit_name(version)))
        if content is None:
            continue  # cleaned up since the listing
        if committed and committed.version == version and sha256(content) != committed.sha256:
            yield Finding(
                "overwritten_commit",
                commit_name(version),
                "its bytes are not those that the committer wrote: another writer replaced it",
                "restore the file from the store's versioning; find the writer that overwrites "
                "commits, and keep it from the table",
            )
        try:
            if not content.strip():
                raise BrokenLog("it is empty", error_class="CorruptCommit")
            Commit.decode(version, content)
        except (BrokenLog, UnsupportedFeature) as error:
            yield Finding(
                "unreadable_commit",
                commit_name(version),
                str(error),
                "restore the file from a backup, or the table to a version before it",
            )


def _checkpoints(
    store: LogStore, listed: list[LogFile], request: CheckRequest, progress: Progress
) -> Iterator[Finding]:
    versions = sorted({file.version for file in listed if file.is_checkpoint})
    progress(f"{len(versions)} checkpoints")
    whole = [version for version in versions if whole_checkpoint(store, version) is not None]
    for version in sorted(set(versions).difference(whole)):
        yield Finding(
            "torn_checkpoint",
            f"{version:020d}.checkpoint",
            "a file, part or sidecar of it is missing or torn: we pass it over, engines may fail",
            "delete it where the commits up to it are there; the checkpointer writes others",
            "delete_checkpoint",
        )
    for version in whole if request.checks_all else whole[-1:]:
        if lacks_older_files(store, version):
            continue  # as after each cleanup: there is nothing to compare it with
        if problem := contradiction(store, version, request.now_ms):
            yield Finding(
                "lying_checkpoint",
                f"{version:020d}.checkpoint",
                problem,
                "if the commits before it are there, delete it, and see who wrote it; otherwise "
                "compare the table with a backup",
                "delete_checkpoint",
            )
    newest = whole[-1] if whole else -1
    if store.read(in_log(LAST_CHECKPOINT)) is not None and hinted_version(store) < max(newest, 0):
        right = f"the newest whole one is {newest}" if whole else "there is no whole one"
        yield Finding(
            "stale_hint",
            LAST_CHECKPOINT,
            f"it does not point to the newest checkpoint: {right}. Readers read more than they "
            "need, and engines may fail if what it points to is gone",
            "point it to that checkpoint" if whole else "delete it",
            "move_hint",
        )
