"""Drops a table feature: first every trace of it in the table, then the feature itself.

The steps are those of delta-spark, each committed for itself: what an interrupted run has done
stays, and the next run does the rest.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tidegate_delta.checkpoints.rows_since_checkpoint import new_state
from tidegate_delta.definitions.definition import Definition, refuse
from tidegate_delta.definitions.drop_feature import (
    DOMAINS_GONE,
    Drop,
    FeatureRemains,
    drop_flaws,
    dropped,
    leaves_trace,
)
from tidegate_delta.features import row_tracking
from tidegate_delta.log.actions import Action
from tidegate_delta.log.file_names import LogFileKind
from tidegate_delta.properties import table_properties
from tidegate_delta.schema.column_mapping import ColumnMappingMode, mode_of
from tidegate_delta.schema.column_mapping_assignment import without_mapping
from tidegate_delta.schema.type_widening import without_changes
from tidegate_delta.schema.types import format_schema, parse_schema
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Operation
from tidegate_producers.cached_clients import store_for
from tidegate_producers.options import TableLocation
from tidegate_producers.writing.alter_table import alter, change
from tidegate_producers.writing.column_checks import (
    Attestation,
    in_table_already,
    with_attestation,
)
from tidegate_producers.writing.optimize import (
    Compacting,
    CompactionRunner,
    OptimizeRequest,
    optimize,
    single_bins,
)
from tidegate_producers.writing.row_tracking_switch import unbackfill
from tidegate_producers.writing.table_write import WriteRequest, propose, stamp_for
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client
from tidegate_runtime.table_io.checkpoint_writer import move_hint_forward, write_classic
from tidegate_runtime.table_io.log_reader import find_segment, list_log
from tidegate_runtime.table_io.open_table import open_snapshot, read_commit
from tidegate_runtime.table_io.row_ids import files_with_row_ids

_TIMES: Final = (
    table_properties.in_commit_timestamps_enabled.key,
    table_properties.ict_enablement_version.key,
    table_properties.ict_enablement_timestamp_ms.key,
)


@dataclass(frozen=True)
class Dropping:
    """A table of which a feature is dropped, and what rewrites its files."""

    client: Client
    place: TableLocation
    request: WriteRequest
    runner: CompactionRunner

    def snapshot(self) -> Snapshot:
        """Return the table as it is now."""
        return open_snapshot(store_for(self.place))

    def set(self, **properties: str) -> None:
        """Set table properties; the names are without `delta.`."""
        changes = [
            change(op="set_property", key=f"delta.{key}", value=value)
            for key, value in properties.items()
        ]
        alter(self.client, self.place, changes, self.request)

    def unset(self, key: str) -> None:
        """Remove a table property, if it is set."""
        if key in self.snapshot().metadata.configuration:
            unset = [change(op="unset_property", key=key)]
            alter(self.client, self.place, unset, self.request)

    def propose(
        self,
        snapshot: Snapshot,
        operation: Operation,
        actions: tuple[Action, ...],
        definition: Definition | None = None,
    ) -> Outcome:
        """Propose actions for a version that was read whole; rows are held to a definition."""
        record = self.client.require(self.place.root, self.request.timeout_s)
        target = proposal_builders.Target(
            record.table, record.table_root, int(snapshot.version), snapshot.metadata.id
        )
        rows = tuple(action.to_row() for action in actions)
        body = proposal_builders.Body(operation, rows, proposal_builders.WHOLE_TABLE)
        stamp = stamp_for(self.client, self.request)
        proposal = proposal_builders.of_body("commit", target, stamp, body)
        if definition is not None:
            proposal = with_attestation(proposal, Attestation(in_table_already(*definition)))
        return propose(self.client, store_for(self.place), proposal, self.request.timeout_s)


def drop_feature(dropping: Dropping, name: str, *, truncates_history: bool = False) -> Outcome:
    """Drop a feature after its traces, and return the outcome of the dropping commit.

    `truncates_history` drops it without protection of old checkpoints, once no version that needs
    the feature is left in the log.
    Raises: InvalidRequest, for a feature that cannot be dropped, or a trace that only its owner may
    remove; Rejected; OutcomeUnknown; UnsupportedFeature; BrokenLog; Unavailable.
    """
    drop = Drop(name, truncates_history)
    snapshot = dropping.snapshot()
    if name in Definition(snapshot.metadata, snapshot.protocol).supported:
        prepare = _PREPARATIONS.get(name)
        if prepare is not None:
            prepare(dropping)
            snapshot = dropping.snapshot()
    old_definition = Definition(snapshot.metadata, snapshot.protocol)
    refuse(
        drop_flaws(drop, old_definition, _remains(dropping, snapshot, drop)), dropping.place.root
    )
    new_definition = dropped(drop, old_definition, int(snapshot.version) + 1)
    removed_domains = [
        snapshot.domains[domain].with_(removed=True)
        for domain in DOMAINS_GONE.get(name, ())
        if domain in snapshot.domains
    ]
    metadata = (new_definition.metadata,) if new_definition.metadata != snapshot.metadata else ()
    parameters = {"featureName": name, "truncateHistory": str(truncates_history).lower()}
    operation = Operation(name="DROP FEATURE", parameters=parameters)
    return dropping.propose(
        snapshot, operation, (new_definition.protocol, *metadata, *removed_domains)
    )


def _remains(dropping: Dropping, snapshot: Snapshot, drop: Drop) -> FeatureRemains:
    vectors = snapshot.files["deletionVector"]
    live_domains = {name for name, domain in snapshot.domains.items() if not domain.removed}
    if drop.name == row_tracking.FEATURE:
        live_domains.discard(row_tracking.DOMAIN)
    store = store_for(dropping.place)
    oldest = min((file.version for file, _ in list_log(store)), default=0)
    return FeatureRemains(
        deletion_vectors=len(vectors) - vectors.null_count,
        files_with_row_ids=files_with_row_ids(snapshot.files)[0],
        domains=frozenset(live_domains),
        stands_on_v2_checkpoint=_stands_on_v2(dropping),
        history_uses=drop.truncates_history and _history_uses(dropping, drop.name, snapshot),
        oldest_version=oldest,
    )


def _history_uses(dropping: Dropping, name: str, snapshot: Snapshot) -> bool:
    """Return whether a version that is still in the log can be understood only with a feature."""
    store = store_for(dropping.place)
    for file, _ in list_log(store):
        if file.is_checkpoint and file.version < snapshot.version:
            return True
        if file.kind is not LogFileKind.COMMIT or file.version >= snapshot.version:
            continue
        entry = read_commit(store, file.version)
        if entry is not None and any(leaves_trace(name, action) for action in entry[0].actions):
            return True
    return False


def _stands_on_v2(dropping: Dropping) -> bool:
    segment = find_segment(store_for(dropping.place))
    return any(file.kind is LogFileKind.CHECKPOINT_V2 for file in segment.checkpoint)


def _no_vectors(dropping: Dropping) -> None:
    if table_properties.deletion_vectors_enabled(dropping.snapshot().metadata):
        dropping.set(enableDeletionVectors="false")
    request = OptimizeRequest(purges=True)
    optimize(dropping.client, dropping.place, request, dropping.request, dropping.runner)


def _no_widening(dropping: Dropping) -> None:
    dropping.unset(table_properties.type_widening_enabled.key)
    snapshot = dropping.snapshot()
    schema = parse_schema(snapshot.metadata.schema_string)
    plain = without_changes(schema)
    if plain == schema:
        return
    request = OptimizeRequest(rewrites=True)
    optimize(dropping.client, dropping.place, request, dropping.request, dropping.runner)
    snapshot = dropping.snapshot()
    metadata = snapshot.metadata.with_(schema_string=format_schema(plain))
    dropping.propose(snapshot, Operation(name="CHANGE COLUMN"), (metadata,))


def _no_mapping(dropping: Dropping) -> None:
    snapshot = dropping.snapshot()
    if mode_of(snapshot.metadata) is ColumnMappingMode.NONE:
        return
    plain = without_mapping(snapshot.metadata)
    bins = list(single_bins(snapshot.files))
    compacting = Compacting(dropping.place, snapshot.metadata, written=plain)
    written = dropping.runner(compacting, bins) if bins else ()
    now_ms = dropping.client.clock.now_ms()
    removes = [
        proposal_builders.removal(add, now_ms).with_(data_change=False)
        for single_bin in bins
        for add in single_bin.adds
    ]
    adds = [add.with_(data_change=False) for compacted in written for add in compacted.adds]
    operation = Operation(name="REMOVE COLUMN MAPPING")
    definition = Definition(plain, snapshot.protocol)
    dropping.propose(snapshot, operation, (plain, *removes, *adds), definition)


def _no_row_ids(dropping: Dropping) -> None:
    metadata = dropping.snapshot().metadata
    if row_tracking.is_enabled(metadata) or not row_tracking.is_suspended(metadata):
        dropping.set(enableRowTracking="false", rowTrackingSuspended="true")
    unbackfill(dropping.client, dropping.place, dropping.request)


def _no_v2_checkpoint(dropping: Dropping) -> None:
    if table_properties.checkpoint_policy(dropping.snapshot().metadata) != "classic":
        dropping.set(checkpointPolicy="classic")
    if _stands_on_v2(dropping):
        store = store_for(dropping.place)
        state, now_ms = new_state(dropping.snapshot()), dropping.client.clock.now_ms()
        move_hint_forward(store, write_classic(store, state, now_ms).hint)


def _no_times(dropping: Dropping) -> None:
    snapshot = dropping.snapshot()
    configuration = {
        key: text for key, text in snapshot.metadata.configuration.items() if key not in _TIMES
    }
    if configuration != dict(snapshot.metadata.configuration):
        metadata = snapshot.metadata.with_(configuration=configuration)
        dropping.propose(snapshot, Operation(name="UNSET TBLPROPERTIES"), (metadata,))


_PREPARATIONS: Final[Mapping[str, Callable[[Dropping], None]]] = {
    "deletionVectors": _no_vectors,
    "typeWidening": _no_widening,
    "typeWidening-preview": _no_widening,
    "columnMapping": _no_mapping,
    row_tracking.FEATURE: _no_row_ids,
    "v2Checkpoint": _no_v2_checkpoint,
    "inCommitTimestamp": _no_times,
}
"""What takes the traces of a feature out of a table. The others have none, or only their owner may
remove them, such as constraints.
"""
