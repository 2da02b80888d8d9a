"""Two checkpointers of one table, their calls of the store interleaved by dice, seed by seed.

Either may be killed at every write and be throttled at every call, while the table grows, another
engine writes checkpoints of its own, and logs are cleaned up as days pass. Whatever has happened,
the table can be read and says what its commits said.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, Final

import pytest

from tests.builders import add, digest_of, info, metadata, protocol, remove, to_bytes
from tests.checkpoints import put_classic
from tests.fakes.memory_bus import MemoryBus
from tests.fakes.memory_store import MemoryStore
from tests.simulation.run_state import SimulatedClock
from tests.unit.cdc_publisher.written_table import WrittenTable
from tidegate_checkpointer import service as checkpointer_service
from tidegate_checkpointer.service import Checkpointer
from tidegate_checkpointer.settings import CheckpointerSettings
from tidegate_delta.checkpoints import last_checkpoint
from tidegate_delta.checkpoints.checkpoint_plan import CheckpointPlan, plan_checkpoint
from tidegate_delta.errors import BrokenLog, InvalidRequest, Unavailable
from tidegate_delta.log.file_names import LAST_CHECKPOINT, commit_name, in_log, parse
from tidegate_messages.codec import encode, headers
from tidegate_messages.published_records import CommitRecord
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.service.health import Health
from tidegate_runtime.service.runner import Running
from tidegate_runtime.storage.log_store import FileStat, IsWanted, LogStore, Put, Turn, at_once
from tidegate_runtime.table_io import checkpoint_writer, stored_checkpoint
from tidegate_runtime.table_io.checkpoint_reader import whole_checkpoint
from tidegate_runtime.table_io.checkpoint_writer import put_hint
from tidegate_runtime.table_io.open_table import open_snapshot

ROOT: Final = "memory://tables/contested"
ROUNDS: Final = 14
KILLED: Final = 0.03
THROTTLED: Final = 0.004
CHECKED: Final = 0.1
"""How often the table is opened between two calls of the store."""


class Killed(BaseException):
    """The process ends here."""


class Interleaving:
    """Runs some acts in threads, one at a time: before each call of a store the dice choose one."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._back = threading.Semaphore(0)
        self._mine = threading.local()
        self._is_over = False

    def step(self) -> None:
        """Let another act go on, if the dice say so. Threads that an act starts just go on."""
        go: threading.Semaphore | None = getattr(self._mine, "go", None)
        if go is not None and not self._is_over:
            self._back.release()
            go.acquire()

    def run(self, acts: Sequence[Callable[[], None]], between: Callable[[], None]) -> None:
        """Run acts to their ends. An error of one is raised after all have ended."""
        running = {number: threading.Semaphore(0) for number in range(len(acts))}
        with ThreadPoolExecutor(len(acts)) as pool:
            ends = [pool.submit(self._run, running, number, act) for number, act in enumerate(acts)]
            try:
                while running:
                    running[self._dice.choice(sorted(running))].release()
                    assert self._back.acquire(timeout=120), "an act waits for what never comes"
                    between()
            except BaseException:
                self._is_over = True
                for go in list(running.values()):
                    go.release()
                raise
        for end in ends:
            end.result()

    def _run(
        self, running: dict[int, threading.Semaphore], number: int, act: Callable[[], None]
    ) -> None:
        go = self._mine.go = running[number]
        go.acquire()
        try:
            act()
        finally:
            del running[number]
            self._back.release()


class ContestedStore:
    """A store whose calls are interleaved with those of others; it kills and throttles."""

    def __init__(self, world: "World", is_faulty: bool) -> None:
        self._world = world
        self._files = world.store
        self._is_faulty = is_faulty

    @property
    def root(self) -> str:
        """The URI of the table root."""
        return self._files.root

    def list_from(self, folder: str, start: str) -> Iterator[FileStat]:
        """Yield what was there at the call."""
        self._ask()
        yield from list(self._files.list_from(folder, start))

    def list_tree(self, is_wanted: IsWanted) -> Iterator[FileStat]:
        """Yield what was there at the call."""
        self._ask()
        yield from list(self._files.list_tree(is_wanted))

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file."""
        self._ask()
        return self._files.read(path)

    def open(self, path: str) -> BinaryIO:
        """Return a reader."""
        self._ask()
        return self._files.open(path)

    def put_if_absent(
        self, path: str, content: bytes, deadline_s: float, turn: Turn = at_once
    ) -> Put:
        """Write a file if it does not exist; the answer may be lost."""
        result = Put.UNKNOWN

        def write() -> None:
            nonlocal result
            result = self._files.put_if_absent(path, content, deadline_s, turn)

        self._change(write)
        return Put.UNKNOWN if self._happens("lost answer", KILLED) else result

    def put(self, path: str, content: bytes) -> None:
        """Write a file."""
        self._change(lambda: self._files.put(path, content))

    def delete(self, path: str) -> None:
        """Delete a file."""
        self._world.seen["deleted"] += path in self._files.files
        self._change(lambda: self._files.delete(path))

    def _ask(self) -> None:
        self._world.turns.step()
        if self._happens("throttled", THROTTLED):
            raise Unavailable("503 SlowDown: reduce your request rate")

    def _change(self, change: Callable[[], None]) -> None:
        self._ask()
        if self._happens("killed before a write", KILLED):
            raise Killed
        change()
        if self._happens("killed after a write", KILLED):
            raise Killed

    def _happens(self, what: str, chance: float) -> bool:
        is_now = self._is_faulty and self._world.dice.random() < chance
        self._world.seen[what] += is_now
        return is_now


class World:
    """A table, two checkpointers, and another engine."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.seen: Counter[str] = Counter()
        self.clock = SimulatedClock()
        self.store = MemoryStore(ROOT, self.clock.now_ms)
        self.turns = Interleaving(self.dice)
        self.is_faulty = True
        self.live: list[set[str]] = []
        self.settings = CheckpointerSettings()
        topics = self.settings.kafka.topics
        self.bus = MemoryBus(topics.declared())
        self.table = WrittenTable(Path("/contested"))
        record = self.table.record().model_copy(update={"table_root": ROOT})
        producer = self.bus.producer()
        at = TopicPartition(topics.table_state, 0)
        producer.publish(at, str(record.table).encode(), encode(record), headers(record))
        producer.flush(1.0)
        self.services = [self.born(), self.born()]
        self._create()

    def born(self) -> Checkpointer:
        """Return a checkpointer that has seen nothing yet."""
        return Checkpointer(self.settings, self.bus, Running(self.clock, Health(self.clock)))

    def opened(self, *_: object) -> LogStore:
        """Return the store as a checkpointer sees it."""
        return ContestedStore(self, self.is_faulty)

    def _create(self) -> None:
        properties = {
            "checkpointInterval": str(self.dice.randint(2, 6)),
            "logRetentionDuration": "interval 1 hours",
            "deletedFileRetentionDuration": "interval 1 hours",
        }
        rows = [info("CREATE TABLE")]
        if self.dice.random() < 0.6:
            names = ["v2Checkpoint"]
            rows.append(protocol(3, 7, readerFeatures=names, writerFeatures=names))
            properties["checkpointPolicy"] = "v2"
        else:
            rows.append(protocol())
        self.live.append(set())
        self.store.put(in_log(commit_name(0)), to_bytes([*rows, metadata(**properties)]))

    def commit(self) -> None:
        """Add some files, and remove some."""
        version, live = len(self.live), set(self.live[-1])
        gone = self.dice.sample(sorted(live), min(len(live), self.dice.randint(0, 2)))
        new = [f"part-{version}-{number}" for number in range(self.dice.randint(1, 3))]
        now_ms = self.clock.now_ms()
        rows = [
            info(timestamp=now_ms),
            *(remove(path, deletionTimestamp=now_ms) for path in gone),
            *map(add, new),
        ]
        self.live.append((live - set(gone)) | set(new))
        self.store.put(in_log(commit_name(version)), to_bytes(rows))

    def notification(self) -> CommitRecord:
        """Return the notification of the newest version."""
        version = len(self.live) - 1
        content = self.store.files[in_log(commit_name(version))]
        return CommitRecord(
            table=self.table.id,
            table_root=ROOT,
            name="contested",
            version=version,
            sha256=digest_of(content),
            size=len(content),
            author="external",
        )

    def act(self, number: int) -> None:
        """Let a checkpointer handle a notification or have a pass; it may be killed meanwhile."""
        service = self.services[number]
        try:
            if self.dice.random() < 0.6:
                service.notice(self.notification())
            else:
                service.poll()
            for _ in range(100):
                if not service.unfinished:
                    break
                service.go_on(self.table.id)
        except Killed:
            self.services[number] = self.born()
            self.check()

    def other_engine(self) -> None:
        """Write a checkpoint of the newest version, and point to it without a look at the hint."""
        store = ContestedStore(self, is_faulty=False)
        hint = put_classic(store, open_snapshot(store), self.clock.now_ms())
        put_hint(store, hint)
        self.seen["other engine"] += 1

    def between(self) -> None:
        """Open the table from time to time."""
        if self.dice.random() < CHECKED:
            self.check()

    def check(self) -> None:
        """Check that a reader who comes now sees the newest version, and no hint to nothing."""
        assert self.files_at(None) == self.live[-1]
        hint = last_checkpoint.decode(self.store.files.get(in_log(LAST_CHECKPOINT), b""))
        assert hint is None or whole_checkpoint(self.store, hint.version) is not None

    def files_at(self, version: int | None) -> set[str]:
        """Return the live files of a version, as our reader finds them."""
        return set(open_snapshot(self.store, version).files["path"].to_pylist())

    def run(self) -> None:
        """Run, let everything settle, and check what is left."""
        for _ in range(ROUNDS):
            for _ in range(self.dice.randint(1, 4)):
                self.commit()
            acts: list[Callable[[], None]] = [lambda: self.act(0), lambda: self.act(1)]
            if self.dice.random() < 0.25:
                acts.append(self.other_engine)
            self.turns.run(acts, self.between)
            self.check()
            self.clock.sleep(60.0 * self.dice.choice((1, 5, 60, 60 * 26)))
        self.is_faulty = False
        for number in range(2):
            self.services[number] = self.born()
            self.act(number)
            self.services[number].poll()
        self._check_the_end()

    def _check_the_end(self) -> None:
        self.check()
        files = [parse(path.rpartition("/")[2]) for path in self.store.files]
        checkpoints = Counter(
            file.version for file in files if file is not None and file.is_checkpoint
        )
        twice = [version for version, count in checkpoints.items() if count > 1]
        assert len(twice) <= self.seen["other engine"], "we write one checkpoint of a version"
        hint = last_checkpoint.decode(self.store.files[in_log(LAST_CHECKPOINT)])
        assert hint is not None
        assert hint.version == max(checkpoints)
        floor = 0
        for version in range(len(self.live)):
            try:
                snapshot = open_snapshot(self.store, version)
            except (InvalidRequest, BrokenLog):
                # Checkpoints below the floor are there until the cleanup has ended.
                floor = version + 1
                continue
            assert set(snapshot.files["path"].to_pylist()) == self.live[version]
            assert str(snapshot.checksum) in ("agrees", "absent")
        assert floor in {0, *checkpoints}


SOMETIMES: Final = (
    *("killed before a write", "killed after a write", "lost answer", "throttled"),
    *("deleted", "other engine", "sidecars kept", "row groups copied"),
)
"""What must happen in a run of all seeds; otherwise they prove little."""


@pytest.mark.timeout(1_200)  # a busy machine takes its time
def test_two_checkpointers_leave_a_readable_table(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, many = (request.config.getoption(name) for name in ("--seed", "--seeds"))
    # One takes as long as some hundred of the committer's.
    seeds = range(max(many // 150, 1)) if one is None else range(int(one), int(one) + 1)
    seen = Counter[str]()

    def seen_plan(*arguments: Any) -> CheckpointPlan:
        plan = plan_checkpoint(*arguments)
        seen["sidecars kept"] += sum(part.group is None for part in plan.kept)
        seen["row groups copied"] += sum(part.group is not None for part in plan.kept)
        return plan

    # Sidecars and row groups are so small that a table has several.
    sizes = {"SIDECAR_FILES": 4, "ROWS_MAX": 4, "COPIED_ROWS_MIN": 2}
    for name, size in sizes.items():
        monkeypatch.setattr(checkpoint_writer, name, size)
    monkeypatch.setattr(checkpoint_writer, "plan_checkpoint", seen_plan)
    for seed in seeds:
        # Of small tables the rows are kept in memory; of every other table they are read again.
        for module in (checkpoint_writer, stored_checkpoint):
            monkeypatch.setattr(module, "WHOLE_ROWS_MAX", 20_000 * (seed % 2))
        world = World(seed)
        monkeypatch.setattr(checkpointer_service, "open_store", world.opened)
        try:
            world.run()
        except BaseException as error:
            error.add_note(f"seed {seed}: `make sim SEED={seed}`")
            raise
        seen += world.seen
    assert len(seeds) < 3 or not [name for name in SOMETIMES if not seen[name]]
