"""K7: the requests that the checkpointer makes for a version, counted by an S3 store."""

from collections import Counter
from typing import Final
from uuid import UUID

from bench.figures import Figure
from bench.generated_logs import commit_content
from bench.slow_store import BUCKET, SlowStore
from tests.builders import StandingClock
from tests.fakes.memory_store import MemoryBus
from tidegate_checkpointer.service import Checkpointer
from tidegate_checkpointer.settings import CheckpointerSettings
from tidegate_delta.log.commit import sha256
from tidegate_delta.log.file_names import LOG_FOLDER, LogFileKind, commit_name, in_log, parse
from tidegate_messages.published_records import CommitRecord
from tidegate_runtime.service.health import Health
from tidegate_runtime.service.runner import Running
from tidegate_runtime.storage.object_store import ObjectStore

WARM: Final = 20
VERSIONS: Final = 100
ADDED: Final = 10
REQUESTS_MAX: Final = 2.0
_TABLE: Final = UUID(int=7)


def figures() -> list[Figure]:
    """Return K7 for a table that takes a hundred versions."""
    with SlowStore(put_ms=0.0) as store:
        settings = CheckpointerSettings.model_validate({"storage": store.ours})
        clock = StandingClock()  # so that nothing waits for a turn on a slow machine
        bus = MemoryBus(settings.kafka.topics.declared())
        service = Checkpointer(settings, bus, Running(clock, Health(clock)))
        table = ObjectStore(f"s3://{BUCKET}/requests", store.ours)
        _grow(service, table, range(WARM))
        requests_before, files_before = store.count("requests"), _derived(table)
        _grow(service, table, range(WARM, WARM + VERSIONS))
        requests, written = (
            store.count("requests") - requests_before,
            _derived(table) - files_before,
        )
    # The commits are ours, and the listing before the first count.
    requests.subtract({"PUT 200": VERSIONS, "LIST": 1})
    checkpoints = written[LogFileKind.CHECKPOINT_CLASSIC]
    apart = checkpoints + written[LogFileKind.COMPACTED] + checkpoints
    per_version = (requests.total() - apart) / VERSIONS
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted((+requests).items()))
    return [
        Figure(
            "K7: requests of the checkpointer for a version",
            f"{per_version:.2f}",
            f"limit {REQUESTS_MAX:g}",
            per_version / REQUESTS_MAX,
            f"<= {REQUESTS_MAX:g}, files of checkpoints and compactions and a LIST each apart",
            f"{VERSIONS} versions: {kinds}; of these {apart} apart",
            is_met=per_version <= REQUESTS_MAX,
            recorded=None,
        )
    ]


def _grow(service: Checkpointer, store: ObjectStore, versions: range) -> None:
    for version in versions:
        adds = range(version * ADDED, (version + 1) * ADDED)
        content = commit_content(version, adds, [adds.start - 1] if version else [])
        store.put(in_log(commit_name(version)), content)
        record = CommitRecord(
            table=_TABLE,
            table_root=store.root,
            name="requests",
            version=version,
            sha256=sha256(content),
            size=len(content),
            author="tidegate",
        )
        service.notice(record)
        while service.unfinished:
            service.go_on(_TABLE)


def _derived(store: ObjectStore) -> Counter[LogFileKind]:
    """Return how many files of each kind the log holds."""
    listed = (parse(stat.path.rpartition("/")[2]) for stat in store.list_from(LOG_FOLDER, ""))
    return Counter(file.kind for file in listed if file is not None)
