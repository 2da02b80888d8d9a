"""Ten thousand idle tables of one committer, a few busy ones among them: start, memory, CPU time.

The tables are copies of one that the committer made: its version 0 with another id, and its
registration. Each figure is that with all tables, beside that with the busy ones alone.
"""

import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from bench import gate_writers, host
from bench.figures import Figure
from bench.gate_writers import CLOCK, Appending
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_local.child_processes import (
    Command,
    ServiceProcess,
    probe,
    service_argv,
    service_process,
)
from tidegate_local.embedded_kafka import EmbeddedKafka
from tidegate_messages.codec import encode, headers
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.client.client import Client
from tidegate_runtime.clock import new_id
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.settings import KafkaSettings
from tidegate_runtime.kafka.topic_admin import create_topics

TABLES: Final = 10_000
BUSY: Final = 20
START_MAX_S: Final = 10.0
KIB_MAX: Final = 40.0
READY_S: Final = 120.0
LOADED_S: Final = 240.0
QUIET_S: Final = 20.0
_UNREAD: Final = re.compile(r'^tidegate_tables\{state="unread"\} ([0-9.]+)$', re.MULTILINE)


@dataclass(frozen=True)
class Run:
    """A start of the committer. Units: `busy_s` and `loaded_s` seconds from its start until each
    busy table has committed and until all are loaded; `kib` its memory then; `cpu` its share of a
    processor while nothing happens.
    """

    busy_s: float
    loaded_s: float
    kib: float
    cpu: float


def figures(folder: Path, tables: int = TABLES) -> list[Figure]:
    """Return the start to the busy tables' first commits, and what an idle table costs."""
    (folder / "tables").mkdir()
    with EmbeddedKafka(folder / "kafka") as broker:
        kafka = KafkaSettings(bootstrap_servers=broker.bootstrap, session_timeout_ms=6_000)
        create_topics(kafka, kafka.topics.declared())
        first = _committer(kafka, folder)
        busy = [gate_writers.create(kafka, folder / "tables" / f"busy{n}") for n in range(BUSY)]
        first.child.stop(READY_S)
        few = _started(kafka, folder, busy)
        _copy(kafka, folder, busy[0], tables)
        many = _started(kafka, folder, busy)
    each = (many.kib - few.kib) / tables
    return [
        Figure(
            f"start with {tables:,} idle tables until {BUSY} busy ones have committed",
            f"{many.busy_s:.1f} s",
            f"the busy ones alone {few.busy_s:.1f} s",
            many.busy_s / few.busy_s,
            f"<= {START_MAX_S:.0f} s",
            f"all are loaded after {many.loaded_s:.0f} s",
            is_met=many.busy_s <= START_MAX_S,
            recorded=None,
        ),
        Figure(
            "memory of an idle table",
            f"{each:.1f} KiB",
            f"the process {many.kib / 1024:.0f} MiB, without them {few.kib / 1024:.0f} MiB",
            each / KIB_MAX,
            f"<= {KIB_MAX:.0f} KiB",
            f"{many.cpu:.1%} of a processor while nothing happens, {few.cpu:.1%} without them",
            is_met=each <= KIB_MAX,
            recorded=None,
        ),
    ]


def _committer(kafka: KafkaSettings, folder: Path) -> ServiceProcess:
    settings = {
        "kafka.bootstrap_servers": kafka.bootstrap_servers,
        "kafka.session_timeout_ms": str(kafka.session_timeout_ms),
        "committer.roots": f'["{(folder / "tables").as_uri()}"]',
    }
    command = Command("committer", service_argv("committer", None, settings))
    service = service_process(command, folder / "services")
    service.start()
    service.wait_ready(READY_S)
    return service


def _started(kafka: KafkaSettings, folder: Path, busy: Sequence[TableRecord]) -> Run:
    with Client(KafkaBus(kafka, "bench"), kafka.topics) as client:
        began_s = time.perf_counter()

        def commit() -> float:
            for table in busy:
                client.propose(Appending(table, 0).proposal(), READY_S)
            return time.perf_counter() - began_s

        with ThreadPoolExecutor(1) as pool:
            committed = pool.submit(commit)
            # By this thread: the process ends with the thread that started it.
            service = _committer(kafka, folder)
            busy_s = committed.result()
    try:
        while not _is_loaded(service) and time.perf_counter() - began_s < LOADED_S:
            time.sleep(0.5)
        loaded_s = time.perf_counter() - began_s
        before_s = host.cpu_s(service.child.pid)
        time.sleep(QUIET_S)
        spent_s = host.cpu_s(service.child.pid) - before_s
        return Run(
            busy_s, loaded_s, 1024 * host.memory_mib(service.child.pid, "VmRSS"), spent_s / QUIET_S
        )
    finally:
        service.child.stop(READY_S)


def _copy(kafka: KafkaSettings, folder: Path, table: TableRecord, count: int) -> None:
    """Make and register copies of a table's version 0."""
    path = in_log(commit_name(0))
    content = (folder / "tables" / table.name / path).read_bytes()
    with closing(KafkaBus(kafka, "bench").producer()) as producer:
        at = TopicPartition(kafka.topics.table_state, table.topic_partition)
        for number in range(count):
            copied, root = new_id(CLOCK), folder / "tables" / f"idle{number}"
            bytes_of = content.replace(str(table.table_id).encode(), str(copied).encode())
            (root / path).parent.mkdir(parents=True)
            (root / path).write_bytes(bytes_of)
            record = table.model_copy(
                update={
                    "table": new_id(CLOCK),
                    "table_root": root.as_uri(),
                    "name": f"idle{number}",
                    "table_id": str(copied),
                    "published_through": 0,
                    "sha256": sha256(bytes_of).hexdigest(),
                }
            )
            producer.publish(at, str(record.table).encode(), encode(record), headers(record))
            if number % 1_000 == 0:
                producer.flush(READY_S)
        producer.flush(READY_S)


def _is_loaded(service: ServiceProcess) -> bool:
    found = _UNREAD.search(probe(f"{service.address()}/metrics")[1])
    return found is not None and float(found[1]) == 0
