import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.delta.errors import BrokenLog, UnsupportedFeature
from tidegate.delta.files.columns import ADD_SCHEMA, REMOVE_SCHEMA
from tidegate.delta.names import LogFile, checkpoint_name, in_log, parse
from tidegate.runtime.checkpoint_files import read_checkpoint
from tidegate.runtime.memory import MemoryStore

PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
METADATA = {
    "id": "t",
    "format": {"provider": "parquet"},
    "schemaString": "{}",
    "partitionColumns": ["p"],
    "configuration": [("delta.appendOnly", "true")],
}
STRINGS = pa.map_(pa.string(), pa.string())
METADATA_TYPE = pa.struct(
    [
        ("id", pa.string()),
        ("format", pa.struct([("provider", pa.string())])),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("configuration", STRINGS),
    ]
)


def stored(
    *columns: dict[str, pa.Array], rows_a_group: int = 2
) -> tuple[MemoryStore, list[LogFile]]:
    """A checkpoint in as many parts as there are column sets."""
    store = MemoryStore()
    files = []
    for number, part in enumerate(columns, 1):
        name = (
            checkpoint_name(3)
            if len(columns) == 1
            else f"{3:020d}.checkpoint.{number:010d}.{len(columns):010d}.parquet"
        )
        buffer = io.BytesIO()
        pq.write_table(pa.table(part), buffer, row_group_size=rows_a_group)
        store.files[in_log(name)] = buffer.getvalue()
        file = parse(name)
        assert file is not None
        files.append(file)
    return store, files


def rows(kind: Any, *values: Any) -> pa.Array:
    return pa.array(list(values), kind)


FULL = {
    "protocol": rows(None, PROTOCOL, None, None, None, None),
    "metaData": rows(METADATA_TYPE, None, METADATA, None, None, None),
    "txn": rows(None, None, None, {"appId": "a", "version": 4}, None, None),
    "add": rows(
        pa.struct(list(ADD_SCHEMA)),
        None,
        None,
        None,
        {
            "path": "f",
            "partitionValues": [("p", None)],
            "size": 1,
            "modificationTime": 2,
            "dataChange": False,
            "stats": "{}",
        },
        None,
    ),
    "remove": rows(
        pa.struct(list(REMOVE_SCHEMA)),
        None,
        None,
        None,
        None,
        {"path": "g", "deletionTimestamp": 9, "dataChange": False},
    ),
}


def test_every_action_is_found_in_its_column() -> None:
    part = read_checkpoint(*stored(FULL))
    assert part.protocol is not None
    assert part.protocol.min_writer_version == 2
    assert part.metadata is not None
    assert part.metadata.configuration == {"delta.appendOnly": "true"}
    assert part.metadata.partition_columns == ("p",)
    assert [txn.version for txn in part.txns] == [4]
    assert part.files.schema == ADD_SCHEMA
    assert part.files["path"].to_pylist() == ["f"]
    assert part.files["partitionValues"].to_pylist() == [[("p", None)]]
    assert part.tombstones.schema == REMOVE_SCHEMA
    assert part.tombstones["deletionTimestamp"].to_pylist() == [9]


def test_a_writer_may_leave_out_what_it_does_not_have() -> None:
    add = pa.struct([("path", pa.large_string()), ("size", pa.int32()), ("extra", pa.int8())])
    part = read_checkpoint(*stored({"add": rows(add, {"path": "f", "size": 7, "extra": 1}, None)}))
    assert part.files.schema == ADD_SCHEMA
    assert part.files["size"].to_pylist() == [7]
    assert part.files["stats"].to_pylist() == [None]
    assert part.protocol is None
    assert part.tombstones.num_rows == 0


def test_a_struct_of_nulls_is_no_action() -> None:
    add = rows(pa.struct(list(ADD_SCHEMA)), {"path": None}, {"path": "f"})
    assert read_checkpoint(*stored({"add": add})).files["path"].to_pylist() == ["f"]


def test_vectors_with_fewer_fields_are_read() -> None:
    vector = pa.struct([("storageType", pa.string()), ("pathOrInlineDv", pa.string())])
    add = pa.struct([("path", pa.string()), ("deletionVector", vector)])
    here = {"storageType": "u", "pathOrInlineDv": "x"}
    values = rows(add, {"path": "f", "deletionVector": here}, {"path": "g"})
    read = read_checkpoint(*stored({"add": values})).files["deletionVector"].to_pylist()
    assert read[0]["pathOrInlineDv"] == "x"
    assert read[0]["offset"] is None
    assert read[1] is None


def test_parts_add_up() -> None:
    second = {"add": FULL["add"], "txn": FULL["txn"]}
    part = read_checkpoint(*stored(FULL, second))
    assert part.files.num_rows == 2
    assert part.protocol is not None


@pytest.mark.parametrize("kind", ["sidecar", "checkpointMetadata"])
def test_the_contents_of_a_v2_checkpoint_are_refused_by_name(kind: str) -> None:
    column = rows(None, None, {"path": "x", "version": 3})
    with pytest.raises(UnsupportedFeature, match="memory://t") as caught:
        read_checkpoint(*stored({kind: column}))
    assert caught.value.feature == "v2Checkpoint"


def test_columns_of_a_v2_checkpoint_that_hold_nothing_are_no_matter() -> None:
    empty = rows(pa.struct([("path", pa.string())]), *[None] * 5)
    assert read_checkpoint(*stored({**FULL, "sidecar": empty})).files.num_rows == 1


@pytest.mark.parametrize("content", [None, b"", b"PAR1", b"not parquet at all"])
def test_a_file_that_is_gone_or_torn_is_refused(content: bytes | None) -> None:
    store, files = stored(FULL)
    if content is None:
        store.files.clear()
    else:
        store.files[in_log(files[0].name)] = content
    with pytest.raises(BrokenLog, match="memory://t") as caught:
        read_checkpoint(store, files)
    assert caught.value.error_class == "CorruptCheckpoint"


def test_a_malformed_action_is_refused() -> None:
    with pytest.raises(BrokenLog) as caught:
        read_checkpoint(*stored({"protocol": rows(None, {"minReaderVersion": "one"})}))
    assert caught.value.error_class == "CorruptCheckpoint"
