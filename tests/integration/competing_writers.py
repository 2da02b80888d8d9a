"""Competing writers: each of them replaces the same file, and only one at a time can succeed.

A writer with outcome *committed* made the live file; all others that tried have lost.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.proposers import CLOCK, TIMEOUT_S, write_file
from tidegate_delta.log.actions import Add
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Proposal, ReadSet
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.client.client import Client
from tidegate_runtime.clock import new_id
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.kafka.settings import KafkaSettings


@dataclass
class Baton:
    """The file, its writer and its version, by the latest outcome."""

    table: TableRecord
    add: Add | None = None
    version: int = 0
    name: str = ""
    passes: int = 0
    losses: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def folder(self) -> Path:
        """The folder of the file."""
        return Path(self.table.table_root.removeprefix("file://"))

    def seen(self) -> tuple[Add | None, int]:
        """Return the file and its version."""
        with self._lock:
            return self.add, self.version

    def heard(self, name: str, add: Add, outcome: Outcome) -> None:
        """Record a writer's outcome."""
        with self._lock:
            if outcome.status != "committed":
                self.losses += 1
                return
            self.passes += 1
            assert outcome.version is not None
            if outcome.version > self.version:
                self.add, self.version, self.name = add, outcome.version, name


def contend(
    kafka: KafkaSettings, baton: Baton, name: str, is_enough: Callable[[], bool]
) -> list[Outcome]:
    """Replace the file repeatedly, and return all outcomes."""
    outcomes: list[Outcome] = []
    with Client(KafkaBus(kafka, name), kafka.topics, patience_s=3.0) as client:
        while not is_enough():
            held, version = baton.seen()
            new = write_file(baton.folder, name, len(outcomes))
            outcome = client.propose(_replacement(baton.table, version, held, new), TIMEOUT_S)
            outcomes.append(outcome)
            baton.heard(name, new, outcome)
    return outcomes


def _replacement(table: TableRecord, version: int, held: Add | None, new: Add) -> Proposal:
    target = proposal_builders.Target(table.table, table.table_root, version, table.table_id)
    proposal = proposal_builders.append(
        target, proposal_builders.Stamp(new_id(CLOCK), CLOCK.now_ms()), [new]
    )
    if held is None:
        return proposal
    removal = proposal_builders.removal(held, CLOCK.now_ms()).to_row()
    return proposal.model_copy(
        update={"actions": (removal, *proposal.actions), "reads": ReadSet(files=(held.path,))}
    )
