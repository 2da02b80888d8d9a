"""The top-level file of a checkpoint: its own actions, and its sidecars."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.actions import CheckpointMetadata, Sidecar
from tidegate_delta.log.file_names import LogFile, LogFileKind, in_sidecars
from tidegate_delta.log.file_paths import decode_path
from tidegate_delta.log.json_lines import read_bodies
from tidegate_delta.snapshots.file_action_columns import ADD_SCHEMA
from tidegate_delta.snapshots.raw_stats import PARSED
from tidegate_delta.snapshots.replay import LogPart, part_of


@dataclass(frozen=True)
class TopLevelFile:
    """The content of a checkpoint's top-level file; a V1 checkpoint has no metadata or sidecars.

    Spec: "V2 Spec"
    """

    part: LogPart
    metadata: tuple[CheckpointMetadata, ...] = ()
    sidecars: tuple[Sidecar, ...] = ()


def read_json(name: str, content: bytes, files: pa.Schema = ADD_SCHEMA) -> TopLevelFile:
    """Return the content of a V2 checkpoint in JSON; live files have the columns of `files`.

    Raises: BrokenLog (`CorruptCommit`) for a line that is no JSON object or a malformed action;
    ValueError for malformed metadata or sidecars.
    Spec: "UUID-named checkpoint"
    """
    bodies = read_bodies(name, content)
    bodies["add"] = [_with_stats_text(body) for body in bodies["add"]]
    return TopLevelFile(
        part_of(name, bodies, files),
        tuple(CheckpointMetadata.model_validate(body) for body in bodies["checkpointMetadata"]),
        tuple(Sidecar.model_validate(body) for body in bodies["sidecar"]),
    )


def check(file: LogFile, top: TopLevelFile) -> None:
    """Refuse a checkpoint that lacks what its kind must hold, which reveals a torn file.

    Raises: BrokenLog (`CorruptCheckpoint`).
    Spec: "V2 Spec"
    """
    is_v2 = file.kind is LogFileKind.CHECKPOINT_V2 or bool(top.sidecars)
    if len(top.metadata) > 1 or (is_v2 and not top.metadata):
        raise _corrupt(file, f"holds {len(top.metadata)} checkpointMetadata instead of one")
    versions = {metadata.version for metadata in top.metadata}
    if not versions <= {int(file.version)}:
        raise _corrupt(file, f"says that it is of version {max(versions)}")
    if top.metadata and (top.part.protocol is None or top.part.metadata is None):
        raise _corrupt(file, "lacks protocol or metaData")


def sidecar_path(sidecar: Sidecar) -> str:
    """Return the path of a sidecar, relative to the table root.

    However its path is written, a sidecar is in the table's own `_sidecars` folder.
    Spec: "Sidecar File Information"
    """
    return in_sidecars(decode_path(sidecar.path.rpartition("/")[2]))


def _with_stats_text(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an add with its statistics as text, converted from an object where it has no text."""
    parsed = body.get(PARSED)
    if parsed is None or body.get("stats") is not None:
        return body
    return {**body, "stats": orjson.dumps(parsed).decode()}


def _corrupt(file: LogFile, problem: str) -> BrokenLog:
    return BrokenLog(
        f"checkpoint {file.name} {problem}: remove it if the commits before it are still there, or "
        "restore it from a backup",
        error_class="CorruptCheckpoint",
    )
