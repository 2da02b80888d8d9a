"""Recovery: builds a table's state from its log, at a start and after any doubt.

The registry only says up to which version records were published; the table's log is the truth.
Most functions here read the store, in a thread beside the loop.

Large tables are opened one at a time in each store, because each may take much memory. Threads wait
here for others of the same store only.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import takewhile
from threading import RLock
from typing import Final
from uuid import UUID

from tidegate_committer.admission.table_change_checks import depends_on_row_ids
from tidegate_committer.conflicts.rebase import wanted_in_full
from tidegate_committer.decision.machine import VersionLanded, evolve
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.identity_leases import LeasedBlocks
from tidegate_committer.intake.proposal_actions import canonical, vector_text
from tidegate_committer.persistent_map import PersistentMap
from tidegate_committer.state.live_files import LiveFiles
from tidegate_committer.state.log_entry import Entry, as_proposed, entry_of
from tidegate_committer.state.table_definition import TableDefinition, table_definition_after
from tidegate_committer.state.table_state import (
    DecidedProposal,
    RowIds,
    TableDefinitions,
    TableState,
    bounded,
    decisions_of,
    ever_written_by_us,
    in_commit_timestamp,
    leased_by,
    with_full_adds,
)
from tidegate_committer.store_executor import store_of
from tidegate_delta.errors import BrokenLog, InvalidRequest
from tidegate_delta.features.row_tracking import (
    FEATURE,
    NO_HIGH_WATER_MARK,
    high_water_mark,
    supports,
)
from tidegate_delta.features.supported_features import check_writable
from tidegate_delta.log.commit import sha256
from tidegate_delta.log.file_names import (
    LOG_FOLDER,
    STAGED_FOLDER,
    commit_name,
    in_log,
    staged_version,
)
from tidegate_delta.log.file_paths import unusual_in
from tidegate_delta.snapshots.snapshot import LiveKeys, Snapshot
from tidegate_delta.value_limits import TIMESTAMP_MAX
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.storage.overwrite_detection import SERVE_ANEW, check_not_overwritten
from tidegate_runtime.table_io.deletion_vector_reader import live_rows
from tidegate_runtime.table_io.log_reader import read_each
from tidegate_runtime.table_io.open_table import (
    decode_commit,
    log_extent,
    open_keys,
    open_snapshot,
    read_commit,
)
from tidegate_runtime.table_io.row_ids import files_with_row_ids, files_without_row_ids

LARGE_BYTES: Final = 4 << 20
"""A log that takes more to open, or an unknown number of bytes, is that of a large table: of these
one is loaded at a time in each store. The table may have tens of thousands of files.
"""

TURN_MAX_S: Final = 60.0
"""How long a thread waits for its turn at a large table: whoever has it may never end."""

_TURNS: Final[dict[str, RLock]] = {}


@contextmanager
def whole_table(store: LogStore, version: int) -> Iterator[Snapshot]:
    """Open a version of a table with all its files, for the time of the `with` block.

    Raises: BrokenLog; UnsupportedFeature; InvalidRequest; Unavailable.
    """
    with _alone(store):
        yield open_snapshot(store, version)


@contextmanager
def _alone(store: LogStore) -> Iterator[None]:
    """Let one thread of a store at a time run the `with` block; it may nest."""
    turn = _TURNS.setdefault(store_of(store.root), RLock())
    has_turn = turn.acquire(timeout=TURN_MAX_S)
    try:
        yield
    finally:
        if has_turn:
            turn.release()


REPUBLISHED_MAX: Final = 10_000
"""The most versions that are published again for a table whose registration was lost."""

NO_PAST: Final[Mapping[int, Entry]] = {}

FILES_MAX: Final = 1_024
"""How many files' deletion vectors are Python objects at once while a table is loaded."""


def load(store: LogStore, table: UUID, window: int) -> TableState:
    """Return the state at the head of a table's log, with its last entry; version -1: no table.

    Raises: BrokenLog; UnsupportedFeature; Unavailable.
    """
    extent = log_extent(store)
    if extent.is_empty:
        return TableState(table, store.root, window)
    is_large = extent.opened_bytes is None or extent.opened_bytes > LARGE_BYTES
    with _alone(store) if is_large else nullcontext():
        snapshot = open_keys(store)
        check_writable(snapshot.protocol, snapshot.metadata, store.root)
        state = replace(
            _remembered(store, TableState(table, store.root, window), snapshot),
            oldest=extent.oldest_commit or 0,
        )
    state = reach_back(store, state, max(snapshot.version - 1, state.oldest - 1))
    return _check_timestamp_limit(store, state)


def check_published(store: LogStore, state: TableState, record: TableRecord) -> None:
    """Check that the log holds the last published version, with the same bytes.

    Raises: BrokenLog (`LogGap`, `CorruptCommit`); Unavailable.
    """
    check_not_overwritten(store, record.overwritten)
    published_through = record.published_through
    if state.version < max(published_through, 0):
        raise BrokenLog(
            f"the log of {store.root} ends at version {state.version}, but version "
            f"{max(published_through, 0)} was published: restore the missing files, "
            f"or {SERVE_ANEW}",
            error_class="LogGap",
        )
    published_entry = state.entries.get(published_through)
    if published_entry is not None and record.sha256 not in (None, published_entry.sha256):
        raise BrokenLog(
            f"version {published_through} of {store.root} is not the file that was published: "
            "somebody overwrote it, or made another table in the folder; compare it with a backup "
            f"before anything is written, or {SERVE_ANEW}",
            error_class="CorruptCommit",
        )


def refresh(store: LogStore, state: TableState) -> tuple[TableState, tuple[Entry, ...]]:
    """Return the state at the log's head, and the versions read to get there.

    Raises: BrokenLog; UnsupportedFeature; Unavailable.
    """
    new_entries: list[Entry] = []
    while (entry := read_entry(store, state.version + 1)) is not None:
        if state.version < 0 and None in (entry.protocol, entry.metadata):
            problem = "does not say both protocol and metaData, as a table's first version must"
            raise BrokenLog(
                f"version 0 of {store.root} {problem}: remove it, or use another folder"
            )
        state = evolve(state, VersionLanded(entry))
        if entry.changes_table:
            check_writable(
                state.table_definition.protocol, state.table_definition.metadata, store.root
            )
        new_entries.append(entry)
    return _check_timestamp_limit(store, state), tuple(new_entries)


def reach_back(
    store: LogStore, state: TableState, read_version: int, past: Mapping[int, Entry] = NO_PAST
) -> TableState:
    """Return the state with the entries of all versions after `read_version` that the log holds.

    If some are missing, `oldest` says so. `past` are entries that were read earlier; if there are
    any, the state keeps every entry that it reached.
    Raises: BrokenLog; Unavailable.
    """
    versions = missing(state, read_version)
    if not versions:
        return state
    earlier = entries(store, versions, past)
    start = state.window_start - len(earlier)
    table_definitions = _table_definitions(store, state, earlier, start)
    timestamp = max(state.timestamp, *(entry.timestamp or 0 for entry in earlier), 0)
    if table_definitions is None:
        return replace(state, oldest=state.window_start, timestamp=timestamp)
    decided: dict[UUID, DecidedProposal] = {}
    for entry in earlier:
        decided |= decisions_of(entry, state.decisions)
    own_rules = [entry.provenance.rules for entry in earlier if entry.provenance]
    extended = replace(
        state,
        table_definitions=table_definitions,
        entries=state.entries.changed({entry.version: entry for entry in earlier}),
        decisions=state.decisions.changed(decided),
        window_start=start,
        oldest=state.oldest if len(earlier) == len(versions) else start,
        rules=own_rules[-1] if state.rules is None and own_rules else state.rules,
        timestamp=timestamp,
        mark_before=_mark_before(state, earlier, start),
        keeps_past=state.keeps_past or bool(past),
    )
    extended = _with_leases(extended, earlier)
    return bounded(extended) if any(entry.moved for entry in earlier) else extended


def complete(store: LogStore, state: TableState, batch: Sequence[Candidate]) -> TableState:
    """Return the state with what row tracking needs for a batch, beyond entries.

    Raises: BrokenLog; UnsupportedFeature; Unavailable.
    """
    if not state.table_definitions:
        return state
    if _unsearched(state, batch):
        versions = {
            candidate.read_version for candidate in batch if depends_on_row_ids(candidate, state)
        }
        row_ids = {version: _row_ids(store, version) for version in sorted(versions)}
        state = replace(state, row_ids=row_ids)
    if not _may_number_rows(state, batch):
        return state
    for version in _unread(state, batch):
        read = read_commit(store, version)
        if read is None:
            return replace(state, oldest=version + 1)
        state = with_full_adds(state, [read[0]])
    if state.mark_before is None and any(candidate.content.has_row_ids for candidate in batch):
        return replace(state, mark_before=_row_mark(store, state.window_start - 1))
    return state


def lacks(state: TableState, batch: Sequence[Candidate]) -> bool:
    """Return whether a batch needs more than the state holds: what `complete` would read."""
    if not state.table_definitions:
        return False
    if _unsearched(state, batch):
        return True
    if not _may_number_rows(state, batch):
        return False
    unknown = state.mark_before is None and any(
        candidate.content.has_row_ids for candidate in batch
    )
    return unknown or bool(_unread(state, batch))


def is_short(state: TableState, read_version: int) -> bool:
    """Return whether entries after `read_version` are missing that the log may still hold."""
    return max(read_version + 1, state.oldest) < state.window_start


def missing(state: TableState, read_version: int) -> range:
    """Return the versions after `read_version` that are missing and the log may still hold."""
    return range(max(read_version + 1, state.oldest), state.window_start)


def written_ms(store: LogStore, version: int) -> int:
    """Return when the file of a version was written, in ms since the Unix epoch.

    Raises: BrokenLog, if it is missing; Unavailable.
    """
    for file in store.list_from(LOG_FOLDER, commit_name(version)):
        if file.path == in_log(commit_name(version)):
            return file.modified_ms
        break
    raise BrokenLog(
        f"{commit_name(version)} of {store.root} is gone while the table is written to: restore it",
        error_class="LogGap",
    )


def read_entry(store: LogStore, version: int) -> Entry | None:
    """Return the entry of a version, or None if there is none.

    Raises: BrokenLog, for a torn or foreign file under the name; Unavailable.
    """
    read = read_commit(store, version)
    if read is None:
        return None
    commit, content = read
    return entry_of(commit, sha256(content), len(content))


def read_entries(store: LogStore, versions: Sequence[int]) -> Iterator[Entry | None]:
    """Yield the entries of versions, in the order given, or None for one that there is not.

    Raises: as `read_entry`, in its turn.
    """
    contents = read_each(store, map(commit_name, versions))
    for version, content in zip(versions, contents, strict=True):
        if content is None:
            yield None
        else:
            yield entry_of(decode_commit(store, version, content), sha256(content), len(content))


def entries(store: LogStore, versions: range, past: Mapping[int, Entry] = NO_PAST) -> list[Entry]:
    """Return the entries of some versions, ascending, from after the last missing one on.

    `past` are some that were read earlier. Raises: BrokenLog, for a torn or foreign file;
    Unavailable.
    """
    read = read_entries(store, [version for version in reversed(versions) if version not in past])
    found = (past[version] if version in past else next(read) for version in reversed(versions))
    contiguous = [entry for entry in takewhile(lambda entry: entry is not None, found) if entry]
    return contiguous[::-1]


def counts_as_published(state: TableState) -> int:
    """Return up to which version an unregistered table counts as published. For a log that no
    committer wrote, that is its head.
    """
    return max(-1, state.version - (REPUBLISHED_MAX if ever_written_by_us(state) else 0))


def unpublished(store: LogStore, state: TableState, published_through: int) -> list[Entry]:
    """Return the entries after a published version, ascending. Raises: as `entries`."""
    # The state's window begins later if the table definition before it can no longer be read.
    below = entries(store, range(published_through + 1, state.window_start))
    return [*below, *state.since(max(published_through, state.window_start - 1))]


def as_they_came(store: LogStore, new_entries: Sequence[Entry]) -> list[Entry]:
    """Return versions that are to be published, with the verbatim proposals that brought them.

    Their bytes do not say so. But the staged file is there until its writer has the outcome. Other
    engines' commits without a txnId are nobody's proposals: delta-spark and its kernels have one.
    Raises: Unavailable.
    """
    unknown = {
        entry.version: entry
        for entry in new_entries
        if entry.is_past_the_gate and entry.txn_id is not None
    }
    if not unknown:
        return [*new_entries]
    known = dict[int, UUID]()
    for file in store.list_from(in_log(STAGED_FOLDER), ""):
        name = file.path.rpartition("/")[2]
        version = staged_version(name)
        entry = unknown.get(version) if version is not None else None
        if entry is None or file.size != entry.size:
            continue
        content = store.read(file.path)
        if content is not None and sha256(content) == entry.sha256:
            known[entry.version] = UUID(name.split(".")[1])
    return [as_proposed(entry, known.get(entry.version)) for entry in new_entries]


def _check_timestamp_limit(store: LogStore, state: TableState) -> TableState:
    """Return the state, if a version with a later timestamp can follow its last one.

    Raises: BrokenLog, if the last in-commit timestamp is the greatest possible.
    """
    last_ms = in_commit_timestamp(state)
    if last_ms is None or last_ms < TIMESTAMP_MAX:
        return state
    raise BrokenLog(
        f"{commit_name(state.version)} of {store.root} has an in-commit timestamp past "
        f"{TIMESTAMP_MAX} ms, the latest that a version can have, and the next one must be later: "
        "turn delta.enableInCommitTimestamps off by another writer, or restore the log",
        error_class="CorruptCommit",
    )


def _table_definitions(
    store: LogStore, state: TableState, earlier: list[Entry], start: int
) -> TableDefinitions | None:
    """Return metadata and protocol from version `start` - 1 on; None if no longer readable."""
    if not any(entry.concerns_all for entry in earlier):
        return ((start - 1, state.table_definitions[0][1]), *state.table_definitions[1:])
    changes = [entry for entry in earlier if entry.concerns_all]
    if start == 0:
        table_definitions: TableDefinitions = ()
    else:
        try:
            with whole_table(store, start - 1) as before:
                table_definitions = (
                    (start - 1, TableDefinition(before.metadata, before.protocol)),
                )
        except (BrokenLog, InvalidRequest):
            return None
    for entry in changes:
        last = table_definitions[-1][1] if table_definitions else None
        table_definitions = (
            *table_definitions,
            (entry.version, table_definition_after(last, entry.metadata, entry.protocol)),
        )
    return (*table_definitions, *state.table_definitions[1:])


def _may_number_rows(state: TableState, batch: Sequence[Candidate]) -> bool:
    """Return whether row ids may matter: the table tracks rows, or a proposal may change that."""
    if FEATURE in state.table_definition.features:
        return True
    return any(candidate.changes_definition or candidate.is_unbackfill for candidate in batch)


def _unread(state: TableState, batch: Sequence[Candidate]) -> list[int]:
    """Return the versions whose added files some proposals need in full."""
    since = max(min(candidate.read_version for candidate in batch), state.window_start - 1)
    winners = list(state.since(since))
    return sorted(
        {version for candidate in batch for version in wanted_in_full(candidate, winners)}
    )


def _unsearched(state: TableState, batch: Sequence[Candidate]) -> bool:
    """Return whether a read version must still be searched for files with and without row ids."""
    known = state.row_ids
    return any(
        candidate.read_version not in known and depends_on_row_ids(candidate, state)
        for candidate in batch
    )


def _row_ids(store: LogStore, version: int) -> RowIds:
    """Return which files of a version carry row ids, and which lack them."""
    try:
        with whole_table(store, version) as table:
            with_ids, example_with = files_with_row_ids(table.files)
            without_ids, example_without = files_without_row_ids(table.files)
    except (BrokenLog, InvalidRequest):
        unknown = (
            f"version {version} can't be read any more, so nobody knows which files carry row ids"
        )
        return RowIds(unknown, unknown)
    return RowIds(
        f"{with_ids} files carry row ids, {example_with!r} is one" if with_ids else "",
        f"{without_ids} files carry no row ids, {example_without!r} is one" if without_ids else "",
    )


def _row_mark(store: LogStore, version: int) -> int | None:
    """Return the high-water mark of row ids at a version, or None if that is no longer readable."""
    try:
        with whole_table(store, version) as table:
            return high_water_mark(table.domains)
    except (BrokenLog, InvalidRequest):
        return None


def _with_leases(state: TableState, earlier: list[Entry]) -> TableState:
    """Return the state with its identity leases computed again over the longer window."""
    granted = (
        accepted for entry in earlier if entry.provenance for accepted in entry.provenance.accepted
    )
    if not any(accepted.identity_blocks for accepted in granted):
        return state
    leases: PersistentMap[UUID, LeasedBlocks] = PersistentMap()
    for version in range(state.window_start, state.version + 1):
        leases = leased_by(state.entries[version], state.table_definition_at(version), leases)
    return replace(state, leases=leases)


def _mark_before(state: TableState, earlier: list[Entry], start: int) -> int | None:
    """Return the high-water mark of row ids at `start` - 1, or None if it must be read first."""
    if start == 0:
        return NO_HIGH_WATER_MARK
    moved = any(entry.row_mark is not None for entry in earlier)
    return None if moved else state.mark_before


def _remembered(store: LogStore, state: TableState, snapshot: LiveKeys) -> TableState:
    tracks = supports(snapshot.protocol)
    return replace(
        state,
        version=snapshot.version,
        table_definitions=(
            (snapshot.version, TableDefinition(snapshot.metadata, snapshot.protocol)),
        ),
        files=LiveFiles.of(snapshot.canonical, dict(_vectors(store, snapshot))),
        spelt=PersistentMap(unusual_in(snapshot.files["path"], snapshot.canonical)),
        apps=PersistentMap(snapshot.app_transactions),
        domains=PersistentMap(snapshot.domains),
        window_start=snapshot.version + 1,
        timestamp=snapshot.in_commit_timestamp or 0,
        mark_before=high_water_mark(snapshot.domains) if tracks else NO_HIGH_WATER_MARK,
    )


def _vectors(store: LogStore, snapshot: LiveKeys) -> Iterator[tuple[str, str]]:
    """Yield the canonical path and the vector of each live file that has one."""
    files = snapshot.files.select(["path", "deletionVector"])
    for batch in files.filter(files["deletionVector"].is_valid()).to_batches(FILES_MAX):
        for file in batch.to_pylist():
            vector = live_rows(store, file).without
            if vector is not None:
                yield canonical(file["path"]), vector_text(vector)
