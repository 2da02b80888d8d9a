"""Fetches: what a decision needs from the store beyond the cached state, read beside the loop.

The versions that others wrote, older versions, claim checks, the rows of deletion vectors. Once a
fetch is done its batch is decided at once, on the state that it has brought.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate.committer.doors import Doors
from tidegate.committer.judging import verbatim
from tidegate.committer.proposals import intake
from tidegate.committer.proposals.candidate import Candidate
from tidegate.committer.reading import recovery
from tidegate.committer.reading.claims import read_claim
from tidegate.committer.reading.read_cache import ReadCache
from tidegate.committer.tables.entries import Entry
from tidegate.committer.tables.state import TableState
from tidegate.runtime.stores.log_store import LogStore


@dataclass
class Fetch:
    """One fetch: first its order, then, once its thread is done, what it has read.

    `batch` are the candidates for whom it reads, from place `start` of the line on; with an empty
    one it only catches up with the log. `past` are versions before the window that were read before
    (`history`). `is_behind` says that others are known to have written,
    `asks_when` that the file time of the last version is needed. The thread moves `state` and
    `viewed_s` on, replaces candidates by those with their claim checks read, and fills `news`,
    `content` (ready bytes), `written_ms` and `read_cache`; the desk looks at none of it before.
    Units: `viewed_s` by `Clock.boot_s`; `written_ms` since the Unix epoch.
    """

    store: LogStore
    doors: Doors
    read_cache: ReadCache
    state: TableState
    viewed_s: float
    is_behind: bool
    start: int
    batch: list[Candidate]
    past: Mapping[int, Entry] = field(default_factory=dict)
    asks_when: bool = False
    news: list[Entry] = field(default_factory=list)
    content: bytes | str | None = None
    written_ms: int | None = None

    @property
    def is_verbatim(self) -> bool:
        """Whether it is for a verbatim proposal, which is decided alone."""
        return bool(self.batch) and self.batch[0].is_verbatim

    @property
    def reads_past(self) -> bool:
        """Whether a candidate read a version before the last `window`."""
        return bool(self.batch) and self._oldest_read < self.state.version - self.state.window

    @property
    def is_needed(self) -> bool:
        """Whether the store has to be read at all; for most batches it need not."""
        if self.is_behind or self.asks_when or self._is_ahead():
            return True
        if not self.batch:
            return False
        state, batch = self.state, self.batch
        if recovery.is_short(state, self._oldest_read):
            return True
        if self.is_verbatim:
            return verbatim.needs_bytes(state, batch[0])
        if any(map(intake.needs_claim, batch)) or recovery.lacks(state, batch):
            return True
        return self.read_cache.lacks(state, batch, self.doors.policy)

    def run(self) -> "Fetch":
        """Read it all. Raises: BrokenLog; UnsupportedFeature; InvalidRequest; Unavailable."""
        if self.is_behind or self._is_ahead():
            self._catch_up()
        if self.asks_when:
            self.written_ms = recovery.written_ms(self.store, self.state.version)
        if self.is_verbatim:
            self._fetch_bytes(self.batch[0])
        elif self.batch:
            self._fetch()
        return self

    def _catch_up(self) -> None:
        """Read the versions that others wrote."""
        began_s = self.doors.clock.boot_s()
        self.state, news = recovery.refresh(self.store, self.state)
        self.read_cache.overtaken(news)
        self.news += news
        self.viewed_s, self.is_behind = began_s, False

    def _fetch(self) -> None:
        self._reach_back()
        for place, candidate in enumerate(self.batch):
            if intake.needs_claim(candidate):
                content = read_claim(self.store, candidate.claim)
                self.batch[place] = intake.with_claim(candidate, content, self.doors.policy)
        self.state = recovery.complete(self.store, self.state, self.batch)
        self.read_cache.learn(self.state, self.batch, self.doors.policy)

    def _reach_back(self) -> None:
        self.state = recovery.reach_back(self.store, self.state, self._oldest_read, self.past)

    def _fetch_bytes(self, candidate: Candidate) -> None:
        self._reach_back()
        if verbatim.needs_bytes(self.state, candidate):
            self.content = read_claim(self.store, candidate.claim)

    def _is_ahead(self) -> bool:
        """Whether a candidate has read, or builds on, a version after our head."""
        newest = max((one.read_version for one in self.batch), default=-1)
        if self.is_verbatim:
            newest = verbatim.exact_version(self.batch[0]) - 1
        return newest > self.state.version

    @property
    def _oldest_read(self) -> int:
        return min(one.read_version for one in self.batch)
