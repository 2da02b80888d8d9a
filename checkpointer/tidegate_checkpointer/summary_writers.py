"""Write the files that make a log short to read: checkpoints, checksums, log compactions.

Tables whose features change what a checkpoint holds get none (`check_checkpointable`).
"""

from functools import partial
from typing import Final

from tidegate_delta.checkpoints import version_checksum
from tidegate_delta.checkpoints.rows_since_checkpoint import CheckpointState
from tidegate_delta.errors import UnsupportedFeature
from tidegate_delta.features.supported_features import FEATURES, Support, check_readable
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.log.file_names import checksum_name, compacted_name
from tidegate_delta.log.protocol_versions import reader_features, writer_features
from tidegate_delta.properties.table_properties import checkpoint_policy
from tidegate_runtime.clock import Clock, new_id
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.checkpoint_writer import (
    WrittenCheckpoint,
    put_derived,
    write_classic,
    write_v2,
)

V2_CHECKPOINT: Final = "v2Checkpoint"


def check_checkpointable(protocol: Protocol, metadata: Metadata, table: str) -> None:
    """Refuse a table whose log we can't summarise.

    Raises: UnsupportedFeature, which names the first unsupported feature.
    """
    check_readable(protocol, metadata, table)
    for name in sorted(writer_features(protocol)):
        feature = FEATURES.get(name)
        if feature is None or feature.writes is Support.NO:
            raise _refusal(table, name)
    if wants_v2(metadata) and V2_CHECKPOINT not in reader_features(protocol):
        raise _refusal(table, V2_CHECKPOINT)


def wants_v2(metadata: Metadata) -> bool:
    """Return whether a table asks for V2 checkpoints."""
    return bool(checkpoint_policy(metadata) == "v2")


def _refusal(table: str, feature: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"table {table} uses the feature {feature!r}, under which this release writes no "
        "checkpoints, log compactions or checksums: let another engine write them, or drop the "
        "feature from the table",
        feature=feature,
    )


FILES_MAX: Final = 50
"""With more live files than this, a checksum leaves them out."""


def write_checkpoint(store: LogStore, state: CheckpointState, clock: Clock) -> WrittenCheckpoint:
    """Write the checkpoint of a state, classic or V2 as the table asks for.

    Raises: BrokenLog (`CorruptCheckpoint`), if a file of the checkpoint that the state is from is
    gone; OutcomeUnknown; Unavailable.
    """
    now_ms = clock.now_ms()
    if wants_v2(state.fresh.metadata):
        return write_v2(store, state, now_ms, partial(new_id, clock))
    return write_classic(store, state, now_ms)


def write_checksum(store: LogStore, state: CheckpointState) -> bool:
    """Write the checksum of a version unless it exists, and return whether ours is there.

    Raises: OutcomeUnknown; Unavailable.
    """
    content = version_checksum.encode(state.checksum, state.few_files(FILES_MAX))
    return put_derived(store, checksum_name(state.version), content)


def write_compaction(store: LogStore, start: int, end: int, content: bytes) -> bool:
    """Write a log compaction unless it exists, and return whether ours is there.

    Raises: OutcomeUnknown; Unavailable.
    """
    return put_derived(store, compacted_name(start, end), content)
