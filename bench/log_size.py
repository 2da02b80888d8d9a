"""K8: what the log of a large table weighs after hours of a version a second, in simulated time.

The checkpointer is the real one; the log lies in memory, in files as old as the simulated clock
says. The table has the V2 policy, an interval of 10 and keeps its log for a day. Each version adds
a file and removes one that is a hundred versions old.
"""

from collections import Counter
from pathlib import Path
from typing import Final
from unittest.mock import patch
from uuid import UUID

from rich.console import Console

from bench.figures import Figure
from bench.generated_logs import AT_MS, COMMITS, TAIL, Shape, commit_content, generate
from tests.fakes.memory_store import MemoryBus, MemoryStore
from tidegate_checkpointer.service import Checkpointer
from tidegate_checkpointer.settings import CheckpointerSettings
from tidegate_delta.log.commit import sha256
from tidegate_delta.log.file_names import (
    LOG_FOLDER,
    SIDECAR_FOLDER,
    LogFileKind,
    commit_name,
    in_log,
    parse,
)
from tidegate_messages.codec import encode, headers
from tidegate_messages.published_records import CommitRecord, TableRecord
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.service.health import Health
from tidegate_runtime.service.runner import Running
from tidegate_runtime.table_io.checkpoint_reader import read_sidecar_names

HOUR_S: Final = 3_600
LOOK_S: Final = 60
REMOVED_AFTER: Final = 100
TIMES_MAX: Final = 3.0
MB: Final = 1e6
PROPERTIES: Final = {
    "delta.checkpointInterval": "10",
    "delta.logRetentionDuration": "interval 1 days",
}
_TABLE: Final = UUID(int=7)
_ROOT: Final = "memory://log-size"
_console = Console(width=150)


class _Clock(SystemClock):
    """Simulated time: a second for each version."""

    def __init__(self) -> None:
        self.passed_s = 0

    def now_ms(self) -> int:
        """Return the simulated wall time, in ms since the Unix epoch."""
        return AT_MS + 1_000 * self.passed_s

    def boot_s(self) -> float:
        """Return the simulated seconds since the start; work takes no time."""
        return float(self.passed_s)


def figures(folder: Path, files: int, hours: int) -> list[Figure]:
    """Return K8 for a table of `files` live files after so many simulated hours."""
    clock = _Clock()
    store = _generated(folder, files, clock)
    settings = CheckpointerSettings()
    topics = settings.kafka.topics
    bus = MemoryBus(topics.declared())
    with patch("tidegate_checkpointer.service.open_store", lambda *_: store):
        service = Checkpointer(settings, bus, Running(clock, Health(clock)))
        first, highest = COMMITS + TAIL + 1, 0.0
        for number in range(hours * HOUR_S):
            clock.passed_s += 1
            version = first + number
            content = commit_content(
                version, range(files + number, files + number + 1), [_removed(files, number)]
            )
            store.put(in_log(commit_name(version)), content)
            service.notice(_notification(version, content))
            if number % LOOK_S == 0:
                _register(bus, topics.table_state, version)
                service.poll()
            while service.unfinished:
                service.go_on(_TABLE)
            if number % LOOK_S == LOOK_S - 1:
                total, allowed, by_kind = _weight(store)
                highest = max(highest, total / allowed)
            if number % HOUR_S == HOUR_S - 1:
                _console.print(f"{(number + 1) // HOUR_S} h: {total / MB:.0f} MB: {by_kind}")
    total, allowed, by_kind = _weight(store)
    return [
        Figure(
            f"K8: log of {files:,} files after {hours} hours of a version a second",
            f"{total / MB:.0f} MB",
            f"commits and two checkpoints {allowed / MB:.0f} MB",
            total / allowed,
            f"<= {TIMES_MAX:g} of the commits and two checkpoints",
            f"highest, once a minute, {highest:.2f}; {by_kind}",
            is_met=highest <= TIMES_MAX,
            recorded=None,
        )
    ]


def _generated(folder: Path, files: int, clock: _Clock) -> MemoryStore:
    table = folder / "log-size"
    generate(table, Shape.V2, files, PROPERTIES)
    store = MemoryStore(_ROOT, clock.now_ms)
    for path in sorted((table / LOG_FOLDER).rglob("*")):
        if path.is_file():
            store.put(str(path.relative_to(table)), path.read_bytes())
    return store


def _removed(files: int, number: int) -> int:
    """Return the number of the file that a version removes: one of the first, then younger ones."""
    return files + number - REMOVED_AFTER if number >= REMOVED_AFTER else number


def _notification(version: int, content: bytes) -> CommitRecord:
    return CommitRecord(
        table=_TABLE,
        table_root=_ROOT,
        name="log-size",
        version=version,
        sha256=sha256(content),
        size=len(content),
        author="tidegate",
    )


def _register(bus: MemoryBus, topic: str, version: int) -> None:
    record = TableRecord(
        table=_TABLE,
        table_root=_ROOT,
        name="log-size",
        status="open",
        proposals_topic="proposals",
        topic_partition=0,
        published_through=version,
    )
    producer = bus.producer()
    key = str(_TABLE).encode()
    producer.publish(TopicPartition(topic, 0), key, encode(record), headers(record))
    producer.close()


def _weight(store: MemoryStore) -> tuple[int, int, str]:
    """Return the bytes of the log, those of its commits and two checkpoints, and all by kind."""
    sizes: Counter[str] = Counter()
    for path, content in store.files.items():
        name = path.rpartition("/")[2]
        parsed = parse(name)
        if path.startswith(in_log(SIDECAR_FOLDER)):
            sizes["sidecars"] += len(content)
        else:
            sizes[parsed.kind.name.lower() if parsed else name] += len(content)
    checkpoint = _newest_checkpoint_bytes(store)
    allowed = sizes[LogFileKind.COMMIT.name.lower()] + 2 * checkpoint
    by_kind = ", ".join(f"{kind} {size / MB:.1f} MB" for kind, size in sizes.most_common())
    return sizes.total(), allowed, by_kind


def _newest_checkpoint_bytes(store: MemoryStore) -> int:
    tops = [file for file in map(parse, _names(store)) if file and file.is_checkpoint]
    newest = max(tops, key=lambda file: file.version)
    names = read_sidecar_names(store, newest) or ()
    sidecars = sum(len(store.files[in_log(f"{SIDECAR_FOLDER}/{name}")]) for name in names)
    return len(store.files[in_log(newest.name)]) + sidecars


def _names(store: MemoryStore) -> list[str]:
    return [stat.path.rpartition("/")[2] for stat in store.list_from(LOG_FOLDER, "")]
