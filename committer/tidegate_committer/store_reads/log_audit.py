"""Audits: recent versions are read again, on a schedule, and compared by their SHA-256.

An engine without put-if-absent may overwrite a version, and a bucket's lifecycle rule may delete
one. An audit finds this even if no proposal comes. The table is then halted, because the outcomes
of the lost version were promises. The newest versions come first, because writers race for these.

A table's folder may also be removed, and another table be made in it. Where its versions go on past
ours, PUTs win there. So while versions come, an older head is read again every second, beside the
PUTs: only our own table has that file.

An idle table is probed for a next version by another writer. A store may be slow and there may be a
thousand tables, so the loop does not wait for the result, and `Pace` bounds the reads a second.
"""

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
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

LOOK_S: Final = 1.0
"""How often an older head is read again while versions come, in up to LOOKS_PER_S tables. For
so long, and the time of a read, proposals may be committed into another table that was made in the
folder.
"""

LOOKS_PER_S: Final = 20.0


@dataclass
class Pace:
    """The turns of many tables at one kind of read, `reads_per_s` on the average.

    A turn is taken ahead: with many tables each waits longer, and none waits for ever. `taken_s` is
    until when the turns that are taken last, one after the other.
    Units: `_s` by `Clock.boot_s`.
    """

    reads_per_s: float = LOOKS_PER_S
    taken_s: float = 0.0

    def turn_s(self, now_s: float, due_s: float, reads: int = 1) -> float:
        """Return when a table may read that is due at `due_s`, now that it takes its turn."""
        self.taken_s = max(now_s, self.taken_s) + reads / self.reads_per_s
        return max(due_s, self.taken_s)


@dataclass
class Audit:
    """The audits of one table. `through` is the head at the start of the last one.

    `walked` is the older version at which the next audit goes on. `cleaned` is the newest version
    that is missing and that readers do not need. `look` reads `witness` again, a version that was
    the head when an earlier look began; `successor` is the witness of the next look. `replaced` is
    a witness of which the file is another one. `rulings` counts the operators' requests before it.
    `looks` is the pace that all tables share.
    Units: `due_s` and `look_s` by `Clock.boot_s`.
    """

    due_s: float
    through: int = -1
    walked: int = -1
    cleaned: int = -1
    answer: Future[Mapping[int, str]] | None = None
    rulings: int = 0
    looks: Pace = field(default_factory=Pace)
    look_s: float = 0.0
    look: Future[Mapping[int, str]] | None = None
    witness: CommittedFile | None = None
    successor: CommittedFile | None = None
    replaced: CommittedFile | None = None

    def look_again(
        self, store: LogStore, state: TableState, now_s: float, executor: StoreExecutor
    ) -> None:
        """Start to read the witness if it is time, or take the answer.

        The successor was the head before the read began, so it lies in the folder that was read.
        """
        head = state.entries.get(state.version)
        newest = CommittedFile(version=head.version, sha256=head.sha256) if head else None
        if self.witness is None:
            self.witness, self.look_s = newest, self.looks.turn_s(now_s, now_s + LOOK_S)
        elif self.look is None and now_s >= self.look_s:
            versions = [self.witness.version]
            self.look_s, self.successor = self.looks.turn_s(now_s, now_s + LOOK_S), newest
            self.look = executor.begin(store.root, lambda: hashes(store, versions, versions[0]))
        if self.look is not None and self.look.done():
            self._end_look(now_s)

    def is_behind(self, state: TableState) -> bool:
        """Return whether a look is needed: versions came since the last one began, or it runs."""
        return self.look is not None or self.witness is None or self.witness.version < state.version

    def _end_look(self, now_s: float) -> None:
        look, self.look = self.look, None
        assert look is not None, "a look has begun"
        assert self.witness is not None, "a look reads a witness"
        try:
            digest = look.result()[self.witness.version]
        except Unavailable:
            # Ignore it, as in `end`: the next look reads the same version.
            return
        if digest == GONE:
            # It was cleaned up, or the folder was removed: the audit tells.
            self.due_s = now_s
        elif digest != self.witness.sha256:
            self.replaced = self.witness
            return
        self.witness = self.successor or self.witness

    def pause_for_audit(self, now_s: float) -> bool:
        """Return whether an audit is due or running: it begins and ends with no PUT in flight."""
        return now_s >= self.due_s or self.answer is not None or self.replaced is not None

    def begin(self, store: LogStore, state: TableState, most: int, executor: StoreExecutor) -> None:
        """Start to read some versions of a table."""
        versions = self._chosen(state, most)
        self.through = state.version
        self.answer = executor.begin(store.root, lambda: hashes(store, versions, self.cleaned))

    def end(self, state: TableState, root: str, label: str) -> CommittedFile | None:
        """Return a version that was overwritten, once the store has answered; else None.

        Raises: BrokenLog, if the head is missing, or a version that no checkpoint covers.
        """
        if self.replaced is not None:
            return self.replaced
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


@dataclass
class IdleProbe:
    """The probe of one table that is in progress, if any: for which version, and since when. The
    next one is not due before `due_s`.

    Units: `due_s` and `asked_s` by `Clock.boot_s`.
    """

    due_s: float
    version: int = -1
    asked_s: float = 0.0
    answer: Future[bool] | None = None

    def begin(self, store: LogStore, version: int, now_s: float, executor: StoreExecutor) -> None:
        """Start to read whether a version exists."""
        path = in_log(commit_name(version))
        self.version, self.asked_s = version, now_s
        self.answer = executor.begin(store.root, lambda: store.read(path) is not None)

    def take_result(self, following: int) -> bool | None:
        """Return whether version `following` exists; None without a result, or if it is about
        another version.

        Raises: Unavailable.
        """
        if self.answer is None or not self.answer.done():
            return None
        answer, self.answer = self.answer, None
        is_there = answer.result()
        return is_there if self.version == following else None
