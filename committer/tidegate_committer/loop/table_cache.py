"""A table's state as read from its log, and the reads of its store that are in progress.

The loop never waits for a store: loads and fetches read it in other threads, and the methods here
return nothing until the result is there.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tidegate_committer.dependencies import Dependencies
from tidegate_committer.group_commit.entry_encoding import EncodedEntry
from tidegate_committer.group_commit.fair_queue import FairQueue
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.state.log_entry import Entry, as_proposed
from tidegate_committer.state.table_state import TableState, narrowed
from tidegate_committer.state.version_history import BYTES_MAX, VERSIONS_MAX, weight, weight_of_past
from tidegate_committer.store_executor import PendingRead
from tidegate_committer.store_reads.decision_reads import DecisionRead
from tidegate_committer.store_reads.read_cache import ReadCache
from tidegate_committer.store_reads.recovery import NO_PAST, missing
from tidegate_committer.store_reads.table_loading import FETCHED_MAX, LoadedTable, VersionHistory
from tidegate_delta.errors import TidegateError
from tidegate_runtime.storage.log_store import LogStore


@dataclass
class TableCache:
    """What is in memory of a table's log, for the proposals in its queue.

    `state` is None until the log was read; `viewed_s` is when it was last known to be the head.
    `is_behind`: others are known to have written since. `unpublished` are versions that are not yet
    published to the topic `commits`. `written` is a version and when its file was written, in ms
    since the Unix epoch.
    `fetch` is the read in progress: until it ends, the state belongs to the thread that runs it,
    and the loop must not read its maps. `history` are old versions, read for the candidates that
    were set aside. `history_bytes` is how much of it the state holds; `drops_history`: the state
    is to drop it; `history_floor`: before this version the history was too large to keep.
    Units: `viewed_s`, `history_used_s` by `Clock.boot_s`.
    """

    store: LogStore
    dependencies: Dependencies
    queue: FairQueue
    state: TableState | None = None
    unpublished: list[Entry] = field(default_factory=list)
    viewed_s: float = 0.0
    is_behind: bool = False
    written: tuple[int, int] = (-1, 0)
    fetch: DecisionRead | None = None
    history: VersionHistory | None = None
    history_bytes: int = 0
    history_used_s: float = 0.0
    history_floor: int = 0
    drops_history: bool = False
    reading_history: PendingRead[VersionHistory] = field(init=False)
    loading: PendingRead[LoadedTable] = field(init=False)
    fetching: PendingRead[DecisionRead] = field(init=False)
    read_cache: ReadCache = field(init=False)

    def __post_init__(self) -> None:
        dependencies, root = self.dependencies, self.store.root
        self.loading = PendingRead(dependencies.loads, dependencies.clock, root)
        self.fetching = PendingRead(dependencies.reads, dependencies.clock, root)
        self.reading_history = PendingRead(dependencies.reads, dependencies.clock, root)
        self.read_cache = ReadCache(self.store)

    def load(self, read: Callable[[], LoadedTable]) -> bool:
        """Return whether the table is loaded; if not, start the load by `read` or take its result.

        Raises: BrokenLog; UnsupportedFeature; InvalidRequest; Misconfigured; Unavailable.
        """
        loaded = self.loading.end(read)
        if loaded is None:
            return False
        self.read_cache.forget_files()
        self.state, self.unpublished, self.viewed_s = loaded
        self.is_behind = False
        return True

    def catch_up(self) -> bool:
        """Return whether the state is at the log's head, as far as known. If others wrote, start to
        read their versions, or take the result.

        Raises: as `load`.
        """
        if self.fetch is None and self.is_behind:
            self.fetch = self.fetch_for(0, [])
        return self.fetch is None or self.has_fetched(self.fetch)

    def fetch_for(self, start: int, batch: list[Candidate]) -> DecisionRead:
        """Return a fetch for the batch at place `start` of the queue; an empty one only catches
        up.
        """
        assert self.state is not None, "what is fetched is fetched for a state"
        view = self.state, self.viewed_s, self.is_behind
        past = self.history.entries if self.history is not None else NO_PAST
        return DecisionRead(
            self.store, self.dependencies, self.read_cache, *view, start, batch, past
        )

    def has_fetched(self, fetch: DecisionRead) -> bool:
        """Return whether a fetch has ended and its result is taken; else start it or keep waiting.

        If it fails, its partial result is taken all the same. Raises: as `load`.
        """
        self.fetch = fetch
        try:
            if self.fetching.end(fetch.run) is None:
                return False
        except TidegateError:
            self._take(fetch)
            raise
        self._take(fetch)
        return True

    def forget(self) -> None:
        """Drop the cached state: the log is read again before anything is decided."""
        self.state, self.is_behind, self.written = None, False, (-1, 0)
        self.history, self.history_bytes, self.drops_history = None, 0, False
        self.queue.bring_back(0)
        self.reading_history.forget()
        self.loading.forget()
        if self.fetch is not None:
            # A thread may still be filling the old cache, so we take a new one.
            self.fetch, self.read_cache = None, ReadCache(self.store)
            self.fetching.forget()

    @property
    def waits_for(self) -> PendingRead[LoadedTable] | PendingRead[DecisionRead] | None:
        """The load or fetch in progress, or None."""
        if self.loading.answer is not None:
            return self.loading
        return self.fetching if self.fetching.answer is not None else None

    def _take(self, fetch: DecisionRead) -> None:
        self.fetch, self.state, self.viewed_s = None, fetch.state, fetch.viewed_s
        self.is_behind = fetch.is_behind
        self.unpublished += fetch.new_entries
        if fetch.written_ms is not None:
            self.written = (fetch.state.version, fetch.written_ms)
        for place, candidate in enumerate(fetch.batch, fetch.start):
            if candidate is not self.queue[place].candidate:
                self.queue.replace(place, candidate)
        if fetch.past and fetch.state.keeps_past:
            # The state holds the history by now.
            self.history = None
            self.keep_history(weight_of_past(fetch.state))

    def landed(self, encoded: EncodedEntry, state: TableState, sent_s: float) -> None:
        """Take over an entry whose PUT won, with the state after it.

        The log is known as of when that PUT was sent, not as of when it landed. Old versions are
        dropped once they are too large.
        Units: `sent_s` by `Clock.boot_s`.
        """
        self.state, self.viewed_s = state, sent_s
        self.read_cache.landed(encoded)
        self.unpublished.append(as_proposed(encoded.entry, encoded.verbatim))
        if state.keeps_past:
            passed = state.entries.get(state.version - state.window)
            self.history_bytes += weight(passed) if passed else 0
            if self.history_bytes > BYTES_MAX:
                self.drops_history = True
            self.narrow()

    def knows_last_write(self) -> bool:
        """Return whether the file time of the last version is known; if not, read it, or take the
        result.

        Raises: as `load`.
        """
        assert self.state is not None, "what is written was decided on a state"
        if self.written[0] == self.state.version:
            return True
        fetch = self.fetch_for(0, [])
        fetch.needs_file_time = True
        return self.has_fetched(fetch)

    def fetch_history(self, decided: int) -> list[Candidate]:
        """Set aside the candidates behind the first `decided` that read a very old version, until
        the versions since then are read. Return those whose missing versions are too many to keep.

        Raises: BrokenLog; Unavailable.
        """
        state, queue = self.state, self.queue
        if state is None or self.fetch is not None:
            return []
        queue.defer(decided, self.dependencies.policy.group_members_max, self._needs_history)
        if queue.deferred and (too_far := queue.remove_deferred(self._is_too_far)):
            return too_far
        if not queue.deferred:
            return []
        history = self.history = self.history or VersionHistory(self.store)
        versions = missing(
            state, min(candidate.candidate.read_version for candidate in queue.deferred)
        )
        if self.reading_history.answer is None and history.holds(versions):
            queue.bring_back(decided)
            return []
        if self.reading_history.end(lambda: history.read(versions)) is None:
            return []
        if history.is_full:
            self.history_floor, history.is_full = min(history.entries), False
        # Others may have committed meanwhile, and a candidate with an older read version may have
        # come.
        return self.fetch_history(decided)

    @property
    def fails_to_fetch_history(self) -> bool:
        """Whether reading old versions failed: the table rests or halts once no PUT is in
        flight.
        """
        future = self.reading_history.answer
        return future is not None and future.done() and future.exception() is not None

    def _needs_history(self, candidate: Candidate) -> bool:
        assert self.state is not None, "candidates are held against a state"
        versions = missing(self.state, candidate.read_version)
        if len(versions) <= FETCHED_MAX:
            return False
        return self.history is None or not self.history.holds(versions)

    def _is_too_far(self, candidate: Candidate) -> bool:
        assert self.state is not None, "candidates are held against a state"
        versions = missing(self.state, candidate.read_version)
        return versions.start < self.history_floor or len(versions) > VERSIONS_MAX

    def keep_history(self, size_bytes: int) -> None:
        """Record how much history the state holds; others make room for it (`HistoryBudget`)."""
        self.history_bytes, self.history_used_s = size_bytes, self.dependencies.clock.boot_s()
        self.dependencies.histories.keep(self)

    def drop_history(self) -> None:
        """Drop the history that the state holds, once no decision uses it."""
        self.drops_history = True
        if self.fetch is None and not self.queue:
            self.narrow()

    def narrow(self) -> None:
        """Drop the history that the state holds, if `drops_history` asks for it."""
        if self.drops_history and self.state is not None:
            self.state = narrowed(self.state)
            self.history_bytes, self.drops_history = 0, False
