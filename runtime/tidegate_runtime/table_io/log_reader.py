"""List the files of a table's log, find those that make up a version, and read them."""

import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, islice, pairwise
from typing import Final
from urllib.parse import urlsplit

import pyarrow as pa

from tidegate_delta.checkpoints import last_checkpoint
from tidegate_delta.errors import BrokenLog, InvalidRequest, UnsupportedFeature
from tidegate_delta.log.file_names import (
    LAST_CHECKPOINT,
    LOG_FOLDER,
    LogFile,
    LogFileKind,
    commit_name,
    in_log,
    parse,
)
from tidegate_delta.log.log_segment import LogSegment, choose
from tidegate_delta.snapshots.file_action_columns import ADD_SCHEMA
from tidegate_delta.snapshots.replay import LogPart, is_reconciled, parse_log_files
from tidegate_runtime import gc_control
from tidegate_runtime.containment import about
from tidegate_runtime.storage.log_store import FileStat, LogStore

REACH: Final = 100
"""How many versions before the requested one the first listing begins, without a usable hint."""

REACH_GROWTH: Final = 10

TORN_MAX: Final = 32
"""How many commits that a listing lacks are looked for by name."""

TOGETHER_BYTES: Final = 1 << 20
"""Bytes of commits that one thread converts to columns at once: small commits need fewer steps, and
large ones stay within a processor's cache.
"""

THREADS_MAX: Final = 4
"""Threads that convert commits to columns: more would wait for one another, and for the reads."""

READS_AHEAD: Final = 16
"""How many files of a log in an object store are read at once. A local disk is as fast with one."""

AHEAD_BYTES: Final = 16 << 20
"""Bytes that are read ahead, if files are as large as the largest one so far."""

_Contents = list[tuple[str, bytes]]
"""Names and bytes of files of the log."""


def list_log(store: LogStore, start: str = "") -> Iterator[tuple[LogFile, FileStat]]:
    """Yield the files of the log from a name on. An empty checkpoint is ignored.

    Raises: Unavailable.
    """
    for stat in store.list_from(LOG_FOLDER, start):
        file = parse(stat.path.rpartition("/")[2])
        if file is not None and not (file.is_checkpoint and stat.size == 0):
            yield file, stat


def find_segment(
    store: LogStore, version: int | None = None, passed_over: Collection[str] = ()
) -> LogSegment:
    """Return the files that make up a version, leaving out those in `passed_over`.

    The listing begins at `_last_checkpoint`, or shortly before the version. The whole log is listed
    only if that does not suffice.
    Raises: InvalidRequest (`NotADeltaTable`, `VersionNotFound`); BrokenLog (`LogGap`); Unavailable.
    """

    def chosen(listed: Sequence[LogFile]) -> Iterator[LogFile]:
        return (file for file in listed if file.name not in passed_over)

    for start in _starts(store, version):
        try:
            return choose(chosen(_listed(store, start, version)), version)
        except (InvalidRequest, BrokenLog):
            # Files before the listing may be needed: the hint may name a missing checkpoint.
            continue
    listed = _listed(store, 0, version)
    try:
        return choose(chosen(listed), version)
    except (InvalidRequest, BrokenLog):
        listed = sorted([*listed, *_unlisted(store, listed)], key=lambda file: file.name)
    with of_table(store.root):
        return choose(chosen(listed), version)


def _unlisted(store: LogStore, listed: Sequence[LogFile]) -> Iterator[LogFile]:
    """Yield commits between listed ones that are there, although the listing lacks them.

    A folder is not listed at one moment: of two commits that are made meanwhile the listing may
    have the second alone.
    """
    versions = [int(file.version) for file in listed if file.kind is LogFileKind.COMMIT]
    lacking = chain.from_iterable(
        range(max(before + 1, version - TORN_MAX), version)
        for before, version in reversed(list(pairwise(versions)))
    )
    for version in islice(lacking, TORN_MAX):
        name = commit_name(version)
        file = parse(name)
        if file is not None and store.read(in_log(name)) is not None:
            yield file


def read_content(store: LogStore, name: str) -> bytes | None:
    """Return the bytes of a file of the log, or None if it is missing.

    Raises: BrokenLog (`CorruptCommit`) for an empty one; Unavailable.
    """
    content = store.read(in_log(name))
    if content is not None and (not content or content.isspace()):
        raise BrokenLog(
            f"{name} of table {store.root} is empty: a writer was interrupted on a store without "
            "put-if-absent; restore it from a backup, or the table to an earlier version",
            error_class="CorruptCommit",
        )
    return content


def read_each(store: LogStore, names: Iterable[str]) -> Iterator[bytes | None]:
    """Yield the bytes of files of the log, in order, or None for one that is missing.

    Of an object store several are read at once, so some may be read that nobody takes.
    Raises: as `read_content`, in its turn.
    """
    if urlsplit(store.root).scheme in ("file", "memory"):
        yield from (read_content(store, name) for name in names)
        return
    left, under_way = iter(names), deque[Future[bytes | None]]()
    # The first one is read alone: the others are likely to be as large.
    ahead, largest = 1, 1
    with ThreadPoolExecutor(READS_AHEAD, thread_name_prefix="log") as pool:
        try:
            while True:
                for name in islice(left, max(0, ahead - len(under_way))):
                    under_way.append(pool.submit(read_content, store, name))
                if not under_way:
                    return
                content = under_way.popleft().result()
                yield content
                largest = max(largest, len(content or b""))
                ahead = max(1, min(READS_AHEAD, AHEAD_BYTES // largest))
        finally:
            for reading in under_way:
                reading.cancel()


def read_deltas(
    store: LogStore, listed: Sequence[LogFile], files: pa.Schema = ADD_SCHEMA
) -> list[LogPart]:
    """Return the content of listed commits and log compactions, with columns `files` of live files.

    Raises: BrokenLog (`CorruptCommit`, `LogGap`); Unavailable.
    """

    def turned(group: _Contents) -> list[LogPart]:
        with of_table(store.root), about(span_of(group)):
            return parse_log_files(group, files)

    with gc_control.paused():
        parts = _side_by_side(turned, _contents(store, listed))
    for file, part in zip(listed, parts, strict=True):
        if file.kind is LogFileKind.COMPACTED and not is_reconciled(part):
            raise BrokenLog(
                f"log compaction {file.name} of table {store.root} names a file twice, so it does "
                "not say which action is the newest: remove it if the commits it stands for are "
                "there",
                error_class="CorruptCommit",
            )
    return parts


def _side_by_side(
    turned: Callable[[_Contents], list[LogPart]], groups: Iterator[_Contents]
) -> list[LogPart]:
    """Return the content of groups of files, in order; some are converted while others are read."""
    first, second = next(groups, []), next(groups, None)
    if second is None:
        return turned(first)
    parts: list[LogPart] = []
    threads = min(THREADS_MAX, os.cpu_count() or 1)
    under_way: deque[Future[list[LogPart]]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="columns") as pool:
        for group in chain((first, second), groups):
            under_way.append(pool.submit(turned, group))
            # One more than there are threads: groups that wait for conversion take memory.
            if len(under_way) > threads:
                parts += under_way.popleft().result()
        for conversion in under_way:
            parts += conversion.result()
    return parts


def span_of(contents: Sequence[tuple[str, bytes]]) -> str:
    """Return the names of the first and the last of some files."""
    names = [name for name, _ in contents]
    return " to ".join(dict.fromkeys((*names[:1], *names[-1:])))


def _contents(store: LogStore, listed: Sequence[LogFile]) -> Iterator[_Contents]:
    """Yield names and bytes of files, in groups of about TOGETHER_BYTES.

    Raises: BrokenLog (`LogGap`), for a listed file that is missing.
    """
    contents: _Contents = []
    size = 0
    for file, content in zip(listed, read_each(store, (file.name for file in listed)), strict=True):
        if content is None:
            raise BrokenLog(
                f"{file.name} of table {store.root} was listed and is gone: open the table again",
                error_class="LogGap",
            )
        contents.append((file.name, content))
        size += len(content)
        if size >= TOGETHER_BYTES:
            yield contents
            contents, size = [], 0
    if contents:
        yield contents


@contextmanager
def of_table(root: str) -> Iterator[None]:
    """Add the table to errors of pure code, which does not know it."""
    try:
        with about(f"table {root}"):
            yield
    except (InvalidRequest, BrokenLog, UnsupportedFeature) as error:
        raise error.with_fault(f"table {root}: {error.fault}") from error


@contextmanager
def defined_in(names: Collection[str]) -> Iterator[None]:
    """Add to errors about a table's protocol and metadata the files that define these."""
    try:
        yield
    except (BrokenLog, UnsupportedFeature) as error:
        files = " and ".join(names)
        sources = f"its protocol and metaData stand in {files}"
        raise error.with_fault(f"{error.fault} ({sources})") from error


def _starts(store: LogStore, version: int | None) -> Iterator[int]:
    """Yield the versions from which to list, the most likely to suffice first."""
    hinted = _hinted_version(store)
    if hinted is not None and (version is None or version >= hinted):
        yield hinted
    elif version is not None:
        for reach in (REACH, REACH * REACH_GROWTH):
            if version - reach > 0:
                yield version - reach


def _listed(store: LogStore, start: int, version: int | None) -> list[LogFile]:
    """Return the files of the log from `start` on, up to the first past the requested version."""
    listed = []
    for file, _ in list_log(store, f"{start:020d}" if start else ""):
        listed.append(file)
        past = version is not None and file.start > version
        if past and file.kind not in (LogFileKind.CHECKSUM, LogFileKind.COMPACTED):
            break
    return listed


def _hinted_version(store: LogStore) -> int | None:
    hint = last_checkpoint.decode(store.read(in_log(LAST_CHECKPOINT)) or b"")
    return None if hint is None else hint.version
