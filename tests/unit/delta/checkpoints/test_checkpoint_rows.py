import json
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.checkpoints import classic_rows
from tests.definitions import one_file
from tidegate_delta.checkpoints.checkpoint_rows import ROWS_MAX, classic_schema
from tidegate_delta.log.actions import (
    Add,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from tidegate_delta.log.file_names import Version
from tidegate_delta.snapshots.file_action_columns import adds_to_columns, removes_to_columns
from tidegate_delta.snapshots.snapshot import Snapshot

DAY_MS = 86_400_000
NOW_MS = 100 * DAY_MS


def snapshot(**more: Any) -> Snapshot:
    add = Add(
        path="p=1/a",
        partition_values={"p": None},
        size=5,
        modification_time=1,
        data_change=True,
        stats='{"numRecords":1}',
        tags={"k": "v"},
    )
    fields: dict[str, Any] = {
        "version": Version(3),
        "protocol": Protocol(min_reader_version=1, min_writer_version=2),
        "metadata": Metadata(
            id="t",
            schema_string='{"type":"struct","fields":[]}',
            partition_columns=("p",),
            configuration={"delta.appendOnly": "true"},
            created_time=9,
        ),
        "files": adds_to_columns([add]),
        "tombstones": removes_to_columns([]),
        **more,
    }
    return Snapshot(**fields)


def rows_of(of: Snapshot) -> list[dict[str, Any]]:
    table = pa.Table.from_batches(classic_rows(of, NOW_MS), schema=classic_schema(of.metadata))
    return [
        {name: body for name, body in row.items() if body is not None} for row in table.to_pylist()
    ]


def only(of: Snapshot, name: str) -> list[dict[str, Any]]:
    return [row[name] for row in rows_of(of) if name in row]


def test_each_row_holds_one_action_and_the_others_are_null() -> None:
    txns = {"a": Txn(app_id="a", version=1)}
    result = rows_of(snapshot(app_transactions=txns))
    assert [list(row) for row in result] == [["protocol"], ["metaData"], ["txn"], ["add"]]


def test_live_files_keep_all_but_the_mark_of_a_data_change() -> None:
    (add,) = only(snapshot(), "add")
    assert add["dataChange"] is False
    assert add["partitionValues"] == [("p", None)]
    assert add["stats"] == '{"numRecords":1}'
    assert add["tags"] == [("k", "v")]
    assert add["deletionVector"] is None


def test_live_files_and_tombstones_keep_their_deletion_vectors() -> None:
    inline = DeletionVector(storage_type="i", path_or_inline_dv="0", size_in_bytes=4, cardinality=1)
    stored = DeletionVector(
        storage_type="u", path_or_inline_dv="x", offset=1, size_in_bytes=4, cardinality=2
    )
    common: dict[str, Any] = {"path": "a", "data_change": True}
    add = Add(partition_values={}, size=1, modification_time=1, deletion_vector=stored, **common)
    removes = [
        Remove(deletion_timestamp=NOW_MS, deletion_vector=vector, **common)
        for vector in (None, inline)
    ]
    of = snapshot(files=adds_to_columns([add]), tombstones=removes_to_columns(removes))
    (result,) = only(of, "add")
    assert result["deletionVector"] == stored.model_dump(by_alias=True)
    vectors = [item["deletionVector"] for item in only(of, "remove")]
    assert vectors == [None, inline.model_dump(by_alias=True)]


def test_metadata_is_whole() -> None:
    (metadata,) = only(snapshot(), "metaData")
    assert metadata["format"] == {"provider": "parquet", "options": []}
    assert metadata["partitionColumns"] == ["p"]
    assert metadata["configuration"] == [("delta.appendOnly", "true")]
    assert metadata["createdTime"] == 9


@pytest.mark.parametrize(
    ("protocol", "readers", "writers"),
    [
        (Protocol(min_reader_version=1, min_writer_version=2), None, None),
        (Protocol(min_reader_version=1, min_writer_version=7, writer_features=()), None, []),
        (
            Protocol(
                min_reader_version=3,
                min_writer_version=7,
                reader_features=(),
                writer_features=("appendOnly",),
            ),
            [],
            ["appendOnly"],
        ),
    ],
)
def test_feature_lists_are_there_exactly_where_the_version_requires_them(
    protocol: Protocol, readers: list[str] | None, writers: list[str] | None
) -> None:
    (result,) = only(snapshot(protocol=protocol), "protocol")
    assert result["readerFeatures"] == readers
    assert result["writerFeatures"] == writers


def test_expired_tombstones_are_left_out_and_so_is_one_without_a_time() -> None:
    removes = [
        Remove(path=path, data_change=True, deletion_timestamp=at, size=4)
        for path, at in (
            ("new", NOW_MS - 7 * DAY_MS + 1),
            ("old", NOW_MS - 7 * DAY_MS),
            ("timeless", None),
        )
    ]
    (kept,) = only(snapshot(tombstones=removes_to_columns(removes)), "remove")
    assert kept["path"] == "new"
    assert kept["dataChange"] is False
    assert kept["size"] == 4


def test_app_transactions_expire_only_where_a_property_sets_it() -> None:
    txns = {
        name: Txn(app_id=name, version=1, last_updated=at)
        for name, at in (("new", NOW_MS - DAY_MS + 1), ("old", NOW_MS - DAY_MS), ("none", None))
    }
    assert len(only(snapshot(app_transactions=txns), "txn")) == 3
    expiring = snapshot().metadata.with_(
        configuration={"delta.setTransactionRetentionDuration": "interval 1 day"}
    )
    kept = only(snapshot(app_transactions=txns, metadata=expiring), "txn")
    assert [item["appId"] for item in kept] == ["new"]


def test_removed_domains_are_left_out() -> None:
    domains = {
        name: DomainMetadata(domain=name, configuration="{}", removed=name == "gone")
        for name in ("here", "gone")
    }
    assert [item["domain"] for item in only(snapshot(domains=domains), "domainMetadata")] == [
        "here"
    ]


def test_every_field_is_nullable() -> None:
    def nullable(field: pa.Field) -> bool:
        inner = field.type.fields if pa.types.is_struct(field.type) else []
        return bool(field.nullable) and all(nullable(item) for item in inner)

    assert all(nullable(field) for field in classic_schema(snapshot().metadata))


def test_files_come_in_batches_of_a_bounded_size() -> None:
    one = snapshot()
    many = pa.concat_tables([one.files] * 7).take(pa.array([0] * (ROWS_MAX + 1)))
    batches = list(classic_rows(snapshot(files=many), NOW_MS))
    assert max(batch.num_rows for batch in batches) == ROWS_MAX
    assert sum(batch.num_rows for batch in batches) == ROWS_MAX + 3


STATS = (
    '{"numRecords":2,"tightBounds":true,"minValues":{"v":1,"n":{"m":0.10}},'
    '"maxValues":{"v":"no number","n":{"m":0.20}},"nullCount":{"v":0,"n":{"m":1},"b":2}}'
)


def typed(**configuration: str) -> Snapshot:
    nested = {"type": "struct", "fields": [{"name": "m", "type": "decimal(9,2)"}]}
    kinds = {"p": "date", "v": "long", "n": nested, "b": "boolean"}
    schema = {"type": "struct", "fields": [{"name": n, "type": k} for n, k in kinds.items()]}
    properties = {f"delta.checkpoint.{name}": value for name, value in configuration.items()}
    adds = [
        one_file(str(at), partition_values={"p": "2024-02-29"}, stats=stats)
        for at, stats in enumerate([STATS, None])
    ]
    metadata = Metadata(
        id="t", schema_string=json.dumps(schema), partition_columns=("p",), configuration=properties
    )
    return snapshot(metadata=metadata, files=adds_to_columns(adds))


def test_statistics_keep_their_types_where_a_property_sets_it() -> None:
    first, second = only(typed(writeStatsAsStruct="true"), "add")
    assert first["stats"] == STATS
    assert first["partitionValues_parsed"] == {"p": date(2024, 2, 29)}
    assert first["stats_parsed"] == {
        "numRecords": 2,
        "tightBounds": True,
        "minValues": {"v": 1, "n": {"m": Decimal("0.10")}},
        "maxValues": {"v": None, "n": {"m": Decimal("0.20")}},
        "nullCount": {"v": 0, "n": {"m": 1}, "b": 2},
    }
    assert second["stats"] is None
    assert second["stats_parsed"] is None


def test_statistics_are_json_alone_unless_a_property_sets_structs() -> None:
    for of in (typed(), typed(writeStatsAsStruct="false")):
        assert "stats_parsed" not in only(of, "add")[0]
    for more in ({}, {"writeStatsAsStruct": "true"}):
        json_free = only(typed(writeStatsAsJson="false", **more), "add")[0]
        assert "stats" not in json_free
        assert json_free["stats_parsed"]["numRecords"] == 2


def test_typed_statistics_go_by_the_names_that_the_log_knows() -> None:
    def named(name: str, kind: object, physical: str) -> dict[str, object]:
        about = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": physical}
        return {"name": name, "type": kind, "nullable": True, "metadata": about}

    inner = {"type": "struct", "fields": [named("x", "long", "c3")]}
    fields = [named("p", "date", "c1"), named("s", inner, "c2"), named("v", "variant", "c4")]
    stats = {"numRecords": 1, "minValues": {"c2": {"c3": 7}}, "nullCount": {"c4": 1}}
    add = one_file("a", partition_values={"c1": "2024-02-29"}, stats=json.dumps(stats))
    metadata = Metadata(
        id="t",
        schema_string=json.dumps({"type": "struct", "fields": fields}),
        partition_columns=("p",),
        configuration={
            "delta.columnMapping.mode": "name",
            "delta.checkpoint.writeStatsAsStruct": "true",
            "delta.dataSkippingStatsColumns": "s.x, v",
        },
    )
    (row,) = only(snapshot(metadata=metadata, files=adds_to_columns([add])), "add")
    assert row["partitionValues_parsed"] == {"c1": date(2024, 2, 29)}
    assert row["stats_parsed"] == {
        "numRecords": 1,
        "tightBounds": None,
        "minValues": {"c2": {"c3": 7}},
        "maxValues": {"c2": {"c3": None}},
        "nullCount": {"c2": {"c3": None}, "c4": 1},
    }
