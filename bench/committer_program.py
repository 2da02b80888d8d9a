"""One task of a committer with one table, in a fresh process: `program WAY FOLDER`.

The message bus is in memory, the store is the one that the services use. The cost is printed as
JSON.
"""

import gc
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import orjson
import pyarrow as pa

from bench.figures import median
from bench.measured import Counted, held_mib, measure
from tests.fakes.memory_store import MemoryBus
from tidegate_committer.dependencies import Dependencies
from tidegate_committer.loop.service import CommitterLoop
from tidegate_committer.settings import CommitterSection
from tidegate_committer.state.live_files import LiveFiles
from tidegate_committer.store_reads import recovery
from tidegate_delta.log.file_paths import canonical_paths
from tidegate_messages.codec import encode
from tidegate_messages.published_records import TableRecord
from tidegate_messages.topics import Topics
from tidegate_runtime.clock import SystemClock, new_id
from tidegate_runtime.gc_control import GarbageSweeper
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.service import arrow_setup
from tidegate_runtime.storage.open_store import canonical_root, open_store
from tidegate_runtime.table_io.open_table import open_keys

TABLE = UUID(int=1)
TABLE_ID = str(UUID(int=7))
"""The table id in the logs of `generated_logs`."""

SWEEPER = GarbageSweeper(time.monotonic())
WINDOW = 1_000
COMMITS = 300
WARM_UP = 20
GROWTH = 0.1
ADDS = 64
DECAY_S = 2.0
"""How long Arrow's allocator keeps freed memory."""

Work = Callable[[], Counted]


@dataclass
class Rig:
    """A committer of one table, registered at its version."""

    root: str
    version: int

    def __post_init__(self) -> None:
        self.topics, clock = Topics(), SystemClock()
        self.bus = MemoryBus(self.topics.declared(), clock.now_ms)
        record = TableRecord(
            table=TABLE,
            table_root=self.root,
            name="bench",
            table_id=TABLE_ID,
            proposals_topic=self.topics.proposals,
            topic_partition=0,
            published_through=self.version,
        )
        topic_partition = TopicPartition(self.topics.table_state, 0)
        self.bus.append(topic_partition, str(TABLE).encode(), encode(record))
        dependencies = Dependencies(
            bus=self.bus,
            topics=self.topics,
            open_store=open_store,
            clock=clock,
            new_id=lambda: new_id(clock),
            settings=CommitterSection(roots=(self.root,)),
            tidy=lambda at_leisure, is_idle: SWEEPER.sweep(time.monotonic(), at_leisure, is_idle),
        )
        self.loop = CommitterLoop(dependencies)

    def commit(self, number: int) -> float:
        """Propose a blind append; return the seconds until it is in the log and its outcome is
        queued.

        The outcome is sent with the next flush, for which no proposal waits here.
        """
        topic_partition = TopicPartition(self.topics.proposals, 0)
        self.bus.append(topic_partition, None, self.proposal(number))
        began_s, before = time.perf_counter(), self._done()
        while self._done() == before:
            self.loop.step(0.0)
        return time.perf_counter() - began_s

    def _done(self) -> int:
        """Return how many records were taken and answered."""
        workers = self.loop.workers.values()
        return sum((worker.position or 0) - worker.pending for worker in workers)

    def proposal(self, number: int) -> bytes:
        """Return the record of a blind append."""
        add = {
            "path": f"part=3/part-00000-{number:032x}.parquet",
            "partitionValues": {"part": "3"},
            "size": 1,
            "modificationTime": 1,
            "dataChange": True,
            "stats": '{"numRecords":1}',
        }
        fields = {
            "proposal_id": str(UUID(int=number + 1)),
            "table": str(TABLE),
            "table_root": self.root,
            "table_id": TABLE_ID,
            "read_version": self.version,
            "actions": [{"add": add}],
            "reads": {},
        }
        return orjson.dumps(fields)


def kept(folder: str) -> Work:
    """Load a table and let it grow by a tenth. Extra: bytes a file."""
    before = _collected_mib()
    return _grown(before, recovery.load(open_store(folder), TABLE, WINDOW).files)


def kept_as_text(folder: str) -> Work:
    """Keep the same files in a dict of Python strings. Extra: bytes a file."""
    before = _collected_mib()
    paths = canonical_paths(open_keys(open_store(folder)).files["path"])
    files: dict[str, str | None] = dict.fromkeys(paths.to_pylist())
    del paths
    mib = _collected_mib() - before
    return lambda: (len(files), mib * (1 << 20) / len(files))


def paused(folder: str) -> Work:
    """Let a table grow by a tenth. Extra: the longest time of one of these changes, in ms."""
    files = recovery.load(open_store(folder), TABLE, WINDOW).files
    return lambda: (len(files), 1e3 * max(_growth(files)[1]))


def restarted(folder: str) -> Work:
    """Start, load, commit. Extra: seconds since the process was started."""
    rig = Rig(canonical_root(folder), _head(folder))

    def work() -> Counted:
        rig.commit(time.time_ns())
        return 1, _age_s()

    return work


def commits(folder: str) -> Work:
    """Commit one append after the other. Extra: the median time of one, in ms."""
    rig = Rig(canonical_root(folder), _head(folder))
    first = time.time_ns()

    def work() -> Counted:
        took = [rig.commit(first + number) for number in range(WARM_UP + COMMITS)]
        written = _head(folder) - rig.version
        assert written == len(took), "each proposal is a version of its own"
        return written, 1e3 * median(took[WARM_UP:])

    return work


def _grown(before_mib: float, files: LiveFiles) -> Work:
    files, _ = _growth(files)
    mib = _collected_mib() - before_mib
    return lambda: (len(files), mib * (1 << 20) / len(files))


def _growth(files: LiveFiles) -> tuple[LiveFiles, list[float]]:
    """Return the files and a tenth more, added as by entries, with the time of each change."""
    took, first = [], len(files)
    for start in range(first, int(first * (1 + GROWTH)), ADDS):
        new = range(start, start + ADDS)
        put = {f"part=3/part-00000-{number:032x}.parquet": None for number in new}
        began_s = time.process_time()
        files = files.changed(put)
        took.append(time.process_time() - began_s)
        SWEEPER.sweep(time.monotonic(), at_leisure=True, is_idle=False)  # as after each step
    return files, took


def _head(folder: str) -> int:
    names = [path.stem for path in Path(folder, "_delta_log").glob("*.json")]
    return max(int(name) for name in names if name.isdigit())


def _age_s() -> float:
    """Return the seconds since this process was started."""
    ticks = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19]
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(ticks) / 100


def _collected_mib() -> float:
    gc.collect()
    pa.default_memory_pool().release_unused()
    time.sleep(DECAY_S)
    return held_mib()


WAYS = {
    "kept": kept,
    "kept as text": kept_as_text,
    "paused": paused,
    "restarted": restarted,
    "commits": commits,
}


def main(way: str, folder: str, commits_folder: str = "") -> None:
    """Measure one way."""
    logging.disable(logging.INFO)
    arrow_setup.choose_memory_pool()  # as every service does at its start
    arrow_setup.leave_out_pandas()
    SWEEPER.begin()
    measure(WAYS[way](folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
