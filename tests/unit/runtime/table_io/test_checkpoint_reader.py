from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import orjson
import pyarrow as pa
import pytest

from tests.builders import NOW_MS, add, commit, metadata, protocol, remove
from tests.checkpoints import WITH_SIDECARS, Form, put_v2
from tests.fakes.memory_store import MemoryStore
from tests.support.refusals import refused
from tests.support.table_files import parquet
from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.file_names import LogFile, checkpoint_name, in_log, parse, sidecar_name
from tidegate_delta.snapshots.file_action_columns import (
    ADD_SCHEMA,
    KEY_SCHEMA,
    REMOVE_SCHEMA,
    rows_to_adds,
)
from tidegate_delta.snapshots.raw_stats import texts, with_texts
from tidegate_delta.snapshots.replay import LogPart, keys, parse_log_file, replay
from tidegate_delta.snapshots.snapshot import Snapshot, from_replay
from tidegate_runtime.table_io.checkpoint_reader import KEYS, read_checkpoint

PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
METADATA = {
    "id": "t",
    "format": {"provider": "parquet"},
    "schemaString": "{}",
    "partitionColumns": ["p"],
    "configuration": [("delta.appendOnly", "true"), ("delta.isNotSet", None)],
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
        store.files[in_log(name)] = parquet(pa.table(part), row_group_size=rows_a_group)
        files.append(file_of(name))
    return store, files


def file_of(name: str) -> LogFile:
    file = parse(name)
    assert file is not None
    return file


def open_part(store: MemoryStore, name: str) -> LogPart:
    return read_checkpoint(store, [file_of(name)])


def with_defaults(files: pa.Table) -> pa.Table:
    """Files with the columns that an add must have."""
    needed = {"partitionValues": [], "size": 1, "modificationTime": 1, "dataChange": True}
    for name, value in needed.items():
        at = files.schema.get_field_index(name)
        kind = files.schema.field(at)
        files = files.set_column(at, kind, pa.array([value] * files.num_rows, kind.type))
    return files


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


TYPED = {"checkpoint.writeStatsAsStruct": "true"}
NO_TEXT = {"checkpoint.writeStatsAsJson": "false"}
GONE = rows(None, {"path": "x", "sizeInBytes": 1, "modificationTime": 1}, None, None, None, None)
METADATA_OF_3 = rows(None, {"version": 3}, None, None, None, None)
ODD_TYPES = {
    "numRecords": 7,
    "minValues": {
        "long": -5,
        "real": float("nan"),
        "text": 'a"\\\n\u00fc',
        "day": date(2024, 2, 29),
        "at": datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        "dec": Decimal("1.50"),
        "flag": True,
        "raw": b"x",
        "in": {"x": 1},
    },
    "nullCount": {"long": 0, "in": {"x": 2}},
}
STATS = pa.infer_type([ODD_TYPES])


def table_of(**properties: str) -> Snapshot:
    """Ten files, one of them with a vector, three tombstones, and one of every other action."""
    vector = {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    at = {"deletionTimestamp": NOW_MS}
    history = [
        commit(
            0,
            protocol(3, 7, readerFeatures=["v2Checkpoint"], writerFeatures=[]),
            metadata(**properties),
        ),
        commit(1, *(add(f"f{n}", stats=STATED) for n in range(12))),
        commit(
            2,
            *(remove(f"f{n}", **at) for n in range(3)),
            add("f0", stats=STATED, deletionVector=vector),
        ),
        commit(3, {"txn": {"appId": "a", "version": 1}}, {"domainMetadata": DOMAIN}),
    ]
    state = replay([parse_log_file(str(item.version), item.encode()) for item in history], None)
    return from_replay(3, state, None)


STATED = '{"numRecords":10,"minValues":{"x":1,"s":"a"},"maxValues":{"x":9,"s":"z"}}'
DOMAIN = {"domain": "d", "configuration": "{}", "removed": False}


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("properties", [{}, TYPED, {**TYPED, **NO_TEXT}])
def test_a_v2_checkpoint_holds_what_was_put_into_it(form: Form, properties: dict[str, str]) -> None:
    store, whole = MemoryStore(), table_of(**properties)
    name, _ = put_v2(store, whole, form, NOW_MS)
    assert f"_sidecars/{sidecar_name(3, str(UUID(int=0)))}" in str(sorted(store.files)) or (
        form not in WITH_SIDECARS
    )
    read = open_part(store, name)
    assert (read.protocol, read.metadata) == (whole.protocol, whole.metadata)
    assert (read.txns[0].app_id, read.domains[0].domain) == ("a", "d")
    assert sorted(keys(read.files).to_pylist()) == sorted(whole.file_keys.to_pylist())
    assert sorted(read.tombstones["path"].to_pylist()) == ["f0", "f1", "f2"]
    result = [orjson.loads(text) for text in texts(read.files).to_pylist()]
    assert [item["numRecords"] for item in result] == [10] * 10
    assert [one["minValues"]["s"] for one in result] == ["a"] * 10
    live = read_checkpoint(store, [file_of(name)], KEYS)
    assert live.files.schema == KEY_SCHEMA
    assert sorted(keys(live.files).to_pylist()) == sorted(whole.file_keys.to_pylist())


@pytest.mark.parametrize(
    "top",
    [
        {**FULL, "sidecar": rows(None, {"path": "x"}, None, None, None, None)},
        {**FULL, "checkpointMetadata": rows(None, {"version": 4}, None, None, None, None)},
        {
            **FULL,
            "checkpointMetadata": rows(None, {"version": 3}, {"version": 3}, None, None, None),
        },
        {"add": FULL["add"], "checkpointMetadata": METADATA_OF_3},
        {**FULL, "checkpointMetadata": METADATA_OF_3, "sidecar": GONE},
    ],
)
def test_a_v2_checkpoint_that_lacks_or_contradicts_itself_is_refused(
    top: dict[str, pa.Array],
) -> None:
    with refused(BrokenLog, "CorruptCheckpoint", match="memory://t"):
        read_checkpoint(*stored(top))


@pytest.mark.parametrize(
    "path", ["s%20x.parquet", "file:///elsewhere/_delta_log/_sidecars/s%20x.parquet"]
)
def test_a_sidecar_lies_in_the_tables_own_folder_however_its_path_is_spelled(path: str) -> None:
    named = {"path": path, "sizeInBytes": 1, "modificationTime": 1}
    sidecar = rows(None, named, None, None, None, None)
    rest = {name: column for name, column in FULL.items() if name != "add"}
    store, files = stored({**rest, "checkpointMetadata": METADATA_OF_3, "sidecar": sidecar})
    store.files["_delta_log/_sidecars/s x.parquet"] = parquet(pa.table({"add": FULL["add"]}))
    assert read_checkpoint(store, files).files["path"].to_pylist() == ["f"]


def test_typed_statistics_stay_typed_until_they_are_used() -> None:
    add = rows(
        pa.struct([("path", pa.string()), ("stats_parsed", STATS)]),
        {"path": "f", "stats_parsed": ODD_TYPES},
        None,
        {"path": "g"},
    )
    files = read_checkpoint(*stored({"add": add})).files
    assert files["stats"].null_count == 2
    result = texts(files).to_pylist()
    assert result[1] is None
    assert orjson.loads(result[0] or "") == {
        "numRecords": 7,
        "minValues": {
            "long": -5,
            "text": 'a"\\\n\u00fc',
            "day": "2024-02-29",
            "at": "1969-12-31T23:59:59.999Z",
            "dec": 1.5,
            "flag": True,
            "in": {"x": 1},
        },
        "nullCount": {"long": 0, "in": {"x": 2}},
    }
    assert with_texts(files).schema == ADD_SCHEMA
    assert [row.stats for row in rows_to_adds(with_defaults(files))] == result


def test_statistics_as_text_are_read_alone_where_they_are_there() -> None:
    kind = pa.struct([("path", pa.string()), ("stats", pa.string()), ("stats_parsed", STATS)])
    both = {"path": "f", "stats": "{}", "stats_parsed": ODD_TYPES}
    files = read_checkpoint(*stored({"add": rows(kind, both, None)})).files
    assert files.schema == ADD_SCHEMA
    one_only = rows(kind, both, None, {**both, "path": "g", "stats": None}, {"path": "h"})
    files = read_checkpoint(*stored({"add": one_only}, rows_a_group=9)).files
    result = texts(files).to_pylist()
    assert (result[0], result[2]) == ("{}", None)
    assert '"numRecords":7' in result[1]


def test_moments_of_96_bits_are_instants_in_statistics() -> None:
    bounds = pa.struct(
        [("at", pa.timestamp("us")), ("in", pa.struct([("at", pa.timestamp("us"))]))]
    )
    kind = pa.struct([("path", pa.string()), ("stats_parsed", pa.struct([("minValues", bounds)]))])
    at = datetime(2024, 2, 29, 12)  # noqa: DTZ001 - INT96 has no zone
    held = {"path": "f", "stats_parsed": {"minValues": {"at": at, "in": {"at": at}}}}
    table = pa.table({"add": rows(kind, held)})
    store, files = stored(FULL)
    store.files[in_log(files[0].name)] = parquet(table, use_deprecated_int96_timestamps=True)
    [result] = texts(read_checkpoint(store, files).files).to_pylist()
    spelled = "2024-02-29T12:00:00.000Z"
    assert orjson.loads(result) == {"minValues": {"at": spelled, "in": {"at": spelled}}}


def test_parts_whose_statistics_differ_in_type_add_up() -> None:
    first = pa.struct([("numRecords", pa.int64()), ("minValues", pa.struct([("x", pa.int32())]))])
    second = pa.struct([("numRecords", pa.int64()), ("minValues", pa.struct([("x", pa.date32())]))])
    parts = [
        {
            "add": rows(
                pa.struct([("path", pa.string()), ("stats_parsed", kind)]),
                {"path": "f", "stats_parsed": {"numRecords": 1, "minValues": {"x": value}}},
            )
        }
        for kind, value in ((first, 5), (second, date(2024, 1, 1)))
    ]
    files = read_checkpoint(*stored(*parts)).files
    assert texts(files).to_pylist() == [
        '{"numRecords":1,"minValues":{"x":5}}',
        '{"numRecords":1,"minValues":{"x":"2024-01-01"}}',
    ]


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
    with refused(BrokenLog, "CorruptCheckpoint", match="memory://t"):
        read_checkpoint(store, files)


def test_a_malformed_action_is_refused() -> None:
    with refused(BrokenLog, "CorruptCheckpoint"):
        read_checkpoint(*stored({"protocol": rows(None, {"minReaderVersion": "one"})}))
