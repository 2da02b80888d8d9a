"""Fetches: what a decision needs of the store beyond what is remembered, fetched aside.

What others wrote, versions of long ago, the actions that claims name, the rows of vectors: the loop
goes on meanwhile. Once all is there the decision follows at once, on what the fetch has brought.
"""

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
    """What is fetched before a batch is decided on, from place `start` of the line on; a batch of
    nobody is fetched for itself. `state` and all below it are as far as it has come.

    A thread fills it in, and the desk looks into it once that is done. With it goes the read_cache.
    `is_behind` says that others are known to have written, `asks_when` that it must be known when
    the last version was written.
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
    asks_when: bool = False
    news: list[Entry] = field(default_factory=list)
    content: bytes | None = None
    written_ms: int | None = None

    @property
    def is_verbatim(self) -> bool:
        """Whether it is for ready bytes: alone."""
        return bool(self.batch) and self.batch[0].is_verbatim

    @property
    def is_needed(self) -> bool:
        """Whether the store has to be asked; most batches need nothing of it."""
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
        """Fetch it all. Raises: BrokenLog; UnsupportedFeature; InvalidRequest; Unavailable."""
        if self.is_behind or self._is_ahead():
            self._look()
        if self.asks_when:
            self.written_ms = recovery.written_ms(self.store, self.state.version)
        if self.is_verbatim:
            self._fetch_bytes(self.batch[0])
        elif self.batch:
            self._fetch()
        return self

    def _look(self) -> None:
        """REBASE, and the look at an idle table: learn what others wrote."""
        began_s = self.doors.clock.boot_s()
        self.state, news = recovery.refresh(self.store, self.state)
        self.read_cache.overtaken(news)
        self.news += news
        self.viewed_s, self.is_behind = began_s, False

    def _fetch(self) -> None:
        self.state = recovery.reach_back(self.store, self.state, self._oldest_read)
        for place, candidate in enumerate(self.batch):
            if intake.needs_claim(candidate):
                content = read_claim(self.store, candidate.claim)
                self.batch[place] = intake.with_claim(candidate, content, self.doors.policy)
        self.state = recovery.complete(self.store, self.state, self.batch)
        self.read_cache.learn(self.state, self.batch, self.doors.policy)

    def _fetch_bytes(self, candidate: Candidate) -> None:
        self.state = recovery.reach_back(self.store, self.state, self._oldest_read)
        if verbatim.needs_bytes(self.state, candidate):
            self.content = read_claim(self.store, candidate.claim)

    def _is_ahead(self) -> bool:
        """Whether somebody has read a version, or would write one, that is not known of."""
        newest = max((one.read_version for one in self.batch), default=-1)
        if self.is_verbatim:
            newest = verbatim.exact_version(self.batch[0]) - 1
        return newest > self.state.version

    @property
    def _oldest_read(self) -> int:
        return min(one.read_version for one in self.batch)
