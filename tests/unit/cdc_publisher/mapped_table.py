"""A written table whose columns are renamed, dropped, added and widened, by column mapping."""

import json
import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tests.unit.cdc_publisher.written_table import Rows, WrittenTable

TYPES: Final = {
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp_ntz": pa.timestamp("us"),
    "decimal(6,2)": pa.decimal128(6, 2),
    "decimal(12,4)": pa.decimal128(12, 4),
    "decimal(14,4)": pa.decimal128(14, 4),
}
FEATURES: Final = ["columnMapping", "typeWidening", "timestampNtz"]


@dataclass(frozen=True)
class Column:
    """A column: its name, the name in files, its id, and its types, the last of them its own."""

    name: str
    physical: str
    number: int
    types: tuple[str, ...]

    @property
    def metadata(self) -> dict[str, Any]:
        """The field in the table's schema."""
        result: dict[str, Any] = {
            "delta.columnMapping.id": self.number,
            "delta.columnMapping.physicalName": self.physical,
        }
        if len(self.types) > 1:
            result["delta.typeChanges"] = [
                {"fromType": before, "toType": after}
                for before, after in zip(self.types, self.types[1:], strict=False)
            ]
        return {"name": self.name, "type": self.types[-1], "nullable": True, "metadata": result}


@dataclass
class MappedTable(WrittenTable):
    """A table whose `rows` have the physical names of columns, and `shown` their logical ones."""

    columns: list[Column] = field(default_factory=list)
    _numbers: int = 0

    @classmethod
    def at(cls, folder: Path, **types: str) -> "MappedTable":
        """Create a table with these columns; the first is its key."""
        table = cls(folder)
        for name, kind in types.items():
            table._numbers += 1
            number = table._numbers
            table.columns.append(Column(name, f"col-{number}", number, (kind,)))
        table.configuration = {
            "tidegate.cdc.keyColumns": next(iter(types)),
            "delta.columnMapping.mode": "name",
            "delta.enableTypeWidening": "true",
        }
        (folder / "_delta_log").mkdir(parents=True)
        protocol: dict[str, Any] = {"readerFeatures": FEATURES, "writerFeatures": FEATURES}
        protocol |= {"minReaderVersion": 3, "minWriterVersion": 7}
        table.commit("CREATE TABLE", {"protocol": protocol}, table._metadata())
        return table

    @property
    def shown(self) -> Rows:
        """The rows under the present names of their columns."""
        return [
            {column.name: row.get(column.physical) for column in self.columns}
            for row in self.content
        ]

    def rows(self, *shown: dict[str, Any]) -> Rows:
        """Return rows given by logical names as they stand in files."""
        return [{column.physical: row.get(column.name) for column in self.columns} for row in shown]

    def rename(self, name: str, to: str, **configuration: str) -> None:
        """Rename a column."""
        renamed = [
            replace(column, name=to) if column.name == name else column for column in self.columns
        ]
        self._alter(renamed, "RENAME COLUMN", **configuration)

    def widen(self, name: str, to: str) -> None:
        """Widen the type of a column."""
        self._alter([replace(column, types=(*column.types, to)) if column.name == name else column
                     for column in self.columns], "CHANGE COLUMN")  # fmt: skip

    def remove(self, name: str) -> None:
        """Drop a column."""
        self._alter([column for column in self.columns if column.name != name], "DROP COLUMNS")

    def add(self, name: str, kind: str) -> None:
        """Add a column at the end."""
        self._numbers += 1
        column = Column(name, f"col-{self._numbers}", self._numbers, (kind,))
        self._alter([*self.columns, column], "ADD COLUMNS")

    def evolve(self, name: str, kind: str, change: Any) -> None:
        """Add a column and replace every file in one version, as a MERGE with evolution does."""
        self._numbers += 1
        self.columns.append(Column(name, f"col-{self._numbers}", self._numbers, (kind,)))
        metadata = self._metadata()
        removed = [(path, content) for path, content in list(self.files.items())]
        actions = [self._remove(path) for path, _ in removed]
        added = [self._add(change(content)) for _, content in removed]
        self.commit("MERGE", metadata, *actions, *added)

    def _alter(self, columns: list[Column], operation: str, **configuration: str) -> None:
        self.columns = columns
        self.configuration = {**self.configuration, **configuration}
        self.commit(operation, self._metadata())

    def _metadata(self) -> dict[str, Any]:
        self.schema = pa.schema(
            [(column.physical, TYPES[column.types[-1]]) for column in self.columns]
        )
        body = {
            "id": "00000000-0000-0000-0000-00000000f11e",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(
                {"type": "struct", "fields": [column.metadata for column in self.columns]}
            ),
            "partitionColumns": [],
            "configuration": {
                **self.configuration,
                "delta.columnMapping.maxColumnId": str(self._numbers),
            },
            "createdTime": 0,
        }
        return {"metaData": body}


def change_at_random(table: MappedTable, dice: random.Random) -> None:
    """Write the next version at random: rows or the schema change, or both. `id` stays."""
    others = [column.name for column in table.columns if column.name != "id"]
    new = f"c{dice.randrange(6)}"
    while new in others:
        new += "x"
    physical = {column.name: column.physical for column in table.columns}
    ids = [row[physical["id"]] for row in table.content]
    chosen = set(dice.sample(ids, min(len(ids), dice.choice([1, 3]))))
    match dice.randrange(8):
        case 0 | 1:
            first = max(ids, default=0) + 1
            made = [
                {physical["id"]: n, **{physical[name]: None for name in others}}
                for n in range(first, first + dice.choice([1, 4]))
            ]
            table.append([_filled(table, row, dice) for row in made])
        case 2:
            table.rewrite(lambda old: [r for r in old if r[physical["id"]] not in chosen])
        case 3:
            table.rewrite(
                lambda old: [
                    _filled(table, r, dice) if r[physical["id"]] in chosen else r for r in old
                ]
            )
        case 4 if others:
            table.rename(dice.choice(others), new)
        case 5 if len(others) > 1:
            table.remove(dice.choice(others))
        case 6:
            table.evolve(
                new,
                "string",
                lambda old: [
                    _filled(table, r, dice) if r[physical["id"]] in chosen else r
                    for r in old
                    if r[physical["id"]] not in chosen or dice.random() < 0.8
                ],
            )
        case _:
            table.add(new, dice.choice(["long", "string", "double"]))


def _filled(table: MappedTable, row: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    made: dict[str, Any] = {
        "long": dice.randrange(9),
        "string": dice.choice(["a", "b", None]),
        "double": dice.random(),
    }
    return {
        column.physical: row[column.physical] if column.name == "id" else made[column.types[-1]]
        for column in table.columns
    }
