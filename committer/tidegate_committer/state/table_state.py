"""`TableState`: what the committer remembers of a table, and `advance`, which moves it on."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple
from uuid import UUID

from tidegate_committer.intake.action_reader import OUR_APPS
from tidegate_committer.intake.identity_leases import LeasedBlocks, lapsed, leases_after
from tidegate_committer.persistent_map import PersistentMap
from tidegate_committer.state.live_files import LiveFiles
from tidegate_committer.state.log_entry import Entry
from tidegate_committer.state.path_normal_form import spelt_after
from tidegate_committer.state.table_definition import TableDefinition, table_definition_after
from tidegate_delta.features.row_tracking import DOMAIN, NO_MARK, mark_in
from tidegate_delta.log.actions import DomainMetadata, Txn
from tidegate_delta.log.commit import Commit
from tidegate_delta.properties.table_properties import in_commit_timestamps_enabled
from tidegate_messages.outcome import Rejection

TableDefinitions = tuple[tuple[int, TableDefinition], ...]

MOVES_MAX: Final = 100_000
"""Compacted files of which the state remembers where their rows went."""


class DecidedProposal(NamedTuple):
    """What the log says of a proposal id: where it was accepted, or why it was refused.

    `sha256` is None for a cancelled id: any bytes under it are refused.
    """

    version: int
    place: int = 0
    sha256: str | None = None
    rejection: Rejection | None = None


class RowIds(NamedTuple):
    """Sentences on which files of a version carry row ids and which lack them; empty for none."""

    carried: str
    lacked: str


@dataclass(frozen=True)
class TableState:
    """A table at `version`; -1 is a table that does not exist yet.

    The window: `entries` are the versions from `window_start` on, the last `window` of them at
    least; `settled` the proposal ids in them, `leases` the identity values granted in them.
    `bases` are metadata and protocol, each with the version from which on it holds, ascending; they
    begin at the version before the window. A version that concerns all proposals begins one, even
    if it changes neither. `oldest` is the first version that the log still holds.

    The head: `files` maps the canonical path of each live file to its deletion vector
    (`content.vector_text`), `spelt` the paths that the log spells unusually to their spelling;
    `apps` are app transactions by app id, `domains` metadata domains by name.

    `rules` is the RULES_VERSION of our last entry, `mark_before` the high-water mark of row ids
    before the window; each None where unknown. `row_ids` are known of read versions at which a
    proposal turns row tracking on or drops it. `keeps_past` says that versions which leave the
    last `window` are kept: a proposal was compared with such ones, and others like it may come.
    Units: `timestamp` in ms since the Unix epoch, the greatest of any commit seen.
    """

    table: UUID
    root: str
    window: int
    version: int = -1
    table_definitions: TableDefinitions = ()
    files: LiveFiles = field(default_factory=LiveFiles)
    spelt: PersistentMap[str, str] = field(default_factory=PersistentMap)
    apps: PersistentMap[str, Txn] = field(default_factory=PersistentMap)
    domains: PersistentMap[str, DomainMetadata] = field(default_factory=PersistentMap)
    entries: PersistentMap[int, Entry] = field(default_factory=PersistentMap)
    settled: PersistentMap[UUID, DecidedProposal] = field(default_factory=PersistentMap)
    window_start: int = 0
    oldest: int = 0
    rules: int | None = None
    timestamp: int = 0
    mark_before: int | None = NO_MARK
    leases: PersistentMap[UUID, LeasedBlocks] = field(default_factory=PersistentMap)
    row_ids: Mapping[int, RowIds] = field(default_factory=dict)
    keeps_past: bool = False

    @property
    def table_definition(self) -> TableDefinition:
        """The metadata and protocol in force."""
        return self.table_definitions[-1][1]

    def table_definition_at(self, version: int) -> TableDefinition:
        """Return the metadata and protocol that a writer saw who read a version."""
        return next(
            table_definition
            for since, table_definition in reversed(self.table_definitions)
            if since <= version
        )

    def since(self, version: int) -> Iterator[Entry]:
        """Yield the versions after one, ascending.

        Law: the versions from `window_start` on, and the one before, are asked for.
        """
        for at in range(version + 1, self.version + 1):
            yield self.entries[at]

    def remembers(self, version: int) -> bool:
        """Return whether there was a table at a version, and all that came since is at hand.

        Who would create a table that is there has read none, version -1.
        """
        return max(self.window_start - 1, 0) <= version <= self.version

    def written_by(self, app_id: str) -> Entry | None:
        """Return the version that moved an application last, where the window holds it."""
        for at in range(self.version, self.window_start - 1, -1):
            if any(txn.app_id == app_id for txn in self.entries[at].txns):
                return self.entries[at]
        return None

    def row_mark_at(self, version: int) -> int | None:
        """Return the high-water mark of row ids in a version, or None where it is not known.

        Law: the versions from `window_start` on, and the one before, are asked for
        """
        for at in range(version, self.window_start - 1, -1):
            mark = self.entries[at].row_mark
            if mark is not None:
                return mark
        return self.mark_before


def is_ours(state: TableState) -> bool:
    """Return whether a committer of ours has ever written to a table: its watermark stays."""
    return any(app.startswith(OUR_APPS) for app in state.apps)


def in_commit_timestamp(state: TableState) -> int | None:
    """Return the in-commit timestamp of a table's last version; None where it needs none, or where
    that has none.
    """
    last = state.entries.get(state.version)
    if last is None or not last.is_timed:
        return None
    return last.timestamp if in_commit_timestamps_enabled(state.table_definition.metadata) else None


def advance(state: TableState, entry: Entry, written_ms: int | None = None) -> TableState:
    """Return the state after the next version; `written_ms` is its file's time, where known.

    Law: advance accepts only version + 1, and costs its changes, not the table.
    """
    assert entry.version == state.version + 1, "versions are contiguous"
    start = state.window_start
    if not state.keeps_past:
        start = max(start, entry.version + 1 - state.window)
    gone = range(state.window_start, start)
    forgotten = [known for version in gone for known in _ids(state.entries[version])]
    table_definitions = _table_definitions(state, entry, start)
    assert table_definitions, "a table begins with its definition"
    after = replace(
        state,
        version=entry.version,
        table_definitions=table_definitions,
        files=state.files.changed(
            {path: entry.vectors.get(path) for path, _ in entry.added},
            drop=entry.removed,
        ),
        spelt=spelt_after(
            state.spelt, (path for path, _ in entry.added), entry.removed, entry.spelt
        ),
        apps=state.apps.changed({txn.app_id: txn for txn in entry.txns}),
        domains=state.domains.changed(_domains(entry, table_definitions[-1][1])),
        entries=state.entries.changed({entry.version: entry}, drop=gone),
        settled=state.settled.changed(settled_by(entry, state.settled), drop=forgotten),
        window_start=start,
        rules=entry.provenance.rules if entry.provenance else state.rules,
        timestamp=max(state.timestamp, entry.timestamp or 0, written_ms or 0),
        mark_before=_mark_before(state, gone),
        leases=leased_by(entry, table_definitions[-1][1], state.leases, forgotten),
    )
    passed = after.entries.get(entry.version - state.window)
    return bounded(after) if entry.moved or (passed and passed.moved) else after


def narrowed(state: TableState) -> TableState:
    """Return the state without the versions before its last `window`.

    Law: it is as if these had left it one by one
    """
    start = max(state.window_start, state.version + 1 - state.window)
    gone = range(state.window_start, start)
    forgotten = [known for version in gone for known in _ids(state.entries[version])]
    return replace(
        state,
        table_definitions=_from(state.table_definitions, start),
        entries=state.entries.changed({}, drop=gone),
        settled=state.settled.changed({}, drop=forgotten),
        window_start=start,
        mark_before=_mark_before(state, gone),
        leases=state.leases.changed({}, drop=[one for one in forgotten if one in state.leases]),
        keeps_past=False,
    )


def bounded(state: TableState) -> TableState:
    """Return the state without moves of rows past `MOVES_MAX` or older than the window.

    Law: which are kept follows from the log up to `version`, and none is kept that was not before
    """
    left, drops = MOVES_MAX, dict[int, Entry]()
    for version in range(state.version, state.window_start - 1, -1):
        entry = state.entries[version]
        left -= len(entry.moved)
        if entry.moved and (left < 0 or version <= state.version - state.window):
            drops[version] = replace(entry, moved={})
    return replace(state, entries=state.entries.changed(drops)) if drops else state


def in_full(state: TableState, commits: Iterable[Commit]) -> TableState:
    """Return the state with the added files of some versions in full."""
    read: dict[int, Entry] = {
        commit.version: replace(state.entries[commit.version], adds=tuple(commit.adds))
        for commit in commits
    }
    return replace(state, entries=state.entries.changed(read)) if read else state


def settled_by(
    entry: Entry, known: PersistentMap[UUID, DecidedProposal] | None = None
) -> dict[UUID, DecidedProposal]:
    """Return what an entry says of the proposals in it, where nothing was said before."""
    origin = entry.provenance
    if origin is None:
        return {}
    version, before = entry.version, known.now if known is not None else {}
    found = {
        one.id: DecidedProposal(version, 0, one.sha256, one.reason)
        for one in origin.refused
        if one.id not in before
    }
    for place, one in enumerate(origin.accepted):
        if one.id not in before:
            found[one.id] = DecidedProposal(version, place, one.sha256)
    return found


def leased_by(
    entry: Entry,
    table_definition: TableDefinition,
    leases: PersistentMap[UUID, LeasedBlocks],
    forgotten: Iterable[UUID] = (),
) -> PersistentMap[UUID, LeasedBlocks]:
    """Return the leases of identity values after an entry that leaves a table."""
    if leases:
        leases = leases.changed({}, drop=[one for one in forgotten if one in leases])
    if entry.provenance is not None:
        leases = leases_after(leases, entry.provenance.accepted)
    if leases and entry.metadata is not None:
        leases = leases.changed({}, drop=lapsed(leases, table_definition.numbered))
    return leases


def _domains(entry: Entry, table_definition: TableDefinition) -> dict[str, DomainMetadata]:
    """Return what an entry makes of domains.

    Removing the domain of the row id high-water mark, while the table tracks rows, does not take
    ids back: the mark is kept.
    """
    found = {domain.domain: domain for domain in entry.domains}
    mark = found.get(DOMAIN)
    if mark is not None and mark.removed and table_definition.tracks_rows:
        kept = mark.with_(removed=False)
        if mark_in(kept) == NO_MARK:
            del found[DOMAIN]
        else:
            found[DOMAIN] = kept
    return found


def _mark_before(state: TableState, gone: range) -> int | None:
    """Return the mark before the window, once some versions at its start are out of it."""
    marks = (state.entries[version].row_mark for version in reversed(gone))
    return next((mark for mark in marks if mark is not None), state.mark_before)


def _ids(entry: Entry) -> list[UUID]:
    origin = entry.provenance
    if origin is None:
        return []
    return [*(one.id for one in origin.accepted), *(one.id for one in origin.refused)]


def _table_definitions(state: TableState, entry: Entry, start: int) -> TableDefinitions:
    if not entry.concerns_all:
        return state.table_definitions
    before = state.table_definition if state.table_definitions else None
    after = (entry.version, table_definition_after(before, entry.metadata, entry.protocol))
    return _from((*state.table_definitions, after), start)


def _from(table_definitions: TableDefinitions, start: int) -> TableDefinitions:
    """Return the definitions in force from the version before `start` on."""
    needed = [place for place, (since, _) in enumerate(table_definitions) if since < start]
    return table_definitions[needed[-1] :] if needed else table_definitions
