"""What the comparison of a large rewrite costs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.integration import rewrite_program

ROWS: Final = 1_000_000
FILES: Final = 4
MEMORY_MAX_MIB: Final = 512
TURN_MAX_S: Final = 30.0

COLUMNS: Final = ("id", "name", "price", "count", "at", "city", "note")


def rows(begin: int, end: int) -> pa.Table:
    """Return rows of seven columns, of a hundred bytes each."""
    ids = pa.array(range(begin, end), pa.int64())
    text = pc.cast(ids, pa.string())
    return pa.table(
        {
            "id": ids,
            "name": pc.binary_join_element_wise("customer number", text, " "),
            "price": pc.divide(pc.cast(ids, pa.float64()), 7.0),
            "count": pc.cast(pc.bit_wise_and(ids, 1023), pa.int32()),
            "at": pc.cast(pc.multiply(ids, 1_000_003), pa.timestamp("us", "UTC")),
            "city": pc.binary_join_element_wise("Zürich", text, "-"),
            "note": pc.binary_join_element_wise("a note about", text, "of some length", " "),
        }
    )


def commit(folder: Path, version: int, actions: list[dict[str, Any]]) -> None:
    info = {"commitInfo": {"timestamp": version, "operation": "WRITE"}}
    lines = "".join(json.dumps(item) + "\n" for item in [info, *actions])
    (folder / "_delta_log" / f"{version:020d}.json").write_text(lines)


def file(folder: Path, name: str, content: pa.Table) -> dict[str, Any]:
    pq.write_table(content, folder / name)
    size = (folder / name).stat().st_size
    return {"path": name, "partitionValues": {}, "size": size, "dataChange": True}


def rewritten(folder: Path, changed: int) -> None:
    """Write a table of a million rows, then all its files anew with some of the rows changed."""
    (folder / "_delta_log").mkdir(parents=True)
    kinds = ("long", "string", "double", "integer", "timestamp", "string", "string")
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in zip(COLUMNS, kinds, strict=True)
    ]
    metadata = {
        "id": "5",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {"tidegate.cdc.keyColumns": "id"},
    }
    each = ROWS // FILES
    contents = [rows(n * each, (n + 1) * each) for n in range(FILES)]
    first = [file(folder, f"a{n}.parquet", one) for n, one in enumerate(contents)]
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    head: list[dict[str, Any]] = [{"protocol": protocol}, {"metaData": metadata}]
    commit(folder, 0, [*head, *({"add": {**one, "modificationTime": 0}} for one in first)])
    new = [
        content.set_column(
            2,
            "price",
            pc.if_else(pc.less(content["id"], changed), pa.scalar(-1.0), content["price"]),
        )
        for content in contents
    ]
    second = [file(folder, f"b{n}.parquet", one) for n, one in enumerate(new)]
    gone = {"deletionTimestamp": 1, "extendedFileMetadata": True}
    removes = [{"remove": {**item, **gone}} for item in first]
    commit(folder, 1, [*removes, *({"add": {**one, "modificationTime": 0}} for one in second)])


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("changed", [1, ROWS], ids=["one row", "every row"])
def test_a_rewrite_of_a_million_rows_is_compared_in_bounded_memory(
    tmp_path: Path, changed: int
) -> None:
    rewritten(tmp_path / "t", changed)
    argv = [sys.executable, str(Path(rewrite_program.__file__)), str(tmp_path / "t"), "0"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    idle, peak, records, longest_s = (float(item) for item in done.stdout.split())
    assert records == changed
    assert peak - idle <= MEMORY_MAX_MIB, f"{idle} MiB, then {peak}"
    assert longest_s < TURN_MAX_S, "a comparison yields its turn"
