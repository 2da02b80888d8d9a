"""Writers of identity columns: they claim values beyond the high-water mark, or lease some first.

They read the mark from the log's metaData, and the leases from the outcomes.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from tests import builders
from tests.simulation.history import Log
from tests.simulation.run_state import Stage
from tests.simulation.tables import TABLES, Table

NUMBERED: Final = "id"
MARK: Final = "delta.identity.highWaterMark"

Row = dict[str, Any]


def write(stage: Stage) -> None:
    """Writers claim values, lease some, or use values that they leased."""
    table = next(table for table in TABLES if table.is_numbered)
    log = stage.log(table)
    if log.head < 0:
        return
    for _ in range(stage.dice.choice((1, 1, 2, 4))):
        given = list(_given(stage))
        result: Row
        if given and stage.dice.random() < 0.7:
            result = {"identity_usage": [_from_lease(stage, *stage.dice.choice(given))]}
        elif stage.dice.random() < 0.4:
            result = {"identity_leases": [{"column": NUMBERED, "count": stage.dice.randint(1, 4)}]}
        else:
            low = mark_of(log) + 1 + stage.dice.choice((0, 0, 0, 3, -2))
            usage = {"column": NUMBERED, "low": low, "high": low + stage.dice.randint(0, 5)}
            result = {"identity_usage": [usage]}
        stage.send(
            table, builders.proposal(*_file(stage, table, result), **result, **_at(stage, table))
        )


def mark_of(log: Log) -> int:
    """Return the high-water mark in the newest metaData; 0 where there is none."""
    fields = json.loads(log.metadata["schemaString"])["fields"]
    [result] = [field["metadata"] for field in fields if field["name"] == NUMBERED]
    return int(result.get(MARK, 0))


def _at(stage: Stage, table: Table) -> Row:
    return {
        "proposal_id": stage.new_id(),
        "table": table.id,
        "table_root": table.root,
        "read_version": max(stage.log(table).head, 0),
        "files_since_ms": stage.clock.now_ms(),
    }


def _file(stage: Stage, table: Table, told: Row) -> list[Row]:
    if "identity_usage" not in told:
        return []
    return [builders.add(stage.data_file(table, f"n{stage.next()}"))]


def _from_lease(stage: Stage, lease: UUID, block: Mapping[str, int]) -> Row:
    low = block["first"] + stage.dice.randrange(block["count"])
    high = min(low + stage.dice.randint(0, 3), block["first"] + block["count"] - 1)
    return {"column": NUMBERED, "low": low, "high": high, "lease": str(lease)}


def _given(stage: Stage) -> Iterator[tuple[UUID, Mapping[str, int]]]:
    """Yield the leases of recent outcomes."""
    for result in stage.history.outcomes[-200:]:
        for block in (result.body.get("assigned") or {}).get("identity", ()):
            yield UUID(result.body["proposal_id"]), block
