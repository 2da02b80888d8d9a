"""The service's view of one table: the summary files in its log, and the totals of one version.

No file set is kept between checkpoints: the totals of the next version follow from those of this
one and the commit. For a checkpoint the table is opened again.
"""

from dataclasses import dataclass

from tidegate_checkpointer.machine import SummaryState
from tidegate_checkpointer.supported_tables import check_checkpointable
from tidegate_delta.checkpoints import last_checkpoint, version_checksum
from tidegate_delta.checkpoints.version_checksum import VersionChecksum
from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import LAST_CHECKPOINT, LogFile, LogFileKind, commit_name, in_log
from tidegate_delta.log.log_segment import complete_checkpoints
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.checksum_verification import stated_checksum
from tidegate_runtime.table_io.log_reader import list_log
from tidegate_runtime.table_io.open_table import open_snapshot, read_commit


@dataclass
class TableView:
    """One table. `totals` are those of `version`; `head` is the newest version seen."""

    store: LogStore
    state: SummaryState
    head: int = -1
    version: int = -1
    totals: VersionChecksum | None = None

    def learn(self, version: int) -> VersionChecksum:
        """Return the totals of a version, reading as little as possible.

        Raises: UnsupportedFeature, for a table that we can't summarise at this version; BrokenLog.
        """
        if self.totals is None or self.version != version:
            self.remember(version, self._totals(version))
        assert self.totals is not None, "remembered"
        return self.totals

    def remember(self, version: int, totals: VersionChecksum) -> None:
        """Keep the totals of a version.

        Raises: UnsupportedFeature, for a table that we can't summarise at this version.
        """
        check_checkpointable(totals.protocol, totals.metadata, self.store.root)
        self.version, self.totals = version, totals

    def _totals(self, version: int) -> VersionChecksum:
        commit = read_version(self.store, version)
        before = (
            self.totals if self.version == version - 1 else stated_checksum(self.store, version - 1)
        )
        after = None if before is None else version_checksum.evolve(before, commit)
        if after is not None:
            return after
        txn_id = commit.info.txn_id if commit.info else None
        # Opening the snapshot reads the commit again, which may be large: hold it only once.
        del commit
        return version_checksum.of(open_snapshot(self.store, version), txn_id)


def view_from_log(store: LogStore, compaction_interval: int) -> TableView:
    """Return a table's view from its log, listed from `_last_checkpoint` on, or all without it."""
    last = last_checkpoint.decode(store.read(in_log(LAST_CHECKPOINT)) or b"")
    files = [file for file, _ in list_log(store, f"{last.version if last else 0:020d}")]
    checkpoints = complete_checkpoints(files)
    hinted = last.version if last is not None and last.version in checkpoints else -1
    # Versions below the oldest readable one are gone, so nothing of them is due.
    oldest = min((file.version for file in files if file.kind is LogFileKind.COMMIT), default=0)
    below = max(oldest, min(checkpoints, default=0) if oldest > 0 else 0) - 1
    state = SummaryState(
        compaction_interval,
        checkpoint=max(hinted, below),
        compacted=max(_newest(files, LogFileKind.COMPACTED), below),
        checksummed=max(_newest(files, LogFileKind.CHECKSUM), below),
    )
    return TableView(store, state, head=_newest(files, LogFileKind.COMMIT))


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


def _newest(files: list[LogFile], kind: LogFileKind) -> int:
    return max((file.version for file in files if file.kind is kind), default=-1)
