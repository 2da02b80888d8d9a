"""Whether a version is what its version checksum says: for those who build on what they read.

A plain read does not ask: the checksum file is one more request, not every version has one, and a
wrong one may be its writer's slip. What summarises the log for others must not cement damage.
"""

from tidegate.delta.checkpoints import checksum
from tidegate.delta.checkpoints.checksum import VersionChecksum
from tidegate.delta.errors import BrokenLog
from tidegate.delta.names import checksum_name, in_log
from tidegate.delta.snapshot import Snapshot
from tidegate.runtime.log_store import LogStore


def stated_checksum(store: LogStore, version: int) -> VersionChecksum | None:
    """Return what the checksum file of a version says, None where there is none that can be read.

    Raises: Unavailable.
    """
    content = store.read(in_log(checksum_name(version))) if version >= 0 else None
    if content is None:
        return None
    try:
        return checksum.decode(content)
    except BrokenLog:
        # It is only a check: what it would have told is computed from the table instead.
        return None


def check_stated(store: LogStore, snapshot: Snapshot) -> None:
    """Refuse a snapshot that contradicts the checksum file of its version, if there is one.

    Raises: BrokenLog (`CorruptChecksum`); Unavailable.
    """
    stated = stated_checksum(store, snapshot.version)
    if stated is None:
        return
    found = checksum.of(snapshot)
    names = checksum.differences(stated, found)
    if names:
        told = ", ".join(
            f"{name} {_shown(getattr(stated, name))}, not {_shown(getattr(found, name))}"
            for name in names
        )
        raise BrokenLog(
            f"{checksum_name(snapshot.version)} of table {store.root} contradicts the log up to "
            f"version {snapshot.version}: it states {told}. Compare the table with a backup; if "
            "the log is right, delete the checksum file",
            error_class="CorruptChecksum",
        )


def _shown(value: object) -> str:
    return str(value) if isinstance(value, int) else "another"
