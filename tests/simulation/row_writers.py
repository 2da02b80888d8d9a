"""Writers that delete and update rows of files that stay: proposers and other engines.

They read deletion vectors with the protocol package, never with the committer's code.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any, Final
from uuid import UUID

from tests import builders
from tests.fakes.memory_store import MemoryStore
from tidegate_delta.deletion_vectors.descriptors import in_file, inline
from tidegate_delta.deletion_vectors.roaring_bitmap import Bitmap, of_rows
from tidegate_delta.log.actions import DeletionVector
from tidegate_messages.proposal import RowIntent
from tidegate_runtime.table_io.deletion_vector_reader import read_vector

FEW: Final = 10
MANY: Final = 200_000
STATS: Final = {rows: json.dumps({"numRecords": rows}) for rows in (FEW, MANY)}

Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class LiveFile:
    """A file as the log last added it: its deletion vector and its number of rows."""

    store: MemoryStore
    vector: Mapping[str, Any] | None
    rows: int

    @cached_property
    def gone(self) -> Bitmap:
        """The deleted rows."""
        return rows_of(self.store, self.vector)

    @property
    def left(self) -> int:
        """The number of rows that are not deleted."""
        return self.rows - (self.vector["cardinality"] if self.vector else 0)

    @property
    def base(self) -> str | None:
        """The unique id of the deletion vector."""
        return DeletionVector.model_validate(self.vector).unique_id if self.vector else None


def live_file(store: MemoryStore, add: Row) -> LiveFile:
    """Return a file as an add describes it."""
    return LiveFile(store, add.get("deletionVector"), json.loads(add["stats"])["numRecords"])


def rows_of(store: MemoryStore, vector: Mapping[str, Any] | None) -> Bitmap:
    """Return the rows of a deletion vector as the log writes it."""
    return read_vector(store, DeletionVector.model_validate(vector)) if vector else Bitmap()


def added(dice: Random, path: str) -> Row:
    """Return a new file; some are so large that their vectors do not fit inline in the log."""
    return builders.add(path, stats=STATS[MANY if dice.random() < 0.4 else FEW])


def removal(live: Mapping[str, Row], path: str, **changed: Any) -> Row:
    """Return the remove of a live file, with its present deletion vector."""
    vector = live[path].get("deletionVector")
    return builders.remove(path, **({"deletionVector": vector} if vector else {}), **changed)


def some_rows(dice: Random, file: LiveFile) -> Bitmap:
    """Return some rows that are not deleted yet."""
    if file.rows >= MANY:
        # Scattered rows make a deletion vector too large to be inline.
        scattered = of_rows(range(dice.randrange(1_000), file.rows, 199)) - file.gone
        if scattered:
            return scattered
    left = list(of_rows(range(file.rows)) - file.gone)
    return of_rows(dice.sample(left, min(len(left), dice.choice((1, 2, 3, 10)))))


def with_rows(live: Mapping[str, Row]) -> list[str]:
    """Return the files that have rows left."""
    there = {path: add.get("deletionVector") for path, add in live.items()}
    counts = {path: json.loads(live[path]["stats"])["numRecords"] for path in live}
    return [path for path, one in there.items() if not one or one["cardinality"] < counts[path]]


def intent(dice: Random, path: str, file: LiveFile, op: str, number: int) -> RowIntent:
    """Return the intent to delete some rows; now and then its rows are in a staged file."""
    rows = some_rows(dice, file)
    vector = inline(rows)
    if dice.random() < 0.2:
        name = UUID(int=(number << 8) + len(path))
        content, [vector] = in_file([rows], name)
        file.store.put(f"deletion_vector_{name}.bin", content)
    result = vector.model_dump(by_alias=True, exclude_none=True)
    stated = {"path": path, "base": file.base, "rows": result, "num_records": file.rows, "op": op}
    return RowIntent.model_validate(stated)


def exchange(dice: Random, store: MemoryStore, live: Mapping[str, Row]) -> list[Row]:
    """Return another engine's actions that delete rows of a file, or restore some."""
    there = with_rows(live)
    if not there:
        return []
    path = dice.choice(there)
    file = live_file(store, live[path])
    gone = file.gone | some_rows(dice, file)
    if file.vector and dice.random() < 0.3:
        gone = of_rows(dice.sample(list(file.gone), len(file.gone) // 2))
    result = inline(gone).model_dump(by_alias=True, exclude_none=True)
    vector = {"deletionVector": result} if gone else {}
    if vector.get("deletionVector") == file.vector:
        return []
    # The bounds are no longer tight; a writer that proposes this has to state it.
    stats = json.dumps({"numRecords": file.rows, "tightBounds": not vector})
    return [removal(live, path), builders.add(path, stats=stats, **vector)]
