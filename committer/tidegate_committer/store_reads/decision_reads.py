"""Fetches: what a decision needs from the store beyond the cached state, read beside the loop.

That is versions that others wrote, older versions, claim-check files, the sizes of new files, the
rows of deletion vectors. Once a fetch ends, its batch is decided at once, on the state that the
fetch returns.


"""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import BinaryIO, Final, TypeVar

from tidegate_committer.admission.tidegate_properties import (
    FILES_MAX,
    file_problem,
    needs_file_check,
    new_files,
    too_many,
)
from tidegate_committer.decision import verbatim_decision
from tidegate_committer.dependencies import Dependencies
from tidegate_committer.intake import proposal_reader
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_reader import needs_claim
from tidegate_committer.state.log_entry import Entry
from tidegate_committer.state.table_state import TableState
from tidegate_committer.store_reads import recovery
from tidegate_committer.store_reads.read_cache import ReadCache
from tidegate_delta.errors import BrokenLog, Unavailable
from tidegate_messages.proposal import ClaimCheck
from tidegate_runtime.storage.log_store import LogStore

LOOKS_AT_ONCE: Final = 16
"""How many files of a proposal are checked at the same time."""

Read = TypeVar("Read")


def needs_own_files(state: TableState, candidate: Candidate) -> bool:
    """Return whether files of a candidate's writer must be read before it is decided."""
    return needs_claim(candidate) or needs_file_check(state, candidate)


def read_claim(store: LogStore, claim: ClaimCheck) -> bytes | str | None:
    """Return the bytes of a claim-check file, None if there is none, or why it is unreadable.

    Of a file larger than the claim says, return one byte more than claimed: it is refused for its
    size, which has no bound. Raises: Unavailable; InvalidRequest, for a root that leads elsewhere.
    """
    return _read(store, claim.path, lambda file: file.read(claim.size + 1))


def with_verified_files(store: LogStore, state: TableState, candidate: Candidate) -> Candidate:
    """Return a candidate whose new files were checked, with a flaw if one is missing or has
    another size than proposed.

    Raises: as `read_claim`.
    """
    files = new_files(state, candidate)
    if len(files) > FILES_MAX:
        return replace(candidate, files_verified=True, flaw=too_many(len(files)))
    with ThreadPoolExecutor(LOOKS_AT_ONCE, "look") as pool:
        sizes = pool.map(lambda file: _read(store, file.path, _size), files)
        rejections = [file_problem(file, size) for file, size in zip(files, sizes, strict=True)]
    flaw = next((rejection for rejection in rejections if rejection is not None), None)
    return replace(candidate, files_verified=True, flaw=flaw)


def _size(file: BinaryIO) -> int:
    return file.seek(0, os.SEEK_END)


def _read(store: LogStore, path: str, take: Callable[[BinaryIO], Read]) -> Read | str | None:
    try:
        with store.open(path) as file:
            return take(file)
    except FileNotFoundError:
        return None
    except BrokenLog as error:
        return error.fault
    except Unavailable as error:
        if isinstance(error.__cause__, PermissionError):
            # For a single file no retry helps, and all proposals for the table would wait for it.
            return error.fault
        raise
    except OSError as error:
        raise Unavailable(f"reading {path!r} of {store.root} failed: {error}") from error


@dataclass
class DecisionRead:
    """One fetch: first what to read, then, once its thread has ended, what it has read.

    It reads for the candidates of `batch`, from position `start` of the queue on; with an empty
    batch it only catches up with the log. `past` are versions before the window that were read
    earlier (`table_loading`). `is_behind`: others are known to have written.
    `needs_file_time`: the file time of the last version is needed. The thread advances `state` and
    `viewed_s`, replaces candidates by those whose own files were read, and fills `new_entries`,
    `content` (a verbatim entry), `written_ms` and `read_cache`. The table committer uses none of
    these before the thread has ended.
    Units: `viewed_s` by `Clock.boot_s`; `written_ms` since the Unix epoch.
    """

    store: LogStore
    dependencies: Dependencies
    read_cache: ReadCache
    state: TableState
    viewed_s: float
    is_behind: bool
    start: int
    batch: list[Candidate]
    past: Mapping[int, Entry] = field(default_factory=dict)
    needs_file_time: bool = False
    new_entries: list[Entry] = field(default_factory=list)
    content: bytes | str | None = None
    written_ms: int | None = None

    @property
    def is_verbatim(self) -> bool:
        """Whether it is for a verbatim proposal, which is decided alone."""
        return bool(self.batch) and self.batch[0].is_verbatim

    @property
    def reads_past(self) -> bool:
        """Whether a candidate read a version from before the last `window` versions."""
        return bool(self.batch) and self._oldest_read < self.state.version - self.state.window

    @property
    def is_needed(self) -> bool:
        """Whether the store has to be read at all; most batches need no read."""
        if self.is_behind or self.needs_file_time or self._is_ahead():
            return True
        if not self.batch:
            return False
        state, batch = self.state, self.batch
        if recovery.is_short(state, self._oldest_read):
            return True
        if self.is_verbatim:
            return verbatim_decision.needs_bytes(state, batch[0])
        if any(needs_own_files(state, candidate) for candidate in batch) or recovery.lacks(
            state, batch
        ):
            return True
        return self.read_cache.lacks(state, batch, self.dependencies.policy)

    def run(self) -> "DecisionRead":
        """Read the input. Raises: BrokenLog; UnsupportedFeature; InvalidRequest; Unavailable."""
        if self.is_behind or self._is_ahead():
            self._catch_up()
        if self.needs_file_time:
            self.written_ms = recovery.written_ms(self.store, self.state.version)
        if self.is_verbatim:
            self._fetch_bytes(self.batch[0])
        elif self.batch:
            self._fetch()
        return self

    def _catch_up(self) -> None:
        """Read the versions that others wrote."""
        began_s = self.dependencies.clock.boot_s()
        self.state, new_entries = recovery.refresh(self.store, self.state)
        self.read_cache.overtaken(new_entries)
        self.new_entries += recovery.as_they_came(self.store, new_entries)
        self.viewed_s, self.is_behind = began_s, False

    def _fetch(self) -> None:
        self._reach_back()
        for index, candidate in enumerate(self.batch):
            if proposal_reader.needs_claim(candidate):
                content = read_claim(self.store, candidate.claim)
                candidate = proposal_reader.with_claim(candidate, content, self.dependencies.policy)
            if needs_file_check(self.state, candidate):
                candidate = with_verified_files(self.store, self.state, candidate)
            self.batch[index] = candidate
        self.state = recovery.complete(self.store, self.state, self.batch)
        self.read_cache.learn(self.state, self.batch, self.dependencies.policy)

    def _reach_back(self) -> None:
        self.state = recovery.reach_back(self.store, self.state, self._oldest_read, self.past)

    def _fetch_bytes(self, candidate: Candidate) -> None:
        self._reach_back()
        if verbatim_decision.needs_bytes(self.state, candidate):
            self.content = read_claim(self.store, candidate.claim)

    def _is_ahead(self) -> bool:
        """Whether a candidate read, or is based on, a version after our head."""
        newest = max((candidate.read_version for candidate in self.batch), default=-1)
        if self.is_verbatim:
            newest = verbatim_decision.exact_version(self.batch[0]) - 1
        return newest > self.state.version

    @property
    def _oldest_read(self) -> int:
        return min(candidate.read_version for candidate in self.batch)
