"""The metrics of all services: base units, few labels (a table is one, a file is not)."""

import itertools
from collections.abc import Collection
from contextlib import suppress
from functools import cache
from typing import Final

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each

_FAST: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5)
_SECONDS: Final = (*_FAST, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

NOBODY: Final = "-"
"""The label of unregistered tables: names that any writer can choose must not become labels."""

PROPOSALS: Final = Counter(
    "tidegate_proposals_total",
    "Proposals decided, by outcome; repeated outcomes are not counted.",
    ["table", "outcome"],
)
CONFLICTS: Final = Counter(
    "tidegate_conflicts_total", "Proposals rejected by a conflict rule.", ["table", "kind"]
)
REFUSALS: Final = Counter(
    "tidegate_refusals_total",
    "Answers other than committed, by status and rule.",
    ["table", "status", "rule"],
)
PROPOSAL_LATENCY: Final = Histogram(
    "tidegate_proposal_latency_seconds",
    "From a proposal's timestamp to its outcome.",
    ["table"],
    buckets=_SECONDS,
)
PROPOSAL_PICKUP: Final = Histogram(
    "tidegate_proposal_pickup_seconds",
    "From the broker's timestamp to the poll that read it, for the first record of each poll.",
    buckets=_SECONDS,
)
GROUP_WAIT: Final = Histogram(
    "tidegate_group_wait_seconds",
    "From read to decided, for the first proposal of a group.",
    ["table"],
    buckets=_SECONDS,
)
GROUP_LINGER: Final = Histogram(
    "tidegate_group_linger_seconds",
    "The part of the group wait spent waiting for more proposals.",
    ["table"],
    buckets=_SECONDS,
)
COMMIT_WRITE: Final = Histogram(
    "tidegate_commit_write_seconds", "One put-if-absent of an entry.", ["table"], buckets=_SECONDS
)
GROUP_SIZE: Final = Histogram(
    "tidegate_group_proposals",
    "Proposals in one entry.",
    ["table"],
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256),
)
GROUP_BYTES: Final = Histogram(
    "tidegate_group_bytes",
    "Size of an entry.",
    ["table"],
    buckets=tuple(4.0**power for power in range(5, 14)),
)
PUTS_IN_FLIGHT: Final = Gauge("tidegate_puts_in_flight", "PUTs of entries under way.")
FLUSH: Final = Histogram(
    "tidegate_flush_seconds", "Until published outcomes are durable in Kafka.", buckets=_SECONDS
)
RACES_LOST: Final = Counter(
    "tidegate_races_lost_total", "Versions that another writer took first.", ["table"]
)
PROBES: Final = Counter(
    "tidegate_probes_total", "Checks of idle tables for versions by other writers.", ["table"]
)
AUDITS: Final = Counter(
    "tidegate_audited_versions_total", "Versions read again and compared.", ["table"]
)
LOADS: Final = Histogram(
    "tidegate_table_load_seconds",
    "Reading a table's log. Without the table's name: each reads its own once.",
    buckets=_SECONDS,
)
RESTS: Final = Counter(
    "tidegate_rests_total", "Times that a table was left alone for a while.", ["table", "why"]
)
FAULTS: Final = Counter(
    "tidegate_table_faults_total",
    "Errors of classes that nobody foresaw, contained in the table where they came up.",
    ["table", "why"],
)
QUARANTINED: Final = Gauge(
    "tidegate_tables_quarantined", "Tables that this follower leaves alone after an error."
)
TABLES: Final = Gauge("tidegate_tables", "Tables that are served, by state.", ["state"])
TOPIC_PARTITIONS: Final = Gauge(
    "tidegate_topic_partitions", "Topic partitions that this committer owns; 0 on a standby."
)
TOPIC_PARTITIONS_PAUSED: Final = Gauge(
    "tidegate_topic_partitions_paused",
    "Owned topic partitions that are paused because too many proposals wait.",
)
OPEN_TRANSACTION_OFFSETS: Final = Gauge(
    "tidegate_open_transaction_offsets",
    "Offsets of `proposals` behind an open Kafka transaction: high watermark less last stable "
    "offset.",
    ["partition"],
)
OPEN_TRANSACTION_AGE: Final = Gauge(
    "tidegate_open_transaction_seconds",
    "How long the same open Kafka transaction has held them back.",
    ["partition"],
)
IN_FLIGHT: Final = Gauge("tidegate_proposals_in_flight", "Proposals read and not yet decided.")
QUEUE_AGE: Final = Gauge(
    "tidegate_proposal_queue_age_seconds", "Age of the oldest proposal not yet decided."
)
STORE_WAIT: Final = Gauge(
    "tidegate_store_wait_seconds",
    "How long a table has waited for its store, from 10 s on.",
    ["table"],
)
TABLE_VERSION: Final = Gauge("tidegate_table_version", "The last version seen.", ["table"])
TABLE_LAST_COMMIT: Final = Gauge(
    "tidegate_table_last_commit_timestamp_seconds", "When the last version was written.", ["table"]
)
STORAGE_AMBIGUOUS: Final = Counter(
    "tidegate_storage_ambiguous_total", "PUTs without a clear answer, by resolution.", ["resolved"]
)
EXTERNAL_VERSIONS: Final = Counter(
    "tidegate_external_versions_total",
    "Versions that were found in a log and that nobody proposed.",
    ["table"],
)
UNSAFE_VERSIONS: Final = Counter(
    "tidegate_unsafe_versions_total",
    "Versions written by engines that may overwrite other writers' versions.",
    ["table"],
)
REPLIES_LOST: Final = Counter(
    "tidegate_replies_lost_total",
    "Copies of outcomes that could not be sent to the topic that a writer named.",
)
DEAD_LETTERS: Final = Counter(
    "tidegate_dead_letters_total", "Records that could not be read.", ["reason"]
)
for _reason in ("malformed", "unknown_kind", "too_large", "poison", "fault"):
    DEAD_LETTERS.labels(_reason)  # created at 0: a series that begins at 1 shows no increase
CHECKPOINT_AGE: Final = Gauge(
    "tidegate_checkpoint_age_versions", "Versions since the last checkpoint.", ["table"]
)
CHECKPOINT_WRITE: Final = Histogram(
    "tidegate_checkpoint_seconds", "Writing one checkpoint.", ["table"], buckets=_SECONDS
)
CHECKSUM_CONTRADICTIONS: Final = Counter(
    "tidegate_checksum_contradictions_total",
    "Versions of which a checkpoint was written and whose checksum file contradicts the log.",
    ["table"],
)
LOG_TAIL: Final = Gauge(
    "tidegate_log_tail_commits", "Commits a reader replays after the checkpoint.", ["table"]
)
LOG_CLEANUP_FILES: Final = Counter(
    "tidegate_log_cleanup_files_total", "Files deleted from the log.", ["table"]
)
LOG_CLEANUP_BYTES: Final = Counter(
    "tidegate_log_cleanup_bytes_total", "Bytes of the files deleted from the log.", ["table"]
)
LOG_CLEANUP_TIME: Final = Gauge(
    "tidegate_log_cleanup_timestamp_seconds", "When the log was last looked through.", ["table"]
)
LOG_CLEANUP_BLOCKED: Final = Gauge(
    "tidegate_log_cleanup_blocked",
    "1 while something keeps files of the log that would go by the table's properties.",
    ["table", "why"],
)
CDC_POSITION: Final = Gauge(
    "tidegate_cdc_position_version", "The last version whose changes are published.", ["table"]
)
CDC_LAG_VERSIONS: Final = Gauge(
    "tidegate_cdc_lag_versions", "Versions whose changes are not yet published.", ["table"]
)
CDC_LAG: Final = Gauge(
    "tidegate_cdc_lag_seconds",
    "Age of the oldest version whose changes are not yet published.",
    ["table"],
)
CDC_EVENTS: Final = Counter("tidegate_cdc_events_total", "Changes published.", ["table", "op"])
CDC_ABORTS: Final = Counter(
    "tidegate_cdc_txn_aborts_total", "Kafka transactions aborted.", ["table"]
)
INGEST_RECORDS: Final = Counter(
    "tidegate_ingest_records_total", "Records of topics whose batch is committed.", ["route"]
)
INGEST_DEAD_LETTERS: Final = Counter(
    "tidegate_ingest_dead_letters_total", "Records that are no rows of their table.", ["route"]
)
INGEST_VERSION: Final = Gauge(
    "tidegate_ingest_version", "The last version that an ingest job has committed.", ["route"]
)
INGEST_LAG: Final = Gauge(
    "tidegate_ingest_lag_records",
    "Offsets of a topic partition that the table does not have yet.",
    ["route", "partition"],
)
INGEST_STOPPED: Final = Gauge(
    "tidegate_ingest_route_stopped", "1 when a route has failed for good.", ["route"]
)
MAINTAIN_REWRITTEN: Final = Counter(
    "tidegate_maintain_rewritten_bytes_total",
    "Bytes of files that the maintainer wrote anew.",
    ["table"],
)
MAINTAIN_WRITTEN: Final = Counter(
    "tidegate_maintain_written_bytes_total",
    "Bytes of files that writers added, as the maintainer saw them.",
    ["table"],
)
MAINTAIN_HEALTH: Final = Gauge(
    "tidegate_maintain_health_score",
    "100 less what too many files and deleted rows cost.",
    ["table"],
)
MAINTAIN_DAMAGED: Final = Gauge(
    "tidegate_maintain_damaged_files",
    "Data files that the last check of a sample found missing or damaged.",
    ["table"],
)
MAINTAIN_BACKLOG: Final = Gauge(
    "tidegate_maintain_backlog_bytes", "Bytes of files that are due to be written anew.", ["table"]
)
MAINTAIN_BUDGET: Final = Gauge(
    "tidegate_maintain_budget_left_bytes", "Bytes that may still be written anew now."
)
MAINTAIN_TASKS: Final = Counter(
    "tidegate_maintain_tasks_total",
    "Tasks that were committed, or gave way to a writer, by the rule.",
    ["table", "kind", "outcome"],
)
COMMIT_NOTIFICATIONS: Final = Counter(
    "tidegate_commit_notifications_total",
    "Records of commits that a follower has handled.",
    ["table"],
)
POLLS: Final = Counter("tidegate_polls_total", "Periodic polls of the registry and the log.")


@cache
def outcome_counter(table: str, outcome: str) -> Counter:
    """Return the counter of a table's proposals with this outcome (cached)."""
    return PROPOSALS.labels(table, outcome)


@cache
def not_committed(table: str, status: str, rule: str) -> Counter:
    """Return the counter of a table's proposals not committed because of a rule (cached)."""
    return REFUSALS.labels(table, status, rule)


@cache
def of_table(histogram: Histogram, table: str) -> Histogram:
    """Return a histogram of a table (cached)."""
    return histogram.labels(table)


def decided(table: str, waited_s: float, lingered_s: float) -> None:
    """Record how long a table's group of proposals waited for its decision."""
    of_table(GROUP_WAIT, table).observe(waited_s)
    of_table(GROUP_LINGER, table).observe(lingered_s)


def landed(table: str, members: int, size: int) -> None:
    """Record an entry that we wrote."""
    of_table(GROUP_SIZE, table).observe(members)
    of_table(GROUP_BYTES, table).observe(size)


def forget_maintenance(table: str) -> None:
    """Remove what is known of the health of a table that is maintained no more."""
    for gauge in (MAINTAIN_HEALTH, MAINTAIN_BACKLOG, MAINTAIN_DAMAGED):
        with suppress(KeyError):
            gauge.remove(table)


_OF_ONE_LABEL: Final = (
    PROPOSAL_LATENCY,
    GROUP_WAIT,
    GROUP_LINGER,
    COMMIT_WRITE,
    GROUP_SIZE,
    GROUP_BYTES,
    RACES_LOST,
    PROBES,
    AUDITS,
    EXTERNAL_VERSIONS,
    UNSAFE_VERSIONS,
)
_OF_SEVERAL: Final = {
    PROPOSALS: ("table", "outcome"),
    CONFLICTS: ("table", "kind"),
    REFUSALS: ("table", "status", "rule"),
    RESTS: ("table", "why"),
    FAULTS: ("table", "why"),
}
"""A committer's metrics of a table, with the table's name as the only label and with more labels.
"""


def forget(tables: Collection[str]) -> None:
    """Remove the metrics of tables that a committer served: each takes 30 KiB and 120 series.

    Pass all tables at once, as each call scans the metrics of every table.
    """
    if not tables:
        return
    for metric, table in itertools.product(_OF_ONE_LABEL, tables):
        with suppress(KeyError):
            metric.remove(table)
    for family, labels in _OF_SEVERAL.items():
        of_them = {
            tuple(sample.labels[label] for label in labels)
            for samples in family.collect()
            for sample in samples.samples
            if sample.labels["table"] in tables
        }
        for label_values in of_them:
            family.remove(*label_values)
    for looked_up in (outcome_counter, not_committed, of_table):
        looked_up.cache_clear()
