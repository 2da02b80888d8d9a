"""Writers that each delete their own rows of one file, beside as many that append."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench import gate_writers
from bench.delta_rs_writers import Rate
from bench.figures import Figure, at_least, median
from bench.gate_writers import CLOCK, target_of
from tidegate_delta.deletion_vectors.roaring_bitmap import of_rows
from tidegate_delta.log.actions import Add, DeletionVector
from tidegate_messages.proposal import Predicate, Proposal
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.client import proposal_builders
from tidegate_runtime.clock import new_id
from tidegate_runtime.kafka.settings import KafkaSettings

WRITERS: Final = 64
ROWS: Final = 1_000_000
PATH: Final = "month=1/shared.parquet"
BOUNDS: Final = {"minValues": {"id": 0}, "maxValues": {"id": ROWS - 1}, "nullCount": {"id": 0}}


def shared_file() -> Add:
    """Return the one file, whose rows are numbered by `id`."""
    return Add(
        path=PATH,
        partition_values={"month": "1"},
        size=10_000_000,
        modification_time=CLOCK.now_ms(),
        data_change=True,
        stats=json.dumps({"numRecords": ROWS, **BOUNDS}),
    )


class Deleting:
    """Deletes of one row each, scattered over the file. No two writers delete the same rows.

    Like every delete it has a predicate and the file in its read set, and the vector that the file
    had at the read version.
    """

    def __init__(self, table: TableRecord, writer: int) -> None:
        self._table = table
        self._rows = iter(range(writer, ROWS, WRITERS))
        self._version = 0
        self._file = shared_file()

    def proposal(self) -> Proposal:
        """Return the delete of the next row."""
        row = next(self._rows) * 7_919 % ROWS
        condition: Predicate = {"op": "=", "column": ["id"], "value": row, "type": "long"}
        marked = [(self._file, of_rows([row]))]
        metrics = {"numDeletedRows": 1}
        deletion = proposal_builders.Deletion(
            f"id = {row}", condition, [PATH], (), (), metrics, marked
        )
        vectors, _ = proposal_builders.vectors_of(deletion, new_id(CLOCK))
        stamp = proposal_builders.Stamp(new_id(CLOCK), CLOCK.now_ms())
        return proposal_builders.delete(
            target_of(self._table, self._version), stamp, deletion, vectors
        )

    def committed(self, outcome: Mapping[str, Any]) -> None:
        """Record the version, and the file's vector in it."""
        self._version = outcome["version"]
        vector = outcome["assigned"]["deletion_vectors"][PATH]
        self._file = self._file.with_(deletion_vector=DeletionVector.model_validate(vector))


def figures(settings: KafkaSettings, folder: Path, rounds: int, seconds: float) -> list[Figure]:
    """Return proposals a second of deletes of one file's rows, beside blind appends."""
    deletes: list[Rate] = []
    appends: list[Rate] = []
    on = {"delta.enableDeletionVectors": "true"}
    for number in range(rounds):
        shared = folder / "tables" / f"deletes-{number}"
        table = gate_writers.create(settings, shared, on, [shared_file()])
        deletes.append(gate_writers.run(settings, table, WRITERS, seconds, Deleting))
        append_table = gate_writers.create(settings, folder / "tables" / f"appends-{number}")
        appends.append(gate_writers.run(settings, append_table, WRITERS, seconds))
    ours, theirs = (
        median([delete.per_s for delete in deletes]),
        median([append.per_s for append in appends]),
    )
    slow, fast = (
        median([delete.p99_ms for delete in deletes]),
        median([append.p99_ms for append in appends]),
    )
    refused = sum(delete.gave_up for delete in deletes)
    return [
        Figure(
            f"{WRITERS} writers delete rows of one file, commits/s",
            f"{ours:.0f}/s, {refused} refused, p99 {slow:.0f} ms",
            f"blind appends {theirs:.0f}/s, p99 {fast:.0f} ms",
            ours / theirs,
            ">= 0.5, 0 refused",
            f"{sum(delete_rate.committed for delete_rate in deletes)} rows of one file deleted in "
            f"{rounds} rounds",
            is_met=ours / theirs >= 0.5 and not refused,
            recorded=at_least(0.56),
        )
    ]
