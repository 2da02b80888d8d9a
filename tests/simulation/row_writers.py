"""Writers that delete and update rows of files that stay, and what the log says of such rows.

Vectors are read by the protocol's own code, never by the committer's.
"""

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from tests import builders
from tidegate.delta.actions import DeletionVector
from tidegate.delta.files.bitmap import Bitmap, of_rows
from tidegate.delta.files.deletion_vectors import in_file, inline
from tidegate.pipeline.proposal import Operation, Proposal
from tidegate.pipeline.read_set import ReadSet
from tidegate.pipeline.row_intent import RowIntent
from tidegate.runtime.memory import MemoryStore
from tidegate.runtime.vector_files import read_vector

NAMES = ["deletionVectors"]
FEATURE = builders.protocol(3, 7, readerFeatures=NAMES, writerFeatures=NAMES)
METADATA = builders.metadata(enableDeletionVectors="true")
FEW, MANY = 10, 200_000
STATS = {rows: json.dumps({"numRecords": rows}) for rows in (FEW, MANY)}

Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class LiveFile:
    """A file as the log last added it: its vector, and how many rows it has."""

    store: MemoryStore
    vector: Mapping[str, Any] | None
    rows: int

    @cached_property
    def gone(self) -> Bitmap:
        """The deleted rows."""
        return rows_of(self.store, self.vector)

    @property
    def left(self) -> int:
        """How many rows are not deleted."""
        return self.rows - (self.vector["cardinality"] if self.vector else 0)

    @property
    def base(self) -> str | None:
        """The unique id of the vector."""
        return DeletionVector.model_validate(self.vector).unique_id if self.vector else None


def rows_of(store: MemoryStore, vector: Mapping[str, Any] | None) -> Bitmap:
    """Return the rows of a vector as the log spells it."""
    return read_vector(store, DeletionVector.model_validate(vector)) if vector else Bitmap()


def live_files(store: MemoryStore, entries: Iterable[list[Row]]) -> dict[str, LiveFile]:
    """Return the files after some entries."""
    last: dict[str, Row] = {}
    for rows in entries:
        for row in rows:
            last.pop(row.get("remove", {}).get("path", ""), None)
        last |= {row["add"]["path"]: row["add"] for row in rows if "add" in row}
    return {path: live_file(store, add) for path, add in last.items()}


def live_file(store: MemoryStore, add: Row) -> LiveFile:
    """Return a file as an add describes it."""
    return LiveFile(store, add.get("deletionVector"), json.loads(add["stats"])["numRecords"])


def added(dice: random.Random, path: str) -> Row:
    """Return a new file: some are so large that their vectors don't fit into an entry."""
    return builders.add(path, stats=STATS[MANY if dice.random() < 0.2 else FEW])


@dataclass(frozen=True)
class RowWriter:
    """A writer of one table. `number` is one that no other call was given."""

    dice: random.Random
    store: MemoryStore
    number: int

    def proposal(self, files: Mapping[str, LiveFile], told: dict[str, Any]) -> Proposal | None:
        """Return a delete or an update of rows, or None where there are none."""
        chosen = self._chosen(files)
        if not chosen:
            return None
        is_update = self.dice.random() < 0.4
        op = "update" if is_update else "delete"
        intents = tuple(self._intent(path, files[path], op) for path in chosen)
        reads = ReadSet(files=tuple(chosen), delete_insensitive=self.dice.random() < 0.8)
        told = {**told, "reads": reads, "operation": Operation(name=op.upper())}
        rows = [added(self.dice, f"image-{self.number}")] if is_update else []
        return builders.proposal(*rows, **told, dv_intents=intents)

    def foreign(self, files: Mapping[str, LiveFile]) -> list[Row]:
        """Return what another engine writes that deletes rows, or brings some back."""
        chosen = self._chosen(files)[:1]
        rows: list[Row] = []
        for path in chosen:
            file = files[path]
            gone = file.gone | self._some_rows(file)
            if file.vector and self.dice.random() < 0.3:
                gone = of_rows(self.dice.sample(list(file.gone), len(file.gone) // 2))
            vector = inline(gone).model_dump(by_alias=True, exclude_none=True)
            stats = STATS[file.rows]
            body = {"deletionVector": vector} if gone.blocks else {}
            old = {"deletionVector": file.vector} if file.vector else {}
            if body == old:
                continue
            rows += [builders.remove(path, **old), builders.add(path, stats=stats, **body)]
        return rows

    def _chosen(self, files: Mapping[str, LiveFile]) -> list[str]:
        there = [path for path, file in files.items() if file.left]
        return self.dice.sample(there, min(len(there), self.dice.choice((1, 1, 1, 2))))

    def _some_rows(self, file: LiveFile) -> Bitmap:
        if file.rows == MANY:
            # Scattered rows: their vector is larger than what stands in an entry.
            scattered = of_rows(range(self.dice.randrange(1_000), MANY, 199)) - file.gone
            if scattered.blocks:
                return scattered
        left = list(of_rows(range(file.rows)) - file.gone)
        return of_rows(self.dice.sample(left, min(len(left), self.dice.choice((1, 2, 3, 10)))))

    def _intent(self, path: str, file: LiveFile, op: str) -> RowIntent:
        rows = self._some_rows(file)
        if self.dice.random() < 0.2:
            name = UUID(int=(self.number << 8) + len(path))
            content, [vector] = in_file([rows], name)
            self.store.put(f"deletion_vector_{name}.bin", content)
        else:
            vector = inline(rows)
        told = vector.model_dump(by_alias=True, exclude_none=True)
        stated = {"path": path, "base": file.base, "rows": told, "num_records": file.rows, "op": op}
        return RowIntent.model_validate(stated)
