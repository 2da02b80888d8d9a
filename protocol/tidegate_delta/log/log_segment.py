"""Choose the log segment of a version from a listing of `_delta_log`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidegate_delta.errors import BrokenLog, InvalidRequest
from tidegate_delta.log.file_names import LogFile, LogFileKind, Version


@dataclass(frozen=True)
class LogSegment:
    """The files that make up a version: a checkpoint, possibly multi-part, and the files after it.

    Shape: `deltas` are commits and log compactions, ascending, without a gap up to `version`;
    `checksum` is the version checksum file of `version`, where one was listed.
    Spec: "Action Reconciliation"
    """

    version: Version
    checkpoint: tuple[LogFile, ...]
    deltas: tuple[LogFile, ...]
    checksum: LogFile | None = None

    @property
    def checkpoint_version(self) -> int:
        """The version of the checkpoint, or -1."""
        return self.checkpoint[0].version if self.checkpoint else -1


def choose(files: Iterable[LogFile], version: int | None = None) -> LogSegment:
    """Return the files that make up a version, by default the newest one.

    Raises: InvalidRequest (`NotADeltaTable`, `VersionNotFound`); BrokenLog (`LogGap`).
    Spec: "Checkpoints"
    """
    listed = list(files)
    checksums = {file.version: file for file in listed if file.kind is LogFileKind.CHECKSUM}
    known = [file for file in listed if file.kind is not LogFileKind.CHECKSUM]
    commits = {file.version: file for file in known if file.kind is LogFileKind.COMMIT}
    checkpoints = complete_checkpoints(known)
    versions = [*commits, *checkpoints]
    if not versions:
        raise InvalidRequest(
            "there is no Delta table: its _delta_log holds neither a commit nor a checkpoint; "
            "check the path",
            error_class="NotADeltaTable",
        )
    head = max(versions)
    target = head if version is None else version
    if not 0 <= target <= head:
        raise _not_found(target, f"the newest version is {head}")
    start = max(
        (checkpoint_version for checkpoint_version in checkpoints if checkpoint_version <= target),
        default=-1,
    )
    begins = min(checkpoints, default=None)
    if start < 0 and 0 not in commits and version is not None and begins is not None:
        raise _not_found(target, f"the log was cleaned up and begins at version {begins}")
    deltas = _deltas(known, commits, start + 1, target)
    checksum = checksums.get(Version(target))
    return LogSegment(Version(target), checkpoints.get(start, ()), deltas, checksum)


def complete_checkpoints(files: Iterable[LogFile]) -> dict[int, tuple[LogFile, ...]]:
    """Return, by version, the checkpoint to read among those of which every part is present.

    A UUID-named checkpoint is preferred to a classic one, and that to a multi-part one.
    Spec: "Checkpoint Naming Scheme"
    """
    parts: dict[tuple[int, int], dict[int, LogFile]] = {}
    single_file: dict[int, tuple[LogFile, ...]] = {}
    for file in sorted(file for file in files if file.is_checkpoint):
        if file.kind is LogFileKind.CHECKPOINT_PART:
            parts.setdefault((file.version, file.parts), {})[file.part] = file
        else:
            single_file[file.version] = (file,)
    multi_part = {
        version: tuple(present[part] for part in sorted(present))
        for (version, count), present in parts.items()
        if len(present) == count
    }
    return multi_part | single_file


def _deltas(
    files: Sequence[LogFile], commits: dict[Version, LogFile], start: int, target: int
) -> tuple[LogFile, ...]:
    compactions: dict[int, LogFile] = {}
    for file in files:
        if file.kind is LogFileKind.COMPACTED and start <= file.start and file.version <= target:
            longest = compactions.get(file.start)
            if longest is None or longest.version < file.version:
                compactions[file.start] = file
    missing = next(
        (
            missing_version
            for missing_version in range(start, target + 1)
            if missing_version not in commits
        ),
        None,
    )
    if missing is not None:
        # A log compaction may still cover the gap. But it only repeats commits that exist, and
        # a log that lost one is not to be trusted in part.
        raise BrokenLog(
            f"version {missing} is missing from the log, so version {target} can't be read: "
            f"restore {missing:020d}.json{_missing_parts(files, target)}, or read a version before "
            "it",
            error_class="LogGap",
        )
    chosen: list[LogFile] = []
    next_version = start
    while next_version <= target:
        covering = compactions.get(next_version) or commits[Version(next_version)]
        chosen.append(covering)
        next_version = covering.version + 1
    return tuple(chosen)


def _missing_parts(files: Sequence[LogFile], target: int) -> str:
    """Return a sentence on the missing part of a checkpoint that would have bridged the gap."""
    part_files = [
        file
        for file in files
        if file.kind is LogFileKind.CHECKPOINT_PART and file.version <= target
    ]
    if not part_files:
        return ""
    version, count = max((part_file.version, part_file.parts) for part_file in part_files)
    known = {
        part_file.part
        for part_file in part_files
        if (part_file.version, part_file.parts) == (version, count)
    }
    missing_part = next((part for part in range(1, count + 1) if part not in known), None)
    return (
        ""
        if missing_part is None
        else f" or {version:020d}.checkpoint.{missing_part:010d}.{count:010d}.parquet"
    )


def _not_found(version: int, reason: str) -> InvalidRequest:
    return InvalidRequest(
        f"version {version} of the table can't be read: {reason}; ask for a version that is there",
        error_class="VersionNotFound",
    )
