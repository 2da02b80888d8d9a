"""Write the files that make a log short to read: checkpoints, checksums, log compactions."""

from functools import partial
from typing import Final

from tidegate_checkpointer.supported_tables import wants_v2
from tidegate_delta.checkpoints import version_checksum
from tidegate_delta.checkpoints.checkpoint_state import CheckpointState
from tidegate_delta.log.file_names import checksum_name, compacted_name
from tidegate_runtime.clock import Clock, new_id
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.checkpoint_writer import (
    WrittenCheckpoint,
    write_classic,
    write_v2,
)
from tidegate_runtime.table_io.derived_files import put_derived

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
