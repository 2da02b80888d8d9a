"""A table with a change feed: appends of many rows, then an update with change files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from tidegate_delta.log.file_names import LOG_FOLDER, commit_name
from tidegate_delta.schema.arrow_types import from_arrow
from tidegate_delta.schema.types import format_schema

APPENDS: Final = 10
AT_MS: Final = 1_767_225_600_000


def generate(folder: Path, rows: int) -> int:
    """Write a table with this many rows, and change a hundredth; return how many changes."""
    (folder / LOG_FOLDER).mkdir(parents=True)
    (folder / "_change_data").mkdir()
    append_rows = rows // APPENDS
    for number in range(APPENDS):
        data = _rows(number * append_rows, append_rows)
        name = f"part-{number:05d}.parquet"
        pq.write_table(data, folder / name)
        actions = [] if number else _first(data.schema)
        _commit(folder, number, [*actions, _add(folder, name)])
    old = _rows(0, append_rows // 10)
    kinds = ("update_preimage", "update_postimage")
    changed = pa.concat_tables(
        [old.append_column("_change_type", pa.array([kind] * old.num_rows)) for kind in kinds]
    )
    name = "_change_data/cdc-00000.parquet"
    pq.write_table(changed, folder / name)
    size = (folder / name).stat().st_size
    cdc_action = {"path": name, "partitionValues": {}, "size": size, "dataChange": False}
    _commit(folder, APPENDS, [{"cdc": cdc_action}])
    return append_rows * APPENDS + int(changed.num_rows)


def _rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "at": pa.array(
                [AT_MS * 1000 + 1000 * number for number in numbers], pa.timestamp("us", "UTC")
            ),
            "customer": pa.array([f"customer-{number % 99_991:06d}" for number in numbers]),
            "country": pa.array([("AT", "DE", "US", "FR")[number % 4] for number in numbers]),
            "amount": pa.array([number * 7919 % 100_003 / 100 for number in numbers]),
            "quantity": pa.array([number % 100 for number in numbers], pa.int32()),
            "paid": pa.array([number % 2 == 0 for number in numbers]),
            "note": pa.array([f"note {number % 7919} of the order" for number in numbers]),
        }
    )


def _first(schema: pa.Schema) -> list[Mapping[str, Any]]:
    metadata = {
        "id": str(UUID(int=8)),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": format_schema(from_arrow(schema)),
        "partitionColumns": [],
        "configuration": {"delta.enableChangeDataFeed": "true"},
        "createdTime": AT_MS,
    }
    return [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}, {"metaData": metadata}]


def _add(folder: Path, name: str) -> Mapping[str, Any]:
    add_action = {"path": name, "partitionValues": {}, "size": (folder / name).stat().st_size}
    return {"add": {**add_action, "modificationTime": AT_MS, "dataChange": True}}


def _commit(folder: Path, version: int, actions: list[Mapping[str, Any]]) -> None:
    info = {"timestamp": AT_MS + version, "operation": "WRITE", "operationParameters": {}}
    content = b"".join(orjson.dumps(row) + b"\n" for row in [{"commitInfo": info}, *actions])
    (folder / LOG_FOLDER / commit_name(version)).write_bytes(content)
