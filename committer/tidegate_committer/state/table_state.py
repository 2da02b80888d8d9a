"""`TableState`: what the committer keeps of a table, and `advance`, which applies a version."""

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
from tidegate_delta.features.row_tracking import DOMAIN, NO_HIGH_WATER_MARK, mark_in
from tidegate_delta.log.actions import DomainMetadata, Txn
from tidegate_delta.log.commit import Commit
from tidegate_delta.properties.table_properties import in_commit_timestamps_enabled
from tidegate_messages.outcome import Rejection

TableDefinitions = tuple[tuple[int, TableDefinition], ...]

MOVES_MAX: Final = 100_000
"""Most compacted files whose relocated rows the state keeps."""


class DecidedProposal(NamedTuple):
    """The log's decision on a proposal id: where it was accepted, or why it was refused.

    `sha256` is None for a cancelled id, under which any bytes are refused.
    """

    version: int
    place: int = 0
    sha256: str | None = None
    rejection: Rejection | None = None


class RowIds(NamedTuple):
    """Sentences that say which files of a version have row ids and which lack them, or ""."""

    carried: str
    lacked: str


@dataclass(frozen=True)
class TableState:
    """A table at `version`; -1 is a table that does not exist yet.

    The window: `entries` are the versions from `window_start` on, at least the last `window` of
    them. `decisions` are the proposal ids decided in them, `leases` the identity values granted in
    them. `table_definitions` are metadata and protocol, ascending, each with the version from which
    it holds. They begin at the version before the window. A version that concerns all proposals
    begins a new one, even if it changes neither. `oldest` is the first version that the log still
    holds.

    The head: `files` maps the canonical path of each live file to its deletion vector
    (`vector_text`), `spelt` canonical paths to the paths in the log, for paths that are not in the
    usual encoding. `apps` are app transactions by app id, `domains` metadata domains by name.

    `rules` is the RULES_VERSION of our last entry and `mark_before` the high-water mark of row ids
    before the window; None if unknown. `row_ids` are known for read versions at which a proposal
    enables row tracking or drops it. `keeps_past` says that versions older than the last `window`
    are kept, because a proposal was compared with them, and others like it may come.
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
    decisions: PersistentMap[UUID, DecidedProposal] = field(default_factory=PersistentMap)
    window_start: int = 0
    oldest: int = 0
    rules: int | None = None
    timestamp: int = 0
    mark_before: int | None = NO_HIGH_WATER_MARK
    leases: PersistentMap[UUID, LeasedBlocks] = field(default_factory=PersistentMap)
    row_ids: Mapping[int, RowIds] = field(default_factory=dict)
    keeps_past: bool = False

    @property
    def table_definition(self) -> TableDefinition:
        """The metadata and protocol in force."""
        return self.table_definitions[-1][1]

    def table_definition_at(self, version: int) -> TableDefinition:
        """Return the metadata and protocol that a writer saw at its read version."""
        return next(
            table_definition
            for since, table_definition in reversed(self.table_definitions)
            if since <= version
        )

    def since(self, version: int) -> Iterator[Entry]:
        """Yield the entries after a version, ascending.

        Law: `version` is at least `window_start` - 1
        """
        for entry_version in range(version + 1, self.version + 1):
            yield self.entries[entry_version]

    def remembers(self, version: int) -> bool:
        """Return whether the table existed at a version and all later entries are in the window.

        A proposal to create a table that exists has read version -1, which is not remembered.
        """
        return max(self.window_start - 1, 0) <= version <= self.version

    def written_by(self, app_id: str) -> Entry | None:
        """Return the last entry with a transaction of an application, if the window has one."""
        for version in range(self.version, self.window_start - 1, -1):
            if any(txn.app_id == app_id for txn in self.entries[version].txns):
                return self.entries[version]
        return None

    def row_mark_at(self, version: int) -> int | None:
        """Return the high-water mark of row ids at a version, or None if it is unknown.

        Law: `version` is at least `window_start` - 1
        """
        for entry_version in range(version, self.window_start - 1, -1):
            mark = self.entries[entry_version].row_mark
            if mark is not None:
                return mark
        return self.mark_before


def ever_written_by_us(state: TableState) -> bool:
    """Return whether our committer has ever written to a table: its watermark is never removed."""
    return any(app.startswith(OUR_APPS) for app in state.apps)


def in_commit_timestamp(state: TableState) -> int | None:
    """Return the in-commit timestamp of a table's last version, or None if that has none or the
    table does not require one.
    """
    last = state.entries.get(state.version)
    if last is None or not last.is_timed:
        return None
    return last.timestamp if in_commit_timestamps_enabled(state.table_definition.metadata) else None


def advance(state: TableState, entry: Entry, written_ms: int | None = None) -> TableState:
    """Return the state after the next version; `written_ms` is its file's time, if known.

    Law: advance accepts only version + 1; its cost depends on the changes, not on the table
    """
    assert entry.version == state.version + 1, "versions are contiguous"
    start = state.window_start
    if not state.keeps_past:
        start = max(start, entry.version + 1 - state.window)
    old_versions = range(state.window_start, start)
    forgotten = [known for version in old_versions for known in _ids(state.entries[version])]
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
        entries=state.entries.changed({entry.version: entry}, drop=old_versions),
        decisions=state.decisions.changed(decisions_of(entry, state.decisions), drop=forgotten),
        window_start=start,
        rules=entry.provenance.rules if entry.provenance else state.rules,
        timestamp=max(state.timestamp, entry.timestamp or 0, written_ms or 0),
        mark_before=_mark_before(state, old_versions),
        leases=leased_by(entry, table_definitions[-1][1], state.leases, forgotten),
    )
    passed = after.entries.get(entry.version - state.window)
    return bounded(after) if entry.moved or (passed and passed.moved) else after


def narrowed(state: TableState) -> TableState:
    """Return the state without the versions before its last `window`.

    Law: equal to the state in which these versions left the window one by one
    """
    start = max(state.window_start, state.version + 1 - state.window)
    old_versions = range(state.window_start, start)
    forgotten = [known for version in old_versions for known in _ids(state.entries[version])]
    return replace(
        state,
        table_definitions=_from(state.table_definitions, start),
        entries=state.entries.changed({}, drop=old_versions),
        decisions=state.decisions.changed({}, drop=forgotten),
        window_start=start,
        mark_before=_mark_before(state, old_versions),
        leases=state.leases.changed(
            {}, drop=[lease for lease in forgotten if lease in state.leases]
        ),
        keeps_past=False,
    )


def bounded(state: TableState) -> TableState:
    """Return the state without relocations past `MOVES_MAX` or older than the window.

    Law: which are kept follows from the log up to `version`; none that was dropped returns
    """
    left, drops = MOVES_MAX, dict[int, Entry]()
    for version in range(state.version, state.window_start - 1, -1):
        entry = state.entries[version]
        left -= len(entry.moved)
        if entry.moved and (left < 0 or version <= state.version - state.window):
            drops[version] = replace(entry, moved={})
    return replace(state, entries=state.entries.changed(drops)) if drops else state


def with_full_adds(state: TableState, commits: Iterable[Commit]) -> TableState:
    """Return the state with the full add actions of some versions."""
    read: dict[int, Entry] = {
        commit.version: replace(state.entries[commit.version], adds=tuple(commit.adds))
        for commit in commits
    }
    return replace(state, entries=state.entries.changed(read)) if read else state


def decisions_of(
    entry: Entry, known: PersistentMap[UUID, DecidedProposal] | None = None
) -> dict[UUID, DecidedProposal]:
    """Return an entry's decisions on proposal ids that were not decided before."""
    origin = entry.provenance
    if origin is None:
        return {}
    version, before = entry.version, known.now if known is not None else {}
    decided = {
        refused.id: DecidedProposal(version, 0, refused.sha256, refused.reason)
        for refused in origin.refused
        if refused.id not in before
    }
    for index, accepted in enumerate(origin.accepted):
        if accepted.id not in before:
            decided[accepted.id] = DecidedProposal(version, index, accepted.sha256)
    return decided


def leased_by(
    entry: Entry,
    table_definition: TableDefinition,
    leases: PersistentMap[UUID, LeasedBlocks],
    forgotten: Iterable[UUID] = (),
) -> PersistentMap[UUID, LeasedBlocks]:
    """Return the leases of identity values after an entry, given the table definition after it."""
    if leases:
        leases = leases.changed({}, drop=[lease for lease in forgotten if lease in leases])
    if entry.provenance is not None:
        leases = leases_after(leases, entry.provenance.accepted)
    if leases and entry.metadata is not None:
        leases = leases.changed({}, drop=lapsed(leases, table_definition.numbered))
    return leases


def _domains(entry: Entry, table_definition: TableDefinition) -> dict[str, DomainMetadata]:
    """Return the domains that an entry changes.

    Removing the domain of the row id high-water mark while the table tracks rows does not take back
    ids that were given out: the mark is kept.
    """
    domains = {domain.domain: domain for domain in entry.domains}
    mark = domains.get(DOMAIN)
    if mark is not None and mark.removed and table_definition.tracks_rows:
        kept = mark.with_(removed=False)
        if mark_in(kept) == NO_HIGH_WATER_MARK:
            del domains[DOMAIN]
        else:
            domains[DOMAIN] = kept
    return domains


def _mark_before(state: TableState, old_versions: range) -> int | None:
    """Return the high-water mark before the window once `old_versions` have left it."""
    marks = (state.entries[version].row_mark for version in reversed(old_versions))
    return next((mark for mark in marks if mark is not None), state.mark_before)


def _ids(entry: Entry) -> list[UUID]:
    origin = entry.provenance
    if origin is None:
        return []
    return [
        *(decided.id for decided in origin.accepted),
        *(decided.id for decided in origin.refused),
    ]


def _table_definitions(state: TableState, entry: Entry, start: int) -> TableDefinitions:
    if not entry.concerns_all:
        return state.table_definitions
    before = state.table_definition if state.table_definitions else None
    after = (entry.version, table_definition_after(before, entry.metadata, entry.protocol))
    return _from((*state.table_definitions, after), start)


def _from(table_definitions: TableDefinitions, start: int) -> TableDefinitions:
    """Return the definitions in force from the version before `start` on."""
    indexes = [index for index, (since, _) in enumerate(table_definitions) if since < start]
    return table_definitions[indexes[-1] :] if indexes else table_definitions
