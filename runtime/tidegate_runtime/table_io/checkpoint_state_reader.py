"""Build the state between checkpoints from a table's log, and advance it by commits."""

from collections.abc import Sequence
from dataclasses import replace

from tidegate_delta.checkpoints.checkpoint_state import CheckpointState, advanced, new_state
from tidegate_delta.features.supported_features import check_readable
from tidegate_delta.log.file_names import commit_name
from tidegate_delta.properties.table_properties import in_commit_timestamps_enabled
from tidegate_delta.snapshots.file_action_columns import ADD_SCHEMA
from tidegate_delta.snapshots.replay import LogPart, defining, read_parts, replay
from tidegate_delta.snapshots.snapshot import Snapshot, from_replay
from tidegate_runtime import gc_control
from tidegate_runtime.containment import about
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.log_reader import defined_in, of_table
from tidegate_runtime.table_io.open_table import check_vectors, info_of, read_segment
from tidegate_runtime.table_io.stored_checkpoint import StoredCheckpoint, read_stored


def load_state(store: LogStore, version: int | None = None) -> CheckpointState:
    """Return the state of a table at a version, by default its newest.

    Raises: InvalidRequest (`NotADeltaTable`, `VersionNotFound`); BrokenLog (`LogGap`,
    `CorruptCommit`, `CorruptCheckpoint`, `MissingProtocol`, `MissingMetadata`);
    UnsupportedFeature; Unavailable.
    """
    segment, deltas, below = read_segment(
        store, version, lambda parts: read_stored(store, parts), ADD_SCHEMA
    )
    with of_table(store.root):
        state = _replayed(segment.checkpoint_version, deltas, below)
    every = [*([below.part] if below else []), *deltas]
    _check(store, state, every)
    info = info_of(store, segment, deltas)
    timestamp = info.in_commit_timestamp if info else None
    if not in_commit_timestamps_enabled(state.fresh.metadata):
        timestamp = None
    fresh = replace(state.fresh, version=segment.version, in_commit_timestamp=timestamp)
    return replace(
        state, fresh=_same_keys(fresh, state.fresh), txn_id=info.txn_id if info else None
    )


def follow(store: LogStore, state: CheckpointState, contents: Sequence[bytes]) -> CheckpointState:
    """Return the state after the commits that follow its version, given as their files' bytes.

    Raises: BrokenLog (`CorruptCommit`); UnsupportedFeature.
    """
    first = state.version + 1
    named_contents = [
        (commit_name(first + index), content) for index, content in enumerate(contents)
    ]
    span = " to ".join(dict.fromkeys((named_contents[0][0], named_contents[-1][0])))
    with gc_control.paused(), of_table(store.root), about(span):
        parts = read_parts(named_contents)
    after = advanced(state, parts)
    _check(store, after, parts)
    return after


def _replayed(
    version: int, deltas: Sequence[LogPart], below: StoredCheckpoint | None
) -> CheckpointState:
    """Return the state after a checkpoint, if there is one, and what follows it."""
    if below is None:
        return new_state(from_replay(version, replay(deltas, None), None))
    part = below.part
    later = [part_of_log for part_of_log in deltas if part_of_log.protocol or part_of_log.metadata]
    # A checkpoint without a definition is read, too, if commits after it have one.
    part = replace(
        part,
        protocol=part.protocol
        or next((part_of_log.protocol for part_of_log in later if part_of_log.protocol), None),
        metadata=part.metadata
        or next((part_of_log.metadata for part_of_log in later if part_of_log.metadata), None),
    )
    state = new_state(from_replay(version, replay([], part), None), below.stored, version)
    return advanced(state, deltas) if deltas else state


def _check(store: LogStore, state: CheckpointState, parts: Sequence[LogPart]) -> None:
    """Refuse a table that these parts may have made unreadable. Raises: UnsupportedFeature."""
    fresh = state.fresh
    if changed := defining(parts):
        with defined_in(changed):
            check_readable(fresh.protocol, fresh.metadata, store.root)
        for stored in state.stored:
            check_vectors(store, fresh.protocol, fresh.version, stored.files.rows)
    check_vectors(store, fresh.protocol, fresh.version, fresh.files)


def _same_keys(after: Snapshot, before: Snapshot) -> Snapshot:
    """Return a snapshot with the keys of one that has the same files."""
    vars(after)["file_keys"] = before.file_keys
    return after
