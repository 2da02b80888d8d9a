"""One table as it is remembered: read from its log, kept up with it, forgotten after any doubt.

The store is asked aside, never by the loop: a load reads the table whole, a fetch what a decision
needs besides. What comes after the table was forgotten is not looked at.
"""

from dataclasses import dataclass, field

from tidegate.committer.background import Asked
from tidegate.committer.doors import Doors, reach
from tidegate.committer.group_commit.line import Line
from tidegate.committer.group_commit.rebase import Origin
from tidegate.committer.proposals.candidate import Candidate
from tidegate.committer.reading.fetches import Fetch
from tidegate.committer.reading.loading import Loaded, read, read_anew
from tidegate.committer.reading.read_cache import ReadCache
from tidegate.committer.tables.entries import Entry
from tidegate.committer.tables.state import TableState
from tidegate.delta.errors import TidegateError
from tidegate.pipeline.published import TableRecord
from tidegate.runtime.stores.log_store import LogStore


@dataclass
class TableCache:
    """Its registration, its store, what its log says, and who waits for more of it.

    `news` are versions that stand in the log and have not been told. `is_registered` is false while
    the proposal that creates the table, or registers it, is being settled; `others` are the tables
    then that were registered before one that is to be taken as it stands. Where it `is_behind`
    others have written. `fetch` is under way where it is there: until it is done the state is the
    thread's that runs it, and nobody here looks into its maps. `written` is when the file of a
    version was written, in ms since the Unix epoch.
    Units: `viewed_s` by `Clock.boot_s`.
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
    loading: Asked[Loaded] = field(init=False)
    fetching: Asked[Fetch] = field(init=False)
    read_cache: ReadCache = field(init=False)

    def __post_init__(self) -> None:
        doors, root = self.doors, self.store.root
        self.loading = Asked(doors.loads, doors.clock, root)
        self.fetching = Asked(doors.reads, doors.clock, root)
        self.read_cache = ReadCache(self.store)

    def load(self) -> bool:
        """Return whether the table is remembered; where it is not, have it read, and go on.

        Raises: BrokenLog; UnsupportedFeature; InvalidRequest; Misconfigured; Unavailable.
        """
        loaded = self.loading.end(self._read)
        if loaded is None:
            return False
        self.read_cache.forget_files()
        self.state, self.news, self.viewed_s = loaded
        self.is_behind = False
        reach("after_load")
        return True

    def catch_up(self) -> bool:
        """Return whether it is known how the log ends; where others wrote, have it read, and go on.

        Raises: as `load`.
        """
        if self.fetch is None and self.is_behind:
            self.fetch = self.fetch_for(0, [])
        return self.fetch is None or self.runs(self.fetch)

    def is_at_hand(self) -> bool:
        """Whether what is remembered is young enough, and how the log ends; else have it read.

        What was fetched for a batch is decided on as it is: it was young when it was asked for.
        Raises: as `load`.
        """
        if self.fetch is not None and self.fetch.batch:
            return True
        age_s = self.doors.clock.boot_s() - self.viewed_s
        if self.state is not None and age_s > self.doors.settings.view_age_max_s:
            self.forget()
        return self.catch_up() if self.state is not None else self.load()

    def fetch_for(self, start: int, batch: list[Candidate]) -> Fetch:
        """Return what may have to be fetched for a batch of the line, or for nobody."""
        assert self.state is not None, "what is fetched is fetched for a state"
        seen = self.state, self.viewed_s, self.is_behind
        return Fetch(self.store, self.doors, self.read_cache, *seen, start, batch)

    def runs(self, fetch: Fetch) -> bool:
        """Return whether a fetch is done; have it done, and go on.

        What it brings is taken, even where it fails in the midst. Raises: as `load`.
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
        """Drop what is remembered: the log is asked anew before anything is decided."""
        self.state, self.is_behind, self.written = None, False, (-1, 0)
        self.loading.forget()
        if self.fetch is not None:
            # A thread may be at it, and go on with what it was given.
            self.fetch, self.read_cache = None, ReadCache(self.store)
            self.fetching.forget()

    @property
    def waits_for(self) -> Asked[Loaded] | Asked[Fetch] | None:
        """What the store is being asked, or None."""
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
