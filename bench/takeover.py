"""How long a writer waits when the committer stops: after a clean stop, and after `kill -9`.

A writer proposes without a pause, and a standby is ready. The figure is the time from the signal to
the end of the longest silence: the first outcome from the standby.
"""

import json
import signal
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Final, Self

from rich.console import Console

from bench import gate_writers
from bench.figures import Figure, at_most, median
from tidegate_local.child_processes import Command, ServiceProcess, service_argv, service_process
from tidegate_local.local_stack import LocalStack
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.client.client import Client
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.settings import KafkaSettings

STEADY_S: Final = 1.5
"""How long the writer works before each signal."""

WATCHED_S: Final = 8.0
"""How long the writer is watched after each signal."""

TIMEOUT_S: Final = 60.0
CLEAN_MAX_S: Final = 2.0
KILLED_SPARE_S: Final = 1.0
_console = Console(width=150)


class Steady:
    """A writer that proposes one append after the other; `told_s` are the times of its outcomes."""

    def __init__(self, kafka: KafkaSettings, table: TableRecord) -> None:
        self._kafka = kafka
        self._work = gate_writers.Appending(table, 0)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.told_s: list[float] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(TIMEOUT_S)

    def silence_s(self, since_s: float) -> float:
        """Return when the longest silence since a moment ended, counted from that moment."""
        times = [told_s for told_s in self.told_s if told_s > since_s]
        _, ended_s = max(pairwise([since_s, *times]), key=lambda pair: pair[1] - pair[0])
        return ended_s - since_s

    def _run(self) -> None:
        with Client(KafkaBus(self._kafka, "steady"), self._kafka.topics, patience_s=30.0) as client:
            while not self._stopping.is_set():
                outcome = client.propose(self._work.proposal(), timeout_s=TIMEOUT_S)
                self.told_s.append(time.monotonic())
                self._work.committed({"version": outcome.version})


def figures(stack: LocalStack, folder: Path, rounds: int) -> list[Figure]:
    """Return how long a writer gets no outcome when its committer stops, and when it is killed."""
    session_s = stack.kafka.session_timeout_ms / 1000
    clean: list[float] = []
    killed: list[float] = []
    active = stack.services["committer"]
    for number in range(2 * rounds):
        sign = signal.SIGKILL if number % 2 else signal.SIGTERM
        table = gate_writers.create(stack.kafka, folder / "tables" / f"takeover-{number}")
        successor = _committer(stack, folder, number)
        successor.start()
        successor.wait_ready()
        with Steady(stack.kafka, table) as writer:
            time.sleep(STEADY_S)
            since_s = time.monotonic()
            active.child.kill() if sign is signal.SIGKILL else active.child.stop()
            time.sleep(max(0.0, since_s + WATCHED_S - time.monotonic()))
            took_s = writer.silence_s(since_s)
        (killed if sign is signal.SIGKILL else clean).append(took_s)
        _console.print(f"takeover, round {number}, {sign.name}: {took_s:.2f} s")
        active = successor
    active.child.stop()
    limit_s = session_s + KILLED_SPARE_S
    return [
        Figure(
            "takeover after a clean stop, to the first outcome",
            f"{median(clean):.2f} s, at most {max(clean):.2f} s",
            f"limit {CLEAN_MAX_S:.0f} s",
            median(clean) / CLEAN_MAX_S,
            "<= 1",
            is_met=median(clean) <= CLEAN_MAX_S,
            recorded=at_most(0.29),
        ),
        Figure(
            "takeover after kill -9, to the first outcome",
            f"{median(killed):.2f} s, at most {max(killed):.2f} s",
            f"session timeout {session_s:.0f} s + {KILLED_SPARE_S:.0f} s",
            median(killed) / limit_s,
            "<= 1",
            is_met=median(killed) <= limit_s,
            recorded=at_most(0.81),
        ),
    ]


def _committer(stack: LocalStack, folder: Path, number: int) -> ServiceProcess:
    kafka = stack.kafka
    overrides = {
        "kafka.bootstrap_servers": kafka.bootstrap_servers,
        "kafka.topic_prefix": kafka.topic_prefix,
        "kafka.session_timeout_ms": str(kafka.session_timeout_ms),
        "committer.roots": json.dumps([(folder / "tables").as_uri()]),
    }
    command = Command(f"successor-{number}", service_argv("committer", overrides=overrides))
    return service_process(command, folder / "heirs")
