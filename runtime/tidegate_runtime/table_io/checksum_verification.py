"""Compare a snapshot with its version checksum.

A contradiction is logged and does not end a read, since the checksum itself may be wrong. Nor does
it keep checkpoints from being written: while the commits are there these can be made again.
"""

import logging
from functools import lru_cache
from typing import Final

from tidegate_delta.checkpoints import version_checksum
from tidegate_delta.checkpoints.checksum_validation import validate
from tidegate_delta.checkpoints.version_checksum import VersionChecksum
from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.file_names import LogFile, checksum_name, in_log
from tidegate_delta.snapshots.checksum_verdict import ABSENT, ChecksumVerdict
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.storage.log_store import LogStore

_REMEMBERED: Final = 1_024
_log = logging.getLogger(__name__)


def verdict_on(store: LogStore, snapshot: Snapshot, listed: LogFile | None) -> ChecksumVerdict:
    """Return whether a snapshot agrees with the checksum file that was listed with its version.

    A contradiction is logged, once for each version. Raises: Unavailable.
    """
    content = None if listed is None else store.read(in_log(listed.name))
    if content is None:
        return ABSENT
    verdict = validate(content, snapshot)
    if verdict.is_doubtful:
        _warn_once(store.root, int(snapshot.version), str(verdict))
    return verdict


def stated_checksum(store: LogStore, version: int) -> VersionChecksum | None:
    """Return the checksum of a version, or None without a readable checksum file.

    Raises: Unavailable.
    """
    content = store.read(in_log(checksum_name(version))) if version >= 0 else None
    if content is None:
        return None
    try:
        return version_checksum.decode(content)
    except BrokenLog:
        # A checksum is only a check: its values can be computed from the table instead.
        return None


def checksum_contradiction(store: LogStore, snapshot: Snapshot) -> str:
    """Return what the checksum file of a snapshot's version states otherwise, or "".

    Raises: Unavailable.
    """
    return contradiction_of(store, snapshot.version, version_checksum.of(snapshot))


def contradiction_of(store: LogStore, version: int, computed: VersionChecksum) -> str:
    """Return what the checksum file of a version states otherwise than what was found, or "".

    A version without a readable checksum file has no contradiction. Raises: Unavailable.
    """
    stated = stated_checksum(store, version)
    if stated is None:
        return ""
    names = version_checksum.differences(stated, computed)
    if not names:
        return ""
    listed = ", ".join(
        f"{name} {_shown(getattr(stated, name))}, not {_shown(getattr(computed, name))}"
        for name in names
    )
    return (
        f"{checksum_name(version)} of table {store.root} contradicts the log up to "
        f"version {version}: it states {listed}. Compare the table with a backup; if "
        "the log is right, delete the checksum file"
    )


@lru_cache(maxsize=_REMEMBERED)
def _warn_once(root: str, version: int, contradiction: str) -> None:
    """Log a contradiction; the cache limits it to once for each version."""
    log_event(
        _log,
        "checksum_doubted",
        level=logging.WARNING,
        root=root,
        version=version,
        why=contradiction,
    )


def _shown(value: object) -> str:
    return str(value) if isinstance(value, int) else "another"
