"""The read cache: what was read of a table for decisions (`FetchedInputs`), kept while it is valid.

The rows of a deletion vector never change; the add action of a live file is valid until a version
names the file. The rows of vectors that we write are kept without reading them from the store.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, TypeVar

from tidegate_committer.conflicts.concurrent_appends import VERSIONS_MAX
from tidegate_committer.decision.required_reads import RequiredReads, wanted
from tidegate_committer.group_commit.entry_encoding import EncodedEntry
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_actions import canonical
from tidegate_committer.policy import Policy
from tidegate_committer.state.fetched_inputs import (
    NO_VECTOR,
    FetchedInputs,
    Growth,
    ReplacedFile,
    key_of,
)
from tidegate_committer.state.log_entry import Entry
from tidegate_committer.state.table_state import TableState
from tidegate_committer.store_reads.recovery import whole_table
from tidegate_delta.deletion_vectors.roaring_bitmap import NO_ROWS, Bitmap, memory_bytes
from tidegate_delta.errors import BrokenLog, InvalidRequest, Unavailable, UnsupportedFeature
from tidegate_delta.log.actions import Add, DeletionVector
from tidegate_delta.log.file_paths import canonical_paths
from tidegate_delta.snapshots.file_action_columns import rows_to_adds
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.deletion_vector_reader import read_vector
from tidegate_runtime.table_io.open_table import read_commit

FILES_MAX: Final = 10_000
VECTOR_BYTES_MAX: Final = 32 * 1024 * 1024

ROUNDS_MAX: Final = 4
"""How many reads may follow from one another: a file, then its vector, then a pair of vectors."""

K = TypeVar("K")
V = TypeVar("V")


class ReadCache:
    """What was read of one table besides its state."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._files: dict[str, Add] = {}
        self._rows: dict[str, Bitmap | str] = {}
        self._growths: dict[Growth, bool] = {}
        self._adds: dict[int, Sequence[Add]] = {}
        self._replaced: dict[ReplacedFile, Add | None] = {}
        self._keeps_adds = False
        self._unreadable: set[str] = set()
        self._held = 0

    @property
    def known(self) -> FetchedInputs:
        """All of it, in the form that a decision takes."""
        return FetchedInputs(self._files, self._rows, self._growths, self._adds, self._replaced)

    def lacks(self, state: TableState, batch: Sequence[Candidate], policy: Policy) -> bool:
        """Return whether deciding a batch needs something that was not read."""
        self._forget_unreadable()
        return bool(wanted(state, batch, self.known, policy.vector_bytes_max))

    def learn(self, state: TableState, batch: Sequence[Candidate], policy: Policy) -> FetchedInputs:
        """Read what deciding a batch needs.

        Raises: BrokenLog; Unavailable.
        """
        self._forget_unreadable()
        for _ in range(ROUNDS_MAX):
            reads = wanted(state, batch, self.known, policy.vector_bytes_max)
            if not reads:
                break
            self._read(state, reads)
        else:
            raise AssertionError(f"{ROUNDS_MAX} rounds of reading left something unknown")
        return self.known

    def landed(self, encoded: EncodedEntry) -> None:
        """Add what our own entry wrote, and drop what it replaced."""
        self._take(encoded)
        self._bound()

    def _take(self, encoded: EncodedEntry) -> None:
        self._overtake(encoded.entry)
        merged = encoded.merged
        self._files |= merged.files
        for key, rows in merged.rows.items():
            self._keep(key, rows)
        if self._keeps_adds:
            self._adds[encoded.entry.version] = encoded.adds
        self._growths |= {
            (key_of(revision.before), key_of(revision.after)): True
            for revision in merged.revised.values()
        }

    def after(self, encoded: EncodedEntry) -> FetchedInputs:
        """Return what the cache will hold once our entry has landed."""
        later = ReadCache(self._store)
        later._files, later._rows = dict(self._files), dict(self._rows)
        later._growths, later._adds = dict(self._growths), dict(self._adds)
        later._replaced, later._keeps_adds = dict(self._replaced), self._keeps_adds
        later._take(encoded)
        return later.known

    def overtaken(self, entries: Iterable[Entry]) -> None:
        """Drop the files that other writers' versions name, and what exceeds the limits."""
        for entry in entries:
            self._overtake(entry)
        self._bound()

    def _overtake(self, entry: Entry) -> None:
        for path in (*entry.removed, *(path for path, _ in entry.added)):
            self._files.pop(path, None)

    def _keep(self, key: str, rows: Bitmap | str) -> None:
        if key not in self._rows:
            self._rows[key] = rows
            self._held += _size(rows)
            if isinstance(rows, str):
                self._unreadable.add(key)

    def _forget_unreadable(self) -> None:
        """Drop the record of unreadable files: they may be readable by now."""
        for key in self._unreadable:
            self._held -= _size(self._rows.pop(key, ""))
        if self._unreadable:
            known = self._growths.items()
            self._growths = {
                pair: grew for pair, grew in known if self._unreadable.isdisjoint(pair)
            }
        self._unreadable.clear()

    def _bound(self) -> None:
        """Drop the oldest entries beyond the limits."""
        _drop(self._files, len(self._files) - FILES_MAX)
        _drop(self._growths, len(self._growths) - FILES_MAX)
        _drop(self._adds, len(self._adds) - VERSIONS_MAX)
        _drop(self._replaced, len(self._replaced) - FILES_MAX)
        if self._held > VECTOR_BYTES_MAX:
            _drop(self._rows, len(self._rows) // 2 + 1)
            self._held = sum(map(_size, self._rows.values()))

    def forget_files(self) -> None:
        """Drop add actions: the table was loaded again, and they may have changed."""
        self._files.clear()

    def _read(self, state: TableState, reads: RequiredReads) -> None:
        for version in sorted(reads.versions):
            self._keeps_adds = True
            read = read_commit(self._store, version)
            self._adds[version] = read[0].adds if read else ()
        if reads.files:
            self._files |= self._find(state, state.version, reads.files)
        for version in sorted({version for _, version in reads.replaced}):
            self._replaced |= self._found_before(state, version, reads.replaced)
        for key, vector in reads.vectors.items():
            self._keep(key, self._rows_of(vector))
        for pair in reads.growths:
            self._growths[pair] = self._grew(pair)

    def _found_before(
        self, state: TableState, version: int, files: Iterable[ReplacedFile]
    ) -> dict[ReplacedFile, Add | None]:
        """Return the files that a version replaced, as they were before it, as far as the log still
        says.
        """
        paths = frozenset(path for path, replaced_at in files if replaced_at == version)
        try:
            adds: Mapping[str, Add] = self._find(state, version - 1, paths)
        except (BrokenLog, InvalidRequest, UnsupportedFeature):
            # Whether older versions can be read does not matter to the table at the head.
            adds = {}
        return {(path, version): adds.get(path) for path in paths}

    def _find(self, state: TableState, head: int, paths: frozenset[str]) -> dict[str, Add]:
        """Return add actions of files that are live in a version, from the versions that added
        them, else from a snapshot.
        """
        adds_by_path: dict[str, Add] = {}
        left, cleaned = set(paths), set[str]()
        for version in range(head, state.window_start - 1, -1):
            added_here = {path for path, _ in state.entries[version].added if path in left}
            if added_here:
                adds_here = self._added_by(version, added_here)
                adds_by_path |= adds_here
                left -= added_here
                cleaned |= added_here - adds_here.keys()
            if not left:
                break
        left |= cleaned
        if left:
            with whole_table(self._store, head) as table:
                paths_there = canonical_paths(table.files["path"]).to_pylist()
                places = [index for index, path in enumerate(paths_there) if path in left]
                adds = rows_to_adds(table.files.take(places))
            adds_by_path |= {canonical(add.path): add for add in adds}
        missing = paths - adds_by_path.keys()
        assert not missing, f"{missing} are live and nowhere in the log"
        return adds_by_path

    def _added_by(self, version: int, paths: Iterable[str]) -> dict[str, Add]:
        """Return a version's add actions for some paths; none if its file has been cleaned up."""
        read = read_commit(self._store, version)
        if read is None:
            return {}
        adds = {canonical(add.path): add for add in read[0].adds}
        return {path: adds[path] for path in paths if path in adds}

    def _rows_of(self, vector: DeletionVector) -> Bitmap | str:
        try:
            return read_vector(self._store, vector)
        except (BrokenLog, UnsupportedFeature) as error:
            return str(error)
        except Unavailable as error:
            if not isinstance(error.__cause__, PermissionError):
                raise
            # For a single file no retry helps, and all proposals for the table would wait for it.
            return str(error)

    def _grew(self, pair: Growth) -> bool:
        rows = {NO_VECTOR: NO_ROWS, **self._rows}
        before, after = rows.get(pair[0]), rows.get(pair[1])
        if not (isinstance(before, Bitmap) and isinstance(after, Bitmap)):
            return False
        return before <= after


def _size(rows: Bitmap | str) -> int:
    if isinstance(rows, str):
        return len(rows)
    return memory_bytes(rows)


def _drop(kept: dict[K, V], excess: int) -> None:
    """Drop the oldest `excess` items."""
    for key in list(islice(kept, max(excess, 0))):
        del kept[key]
