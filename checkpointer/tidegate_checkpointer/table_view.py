"""What the checkpointer knows of one table: the summary files in its log, and its state.

The state is that of one version. It goes forward by reading commits, each once: what is read
serves checksums, log compactions and checkpoints. It may be dropped at any time, and is then read
from the log again.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tidegate_checkpointer.machine import SummaryState
from tidegate_checkpointer.summary_writers import check_checkpointable
from tidegate_delta.checkpoints import last_checkpoint
from tidegate_delta.checkpoints.log_compaction import compact_contents
from tidegate_delta.checkpoints.rows_since_checkpoint import CheckpointState
from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.log.file_names import (
    LAST_CHECKPOINT,
    LogFile,
    LogFileKind,
    commit_name,
    compacted_name,
    in_log,
)
from tidegate_delta.log.log_segment import complete_checkpoints
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.checkpoint_reader import whole_checkpoint
from tidegate_runtime.table_io.log_reader import list_log, read_content
from tidegate_runtime.table_io.open_table import open_keys, stated_checksum
from tidegate_runtime.table_io.stored_checkpoint import follow, load_state

KEPT_BYTES_MAX: Final = 32 << 20
"""Bytes of a table's commits that are kept for its next log compaction."""

TOGETHER_BYTES: Final = 32 << 20
"""Bytes of commits that are read before the state goes forward by them."""

HEAVY_BYTES: Final = 32 << 20
"""A tail of commits is heavy if it weighs this much, and more than the checkpoint below it."""

BYTES_PER_S: Final = 20e6
"""How fast a table is taken to be read or written that was not read or written yet."""

REQUEST_S: Final = 0.02
"""What a reader is taken to wait for one commit."""


@dataclass
class TableView:
    """One table of the service.

    `head` is the newest version seen. `warm` is the state at some version, None while it is not in
    memory. `load_s` is how long it took to read it, `used_s` when it was last used. `write_s` is
    how long the last checkpoint took. `tail` maps each commit above the last checkpoint to its
    size, as far as it is known.
    """

    store: LogStore
    state: SummaryState
    head: int = -1
    warm: CheckpointState | None = None
    load_s: float = 0.0
    used_s: float = 0.0
    write_s: float | None = None
    checkpoint_bytes: int = 0
    tail: dict[int, int] = field(default_factory=dict)
    is_alone: bool = False
    """Whether no other writer of summaries was met since the last checkpoint."""
    _definition: tuple[Protocol, Metadata] | None = None
    _contents: dict[int, bytes] = field(default_factory=dict)
    _compactions: dict[int, int] = field(default_factory=dict)

    def at(self, version: int) -> CheckpointState:
        """Return the state at a version, reading as little as possible.

        Raises: UnsupportedFeature, for a table that we can't summarise at this version; BrokenLog;
        Unavailable.
        """
        state = self.warm
        if state is None or state.version > version:
            began_s = time.perf_counter()
            state = load_state(self.store, version)
            self.load_s = time.perf_counter() - began_s
        while state.version < version:
            state = follow(self.store, state, self._next_contents(state.version + 1, version))
        self.keep(state)
        return state

    def keep(self, state: CheckpointState) -> None:
        """Keep a state in memory.

        Raises: UnsupportedFeature, for a table that we can't summarise at its version.
        """
        definition = state.fresh.protocol, state.fresh.metadata
        if self._definition != definition:
            check_checkpointable(*definition, self.store.root)
            self._definition = definition
        self.warm, self.used_s = state, time.monotonic()

    def start_from(self, checkpoint: int) -> None:
        """Drop a state that was read from an older checkpoint than this version's.

        The files of older ones go from the log some time after they were replaced.
        """
        if self.warm is not None and self.warm.based_on < checkpoint:
            self.warm = None

    def definition(self) -> tuple[Protocol, Metadata]:
        """Return the protocol and metadata of the newest version that is known of.

        Raises: UnsupportedFeature, for a table that we can't summarise; BrokenLog; Unavailable.
        """
        if self._definition is None:
            checksum = stated_checksum(self.store, self.head)
            version_keys = checksum or open_keys(self.store, self.head)
            check_checkpointable(version_keys.protocol, version_keys.metadata, self.store.root)
            self._definition = version_keys.protocol, version_keys.metadata
        return self._definition

    @property
    def is_heavy(self) -> bool:
        """Whether readers would gain by a checkpoint now, whatever the interval."""
        return sum(self.tail.values()) > max(HEAVY_BYTES, self.checkpoint_bytes)

    @property
    def opening_s(self) -> float:
        """What a reader is taken to pay for the commits above the last checkpoint."""
        return len(self.tail) * REQUEST_S + sum(self.tail.values()) / BYTES_PER_S

    def reading_s(self) -> float:
        """Return how long it is expected to take until the state is that of the head."""
        known = self.state.checkpoint if self.warm is None else self.warm.version
        unread = sum(size for version, size in self.tail.items() if version > known)
        loading_s = 0.0
        if self.warm is None:
            loading_s = self.load_s or self.checkpoint_bytes / BYTES_PER_S
        return loading_s + unread / BYTES_PER_S

    def writing_s(self) -> float:
        """Return how long a checkpoint is expected to take."""
        if self.write_s is not None:
            return self.write_s
        return (self.checkpoint_bytes + sum(self.tail.values())) / BYTES_PER_S

    def wrote_checkpoint(self, version: int, size_bytes: int, seconds: float | None) -> None:
        """Note a checkpoint of ours, and how long it took, or another's, at a version."""
        self.checkpoint_bytes = size_bytes
        self.write_s = self.write_s if seconds is None else seconds
        self.tail = {commit: size for commit, size in self.tail.items() if commit > version}

    def compacted(self, start: int, end: int) -> bytes:
        """Return the log compaction of some versions, both included; empty if they do nothing.

        It is made from shorter ones that we wrote, where there are any.
        Raises: BrokenLog (`LogGap`, `CorruptCommit`); Unavailable.
        """
        contents, version = [], start
        while version <= end:
            last = self._compactions.get(version, end + 1)
            shorter = None
            if last <= end:
                shorter = self.store.read(in_log(compacted_name(version, last)))
            contents.append(self._content(version) if shorter is None else shorter)
            version = version + 1 if shorter is None else last + 1
        return compact_contents(contents)

    def wrote_compaction(self, start: int, end: int) -> None:
        """Note a log compaction of ours, of which longer ones may be made."""
        checkpoint = self.state.checkpoint
        kept = {first: last for first, last in self._compactions.items() if last > checkpoint}
        self._compactions = {**kept, start: end}

    def forget_contents(self, through: int) -> None:
        """Drop the commits up to a version, of which no compaction will be made any more."""
        for version in [version for version in self._contents if version <= through]:
            del self._contents[version]

    def saw(self, version: int, content: bytes) -> None:
        """Keep the bytes of a commit, so that it is not read again."""
        if version > self.state.checkpoint:
            self.tail[version] = len(content)
        self._contents[version] = content
        kept_bytes = sum(map(len, self._contents.values()))
        for oldest in sorted(self._contents)[:-1]:
            if kept_bytes <= KEPT_BYTES_MAX:
                return
            kept_bytes -= len(self._contents.pop(oldest))

    def _next_contents(self, first: int, last: int) -> Sequence[bytes]:
        contents: list[bytes] = []
        size = 0
        for version in range(first, last + 1):
            contents.append(self._content(version))
            size += len(contents[-1])
            if size > TOGETHER_BYTES:
                break
        return contents

    def _content(self, version: int) -> bytes:
        content_kept = self._contents.get(version)
        if content_kept is not None:
            return content_kept
        content = read_content(self.store, commit_name(version))
        if content is None:
            raise BrokenLog(
                f"{commit_name(version)} of table {self.store.root} is not there, although a later "
                "version was seen: restore it from a backup, or see who cleans the log",
                error_class="LogGap",
            )
        self.saw(version, content)
        return content


def view_from_log(store: LogStore, compaction_interval: int) -> TableView:
    """Return a table's view from its log, listed from `_last_checkpoint` on, or all without it."""
    last = last_checkpoint.decode(store.read(in_log(LAST_CHECKPOINT)) or b"")
    listed = list(list_log(store, f"{last.version if last else 0:020d}"))
    files = [file for file, _ in listed]
    checkpoints = complete_checkpoints(files)
    # Only a checkpoint that is read whole counts as done.
    is_whole = last is not None and whole_checkpoint(store, last.version) is not None
    hinted = last.version if last is not None and is_whole else -1
    # Versions below the oldest readable one are gone, so nothing of them is due.
    oldest = min((file.version for file in files if file.kind is LogFileKind.COMMIT), default=0)
    below = max(oldest, min(checkpoints, default=0) if oldest > 0 else 0) - 1
    state = SummaryState(
        compaction_interval,
        checkpoint=max(hinted, below),
        compacted=max(_newest(files, LogFileKind.COMPACTED), below),
        checksummed=max(_newest(files, LogFileKind.CHECKSUM), below),
    )
    tail = {
        int(file.version): stat.size
        for file, stat in listed
        if file.kind is LogFileKind.COMMIT and file.version > state.checkpoint
    }
    weight = last.size_in_bytes if last is not None and is_whole else None
    return TableView(
        store,
        state,
        head=_newest(files, LogFileKind.COMMIT),
        checkpoint_bytes=weight or 0,
        tail=tail,
    )


def _newest(files: Sequence[LogFile], kind: LogFileKind) -> int:
    return max((file.version for file in files if file.kind is kind), default=-1)
