"""Audits: recent versions are read again, on a schedule, and compared by their SHA-256.

An engine without put-if-absent may overwrite a version, and a lifecycle rule of a bucket may delete
one. An audit finds that even if nobody writes, and the table is halted: what was committed there
was promised. The newest versions come first, for these are the ones that writers race for.
"""

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from tidegate_committer.background_reads import ReadExecutor
from tidegate_committer.state.table_state import TableState
from tidegate_delta.errors import BrokenLog, Unavailable
from tidegate_delta.log.commit import sha256
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_messages.published_records import CommittedFile
from tidegate_runtime.observability.metrics import AUDITS
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.log_reader import find_segment

GONE: Final = ""
"""The hash of a version whose file is not there."""


@dataclass
class Audit:
    """The audits of one table. `through` is the head at the start of the last one.

    `walked` is the older version at which the next one goes on, `cleaned` the newest version that
    is gone and that readers do not need.
    Units: `due_s` by `Clock.boot_s`.
    """

    due_s: float
    through: int = -1
    walked: int = -1
    cleaned: int = -1
    answer: Future[Mapping[int, str]] | None = None

    def wants_calm(self, now_s: float) -> bool:
        """Whether an audit is due or under way: it begins and ends while no PUT is in flight."""
        return now_s >= self.due_s or self.answer is not None

    def begin(self, store: LogStore, state: TableState, most: int, ask: ReadExecutor) -> None:
        """Start to read some versions of a table."""
        versions = self._chosen(state, most)
        self.through = state.version
        self.answer = ask.begin(store.root, lambda: hashes(store, versions, self.cleaned))

    def end(self, state: TableState, root: str, label: str) -> CommittedFile | None:
        """Return a version that was overwritten, once the store has answered; or None.

        Raises: BrokenLog, where the head is gone, or a version that no checkpoint covers.
        """
        if self.answer is None or not self.answer.done():
            return None
        answer, self.answer = self.answer, None
        try:
            found = answer.result()
        except Unavailable:
            # A store that does not answer is noticed by whoever needs it.
            return None
        AUDITS.labels(label).inc(len(found))
        for version, digest in found.items():
            known = state.entries.get(version)
            if digest == GONE and version == state.version:
                raise BrokenLog(
                    f"version {version} of {root}, the last one, is gone: restore it",
                    error_class="LogGap",
                )
            if known is not None and digest not in (GONE, known.sha256):
                return CommittedFile(version=version, sha256=known.sha256)
        self.cleaned = max(self.cleaned, *_gone(found), -1)
        return None

    def _chosen(self, state: TableState, most: int) -> list[int]:
        """Return the head and what is new since the last audit, then some of the older ones.

        Law: the table exists: its head is no older than what is remembered of it
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

    Where one after `cleaned` is gone, but the newest is there, the log is listed.
    Raises: BrokenLog (`LogGap`) where no checkpoint covers it; Unavailable.
    """
    found: dict[int, str] = {}
    for version in versions:
        content = store.read(in_log(commit_name(version)))
        found[version] = GONE if content is None else sha256(content)
    gone = _gone(found)
    if max(gone, default=-1) > cleaned and max(versions) not in gone:
        find_segment(store)
    return found


def _gone(found: Mapping[int, str]) -> list[int]:
    return [version for version, digest in found.items() if digest == GONE]
