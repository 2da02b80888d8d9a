"""Typed statistics, and checkpoints of foreign bytes."""

from typing import Any

import orjson
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.memory_store import MemoryStore
from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.file_names import LogFile, in_log, parse, v2_checkpoint_name
from tidegate_delta.snapshots.raw_stats import to_json
from tidegate_runtime.table_io.checkpoint_reader import KEYS, WHOLE, FileColumns, read_checkpoint

NUMBERS = st.integers(-(2**63), 2**63 - 1)
LEAVES = st.fixed_dictionaries(
    {},
    optional={
        'a "b"': st.none() | NUMBERS,
        "s": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        "f": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "b": st.none() | st.booleans(),
    },
)
KIND = pa.struct(
    [('a "b"', pa.int64()), ("s", pa.string()), ("f", pa.float64()), ("b", pa.bool_())]
)
STATS = pa.struct([("numRecords", pa.int64()), ("minValues", KIND), ("empty", pa.struct([]))])
ROWS = st.none() | st.fixed_dictionaries(
    {}, optional={"numRecords": st.none() | NUMBERS, "minValues": st.none() | LEAVES}
)
NAME = v2_checkpoint_name(0, "00000000-0000-0000-0000-000000000000", "json")
WORDS = st.sampled_from(
    [
        b'{"checkpointMetadata":{"version":0}}',
        b'{"sidecar":{"path":"x","sizeInBytes":1,"modificationTime":1}}',
        b'{"add":{"path":"f","partitionValues":{},"stats_parsed":{"numRecords":1}}}',
        b'{"add":{"path":"f","stats_parsed":[NaN]}}',
        b'{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}',
        b'{"metaData":{"id":"t","schemaString":"{}"}}',
        b'{"txn":',
        b"[]",
        b"\n",
    ]
)


@given(st.lists(ROWS, max_size=6))
def test_json_holds_what_the_types_hold_and_no_null(rows: list[dict[str, Any] | None]) -> None:
    result = to_json(pa.array(rows, STATS)).to_pylist()
    assert [None if text is None else orjson.loads(text) for text in result] == [
        None if row is None else _present(row) for row in rows
    ]


@given(st.lists(WORDS | st.binary(max_size=20), max_size=8), st.sampled_from([WHOLE, KEYS]))
def test_a_checkpoint_of_any_bytes_is_read_or_refused(
    lines: list[bytes], columns: FileColumns
) -> None:
    store, file = MemoryStore(), parse(NAME)
    store.files[in_log(NAME)] = b"\n".join(lines)
    assert isinstance(file, LogFile)
    refused = None
    try:
        part = read_checkpoint(store, [file], columns)
    except BrokenLog as error:
        refused = error
    if refused is None:
        assert part.files.num_rows == sum(b'"add"' in line for line in lines)
    else:
        assert refused.error_class == "CorruptCheckpoint"
        assert "memory://t" in str(refused)


def _present(row: dict[str, Any]) -> dict[str, Any]:
    plain = {name: value for name, value in row.items() if value is not None}
    return {
        name: _present(value) if isinstance(value, dict) else value for name, value in plain.items()
    }
