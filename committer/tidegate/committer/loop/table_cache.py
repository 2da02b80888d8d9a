"""The cached state of one table: loaded from its log, kept up to date, dropped after any doubt.

Other threads read the store, never the loop: a load reads the whole table, a fetch what a decision
needs beyond the state. An answer that comes after the state was dropped is ignored.
"""

from dataclasses import dataclass, field

from tidegate.committer.background import Asked
from tidegate.committer.doors import Doors, reach
from tidegate.committer.group_commit.line import Line
from tidegate.committer.group_commit.rebase import Origin
from tidegate.committer.proposals.candidate import Candidate
from tidegate.committer.reading.fetches import Fetch
from tidegate.committer.reading.history import FETCHED_MAX, History
from tidegate.committer.reading.loading import Loaded, read, read_anew
from tidegate.committer.reading.read_cache import ReadCache
from tidegate.committer.reading.recovery import NO_PAST, missing
from tidegate.committer.tables.entries import Entry
from tidegate.committer.tables.history import VERSIONS_MAX, weight_of_past
from tidegate.committer.tables.state import TableState, narrowed
from tidegate.delta.errors import TidegateError
from tidegate.pipeline.published import TableRecord
from tidegate.runtime.stores.log_store import LogStore


@dataclass
class TableCache:
    """A table's registration, its store, its state and the line of proposals that wait for it.

    `state` is None until the log was read; `viewed_s` is when it was last known to be the head.
    `is_behind` says that others are known to have written since. `news` are versions that are not
    published in the topic `commits` yet. `is_registered` is false while the proposal that
    creates or registers the table is being settled; where it registers one, `others` are the tables
    that were registered before. `written` is a version and when its file was written, in ms since
    the Unix epoch. `fetch` is the one under way: until it is done the state belongs to the thread
    that runs it, and the loop must not look into its maps. `history` is what was read for the
    candidates that are aside; `history_bytes` what the state holds of it, `drops_history` that it
    is to be dropped, `history_floor` the version before which it was too large to be kept.
    Units: `viewed_s`, `history_used_s` by `Clock.boot_s`.
    """

    record: TableRecord
    store: LogStore
    doors: Doors
    origin: Origin
    is_registered: bool = True
    others: tuple[TableRecord, ...] = ()
    state: TableState | None = None
    news: list[Entry] = field(default_factory=list)
    viewed_s: float = 0.0
    is_behind: bool = False
    written: tuple[int, int] = (-1, 0)
    line: Line = field(default_factory=Line)
    fetch: Fetch | None = None
    history: History | None = None
    history_bytes: int = 0
    history_used_s: float = 0.0
    history_floor: int = 0
    drops_history: bool = False
    looking_back: Asked[History] = field(init=False)
    loading: Asked[Loaded] = field(init=False)
    fetching: Asked[Fetch] = field(init=False)
    read_cache: ReadCache = field(init=False)

    def __post_init__(self) -> None:
        doors, root = self.doors, self.store.root
        self.loading = Asked(doors.loads, doors.clock, root)
        self.fetching = Asked(doors.reads, doors.clock, root)
        self.looking_back = Asked(doors.reads, doors.clock, root)
        self.read_cache = ReadCache(self.store)

    def load(self) -> bool:
        """Return whether the table is loaded; if not, start the load or take its result.

        Raises: BrokenLog; UnsupportedFeature; InvalidRequest; Misconfigured; Unavailable.
        """
        loaded = self.loading.end(self._read)
        if loaded is None:
            return False
        self.read_cache.forget_files()
        self.state, self.news, self.viewed_s = loaded
        self.is_behind = False
        reach("after_load", self.record.name)
        return True

    def catch_up(self) -> bool:
        """Return whether the state is at the log's head, as far as known; if others wrote, start to
        read what they did, or take the result.

        Raises: as `load`.
        """
        if self.fetch is None and self.is_behind:
            self.fetch = self.fetch_for(0, [])
        return self.fetch is None or self.has_fetched(self.fetch)

    def ensure_current(self) -> bool:
        """Return whether the state is there, young enough, and at the log's head; if not, start to
        read what is missing, or take the result.

        A batch whose fetch is under way is decided on that: its state was young when it began.
        Raises: as `load`.
        """
        if self.fetch is not None and self.fetch.batch:
            return True
        age_s = self.doors.clock.boot_s() - self.viewed_s
        if self.state is not None and age_s > self.doors.settings.view_age_max_s:
            self.forget()
        return self.catch_up() if self.state is not None else self.load()

    def fetch_for(self, start: int, batch: list[Candidate]) -> Fetch:
        """Return the fetch for the batch at place `start` of the line; an empty one catches up."""
        assert self.state is not None, "what is fetched is fetched for a state"
        seen = self.state, self.viewed_s, self.is_behind
        past = self.history.entries if self.history is not None else NO_PAST
        return Fetch(self.store, self.doors, self.read_cache, *seen, start, batch, past)

    def has_fetched(self, fetch: Fetch) -> bool:
        """Return whether a fetch is done and its result taken; if not, start it or go on waiting.

        Where it fails, what it had read until then is taken all the same. Raises: as `load`.
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
        """Drop the cached state: the log is read anew before anything is decided."""
        self.state, self.is_behind, self.written = None, False, (-1, 0)
        self.history, self.history_bytes, self.drops_history = None, 0, False
        self.line.bring_back(0)
        self.looking_back.forget()
        self.loading.forget()
        if self.fetch is not None:
            # A thread may still be filling the old cache: it keeps that one, we take a new one.
            self.fetch, self.read_cache = None, ReadCache(self.store)
            self.fetching.forget()

    @property
    def waits_for(self) -> Asked[Loaded] | Asked[Fetch] | None:
        """The load or fetch for which the store is being read, or None."""
        if self.loading.answer is not None:
            return self.loading
        return self.fetching if self.fetching.answer is not None else None

    def _read(self) -> Loaded:
        if self.is_registered:
            return read(self.store, self.doors, self.record)
        return read_anew(self.store, self.doors, self.record, self.others)

    def _take(self, fetch: Fetch) -> None:
        self.fetch, self.state, self.viewed_s = None, fetch.state, fetch.viewed_s
        self.is_behind = fetch.is_behind
        self.news += fetch.news
        if fetch.written_ms is not None:
            self.written = (fetch.state.version, fetch.written_ms)
        for place, candidate in enumerate(fetch.batch, fetch.start):
            if candidate is not self.line[place].candidate:
                self.line.replace(place, candidate)
        if fetch.past and fetch.state.keeps_past:
            # The state holds it now.
            self.history = None
            self.keep_history(weight_of_past(fetch.state))

    def look_back(self, decided: int) -> list[Candidate]:
        """Let the candidates behind the first `decided` that read a version of long ago wait aside
        until the versions since then were read; return those for whom these are too many to keep.

        Raises: BrokenLog; Unavailable.
        """
        state, line = self.state, self.line
        if state is None or self.fetch is not None or not self.is_registered:
            return []
        line.set_aside(decided, self.doors.policy.group_members_max, self._needs_history)
        if line.aside and (too_far := line.remove_aside(self._is_too_far)):
            return too_far
        if not line.aside:
            return []
        history = self.history = self.history or History(self.store)
        wanted = missing(state, min(one.candidate.read_version for one in line.aside))
        if self.looking_back.answer is None and history.holds(wanted):
            line.bring_back(decided)
            return []
        if self.looking_back.end(lambda: history.read(wanted)) is None:
            return []
        if history.is_full:
            self.history_floor, history.is_full = min(history.entries), False
        # Others committed meanwhile, and one may have come that read an older version still.
        return self.look_back(decided)

    def _needs_history(self, candidate: Candidate) -> bool:
        assert self.state is not None, "candidates are held against a state"
        needed = missing(self.state, candidate.read_version)
        if len(needed) <= FETCHED_MAX:
            return False
        return self.history is None or not self.history.holds(needed)

    def _is_too_far(self, candidate: Candidate) -> bool:
        assert self.state is not None, "candidates are held against a state"
        needed = missing(self.state, candidate.read_version)
        return needed.start < self.history_floor or len(needed) > VERSIONS_MAX

    def keep_history(self, size_bytes: int) -> None:
        """Note how much of the past the state holds; others make room for it (`Histories`)."""
        self.history_bytes, self.history_used_s = size_bytes, self.doors.clock.boot_s()
        self.doors.histories.keep(self)

    def drop_history(self) -> None:
        """Drop the past that the state holds, once nothing is decided on it."""
        self.drops_history = True
        if self.fetch is None and not self.line:
            self.narrow()

    def narrow(self) -> None:
        """Drop the past that the state holds, where that was asked for."""
        if self.drops_history and self.state is not None:
            self.state = narrowed(self.state)
            self.history_bytes, self.drops_history = 0, False
