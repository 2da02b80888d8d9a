"""What the pages read beside the overview: proposals from Kafka, a table's log from its store."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from tidegate_checkpointer.cli.health_command import facts_of
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.snapshots.table_health import TableFacts, TableHealth, assess
from tidegate_messages.published_records import MaintenanceRecord, TableRecord
from tidegate_producers.cached_clients import store_for
from tidegate_producers.explanation_search import explained, find_in_topics
from tidegate_producers.history.outcome_explanation import Explanation
from tidegate_producers.history.outcome_log import ProposalOutcomes, last_proposals
from tidegate_producers.history.table_history import HistoryEntry, history
from tidegate_producers.ingest.ingest_status import PartitionStatus, statuses
from tidegate_producers.maintenance.maintenance_topic import read_maintenance
from tidegate_producers.options import TableLocation
from tidegate_producers.vacuum.vacuum import Claims, claims_on
from tidegate_producers.writing import table_requests
from tidegate_runtime.client.client import Client
from tidegate_runtime.clock import Clock
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.service.settings import ServiceSettings
from tidegate_runtime.storage.log_store import LogStore

CLIENT_ID = "tidegate-console"
ACTION_S = 30.0
"""How long an operator's request may take."""


@dataclass(frozen=True)
class TableShape:
    """What a table is made of, and what would improve it."""

    facts: TableFacts
    health: TableHealth


@dataclass(frozen=True)
class TableMaintenance:
    """An operator's pause of a table's maintenance, and the maintainer's report; None if none."""

    pause: MaintenanceRecord | None
    report: MaintenanceRecord | None


class Reading(Protocol):
    """Reads on behalf of a page. Each method raises a TidegateError that the page shows."""

    def proposals(self, table: TableRecord | None, limit: int) -> Sequence[ProposalOutcomes]:
        """Return the newest proposals, newest first."""

    def explanation(self, proposal: UUID, table: str | None) -> Explanation:
        """Return why a proposal has its outcome."""

    def history(self, table: TableRecord, limit: int) -> Sequence[HistoryEntry]:
        """Return the newest versions, newest first."""

    def shape(self, table: TableRecord) -> TableShape:
        """Return what a table is made of."""

    def positions(self, table: TableRecord) -> Sequence[PartitionStatus]:
        """Return how far a table is in the topics that `tidegate ingest` copies into it."""

    def maintenance(self, table: TableRecord) -> TableMaintenance:
        """Return what the maintainer did last with a table, does next, or why nothing is due."""

    def claims(self, table: TableRecord) -> Claims:
        """Return who needs which versions and files of a table, so that vacuum leaves them."""


class Acting(Protocol):
    """Carries out what an operator asks. Each method returns a sentence about what was done."""

    def halt(self, table: TableRecord, why: str) -> str:
        """Halt a table."""

    def reopen(self, table: TableRecord) -> str:
        """Reopen a table that was halted."""

    def retry(self, table: TableRecord) -> str:
        """Have the services that set a table aside try it again."""


class Installation:
    """Reads and acts on a real installation."""

    def __init__(self, settings: ServiceSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._bus = KafkaBus(settings.kafka, CLIENT_ID)

    def proposals(self, table: TableRecord | None, limit: int) -> Sequence[ProposalOutcomes]:
        """Return the newest proposals, newest first."""
        return last_proposals(self._bus, self._settings.kafka.topics, limit, table)[::-1]

    def explanation(self, proposal: UUID, table: str | None) -> Explanation:
        """Return why a proposal has its outcome."""
        found = find_in_topics(self._settings, proposal, table)
        return explained(self._settings, found, table)

    def history(self, table: TableRecord, limit: int) -> Sequence[HistoryEntry]:
        """Return the newest versions, newest first."""
        return list(history(self._store(table), limit))

    def shape(self, table: TableRecord) -> TableShape:
        """Return what a table is made of."""
        facts = facts_of(self._store(table), None)
        return TableShape(facts, assess(facts))

    def positions(self, table: TableRecord) -> Sequence[PartitionStatus]:
        """Return how far a table is in the topics that `tidegate ingest` copies into it."""
        place = TableLocation(table.table_root, self._settings.storage)
        return list(statuses(self._bus, [place]))

    def maintenance(self, table: TableRecord) -> TableMaintenance:
        """Return what the maintainer did last with a table, does next, or why nothing is due."""
        pauses, reports = read_maintenance(self._bus, self._settings.kafka.topics)
        return TableMaintenance(pauses.get(table.table), reports.get(table.table))

    def claims(self, table: TableRecord) -> Claims:
        """Return who needs which versions and files of a table."""
        topics = self._settings.kafka.topics
        return claims_on(self._bus, topics, table, self._clock.now_ms())

    def halt(self, table: TableRecord, why: str) -> str:
        """Halt a table."""
        with self._client() as client:
            table_requests.halt(client, table.table_root, why, ACTION_S)
        return f"{table.name} is halted: the committer commits nothing to it until it is reopened"

    def reopen(self, table: TableRecord) -> str:
        """Reopen a table that was halted."""
        with self._client() as client:
            table_requests.reopen(client, table.table_root, ACTION_S)
        return f"{table.name} is open again"

    def retry(self, table: TableRecord) -> str:
        """Have the services that set a table aside try it again."""
        services = ("checkpointer", "cdc-publisher")
        topics = self._settings.kafka.topics
        retried_by = table_requests.retry_followers(self._bus, topics, table, services)
        if table.status == "halted" and table.halted_by_hand is None:
            with self._client() as client:
                table_requests.reopen(client, table.table_root, ACTION_S)
            retried_by.append("committer")
        if not retried_by:
            raise InvalidRequest(f"nobody has set {table.name} aside; there is nothing to retry")
        return f"{table.name} is tried again by: {', '.join(retried_by)}"

    def _client(self) -> Client:
        return Client(KafkaBus(self._settings.kafka, CLIENT_ID), self._settings.kafka.topics)

    def _store(self, table: TableRecord) -> LogStore:
        return store_for(TableLocation(table.table_root, self._settings.storage))
