"""Write V2 checkpoints to a store, in every form the protocol allows, under predictable names."""

from itertools import count
from uuid import UUID

from tidegate_delta.log.file_names import LOG_FOLDER
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.v2_checkpoint_writer import (
    WITH_SIDECARS,
    CheckpointLayout,
    Form,
    write_v2,
)

__all__ = ["WITH_SIDECARS", "Form", "put_v2"]


def put_v2(
    store: LogStore, snapshot: Snapshot, form: Form, now_ms: int, files_a_sidecar: int = 3
) -> str:
    """Write a snapshot's V2 checkpoint and return its name; sidecars are numbered from 0."""
    numbers = map(UUID, map("{:032x}".format, count()))
    write_v2(
        store, snapshot, CheckpointLayout(form, files_a_sidecar), now_ms, lambda: next(numbers)
    )
    prefix = f"{snapshot.version:020d}.checkpoint."
    result = [stat.path for stat in store.list_from(LOG_FOLDER, prefix)]
    return next(path.rpartition("/")[2] for path in result if prefix in path)
