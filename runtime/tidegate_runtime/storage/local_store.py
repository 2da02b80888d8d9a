"""The store on a local or mounted file system: put-if-absent by a hidden file, fsync and link.

A file appears under its name whole and durable, or not at all; `link` decides who was first. A name
is reported only after its folder was synced: to its writer, and also to a process that lists the
folder after that writer died.

Writers of data files may leave anything in a table's folder. So only regular files are read, and
only below the real path of the table root are files read, listed, written or deleted: a pipe would
block its reader for ever, and a link would lead to other files.
"""

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from typing import BinaryIO, Final

from tidegate_delta.errors import BrokenLog, InvalidRequest, Misconfigured, Unavailable
from tidegate_delta.log.file_names import LOG_FOLDER, LogFileKind, commit_name, parse
from tidegate_runtime.clock import Clock, SystemClock
from tidegate_runtime.storage.log_store import FileStat, IsWanted, Put, Turn, at_once
from tidegate_runtime.storage.root_paths import (
    canonical_root,
    checked,
    checked_folder,
    decoded_root,
    joined,
    lies_under,
)

_HIDDEN: Final = re.compile(r"^\..+\.[0-9a-f]{16}\.tmp\Z", re.DOTALL)
_REMEDIES: Final = {
    errno.ENOSPC: "there is no space left: free some",
    errno.EDQUOT: "the quota is used up: free some space or raise it",
    errno.EROFS: "the file system is read-only: mount it for writing, or, where it became so by "
    "itself, look at the kernel's log",
    errno.EPERM: "it is not permitted, or the file system has no hard links: grant it, or put the "
    "table on another file system",
    errno.EACCES: "this user may not: grant the rights",
    errno.EOPNOTSUPP: "the file system has no hard links: put the table on another one",
    errno.ENOSYS: "the file system has no hard links: put the table on another one",
    errno.EEXIST: "a file stands where a folder should be: choose another place",
    errno.EISDIR: "a folder stands where a file should be: choose another place",
    errno.ENOTDIR: "a part of the path is a file: choose another place",
    errno.ENAMETOOLONG: "the name is too long for the file system: choose a shorter one",
    errno.EMFILE: "too many files are open: raise the limit",
    errno.EFBIG: "the file is larger than may be written here: raise the limit",
    errno.EIO: "the device reports an error: look at the kernel's log, and at the device",
}
_MAY_HAVE_HAPPENED: Final = frozenset({errno.EIO})
"""Errors of linking or syncing after which the file may have its name nevertheless."""

_NO_NAME: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
"""Errors of opening which mean that no file has the name."""

_NO_REGULAR_FILE: Final = frozenset({errno.ENXIO, errno.ELOOP, errno.EISDIR})
"""Errors of opening a socket, a device without a driver, a loop of links or a folder."""

_DESCRIPTORS: Final = "/proc/self/fd"
"""The folder in which Linux shows the real path of each open file."""

_STALE_MS: Final = 24 * 60 * 60 * 1000
"""The age from which a hidden file's writer counts as dead."""

_CLOCK: Final = SystemClock()


class LocalStore:
    """A table's folder on a file system that has hard links.

    The real path of the root must lie below the real path of one of the URI prefixes `within`. If
    there are none, it may lie anywhere.
    """

    def __init__(self, root: str, clock: Clock = _CLOCK, within: Sequence[str] = ()) -> None:
        self._root = canonical_root(root)
        if not self._root.startswith("file://"):
            raise Misconfigured(f"{self._root} is not on a file system; give a path or file:///…")
        self._folder = decoded_root(self._root).removeprefix("file://")
        self._clock = clock
        self._within = [prefix for prefix in within if lies_under(self._root, prefix)]
        self._real_root: str | None = None
        self._durable_folders: set[str] = set()
        self._unsure_folders: set[str] = set()
        self._listed_folders: set[str] = set()

    @property
    def root(self) -> str:
        """The URI of the table root: `file:///abs`."""
        return self._root

    def list_from(self, folder: str, start: str) -> Iterator[FileStat]:
        """Yield the files directly in `folder` whose bare name is >= `start`, in name order.

        Raises: Unavailable.
        """
        parent = checked_folder(folder, self._root)
        try:
            self._check_folder(self._place(parent), folder)
            self._sync_before_listing(self._place(parent))
            with os.scandir(self._place(parent)) as entries:
                entries_found = sorted(
                    (entry for entry in entries if entry.name >= start and _is_ours(entry.name)),
                    key=lambda entry: entry.name,
                )
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._unavailable("list", folder, error) from error
        for entry in entries_found:
            stat = self._stat(joined(parent, entry.name), entry)
            if stat is not None:
                yield stat

    def list_tree(self, is_wanted: IsWanted) -> Iterator[FileStat]:
        """Yield all files below the root, without those below a folder that is not wanted.

        Raises: Unavailable.
        """
        folders = [""]
        while folders:
            parent = folders.pop()
            try:
                with os.scandir(self._place(parent)) as entries:
                    children = [entry for entry in entries if _is_ours(entry.name)]
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise self._unavailable("list", parent, error) from error
            for entry in children:
                path = joined(parent, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    if is_wanted(path):
                        folders.append(path)
                elif stat := self._stat(path, entry):
                    yield stat

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file, or None if there is none.

        Raises: Unavailable; BrokenLog (`NoRegularFile`, `PathOutsideTable`).
        """
        full_path = self._file(path)
        try:
            self._sync_if_unsure(os.path.dirname(full_path))
            with self._opened(full_path, path) as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unavailable("read", path, error) from error

    def open(self, path: str) -> BinaryIO:
        """Return a seekable reader.

        Raises: FileNotFoundError; Unavailable; BrokenLog (`NoRegularFile`, `PathOutsideTable`).
        """
        try:
            return self._opened(self._file(path), path)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._unavailable("open", path, error) from error

    def put_if_absent(
        self, path: str, content: bytes, deadline_s: float, turn: Turn = at_once
    ) -> Put:
        """Write a file whole and durably if no file is there; never overwrite.

        The bytes are written to a hidden file before its turn comes, and linked after it, but not
        past the deadline. A commit is only written if the version before it, or a checkpoint of
        that version, is there: otherwise the table was moved away or its file system is not
        mounted, and the commit would land in an empty folder in its place.
        Raises: Unavailable for errors that no retry cures.
        """
        ends = self._clock.boot_s() + deadline_s
        target = self._file(path)
        hidden, before = _hidden_name(target), _version_before(target)
        try:
            if before is not None and not os.path.isdir(os.path.dirname(target)):
                raise self._not_there(path, before)
            self._write_hidden(hidden, content, path)
            if not turn():
                return Put.WITHHELD
            if self._clock.boot_s() >= ends:
                return Put.UNKNOWN
            if before is not None and not _is_known(before):
                raise self._not_there(path, before)
            return self._name(hidden, target, content, path)
        except OSError as error:
            raise self._unavailable("write", path, error) from error
        finally:
            _unlink(hidden)

    def put(self, path: str, content: bytes) -> None:
        """Write a file whole and durably, replacing an existing one. Raises: Unavailable."""
        target = self._file(path)
        hidden = _hidden_name(target)
        try:
            self._write_hidden(hidden, content, path)
            os.replace(hidden, target)
            self._sync(os.path.dirname(target))
        except OSError as error:
            raise self._unavailable("write", path, error) from error
        finally:
            _unlink(hidden)

    def delete(self, path: str) -> None:
        """Remove a file; a missing one is no error. Raises: Unavailable."""
        folder, name = os.path.split(self._file(path))
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                self._check_inside(_real_path(descriptor, folder), path)
                os.unlink(name, dir_fd=descriptor)
            finally:
                os.close(descriptor)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise self._unavailable("delete", path, error) from error

    def _file(self, path: str) -> str:
        return self._place(checked(path, self._root))

    def _place(self, path: str) -> str:
        return joined(self._folder, path) if path else self._folder

    def _opened(self, full_path: str, path: str) -> BinaryIO:
        """Return a reader of a regular file below the root, without waiting for a pipe's writer.

        The checks come after opening: before that, the name may be made to refer to another file.
        Raises: FileNotFoundError; OSError; BrokenLog; InvalidRequest.
        """
        try:
            descriptor = os.open(full_path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError as error:
            if error.errno in _NO_NAME:
                raise FileNotFoundError(
                    errno.ENOENT, os.strerror(errno.ENOENT), full_path
                ) from error
            if error.errno in _NO_REGULAR_FILE:
                raise self._no_regular_file(path) from error
            raise
        try:
            self._check_inside(_real_path(descriptor, full_path), path)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise self._no_regular_file(path)
            return os.fdopen(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise

    def _check_folder(self, folder: str, path: str) -> None:
        """Check that a folder, which may be missing, lies below the root.

        Raises: as `_check_inside`.
        """
        self._check_inside(os.path.realpath(folder), path)

    def _check_inside(self, real: str, path: str) -> None:
        """Check that a real path lies below the root's real path.

        Raises: BrokenLog (`PathOutsideTable`); InvalidRequest (`root_not_allowed`), if the root
        itself leads out of the allowed ones.
        """
        if self._real_root is not None and _is_below(real, self._real_root):
            return
        # The first time, and after the folder was moved and a link left in its place.
        self._real_root = None
        real_root = os.path.realpath(self._folder)
        if self._within and not any(
            _is_below(real_root, os.path.realpath(decoded_root(prefix).removeprefix("file://")))
            for prefix in self._within
        ):
            raise InvalidRequest(
                f"the table root {self._root} leads by a symbolic link out of the roots that the "
                "operator allows; choose another root, or add the place that it leads to to "
                "committer.roots",
                error_class="root_not_allowed",
            )
        if not _is_below(real, real_root):
            raise BrokenLog(
                f"{path!r} of the table at {self._root} leads out of the table's folder by a "
                "symbolic link; put the file itself there",
                error_class="PathOutsideTable",
            )
        self._real_root = real_root

    def _no_regular_file(self, path: str) -> BrokenLog:
        return BrokenLog(
            f"{path!r} of the table at {self._root} is no regular file but a pipe, a socket, a "
            "device, a folder or a loop of links; take it away, and put the file there",
            error_class="NoRegularFile",
        )

    def _stat(self, path: str, entry: os.DirEntry[str]) -> FileStat | None:
        """Return a file's size and time, or None if it is no regular file or was just deleted."""
        try:
            if not entry.is_file():
                return None
            stat = entry.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in _NO_REGULAR_FILE:
                return None
            raise self._unavailable("look at", path, error) from error
        return FileStat(path, stat.st_size, stat.st_mtime_ns // 1_000_000)

    def _name(self, hidden: str, target: str, content: bytes, path: str) -> Put:
        """Link the hidden file to its name, durably; UNKNOWN if an error leaves the result open."""
        try:
            put = self._link(hidden, target, content, path)
            if put is not Put.UNKNOWN:
                # Also after LOST: we report the winner's name, and the winner may have died before
                # syncing.
                self._sync(os.path.dirname(target))
            return put
        except OSError as error:
            if error.errno in _REMEDIES and error.errno not in _MAY_HAVE_HAPPENED:
                raise
            return Put.UNKNOWN

    def _sync(self, folder: str) -> None:
        """Make a folder's names durable. If that fails, `_sync_if_unsure` repeats it before the
        next read.
        """
        self._unsure_folders.add(folder)
        _fsync_folder(folder)
        self._unsure_folders.discard(folder)

    def _sync_if_unsure(self, folder: str) -> None:
        """Sync a folder again if its last sync failed."""
        if folder in self._unsure_folders:
            self._sync(folder)

    def _sync_before_listing(self, folder: str) -> None:
        """Sync a folder before it is first listed: a dead writer may have left a name unsynced."""
        self._sync_if_unsure(folder)
        if folder not in self._listed_folders:
            try:
                _fsync_folder(folder)
            except PermissionError:
                # The listing itself will raise this error, too.
                return
            self._listed_folders.add(folder)

    def _link(self, hidden: str, target: str, content: bytes, path: str) -> Put:
        try:
            os.link(hidden, target)
        except OSError as error:
            # A network file system may link and lose the response, or repeat the request by itself
            # and fail: if our file has two names it was linked, whatever the error says.
            if os.stat(hidden).st_nlink > 1:
                return Put.WON
            if error.errno != errno.EEXIST:
                raise
            return self._compare(target, content, path)
        return Put.WON

    def _compare(self, target: str, content: bytes, path: str) -> Put:
        try:
            with self._opened(target, path) as file:
                stored = file.read()
        except FileNotFoundError:
            return Put.UNKNOWN
        return Put.WON if stored == content else Put.LOST

    def _write_hidden(self, hidden: str, content: bytes, path: str) -> None:
        folder = os.path.dirname(hidden)
        if folder not in self._durable_folders:
            self._make_folder(folder, path)
        try:
            self._write_durably(hidden, content, path)
        except FileNotFoundError:
            self._make_folder(folder, path)
            self._write_durably(hidden, content, path)

    def _write_durably(self, hidden: str, content: bytes, path: str) -> None:
        # Python's file objects make three more system calls. At each, the PUT's thread releases the
        # GIL, and waits until a busy thread gives it back.
        descriptor = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            self._check_inside(_real_path(descriptor, hidden), path)
            left = memoryview(content)
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _make_folder(self, folder: str, path: str) -> None:
        """Create the folder, and sync its parents, any of which may be new and not yet durable."""
        self._check_folder(folder, path)
        missing = folder
        while not os.path.isdir(missing) and missing != os.path.dirname(missing):
            missing = os.path.dirname(missing)
        os.makedirs(folder, exist_ok=True)
        above = folder
        while len(above) > min(len(missing), len(self._folder)):
            above = os.path.dirname(above)
            _fsync_folder(above)
        self._sweep(folder)
        self._durable_folders.add(folder)

    def _sweep(self, folder: str) -> None:
        """Delete the hidden files of writers that died long ago."""
        before_s = (self._clock.now_ms() - _STALE_MS) / 1000
        with os.scandir(folder) as entries:
            hidden = [entry for entry in entries if not _is_ours(entry.name)]
        for entry in hidden:
            with contextlib.suppress(FileNotFoundError):
                if entry.stat().st_mtime < before_s:
                    _unlink(entry.path)

    def _not_there(self, path: str, before: str) -> Unavailable:
        return Unavailable(
            f"cannot write {path!r} of the table at {self._root}; the version before it, "
            f"{os.path.basename(before)}, is not there: mount the file system, or bring the folder "
            "back"
        )

    def _unavailable(self, operation: str, path: str, error: OSError) -> Unavailable:
        remedy = _REMEDIES.get(error.errno or 0, f"{error.strerror}: look at the device")
        return Unavailable(f"cannot {operation} {path!r} of the table at {self._root}; {remedy}")


def _is_below(real: str, folder: str) -> bool:
    return real == folder or real.startswith(folder.rstrip("/") + "/")


def _real_path(descriptor: int, opened_path: str) -> str:
    """Return the path of an open file, without links; it was opened by `opened_path`."""
    try:
        return os.readlink(f"{_DESCRIPTORS}/{descriptor}")
    except FileNotFoundError:
        # Without `/proc` the name is resolved again.
        return os.path.realpath(opened_path)


def _version_before(target: str) -> str | None:
    """Return the path of the version before a commit; None for version 0, and for other files."""
    folder, name = os.path.split(target)
    file = parse(name) if os.path.basename(folder) == LOG_FOLDER else None
    if file is None or file.kind is not LogFileKind.COMMIT or file.version == 0:
        return None
    return os.path.join(folder, commit_name(file.version - 1))


def _is_known(commit: str) -> bool:
    """Return whether a version's commit or a checkpoint of it exists, as commits are cleaned up."""
    if os.path.isfile(commit):
        return True
    folder, name = os.path.split(commit)
    files = (parse(file_name) for file_name in os.listdir(folder))
    return any(
        file is not None and file.is_checkpoint and file.name[:20] == name[:20] for file in files
    )


def _hidden_name(target: str) -> str:
    folder, name = os.path.split(target)
    return os.path.join(folder, f".{name}.{secrets.token_hex(8)}.tmp")


def _is_ours(name: str) -> bool:
    return _HIDDEN.match(name) is None


def _fsync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # EINVAL: the file system can't sync folders, and keeps names durable by itself. EROFS is an
        # error: a file system mounted read-only does not raise it here, only one whose journal
        # failed, and that may lose names that are still visible.
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def _unlink(hidden: str) -> None:
    """Remove the hidden file. If that fails it stays, but no listing shows it."""
    with contextlib.suppress(OSError):
        os.unlink(hidden)
