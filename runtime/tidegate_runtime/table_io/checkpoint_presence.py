"""Whether a checkpoint is there whole, and what a hint to it says.

A torn checkpoint, or one that lacks a part or a sidecar, counts as none: another is written. Only
the ends of Parquet files are read.
"""

from collections.abc import Sequence
from typing import BinaryIO

import orjson
import pyarrow as pa

from tidegate_delta.checkpoints.last_checkpoint import LastCheckpoint
from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.file_names import LogFile, LogFileKind, in_log, in_sidecars
from tidegate_delta.log.log_segment import complete_checkpoints
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.checkpoint_reader import read_sidecar_names
from tidegate_runtime.table_io.log_reader import list_log
from tidegate_runtime.table_io.parquet_footers import read_row_count


def whole_checkpoint(store: LogStore, version: int) -> LastCheckpoint | None:
    """Return the hint to the checkpoint of a version, or None if there is none that is whole.

    Raises: Unavailable.
    """
    listed: list[LogFile] = []
    for file, _ in list_log(store, f"{version:020d}.checkpoint"):
        if file.version != version or not file.is_checkpoint:
            break
        listed.append(file)
    parts = complete_checkpoints(listed).get(version)
    return None if parts is None else _described(store, version, parts)


def newest_whole_checkpoint(store: LogStore, after: int) -> LastCheckpoint | None:
    """Return the hint to the newest checkpoint after a version that is whole, or None.

    Raises: Unavailable.
    """
    listed = [file for file, _ in list_log(store, f"{after + 1:020d}")]
    for version, parts in sorted(complete_checkpoints(listed).items(), reverse=True):
        if hint := _described(store, version, parts):
            return hint
    return None


def _described(store: LogStore, version: int, parts: Sequence[LogFile]) -> LastCheckpoint | None:
    try:
        sizes = [_size(store, in_log(part.name)) for part in parts]
        if parts[0].kind is not LogFileKind.CHECKPOINT_PART:
            names = read_sidecar_names(store, parts[0]) or frozenset()
            sizes += [_size(store, in_sidecars(name)) for name in sorted(names)]
    except (BrokenLog, FileNotFoundError, pa.ArrowException, OSError, ValueError):
        return None
    return LastCheckpoint(
        version=version,
        size=sum(actions for actions, _ in sizes),
        parts=len(parts) if parts[0].kind is LogFileKind.CHECKPOINT_PART else None,
        size_in_bytes=sum(size_bytes for _, size_bytes in sizes),
    )


def _size(store: LogStore, path: str) -> tuple[int, int]:
    """Return how many actions and bytes a checkpoint file has.

    Raises: FileNotFoundError; ValueError, OSError, ArrowException for a torn one; Unavailable.
    """
    if path.endswith(".json"):
        content = store.read(path)
        if content is None:
            raise FileNotFoundError(path)
        lines = [orjson.loads(line) for line in content.splitlines() if line.strip()]
        if not lines:
            raise ValueError(f"{path} is empty")
        return len(lines), len(content)
    with store.open(path) as file:
        rows = read_row_count(file)
        return rows, _end(file)


def _end(file: BinaryIO) -> int:
    return file.seek(0, 2)
