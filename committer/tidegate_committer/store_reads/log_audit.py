"""Audits: recent versions are read again, on a schedule, and compared by their SHA-256.

An engine without put-if-absent may overwrite a version, and a bucket's lifecycle rule may delete
one. An audit finds this even if no proposal comes. The table is then halted, because the outcomes
of the lost version were promises. The newest versions come first, because writers race for these.
"""

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from tidegate_committer.state.table_state import TableState
from tidegate_committer.store_executor import StoreExecutor
from tidegate_delta.errors import BrokenLog, Unavailable
from tidegate_delta.log.commit import sha256
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_messages.published_records import CommittedFile
from tidegate_runtime.observability.metrics import AUDITS
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.log_reader import find_segment

GONE: Final = ""
"""The value in place of the hash of a version whose file is missing."""


@dataclass
class Audit:
    """The audits of one table. `through` is the head at the start of the last one.

    `walked` is the older version at which the next audit goes on. `cleaned` is the newest version
    that is missing and that readers do not need.
    Units: `due_s` by `Clock.boot_s`.
    """

    due_s: float
    through: int = -1
    walked: int = -1
    cleaned: int = -1
    answer: Future[Mapping[int, str]] | None = None

    def pause_for_audit(self, now_s: float) -> bool:
        """Return whether an audit is due or running: it begins and ends with no PUT in flight."""
        return now_s >= self.due_s or self.answer is not None

    def begin(self, store: LogStore, state: TableState, most: int, executor: StoreExecutor) -> None:
        """Start to read some versions of a table."""
        versions = self._chosen(state, most)
        self.through = state.version
        self.answer = executor.begin(store.root, lambda: hashes(store, versions, self.cleaned))

    def end(self, state: TableState, root: str, label: str) -> CommittedFile | None:
        """Return a version that was overwritten, once the store has answered; else None.

        Raises: BrokenLog, if the head is missing, or a version that no checkpoint covers.
        """
        if self.answer is None or not self.answer.done():
            return None
        answer, self.answer = self.answer, None
        try:
            hashes_by_version = answer.result()
        except Unavailable:
            # Ignore it: reads that proposals need report a store that does not answer.
            return None
        AUDITS.labels(label).inc(len(hashes_by_version))
        for version, digest in hashes_by_version.items():
            known = state.entries.get(version)
            if digest == GONE and version == state.version:
                raise BrokenLog(
                    f"version {version} of {root}, the last one, is gone: restore it",
                    error_class="LogGap",
                )
            if known is not None and digest not in (GONE, known.sha256):
                return CommittedFile(version=version, sha256=known.sha256)
        self.cleaned = max(self.cleaned, *_missing_versions(hashes_by_version), -1)
        return None

    def _chosen(self, state: TableState, most: int) -> list[int]:
        """Return the head and the versions since the last audit, then some older ones.

        Law: the table exists: its head is no older than any entry in memory
        """
        oldest = max(state.window_start, state.oldest, state.version + 1 - state.window)
        newest = range(state.version, max(self.through, oldest - 1, state.version - most // 2), -1)
        chosen = dict.fromkeys(newest or (state.version,))
        start = self.walked if oldest <= self.walked else state.version
        for version in (*range(start, oldest - 1, -1), *range(state.version, start, -1)):
            if len(chosen) >= most:
                self.walked = version
                break
            chosen.setdefault(version)
        return list(chosen)


def hashes(store: LogStore, versions: list[int], cleaned: int = -1) -> Mapping[int, str]:
    """Return the SHA-256 of some versions' files.

    If one after `cleaned` is missing, but the newest is there, the log is listed.
    Raises: BrokenLog (`LogGap`) if no checkpoint covers it; Unavailable.
    """
    hashes_by_version: dict[int, str] = {}
    for version in versions:
        content = store.read(in_log(commit_name(version)))
        hashes_by_version[version] = GONE if content is None else sha256(content)
    missing = _missing_versions(hashes_by_version)
    if max(missing, default=-1) > cleaned and max(versions) not in missing:
        find_segment(store)
    return hashes_by_version


def _missing_versions(hashes_by_version: Mapping[int, str]) -> list[int]:
    return [version for version, digest in hashes_by_version.items() if digest == GONE]
