"""File names in `_delta_log`: parse, format, order.

Names are relative to the `_delta_log` folder unless a function says otherwise. Because versions
are zero-padded, names sort in version order; listing relies on that.

Spec: "File Types"
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NewType
from uuid import UUID, uuid5

Version = NewType("Version", int)
"""The version of a table. Never an offset."""

LOG_FOLDER: Final = "_delta_log"
SIDECAR_FOLDER: Final = "_sidecars"
STAGED_FOLDER: Final = "_staged_commits"
LAST_CHECKPOINT: Final = "_last_checkpoint"

_OWN: Final = UUID("b1f4c2de-6f0a-5a53-9d5c-7d1be0c8f3a1")
_VERSION_MAX: Final = f"{2**63 - 1:020d}"
_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_COMMIT = re.compile(r"^([0-9]{20})\.json\Z")
_CHECKSUM = re.compile(r"^([0-9]{20})\.crc\Z")
_COMPACTED = re.compile(r"^([0-9]{20})\.([0-9]{20})\.compacted\.json\Z")
_CLASSIC = re.compile(r"^([0-9]{20})\.checkpoint\.parquet\Z")
_MULTIPART = re.compile(r"^([0-9]{20})\.checkpoint\.([0-9]{10})\.([0-9]{10})\.parquet\Z")
_STAGED = re.compile(rf"^([0-9]{{20}})\.{_UUID}\.json")
_V2 = re.compile(rf"^([0-9]{{20}})\.checkpoint\.({_UUID})\.(json|parquet)\Z")


class LogFileKind(StrEnum):
    """The kind of a file in the log."""

    COMMIT = "commit"
    CHECKSUM = "checksum"
    COMPACTED = "compacted"
    CHECKPOINT_CLASSIC = "checkpoint_classic"
    CHECKPOINT_PART = "checkpoint_part"
    CHECKPOINT_V2 = "checkpoint_v2"


@dataclass(frozen=True, order=True)
class LogFile:
    """A parsed file name. The file covers the versions `start` to `version`, both included."""

    version: Version
    kind: LogFileKind
    name: str
    start: Version
    part: int = 0
    parts: int = 0

    @property
    def is_checkpoint(self) -> bool:
        """Whether the file is a checkpoint or a part of one."""
        return self.kind in (
            LogFileKind.CHECKPOINT_CLASSIC,
            LogFileKind.CHECKPOINT_PART,
            LogFileKind.CHECKPOINT_V2,
        )


def parse(name: str) -> LogFile | None:
    """Return the parsed name of a file in `_delta_log`, or None for an unknown name.

    A version past 64 bits makes a name unknown.
    """
    if name[:20] > _VERSION_MAX:
        return None
    if m := _COMMIT.match(name):
        return _single(LogFileKind.COMMIT, m)
    if m := _CHECKSUM.match(name):
        return _single(LogFileKind.CHECKSUM, m)
    if m := _CLASSIC.match(name):
        return _single(LogFileKind.CHECKPOINT_CLASSIC, m)
    if m := _V2.match(name):
        return _single(LogFileKind.CHECKPOINT_V2, m)
    if m := _COMPACTED.match(name):
        start, end = Version(int(m[1])), Version(int(m[2]))
        is_range = end > start and m[2] <= _VERSION_MAX
        return LogFile(end, LogFileKind.COMPACTED, name, start) if is_range else None
    if m := _MULTIPART.match(name):
        part, parts = int(m[2]), int(m[3])
        version = Version(int(m[1]))
        if not 1 <= part <= parts:
            return None
        return LogFile(version, LogFileKind.CHECKPOINT_PART, name, version, part, parts)
    return None


def commit_name(version: int) -> str:
    """Return the name of the commit file of a version.

    Spec: "Delta Log Entries"
    """
    return f"{version:020d}.json"


def staged_name(version: int, unique: UUID) -> str:
    """Return the name, inside the staging folder, of a file staged for a version.

    Spec: "Terminology: Commits"
    """
    return f"{version:020d}.{unique}.json"


def staged_version(name: str) -> Version | None:
    """Return the version for which a file was staged, or None where the name is not a staged one.

    Spec: "Terminology: Commits"
    """
    match = _STAGED.fullmatch(name)
    return Version(int(match[1])) if match else None


def checksum_name(version: int) -> str:
    """Return the name of the version checksum file.

    Spec: "Version Checksum File"
    """
    return f"{version:020d}.crc"


def checkpoint_name(version: int) -> str:
    """Return the name of the classic checkpoint of a version.

    Spec: "Checkpoints"
    """
    return f"{version:020d}.checkpoint.parquet"


def compacted_name(start: int, end: int) -> str:
    """Return the name of the log compaction file of the versions `start` to `end`, both included.

    Spec: "Log Compaction Files"
    """
    return f"{start:020d}.{end:020d}.compacted.json"


def v2_checkpoint_name(version: int, unique: str, suffix: str = "parquet") -> str:
    """Return the name of a V2 checkpoint of a version; `unique` is a UUID that its writer chose.

    Spec: "UUID-named checkpoint"
    """
    return f"{version:020d}.checkpoint.{unique}.{suffix}"


def own_v2_checkpoint_name(version: int, table_id: str, *, is_json: bool = True) -> str:
    """Return the name that each writer of this release gives the V2 checkpoint of a version.

    So put-if-absent leaves one of several writers' checkpoints. Its top-level file is in JSON or in
    Parquet.
    Spec: "UUID-named checkpoint"
    """
    return v2_checkpoint_name(
        version, str(uuid5(_OWN, f"{table_id}/{version}")), "json" if is_json else "parquet"
    )


def sidecar_name(version: int, unique: str) -> str:
    """Return the name of a sidecar that is first used at a version; `unique` is a UUID.

    Spec: "Sidecar Files"
    """
    return f"{version:020d}.{unique}.parquet"


def in_sidecars(name: str) -> str:
    """Return the path of a sidecar, relative to the table root.

    Spec: "Sidecar Files"
    """
    return f"{LOG_FOLDER}/{SIDECAR_FOLDER}/{name}"


def in_log(name: str) -> str:
    """Return the path of a file of `_delta_log`, relative to the table root.

    Spec: "Delta Log Entries"
    """
    return f"{LOG_FOLDER}/{name}"


def _single(kind: LogFileKind, match: re.Match[str]) -> LogFile:
    version = Version(int(match[1]))
    return LogFile(version, kind, match[0], version)
