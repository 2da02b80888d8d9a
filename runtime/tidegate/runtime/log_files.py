"""Files of a table's log by name: list, find what makes up a version, read."""

from collections.abc import Iterator
from contextlib import contextmanager

import orjson

from tidegate.delta.errors import BrokenLog, InvalidRequest, UnsupportedFeature
from tidegate.delta.names import (
    LAST_CHECKPOINT,
    LOG_FOLDER,
    Kind,
    LogFile,
    Version,
    commit_name,
    in_log,
    parse,
)
from tidegate.delta.replay import LogPart, is_reconciled, read_part
from tidegate.delta.segment import LogSegment, choose
from tidegate.runtime.log_store import FileStat, LogStore


def list_log(store: LogStore, start: str = "") -> Iterator[tuple[LogFile, FileStat]]:
    """Yield the files of the log from a name on; an empty checkpoint counts as none.

    Raises: Unavailable.
    """
    for stat in store.list_from(LOG_FOLDER, start):
        file = parse(stat.path.rpartition("/")[2])
        if file is not None and not (file.is_checkpoint and stat.size == 0):
            yield file, stat


def find_segment(store: LogStore, version: int | None = None) -> LogSegment:
    """Return the files that make up a version: from the hint on, else by listing everything.

    Raises: InvalidRequest (`NotADeltaTable`, `VersionNotFound`); BrokenLog (`LogGap`);
    UnsupportedFeature; Unavailable.
    """
    hinted = _hinted_version(store)
    if hinted is not None and (version is None or version >= hinted):
        listed = [file for file, _ in list_log(store, f"{hinted:020d}")]
        try:
            return choose(listed, version)
        except (InvalidRequest, BrokenLog, UnsupportedFeature):
            # The hint is one: it may name a checkpoint that is gone, or one of another table.
            hinted = None
    listed = [file for file, _ in list_log(store)]
    with of_table(store.root):
        return choose(listed, version)


def read_content(store: LogStore, name: str) -> bytes | None:
    """Return the bytes of a file of the log, or None where it is not there.

    Raises: BrokenLog (`CorruptCommit`) for an empty one; Unavailable.
    """
    content = store.read(in_log(name))
    if content is not None and not content.strip():
        raise BrokenLog(
            f"{name} of table {store.root} is empty: a writer was interrupted on a store without "
            "put-if-absent; restore it from a backup, or the table to an earlier version",
            error_class="CorruptCommit",
        )
    return content


def read_delta(store: LogStore, file: LogFile) -> LogPart:
    """Return what a commit or log compaction that was listed says.

    Raises: BrokenLog (`CorruptCommit`, `LogGap`); Unavailable.
    """
    content = read_content(store, file.name)
    if content is None:
        raise BrokenLog(
            f"{file.name} of table {store.root} is needed and not there: open the table again, and "
            "restore the file where it stays away",
            error_class="LogGap",
        )
    with of_table(store.root):
        return read_part(file.name, content)


def read_deltas(store: LogStore, segment: LogSegment) -> list[LogPart]:
    """Return what the commits and log compactions of a segment say, oldest first.

    A compaction that was not reconciled says nothing certain: its commits are read instead.
    Raises: as `read_delta`.
    """
    parts: list[LogPart] = []
    for file in segment.deltas:
        part = read_delta(store, file)
        if file.kind is not Kind.COMPACTED or is_reconciled(part):
            parts.append(part)
        else:
            covered = map(Version, range(file.start, file.version + 1))
            commits = [LogFile(one, Kind.COMMIT, commit_name(one), one) for one in covered]
            parts += [read_delta(store, commit) for commit in commits]
    return parts


@contextmanager
def of_table(root: str) -> Iterator[None]:
    """Name the table in errors of pure code, which was not told which table it looks at."""
    try:
        yield
    except (InvalidRequest, BrokenLog) as error:
        raise type(error)(f"table {root}: {error}", error_class=error.error_class) from error
    except UnsupportedFeature as error:
        raise UnsupportedFeature(
            f"table {root}: {error}", feature=error.feature, error_class=error.error_class
        ) from error


def _hinted_version(store: LogStore) -> int | None:
    content = store.read(in_log(LAST_CHECKPOINT))
    try:
        hint = orjson.loads(content or b"null")
    except orjson.JSONDecodeError:
        return None
    version = hint.get("version") if isinstance(hint, dict) else None
    return version if isinstance(version, int) and version >= 0 else None
