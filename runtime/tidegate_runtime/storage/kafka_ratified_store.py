"""Put-if-absent for stores that lack it: a Kafka topic partition decides who wins a version.

    put_if_absent:  stage ─▶ append ─▶ read back: the fold says whose ─▶ publish, in order ─▶ WON
                                                                      └▶ publish theirs ───▶ LOST

Publishing copies the staged bytes to `N.json` by a plain PUT. Any process may do so any number of
times, as the bytes are the same each time. The store below must replace a file whole, and only this
class may write commits.
"""

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from threading import Lock, RLock
from typing import BinaryIO, Final
from uuid import UUID

from tidegate_delta.errors import BrokenLog, MalformedRecord, Unavailable
from tidegate_delta.log.commit import sha256
from tidegate_delta.log.file_names import (
    LOG_FOLDER,
    STAGED_FOLDER,
    LogFileKind,
    commit_name,
    in_log,
    parse,
)
from tidegate_messages.codec import decode, encode, headers, other_format
from tidegate_messages.ratification import Ratification, Ratified, fold
from tidegate_messages.topics import Topics
from tidegate_runtime.clock import Clock, SystemClock
from tidegate_runtime.kafka.client_protocols import Bus, Offset, TopicPartition
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.storage.log_store import FileStat, IsWanted, LogStore, Put, Turn, at_once
from tidegate_runtime.storage.root_paths import recorded_root

_READ_S: Final = 1.0
_PATIENCE_S: Final = 15.0
_STALE_S: Final = 10.0
"""Time since the last read after which the topic's id is checked again, in case it was recreated:
twice the interval at which idle tables read it.
"""
_OLD_S: Final = 60.0
"""Time since the partition was read after which its claim is not published: a process that was
suspended meanwhile might restore a version that was cleaned up.
"""
_CLOCK: Final = SystemClock()
_log = logging.getLogger(__name__)


class RatifyLog:
    """The topic partition that decides on versions: one for all tables, shared by threads.

    It is read to its end before each answer. Every method may raise Unavailable.
    """

    def __init__(self, bus: Bus, topics: Topics, clock: Clock = _CLOCK) -> None:
        self._topic_partition = TopicPartition(topics.ratify, 0)
        self._clock = clock
        self._bus = bus
        self._reader = bus.reader()
        self._producer = bus.producer()
        self._next: Offset | None = None
        self._topic_id = ""
        self._read_end_s = -math.inf
        self._tables: dict[str, Ratified] = {}
        self._reading, self._sending = Lock(), Lock()

    def append(self, record: Ratification, timeout_s: float) -> None:
        """Append a record. If that fails, it may have arrived nevertheless, or may still arrive."""
        key = record.table_root.encode()
        with self._sending:
            try:
                self._producer.publish(self._topic_partition, key, encode(record), headers(record))
                self._producer.flush(timeout_s)
            except Unavailable:
                # An idempotent producer may have failed for good: the next record gets a new one.
                self._producer = self._bus.producer()
                raise

    def decided(self, root: str) -> Ratified | None:
        """Return the newest version decided for a table, or None before its first record."""
        with self._reading:
            self._catch_up()
            return self._tables.get(root)

    def _catch_up(self) -> None:
        """Read the partition to its end and fold it; from its start if the topic was recreated."""
        now_s = self._clock.boot_s()
        first, end = self._reader.bounds(self._topic_partition)
        is_shorter = self._next is not None and end < self._next
        if is_shorter or now_s - self._read_end_s > _STALE_S:
            self._reset_if_recreated(is_shorter)
        self._read_end_s = now_s
        position = first if self._next is None else self._next
        until_s = now_s + _PATIENCE_S
        while position < end:
            records = self._reader.read(self._topic_partition, position, _READ_S)
            if not records and self._clock.boot_s() > until_s:
                raise Unavailable(
                    f"{self._topic_partition} gave nothing from {position} to {end}; look at the "
                    "brokers"
                )
            for record in records:
                other = other_format(record.headers, Ratification)
                if other is not None:
                    raise Unavailable(
                        f"{self._topic_partition}@{record.offset} is a record of format "
                        f"{other!r}: a newer release decides here, and this one would decide "
                        "otherwise; upgrade it"
                    )
                self._fold(record.value, record.offset)
                position = self._next = Offset(record.offset + 1)

    def _reset_if_recreated(self, is_shorter: bool) -> None:
        """Forget what was read if the topic was recreated.

        Then its id has changed, even if it has grown as long as the old one.
        """
        topic = self._topic_partition.topic
        topic_id = self._bus.identity([topic]).topic_ids[topic]
        if self._next is not None and (is_shorter or topic_id != self._topic_id):
            source = f"{topic}/{self._topic_partition.partition}"
            log_event(_log, "recreated", level=logging.ERROR, record=source, read=self._next)
            self._next = None
            self._tables.clear()
        self._topic_id = topic_id

    def _fold(self, value: bytes | None, offset: Offset) -> None:
        try:
            record = decode(Ratification, value)
        except MalformedRecord as error:
            # No process can read it, so it decides nothing for any of them.
            source = f"{self._topic_partition}@{offset}"
            log_event(_log, "malformed", level=logging.ERROR, record=source, why=error)
            return
        root = recorded_root(record.table_root)
        ratified = fold(self._tables.get(root), record)
        if ratified is not None:
            self._tables[root] = ratified


class RatifiedStore:
    """A `LogStore` over a store that can replace files, but lacks put-if-absent."""

    def __init__(
        self,
        below: LogStore,
        log: RatifyLog,
        new_id: Callable[[], UUID],
        clock: Clock = _CLOCK,
    ) -> None:
        self._below = below
        self._log = log
        self._new_id = new_id
        self._clock = clock
        self._published: Ratified | None = None
        self._turn = RLock()

    @property
    def root(self) -> str:
        """The URI of the table root."""
        return self._below.root

    def list_from(self, folder: str, start: str) -> Iterator[FileStat]:
        """Yield files, after publishing a decided version. Raises: BrokenLog; Unavailable."""
        if folder.removesuffix("/") == LOG_FOLDER:
            self._follow()
        yield from self._below.list_from(folder, start)

    def list_tree(self, is_wanted: IsWanted) -> Iterator[FileStat]:
        """Yield all files below the root. Raises: Unavailable."""
        yield from self._below.list_tree(is_wanted)

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file, after publishing a version that was decided.

        Raises: BrokenLog, for a version on which the partition did not decide; Unavailable.
        """
        version = _version_of(path)
        if version is None or self._is_published(version):
            return self._below.read(path)
        self._follow()
        content = self._below.read(path)
        if content is not None and not self._is_published(version):
            # Another committer has just decided and published it, or the partition never decided
            # it.
            self._check_decided(version)
        return content

    def open(self, path: str) -> BinaryIO:
        """Return a seekable reader. Raises: FileNotFoundError, Unavailable."""
        return self._below.open(path)

    def put_if_absent(
        self, path: str, content: bytes, deadline_s: float, turn: Turn = at_once
    ) -> Put:
        """Let the partition decide on a version; WON once it is published.

        A file that is no commit is written if a read does not find it: two writers may both do so,
        which does no harm to files derived from the log. Raises: BrokenLog; Unavailable.
        """
        if not turn():
            return Put.WITHHELD
        ends_s = self._clock.boot_s() + deadline_s
        version = _version_of(path)
        if version is None:
            return self._put_unless_exists(path, content)
        with self._turn:
            ratified = self._follow() or self._begin(ends_s)
            if version <= ratified.head:
                return self._compare(path, content)
            if version > ratified.head + 1:
                raise self._written_past(version - 1)
            if self._below.read(path) is not None:
                self._check_decided(version)
                return self._compare(path, content)
            return self._contend(version, content, ends_s)

    def put(self, path: str, content: bytes) -> None:
        """Write a file whole, replacing an existing one. Raises: Unavailable."""
        self._below.put(path, content)

    def delete(self, path: str) -> None:
        """Remove a file; a missing one is no error. Raises: Unavailable."""
        self._below.delete(path)

    def _contend(self, version: int, content: bytes, ends_s: float) -> Put:
        staged = f"{version:020d}.{self._new_id()}.json"
        claim = Ratification(
            table_root=self.root, version=version, staged=staged, sha256=sha256(content)
        )
        self._below.put(_staged_path(staged), content)
        left_s = ends_s - self._clock.boot_s()
        if left_s <= 0:
            return Put.UNKNOWN
        # If this fails the claim may still have arrived: reading the partition shows it.
        with suppress(Unavailable):
            self._log.append(claim, left_s)
        ratified = self._follow()
        if ratified is None or ratified.head < version:
            return Put.UNKNOWN
        # The version is decided: our staged file is either published or will never be.
        self._below.delete(_staged_path(staged))
        return self._compare(in_log(commit_name(version)), content)

    def _begin(self, ends_s: float) -> Ratified:
        """Append the table's first record, with the last version of its log, and return the fold.

        If another committer was faster, its record counts.
        """
        listed = self._below.list_from(LOG_FOLDER, "")
        versions = [v for stat in listed if (v := _version_of(stat.path)) is not None]
        begun = Ratification(table_root=self.root, version=max(versions, default=-1))
        self._log.append(begun, max(ends_s - self._clock.boot_s(), 0.0))
        ratified = self._follow()
        if ratified is None:
            raise Unavailable(f"the partition that decides on {self.root} lost what was appended")
        return ratified

    def _is_published(self, version: int) -> bool:
        """Return whether a version is known to be decided and published."""
        return self._published is not None and version <= self._published.head

    def _check_decided(self, version: int) -> None:
        if self._follow() is not None and not self._is_published(version):
            raise self._written_past(version)

    def _follow(self) -> Ratified | None:
        """Publish the version decided last, and return the fold; None without any record."""
        with self._turn:
            asked_s = self._clock.boot_s()
            ratified = self._log.decided(self.root)
            if ratified is not None and ratified != self._published:
                if ratified.claim is not None:
                    self._publish(ratified.claim, asked_s)
                self._published = ratified
            return ratified

    def _publish(self, claim: Ratification, asked_s: float) -> None:
        assert claim.staged is not None, "a claim names what was staged"
        path = in_log(commit_name(claim.version))
        published = self._below.read(path)
        content = self._below.read(_staged_path(claim.staged)) if published is None else None
        if content is not None and sha256(content) == claim.sha256:
            if self._clock.boot_s() - asked_s > _OLD_S:
                raise Unavailable(
                    f"version {claim.version} of {self.root} was read too long ago to be published "
                    "now: others may have published it, and cleaned it up; it is read again"
                )
            self._below.put(path, content)
            published = content
        elif published is None:
            # Another committer may have published it and deleted the staged file between our two
            # reads.
            published = self._below.read(path)
        if published is None:
            raise BrokenLog(
                f"version {claim.version} of {self.root} was decided, but neither its file nor the "
                f"staged file {claim.staged} is there: restore one of them",
                error_class="LogGap",
            )
        if sha256(published) != claim.sha256:
            raise self._written_past(claim.version)
        self._below.delete(_staged_path(claim.staged))

    def _compare(self, path: str, content: bytes) -> Put:
        stored = self._below.read(path)
        if stored is None:
            # Cleaned up, or not visible yet in a store that is eventually consistent.
            return Put.UNKNOWN
        return Put.WON if stored == content else Put.LOST

    def _put_unless_exists(self, path: str, content: bytes) -> Put:
        stored = self._below.read(path)
        if stored is None:
            self._below.put(path, content)
            return Put.WON
        return Put.WON if stored == content else Put.LOST

    def _written_past(self, version: int) -> BrokenLog:
        return BrokenLog(
            f"version {version} of {self.root} was written by another writer, and not decided by "
            "the topic `ratify`: on this store only the gate may write; compare the log with a "
            "backup before anything is written",
            error_class="CorruptCommit",
        )


def ratifying(
    open_below: Callable[[str], LogStore],
    log: Callable[[], RatifyLog],
    roots: Iterable[str],
    new_id: Callable[[], UUID],
) -> Callable[[str], LogStore]:
    """Return a function that opens stores: ratified ones for roots under `roots`.

    They share one `RatifyLog`, which is made with the first of them.
    """
    prefixes = tuple(root.rstrip("/") for root in roots)
    opened: list[RatifyLog] = []

    def open_one(root: str) -> LogStore:
        store = open_below(root)
        if not any(
            store.root == prefix or store.root.startswith(f"{prefix}/") for prefix in prefixes
        ):
            return store
        if not opened:
            opened.append(log())
        return RatifiedStore(store, opened[0], new_id)

    return open_one


def _version_of(path: str) -> int | None:
    folder, _, name = path.rpartition("/")
    file = parse(name) if folder == LOG_FOLDER else None
    return file.version if file is not None and file.kind is LogFileKind.COMMIT else None


def _staged_path(name: str) -> str:
    return in_log(f"{STAGED_FOLDER}/{name}")
