"""Write the files that make a log short to read: checkpoints, checksums, log compactions."""

from functools import partial

from tidegate_checkpointer.supported_tables import wants_v2
from tidegate_delta.checkpoints import log_compaction, version_checksum
from tidegate_delta.checkpoints.last_checkpoint import LastCheckpoint
from tidegate_delta.checkpoints.version_checksum import VersionChecksum
from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import checksum_name, commit_name, compacted_name
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_runtime.clock import Clock, new_id
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.checkpoint_writer import write_classic
from tidegate_runtime.table_io.derived_files import put_derived
from tidegate_runtime.table_io.open_table import read_commit
from tidegate_runtime.table_io.v2_checkpoint_writer import CheckpointLayout, Form, write_v2


def write_checkpoint(store: LogStore, snapshot: Snapshot, clock: Clock) -> LastCheckpoint:
    """Write the checkpoint of a snapshot, classic or V2 as the table asks for.

    Raises: OutcomeUnknown; Unavailable.
    """
    now_ms = clock.now_ms()
    if wants_v2(snapshot.metadata):
        layout = CheckpointLayout(Form.JSON)
        return write_v2(store, snapshot, layout, now_ms, partial(new_id, clock))
    return write_classic(store, snapshot, now_ms)


def write_checksum(store: LogStore, version: int, totals: VersionChecksum) -> None:
    """Write the checksum of a version unless it exists. Raises: OutcomeUnknown; Unavailable."""
    put_derived(store, checksum_name(version), version_checksum.encode(totals))


def compacted(store: LogStore, start: int, end: int) -> bytes:
    """Return the log compaction of some versions, both ends included; empty if they do nothing.

    Raises: BrokenLog (`LogGap`, `CorruptCommit`); Unavailable.
    """
    versions = range(start, end + 1)
    return log_compaction.compact([read_version(store, version) for version in versions])


def write_compaction(store: LogStore, start: int, end: int, content: bytes) -> None:
    """Write a log compaction unless it exists. Raises: OutcomeUnknown; Unavailable."""
    put_derived(store, compacted_name(start, end), content)


def read_version(store: LogStore, version: int) -> Commit:
    """Return the commit of a version that is known to be published.

    Raises: BrokenLog (`LogGap`, `CorruptCommit`).
    """
    found = read_commit(store, version)
    if found is None:
        raise BrokenLog(
            f"{commit_name(version)} of table {store.root} is not there, although a later version "
            "was seen: restore it from a backup, or see who cleans the log",
            error_class="LogGap",
        )
    return found[0]
