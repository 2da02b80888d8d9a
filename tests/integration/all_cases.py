"""A table that delta-rs writes, with every case that a change stream's clients must get right."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

Row = dict[str, Any]

SCHEMA = pa.schema(
    [
        pa.field("region", pa.string(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        ("amount", pa.decimal128(38, 10)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("blob", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("place", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
        ("ok", pa.bool_()),
        ("ratio", pa.float64()),
        ("small", pa.int16()),
    ]
)
KEYS = "region, id"
LARGEST = Decimal("9999999999999999999999999999.9999999999")


def row(number: int, region: str = "eu", **changes: Any) -> Row:
    """Return a row; every seventh has nulls, and numbers reach the ends of their types."""
    whole: Row = {
        "region": region,
        "id": number,
        "amount": LARGEST if number == 1 else Decimal(number) / 8 - 3,
        "day": date(2024, 2, 29) if number % 2 else date(1969, 12, 31),
        "at": datetime(2024, 3, 31, 1, 30, number % 60, 123456, UTC),
        "local": datetime.fromisoformat(f"1999-12-31T23:59:59.{number:06}"),
        "blob": bytes([0, 255, number % 256]),
        "tags": [f"t{number}", None, 'quo"te'],
        "counts": [("a", number), ("b", None)],
        "place": {"city": f"Zürich {number}", "zip": number},
        "ok": number % 2 == 0,
        "ratio": number / 3,
        "small": number - 30,
    }
    if number % 7 == 0:
        whole |= {name: None for name in whole if name not in ("region", "id")}
    return {**whole, **changes}


@dataclass
class JudgedTable:
    """The table in a folder."""

    folder: Path

    def create(self) -> None:
        """Write rows before anybody publishes the table."""
        self._append([row(n) for n in range(1, 9)])
        self._append([row(n, "us") for n in range(3)])
        self.table.alter.set_table_properties({"tidegate.cdc.keyColumns": KEYS}, False)

    @property
    def table(self) -> DeltaTable:
        """The table at its newest version."""
        return DeltaTable(self.folder)

    def rows(self, version: int | None = None) -> list[Row]:
        """Return the table's rows, at its newest version if none is given; a map is a dict."""
        table = DeltaTable(self.folder, version=version)
        result = pa.table(table.to_pyarrow_dataset().to_table()).to_pylist()
        return [
            {k: dict(v) if k == "counts" and v is not None else v for k, v in item.items()}
            for item in result
        ]

    def steps(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """Yield each case's name, and what writes its versions."""
        yield "append", lambda: self._append([row(n) for n in range(10, 14)])
        yield "update", lambda: self.table.update({"ratio": "ratio + 1"}, predicate="id > 2")
        yield "update of many types", self._update_types
        yield "delete", lambda: self.table.delete("id = 2")
        yield "merge", self._merge
        yield "changed key", lambda: self.table.update({"id": "100"}, predicate="id = 3")
        yield "re-insert", lambda: self._append([row(2, ratio=0.5)])
        yield "compaction", lambda: self.table.optimize.compact()
        yield "added column", self._widen
        yield "restore", lambda: self.table.restore(self.table.version() - 3)

    def _append(self, rows: list[Row]) -> None:
        write_deltalake(self.folder, pa.Table.from_pylist(rows, schema=SCHEMA), mode="append")

    def _update_types(self) -> None:
        changed = row(50, region="eu", id=5)
        self._merge_in([changed])

    def _merge(self) -> None:
        self._merge_in([row(n, ratio=n / 7) for n in (4, 6, 60, 63)])

    def _merge_in(self, rows: list[Row]) -> None:
        source = pa.Table.from_pylist(rows, schema=SCHEMA)
        merging = self.table.merge(
            source, "t.region = s.region AND t.id = s.id", source_alias="s", target_alias="t"
        )
        merging.when_matched_update_all().when_not_matched_insert_all().execute()

    def _widen(self) -> None:
        wider = SCHEMA.append(pa.field("more", pa.string()))
        rows = [row(70, more="m"), row(71, more=None)]
        write_deltalake(
            self.folder,
            pa.Table.from_pylist(rows, schema=wider),
            mode="append",
            schema_mode="merge",
        )
