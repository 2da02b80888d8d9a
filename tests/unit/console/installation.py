"""A made-up installation for the operations page: it needs neither Kafka nor a store."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from tests.unit.console.test_attention import NOW_MS, TOPICS, well
from tidegate_console.overview import Overview
from tidegate_console.web.reading import TableMaintenance, TableShape
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.snapshots.table_health import TableFacts, assess
from tidegate_messages.outcome import Outcome, Rejection
from tidegate_messages.published_records import (
    FollowerRecord,
    Gate,
    MaintenanceChore,
    MaintenanceRecord,
    TableRecord,
)
from tidegate_producers.history.outcome_explanation import Explanation, Overlap, Winner
from tidegate_producers.history.outcome_log import DeadLetter, DeadLetters, ProposalOutcomes
from tidegate_producers.history.table_history import HistoryEntry
from tidegate_producers.ingest.ingest_status import MADE_ANEW, PartitionStatus
from tidegate_producers.ingest.positions import SourcePartition
from tidegate_producers.vacuum.vacuum import Claims
from tidegate_runtime.followers.stream_status import StreamStatus

HALTED, ASIDE, BY_HAND, WELL = UUID(int=1), UUID(int=2), UUID(int=3), UUID(int=4)
REJECTED = UUID(int=77)
HOSTILE = "<script>alert(1)</script>"


def tables(count: int) -> dict[UUID, TableRecord]:
    """Return tables of which the first three need somebody."""
    result: dict[UUID, dict[str, object]] = {
        HALTED: {"status": "halted", "reason": f"LogGap: version 41 is missing {HOSTILE}"},
        BY_HAND: {"status": "halted", "halted_by_hand": "a restore from the backup of 04:00"},
    }
    return {
        UUID(int=number): TableRecord.model_validate(
            {
                "table": UUID(int=number),
                "table_root": f"s3://lake/sales/orders_{number:04d}",
                "name": f"main.sales.orders_{number:04d}",
                "proposals_topic": TOPICS.proposals,
                "topic_partition": number % 2,
                "published_through": 40 + number,
                **result.get(UUID(int=number), {}),
            }
        )
        for number in range(1, count + 1)
    }


def overview(count: int = 12) -> Overview:
    """Return an overview of an installation in which several things are wrong."""
    result = tables(count)
    quarantined = FollowerRecord(
        service="cdc-publisher",
        table=ASIDE,
        name=result[ASIDE].name,
        reason="the key column id is gone; set tidegate.cdc.keyColumns",
        error_class="InvalidRequest",
        since_ms=NOW_MS - 3_600_000,
        attempts=7,
        next_try_ms=NOW_MS + 60_000,
    )
    letter = DeadLetter(
        4,
        NOW_MS - 90_000,
        "malformed",
        f"no JSON {HOSTILE}",
        "tidegate.proposals/0@9",
        None,
        "x",
        12,
    )
    streams = [
        StreamStatus(one.name, "behind", one.published_through, one.published_through - 2)
        if number % 5 == 0
        else StreamStatus(one.name, "up to date", one.published_through, one.published_through)
        for number, one in enumerate(result.values())
    ]
    streams[1] = StreamStatus(result[ASIDE].name, "stopped", 42, 39, reason=quarantined.reason)
    return replace(
        well(),
        tables=result,
        quarantined={ASIDE: [quarantined]},
        streams=streams,
        letters=DeadLetters(3, (letter,)),
    )


@dataclass
class MadeUp:
    """Reads and acts on made-up tables; `done` has what was asked."""

    count: int = 12
    done: list[tuple[str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def overview(self) -> Overview:
        """Return the present state."""
        return overview(self.count)

    def proposals(self, table: TableRecord | None, limit: int) -> Sequence[ProposalOutcomes]:
        """Return a rejected proposal and an open one."""
        outcome = Outcome(
            proposal_id=REJECTED,
            proposal_sha256="0" * 64,
            table=WELL,
            status="rejected",
            rejection=Rejection(rule="concurrent_append", reason="r", winner_version=44),
        )
        result = [
            ProposalOutcomes(REJECTED, WELL, None, 0, 5, NOW_MS - 5_000, (outcome,), 31),
            ProposalOutcomes(UUID(int=78), WELL, None, 0, 6, NOW_MS - 1_000, ()),
        ]
        return [item for item in result if table is None or item.table == table.table][:limit]

    def explanation(self, proposal: UUID, table: str | None) -> Explanation:
        """Return why the rejected proposal was rejected."""
        if proposal != REJECTED:
            raise InvalidRequest(f"{proposal} was never sent", error_class="ProposalNotFound")
        return Explanation(
            proposal_id=proposal,
            root=tables(4)[WELL].table_root,
            status="rejected",
            meaning="another commit added files that the proposal would have had to read",
            remedy="run the operation again: it then sees version 44",
            exit_status=2,
            commands=("tidegate table history s3://lake/sales/orders_0004",),
            rule="concurrent_append",
            delta_name="ConcurrentAppendException",
            reason="version 44 added part-1.parquet",
            winner=Winner(44, "WRITE", "Apache-Spark/4.2", NOW_MS - 9_000, (str(UUID(int=76)),)),
            overlap=Overlap(files=("part-1.parquet",), predicates=("day = 2026-11-26",)),
        )

    def history(self, table: TableRecord, limit: int) -> Sequence[HistoryEntry]:
        """Return two versions, one of them by an external writer."""
        return [
            HistoryEntry(44, NOW_MS - 9_000, "WRITE", metrics={"numFiles": "2"}, proposals=3),
            HistoryEntry(43, NOW_MS - 90_000, "OPTIMIZE", engine_info="delta-rs:1.6"),
        ]

    def shape(self, table: TableRecord) -> TableShape:
        """Return a table that should be compacted."""
        facts = TableFacts(
            44, 40, 10, 4, 8, 90_000, 4_000, 40_000 * 2**10, (4_000, 0, 0, 0), 10**6, 0, 0
        )
        return TableShape(facts, assess(facts))

    def positions(self, table: TableRecord) -> Sequence[PartitionStatus]:
        """Return how far the table is in a topic that was made anew, and in one with a lag."""
        orders = SourcePartition("orders", "id-1", 0)
        past = SourcePartition("gone", "id-2", 1)
        return [
            PartitionStatus(table.table_root, orders, 41, 45, NOW_MS - 5_000),
            PartitionStatus(table.table_root, past, 7, None, None, MADE_ANEW),
        ]

    def maintenance(self, table: TableRecord) -> TableMaintenance:
        """Return a task that was done, and why none is due; nothing of the other tables."""
        if table.table != WELL:
            return TableMaintenance(None, None)
        last = MaintenanceChore(
            kind="pack",
            size_bytes=8_192,
            why="12 files become 1",
            outcome="committed",
            at_ms=NOW_MS - 60_000,
        )
        report = MaintenanceRecord(
            table=WELL,
            name=table.name,
            about="report",
            at_ms=NOW_MS - 5_000,
            reason="its files are few",
            last=last,
        )
        pause = report.model_copy(update={"about": "pause", "reason": "a backfill runs"})
        return TableMaintenance(pause, report)

    def claims(self, table: TableRecord) -> Claims:
        """Return a holder of versions."""
        return Claims((Gate(39, "the change publisher"),), ())

    def halt(self, table: TableRecord, why: str) -> str:
        """Note the request."""
        return self._do("halt", f"{table.name}: {why}")

    def reopen(self, table: TableRecord) -> str:
        """Note the request."""
        return self._do("reopen", table.name)

    def retry(self, table: TableRecord) -> str:
        """Note the request."""
        return self._do("retry", table.name)

    def _do(self, action: str, what: str) -> str:
        self.done.append((action, what))
        return f"{action}: {what}"
