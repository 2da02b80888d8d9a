"""Logs of tables on disk: what is in them, and commits that make maintenance due."""

from pathlib import Path

from tests.unit.cdc_publisher.written_table import WrittenTable, rows
from tidegate_checkpointer.log_cleanup_plan import DAY_MS
from tidegate_delta.checkpoints import last_checkpoint
from tidegate_delta.checkpoints.last_checkpoint import LastCheckpoint
from tidegate_delta.log.file_names import LAST_CHECKPOINT, commit_name

NOW_MS = 100 * DAY_MS + DAY_MS // 2


def log_folder(table: WrittenTable) -> Path:
    """Return the folder of a table's log."""
    return table.folder / "_delta_log"


def log_names(table: WrittenTable) -> set[str]:
    """Return the names of what lies in a table's log."""
    return {path.name for path in log_folder(table).iterdir()}


def hint_of(table: WrittenTable) -> LastCheckpoint:
    """Return what a table's `_last_checkpoint` says."""
    hint = last_checkpoint.decode((log_folder(table) / LAST_CHECKPOINT).read_bytes())
    assert hint is not None
    return hint


def append_until(table: WrittenTable, version: int) -> None:
    """Append a file a version until the table has this version."""
    while table.version < version:
        table.append(rows(table.version + 1))


def delete_commits(table: WrittenTable, below: int) -> None:
    """Delete the commits of the versions below one."""
    for version in range(below):
        (log_folder(table) / commit_name(version)).unlink()


def support_v2_checkpoints(table: WrittenTable) -> None:
    """Write a protocol that lists V2 checkpoints."""
    lists = {"readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint"]}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **lists}
    table.commit("UPGRADE PROTOCOL", {"protocol": protocol})


def enable_v2_checkpoints(table: WrittenTable) -> None:
    """Write a protocol that lists V2 checkpoints, and the property that asks for them."""
    support_v2_checkpoints(table)
    table.set_metadata(**{"delta.checkpointPolicy": "v2"})
