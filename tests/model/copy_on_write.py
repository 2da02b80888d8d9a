"""Delta Lake's copy-on-write path after Jack Vanlightly's published specification (`basic_cow`).

Writers insert, update and delete rows; put-if-absent, a lock, both or neither isolates them; the
table has partitions or not. The states are those of the specification, one for one, so that their
number can be compared with TLC's. The lease is our addition: a lock that may expire while its
writer is still alive.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tests.model.checker import Invariant

FileId = tuple[int, str | None]
"""Number and partition of a data file."""

Rows = frozenset[tuple[str, int]]
Files = tuple[tuple[FileId, Rows], ...]


@dataclass(frozen=True)
class CopyOnWriteSetting:
    """What isolates writers, and the size of the world."""

    puts_if_absent: bool
    locks: bool
    is_partitioned: bool
    lease_expires: bool = False
    writers: int = 2
    colours: tuple[str, ...] = ("r", "g")
    numbers: tuple[int, ...] = (1, 2)
    operations_max: int = 3


class Transaction(NamedTuple):
    """An operation on the rows of one colour, based on a version."""

    read_version: int
    operation: Literal["insert", "update", "delete"]
    partition: str | None
    colour: str
    number: int | None


class LogEntry(NamedTuple):
    """A version and the files that it adds and removes."""

    version: int
    added: frozenset[FileId]
    removed: frozenset[FileId]


Log = tuple[LogEntry, ...]


class Working(NamedTuple):
    """An active writer: `targets` are the files it read, `added` and `removed` its changes."""

    phase: Literal["reading", "writing", "locking", "committing"]
    transaction: Transaction
    loaded: Log
    targets: frozenset[tuple[FileId, Rows]]
    version: int
    added: frozenset[FileId] | None = None
    removed: frozenset[FileId] | None = None


Writer = Literal["idle", "failed"] | Working


class CopyOnWriteState(NamedTuple):
    """The whole state. `done` are the committed transactions, by colour."""

    writers: tuple[Writer, ...]
    lock: int
    log: Log
    files: Files
    done: tuple[tuple[tuple[int, Transaction], ...], ...]
    counter: int
    begun: int


Steps = Iterator[tuple[str, CopyOnWriteState]]
UNLOCKED = -1
NO_FILES: frozenset[tuple[FileId, Rows]] = frozenset()


@dataclass(frozen=True)
class CopyOnWrite:
    """The model with a setting."""

    setting: CopyOnWriteSetting

    @property
    def invariants(self) -> Mapping[str, Invariant[CopyOnWriteState]]:
        """The invariants."""
        return {"ConsistentRead": self._consistent_read, "ValidDeltaLog": valid_log}

    def starts(self) -> Iterable[CopyOnWriteState]:
        """Return the initial states."""
        setting = self.setting
        idle: Writer = "idle"
        writers = (idle,) * setting.writers
        return (CopyOnWriteState(writers, UNLOCKED, (), (), ((),) * len(setting.colours), 1, 0),)

    def is_done(self, state: CopyOnWriteState) -> bool:
        """Whether every operation was started and every writer has ended."""
        is_all = state.begun == self.setting.operations_max
        return is_all and all(isinstance(writer, str) for writer in state.writers)

    def serves(self, label: str) -> bool:
        """Return True: operations are limited, so no wait is endless."""
        return True

    def steps(self, state: CopyOnWriteState) -> Steps:
        """Yield the next steps."""
        if self.setting.lease_expires and state.lock != UNLOCKED:
            yield "the lease expires", state._replace(lock=UNLOCKED)
        for number, writer in enumerate(state.writers):
            if writer == "idle":
                yield from self._begins(state, number)
            elif isinstance(writer, Working):
                match writer.phase:
                    case "reading":
                        yield from self._reads(state, number, writer)
                    case "writing":
                        yield self._writes(state, number, writer)
                    case "locking":
                        yield from self._locks(state, number, writer)
                    case "committing":
                        yield from self._commits(state, number, writer)

    def _begins(self, state: CopyOnWriteState, number: int) -> Steps:
        if state.begun == self.setting.operations_max:
            return
        head = head_of(state.log)
        for colour in self.setting.colours:
            partition = self._partition(colour)
            work = [
                *(Transaction(head, "insert", partition, colour, n) for n in self.setting.numbers),
                *(Transaction(head, "update", partition, colour, n) for n in self.setting.numbers),
                Transaction(head, "delete", partition, colour, None),
            ]
            for item in work:
                begun = Working("reading", item, state.log, NO_FILES, head + 1)
                after = _with(state, number, begun)._replace(begun=state.begun + 1)
                yield f"w{number} begins {item.operation} {colour} {item.number}", after

    def _reads(self, state: CopyOnWriteState, number: int, writer: Working) -> Steps:
        """Find the files to change; inserted rows go into a live file or into a new one."""
        one, there = writer.transaction, dict(state.files)
        if one.operation != "insert":
            targets = frozenset(
                (file, there[file])
                for file in self._file_ids(1, state.counter)
                if is_live(file, one.partition, writer.loaded)
                and any(row[0] == one.colour for row in there[file])
            )
            after: Writer = writer._replace(phase="writing", targets=targets) if targets else "idle"
            yield f"w{number} reads", _with(state, number, after)
            return
        for file in self._file_ids(0, state.counter):
            is_new = file not in there and file[1] == one.partition
            if is_new or is_live(file, one.partition, writer.loaded):
                rows = there.get(file, frozenset())
                reading = writer._replace(phase="writing", targets=frozenset({(file, rows)}))
                yield f"w{number} reads {file}", _with(state, number, reading)

    def _writes(
        self, state: CopyOnWriteState, number: int, writer: Working
    ) -> tuple[str, CopyOnWriteState]:
        """Rewrite the files with the changed rows."""
        there = dict(state.files)
        files = dict(there)
        targets = sorted(writer.targets, key=lambda target: (target[0], sorted(target[1])))
        for place, (_, rows) in enumerate(targets, len(there) + 1):
            files[place, self._partition(writer.transaction.colour)] = changed(
                rows, writer.transaction
            )
        written = writer._replace(
            phase="locking" if self.setting.locks else "committing",
            added=frozenset(files) - frozenset(there),
            removed=frozenset(file for file, _ in targets if file in there),
        )
        ordered = tuple(sorted(files.items(), key=str))
        after = _with(state, number, written)._replace(files=ordered, counter=len(files))
        return f"w{number} writes", after

    def _locks(self, state: CopyOnWriteState, number: int, writer: Working) -> Steps:
        """Take the lock for the version after the head, after checking the winning versions."""
        if state.lock != UNLOCKED:
            return
        head = head_of(state.log)
        if writer.version > head:
            held = _with(state, number, writer._replace(phase="committing"))
            yield f"w{number} locks", held._replace(lock=number)
            return
        conflicts = self._conflicts(writer, state.log)
        after: Writer = "idle" if conflicts else writer._replace(version=head + 1)
        yield f"w{number} looks at the winners", _with(state, number, after)

    def _commits(self, state: CopyOnWriteState, number: int, writer: Working) -> Steps:
        """Write the version, or find it taken; or fail and end."""
        unlocked = UNLOCKED if self.setting.locks else state.lock
        is_there = any(entry.version == writer.version for entry in state.log)
        if not (self.setting.puts_if_absent and is_there):
            yield self._committed(state, number, writer, unlocked)
        elif self._conflicts(writer, state.log):
            given_up = _with(state, number, "idle")._replace(lock=unlocked)
            yield f"w{number} gives up", given_up
        else:
            later = writer._replace(version=head_of(state.log) + 1)
            yield f"w{number} tries again", _with(state, number, later)._replace(lock=unlocked)
        freed = UNLOCKED if self.setting.locks and state.lock == number else state.lock
        yield f"w{number} fails", _with(state, number, "failed")._replace(lock=freed)

    def _committed(
        self, state: CopyOnWriteState, number: int, writer: Working, unlocked: int
    ) -> tuple[str, CopyOnWriteState]:
        assert writer.added is not None, "who commits has written"
        assert writer.removed is not None, "who commits has written"
        entry = LogEntry(writer.version, writer.added, writer.removed)
        others = (other for other in state.log if other.version != writer.version)
        log = tuple(sorted((*others, entry), key=lambda one: one.version))
        place = self.setting.colours.index(writer.transaction.colour)
        own = (*state.done[place], (writer.version, writer.transaction))
        after = _with(state, number, "idle")._replace(
            lock=unlocked, log=log, done=(*state.done[:place], own, *state.done[place + 1 :])
        )
        return f"w{number} commits {writer.version}", after

    def _conflicts(self, writer: Working, log: Log) -> bool:
        """Whether a version after the read version changed the partition."""
        own = writer.transaction
        for entry in log:
            if entry.version < own.read_version:
                continue
            files = entry.added | entry.removed
            if not self.setting.is_partitioned or any(file[1] == own.partition for file in files):
                return True
        return False

    def _partition(self, colour: str) -> str | None:
        return colour if self.setting.is_partitioned else None

    def _file_ids(self, first: int, last: int) -> Iterator[FileId]:
        partitions = self.setting.colours if self.setting.is_partitioned else (None,)
        return ((number, part) for number in range(first, last + 1) for part in partitions)

    def _consistent_read(self, state: CopyOnWriteState) -> str | None:
        """Each version reads as the committed transactions, in order, leave it."""
        files = dict(state.files)
        for place, colour in enumerate(self.setting.colours):
            for version in range(1, head_of(state.log) + 1):
                wanted = replayed(state.done[place], version)
                there = self._read(files, state.log, colour, version)
                if there != wanted:
                    return f"version {version} reads {sorted(there)}, wanted {sorted(wanted)}"
        return None

    def _read(self, files: Mapping[FileId, Rows], log: Log, colour: str, version: int) -> set[int]:
        log = tuple(entry for entry in log if entry.version <= version)
        part = self._partition(colour)
        live = {file for entry in log for file in entry.added if is_live(file, part, log)}
        return {row[1] for file in live for row in files[file] if row[0] == colour}


def head_of(log: Log) -> int:
    """Return the last version, 0 if there is none."""
    return max((entry.version for entry in log), default=0)


def is_live(file: FileId, partition: str | None, log: Log) -> bool:
    """Return whether a file of a partition was added and not removed since."""
    if file[1] != partition:
        return False
    for version, added, _ in log:
        if file in added and not any(
            file in removed and later > version for later, _, removed in log
        ):
            return True
    return False


def changed(rows: Rows, one: Transaction) -> Rows:
    """Return the rows of a file after a transaction."""
    if one.number is None:
        return frozenset(row for row in rows if row[0] != one.colour)
    new = (one.colour, one.number)
    if one.operation == "insert":
        return rows | {new}
    return frozenset(new if row[0] == one.colour else row for row in rows)


def replayed(done: tuple[tuple[int, Transaction], ...], version: int) -> set[int]:
    """Return the rows after applying the transactions up to a version in order."""
    there: set[int] = set()
    for at, one in done:
        if at > version:
            continue
        if one.number is None:
            there = set()
        elif one.operation == "insert":
            there = there | {one.number}
        else:
            there = {one.number for _ in there}
    return there


def valid_log(state: CopyOnWriteState) -> str | None:
    """No version adds and removes the same file."""
    for entry in state.log:
        if entry.added & entry.removed:
            return f"version {entry.version} adds and removes the same file"
    return None


def _with(state: CopyOnWriteState, number: int, writer: Writer) -> CopyOnWriteState:
    others = state.writers
    return state._replace(writers=(*others[:number], writer, *others[number + 1 :]))
