"""One table's change stream over a table on disk, with an in-memory writer instead of Kafka."""

import json
import random
from pathlib import Path
from typing import Literal
from uuid import UUID

import pyarrow as pa
import pytest

from tests.unit.cdc_publisher.memory_change_topic import Topic, stream
from tests.unit.cdc_publisher.written_table import Rows, WrittenTable, change_at_random, rows
from tidegate_cdc_publisher import change_reader
from tidegate_cdc_publisher.change_records import CHUNK_BYTES_MAX
from tidegate_cdc_publisher.settings import TableChanges
from tidegate_delta.errors import Unavailable
from tidegate_messages.stream_position import Position


def by_id(content: Rows) -> Rows:
    return sorted(content, key=lambda row: row["id"])


@pytest.fixture
def table(tmp_path: Path) -> WrittenTable:
    return WrittenTable(tmp_path / "t").create()


def test_the_rows_at_the_head_come_first_and_then_the_versions_after_it(
    table: WrittenTable,
) -> None:
    table.append(rows(1, 2), rows(3))
    topic = Topic()
    following = stream(table, topic)
    following.catch_up(table.version)
    table.append(rows(4))
    following.catch_up(table.version)
    assert topic.ops(1) == ["r", "r", "r"]
    assert topic.ops(2) == ["c"]
    assert [item["source"]["snapshot"] for item in topic.told] == ["first", "true", "last", "false"]
    assert by_id(topic.replayed()) == by_id(table.content)


def test_an_empty_table_has_a_snapshot_of_no_rows(table: WrittenTable) -> None:
    topic = Topic()
    stream(table, topic).catch_up(0)
    (marker,) = topic.records
    assert (marker.key, marker.value) == (b'{"tidegate_marker":"snapshot-ends:0"}', None)
    assert ("marker", b"snapshot-ends") in marker.headers
    assert topic.position == Position(
        table=table.id, version=0, complete=True, snapshot=True, order="3:id", schema_version=0
    )


def test_a_marker_has_a_key_that_no_row_has_even_if_its_field_is_the_key_column(
    tmp_path: Path,
) -> None:
    schema = pa.schema([("tidegate_marker", pa.string())])
    keys = {"tidegate.cdc.keyColumns": "tidegate_marker"}
    table = WrittenTable(tmp_path / "t", schema=schema, configuration=keys).create()
    topic = Topic()
    stream(table, topic).catch_up(0)
    table.append([{"tidegate_marker": "snapshot-ends:0"}])
    stream(table, topic).catch_up(1)
    marker, row = topic.records
    assert marker.value is None
    assert row.value is not None
    assert marker.key != row.key


def test_without_the_rows_of_the_past_only_later_versions_are_published(
    table: WrittenTable,
) -> None:
    table.append(rows(1, 2))
    topic = Topic()
    following = stream(table, topic, mode="no_data")
    following.catch_up(1)
    table.append(rows(3))
    following.catch_up(2)
    assert [item["after"]["id"] for item in topic.told] == [3]


def test_a_rewrite_publishes_only_the_rows_that_it_touched(table: WrittenTable) -> None:
    table.append(rows(*range(100)))
    topic = Topic()
    following = stream(table, topic)
    following.catch_up(1)
    table.rewrite(lambda old: [row for row in old if row["id"] not in (7, 8)])
    table.rewrite(lambda old: [{**row, "price": -1.0} if row["id"] == 5 else row for row in old])
    following.catch_up(3)
    assert topic.ops(2) == ["d", "d"]
    assert topic.ops(3) == ["u"]
    last = topic.told[-1]
    assert (last["before"]["price"], last["after"]["price"]) == (1.25, -1.0)
    assert by_id(topic.replayed()) == by_id(table.content)


def test_an_update_that_changes_the_key_is_a_delete_and_an_insert(table: WrittenTable) -> None:
    table.append(rows(1, 2))
    topic = Topic()
    stream(table, topic).catch_up(1)
    table.rewrite(lambda old: [{**row, "id": 9} if row["id"] == 1 else row for row in old])
    stream(table, topic).catch_up(2)
    assert topic.ops(2) == ["d", "c"]
    assert by_id(topic.replayed()) == by_id(table.content)


def test_a_removed_file_publishes_each_row_as_deleted(table: WrittenTable) -> None:
    table.append(rows(1, 2), rows(3))
    topic = Topic()
    stream(table, topic).catch_up(1)
    table.drop(next(iter(table.files)))
    stream(table, topic).catch_up(2)
    assert topic.ops(2) == ["d", "d"]
    assert topic.replayed() == table.content


def test_a_removed_file_need_not_say_that_it_is_not_partitioned(table: WrittenTable) -> None:
    table.append(rows(1), rows(2))
    topic = Topic()
    stream(table, topic).catch_up(1)
    gone = {"path": "part-00001.parquet", "deletionTimestamp": 2_000_000_000_000}
    table.commit("DELETE", {"remove": {**gone, "dataChange": True}})
    stream(table, topic).catch_up(2)
    assert topic.replayed() == rows(2)


def test_rows_deleted_by_vectors_are_published_and_so_are_those_restored(
    table: WrittenTable,
) -> None:
    table.append(rows(1, 2, 3, 4), rows(5, 6))
    table.allow_vectors()
    topic = Topic()
    stream(table, topic).catch_up(2)
    table.mask(1, 5)
    table.mask(1, 3, 5)
    table.mask(3, 4, 5)
    table.drop("part-00001.parquet")
    stream(table, topic).catch_up(table.version)
    result = [(item["op"], (item["after"] or item["before"])["id"]) for item in topic.told[6:]]
    assert result == [("d", 1), ("d", 5), ("d", 3), ("d", 4), ("c", 1), ("d", 1), ("d", 2)]
    assert topic.replayed() == table.content == rows(6)


def test_rows_that_vectors_delete_are_not_in_the_rows_at_the_head(table: WrittenTable) -> None:
    table.append(rows(1, 2, 3))
    table.allow_vectors()
    table.mask(2)
    topic = Topic()
    stream(table, topic).catch_up(3)
    assert topic.replayed() == table.content == rows(1, 3)


def test_an_optimize_publishes_nothing_and_moves_the_position(table: WrittenTable) -> None:
    table.append(rows(1, 2))
    topic = Topic()
    stream(table, topic).catch_up(1)
    table.rewrite(lambda old: old, data_change=False)
    stream(table, topic).catch_up(2)
    assert topic.ops(2) == []
    assert topic.position is not None
    assert (topic.position.version, topic.position.complete) == (2, True)


def test_new_metadata_alone_publishes_nothing_and_moves_the_position(table: WrittenTable) -> None:
    topic = Topic()
    following = stream(table, topic)
    following.catch_up(0)
    table.set_metadata(comment="c")
    following.catch_up(1)
    assert topic.told == []
    assert topic.position is not None
    assert topic.position.version == 1


def test_change_files_stand_for_the_version(table: WrittenTable) -> None:
    table.append(rows(1, 2, 3))
    topic = Topic()
    stream(table, topic).catch_up(1)
    (one,), (new,), (two,) = rows(1), rows(1, name="x"), rows(2)
    table.change_with_file(
        [
            {**one, "_change_type": "update_preimage"},
            {**new, "_change_type": "update_postimage"},
            {**two, "_change_type": "delete"},
            {**rows(9)[0], "_change_type": "insert"},
        ]
    )
    stream(table, topic).catch_up(2)
    assert topic.ops(2) == ["d", "u", "c"]
    update = topic.told[-2]
    assert (update["before"], update["after"]) == (one, new)


def test_an_overwrite_with_another_schema_has_deletes_in_the_old_and_updates_in_the_new(
    table: WrittenTable,
) -> None:
    table.append(rows(1, 2))
    topic = Topic()
    stream(table, topic).catch_up(1)
    wider = table.schema.append(pa.field("more", pa.string()))
    table.replace(wider, [{**rows(1)[0], "more": "m"}])
    stream(table, topic).catch_up(2)
    assert topic.ops(2) == ["d", "u"]
    deleted, updated = topic.told[-2:]
    assert "more" not in deleted["before"]
    assert (updated["before"]["more"], updated["after"]["more"]) == (None, "m")
    assert topic.replayed() == table.content


def test_a_table_that_keeps_the_changes_of_another_is_published(tmp_path: Path) -> None:
    names = ("id", "_change_type", "_commit_version", "_commit_timestamp")
    kept = pa.schema([(name, pa.string() if "type" in name else pa.int64()) for name in names])
    table = WrittenTable(tmp_path / "t", schema=kept).create()
    table.append([dict(zip(names, (n, "insert", n, n), strict=True)) for n in (1, 2)])
    topic = Topic()
    stream(table, topic).catch_up(1)
    table.rewrite(lambda old: [{**old[0], "_change_type": "delete"}, old[1]])
    stream(table, topic).catch_up(2)
    assert topic.ops(2) == ["u"]
    assert by_id(topic.replayed()) == by_id(table.content)


def test_a_new_column_is_published_from_the_version_that_adds_it(table: WrittenTable) -> None:
    table.append(rows(1))
    topic = Topic()
    following = stream(table, topic)
    following.catch_up(1)
    table.set_metadata(table.schema.append(pa.field("more", pa.string())))
    table.append([{**rows(2)[0], "more": "m"}])
    following.catch_up(3)
    assert topic.told[-1]["after"]["more"] == "m"


def test_small_versions_share_a_kafka_transaction(table: WrittenTable) -> None:
    topic = Topic()
    stream(table, topic).catch_up(0)
    for number in range(10):
        table.append(rows(number))
    stream(table, topic).catch_up(10)
    assert topic.chunks == [1, 10]


def test_a_large_version_is_cut_into_several(table: WrittenTable) -> None:
    topic = Topic()
    stream(table, topic).catch_up(0)
    table.append(rows(*range(25)))
    stream(table, topic, chunk_rows=10).catch_up(1)
    assert topic.chunks == [1, 10, 10, 5]
    assert [json.loads(item["source"]["sequence"])[1] for item in topic.told] == [
        str(n) for n in range(25)
    ]


def test_a_chunk_of_large_rows_has_fewer_of_them(table: WrittenTable) -> None:
    topic = Topic()
    stream(table, topic).catch_up(0)
    large = "x" * (CHUNK_BYTES_MAX // 4)
    table.append([{**row, "name": large} for row in rows(*range(10))])
    stream(table, topic).catch_up(1)
    assert len(topic.told) == 10
    assert max(topic.chunks) <= 4


@pytest.mark.parametrize("seed", range(25))
def test_dying_at_any_chunk_repeats_and_loses_nothing(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    if seed % 2:
        in_small_buckets(monkeypatch)
    table, topic = WrittenTable(tmp_path / "t").create(), Topic()
    table.append(rows(*range(40)), rows(*range(40, 45)))
    for _ in range(12):
        change_at_random(table, dice)
        topic.dies_at = len(topic.chunks) + dice.randrange(4)
        for _ in range(50):
            try:
                stream(table, topic, chunk_rows=dice.choice([3, 7, 50])).catch_up(table.version)
                break
            except Unavailable:
                continue
        else:
            raise AssertionError("it never got to the head")
    sequences = [
        (int(v), int(i)) for v, i in (json.loads(o["source"]["sequence"]) for o in topic.told)
    ]
    assert sequences == sorted(set(sequences)), "a change was repeated or out of order"
    for version, index in sequences:
        assert index == 0 or (version, index - 1) in sequences, "a change was lost"
    assert by_id(topic.replayed()) == by_id(table.content)


def in_small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare every version in several buckets, whose changes go to disk at once."""
    monkeypatch.setattr(change_reader, "BUCKET_BYTES", 500)
    monkeypatch.setattr(change_reader, "BUCKETS_MAX", 5)
    monkeypatch.setattr(change_reader, "HELD_BYTES_MAX", 100)


@pytest.mark.parametrize("key", ["columns", "none"])
def test_a_version_compared_in_buckets_has_the_changes_of_one_compared_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: Literal["columns", "none"]
) -> None:
    table = WrittenTable(tmp_path / "t").create()
    table.append(rows(*range(300)), rows(*range(300, 400)))
    topics = [Topic(), Topic()]
    how = TableChanges(key=key)
    for topic in topics:
        stream(table, topic, how).catch_up(1)
    table.rewrite(
        lambda old: [
            {**row, "price": -1.0} if row["id"] % 3 else row for row in old if row["id"] % 5
        ]
    )
    stream(table, topics[0], how).catch_up(2)
    in_small_buckets(monkeypatch)
    following = stream(table, topics[1], how)
    turns = 1
    while not following.catch_up(2, until_s=0.0):
        turns += 1
    assert turns > 5, "a comparison yields its turn"
    whole, cut = ([item for item in topic.told if item["source"]["txId"] == 2] for topic in topics)
    assert [one["op"] for one in cut] == [one["op"] for one in whole]
    images = [
        sorted(json.dumps([one["op"], one["before"], one["after"]]) for one in result)
        for result in (whole, cut)
    ]
    assert images[0] == images[1]


def test_the_origin_of_a_version_is_shown(table: WrittenTable) -> None:
    topic = Topic()
    stream(table, topic).catch_up(0)
    result = {"accepted": [{"id": str(UUID(int=7)), "offset": 1}], "refused": []}
    info = {"timestamp": 77, "operation": "STREAMING UPDATE", "tidegate": result}
    table.append(rows(1))
    path = table.folder / "_delta_log" / f"{1:020d}.json"
    lines = path.read_text().splitlines()[1:]
    txns = [
        {"txn": {"appId": "app", "version": 5}},
        {"txn": {"appId": "tidegate/topic/0", "version": 31}},
    ]
    content = [json.dumps(item) for item in ({"commitInfo": info}, *txns)]
    path.write_text("\n".join([*content, *lines]) + "\n")
    stream(table, topic).catch_up(1)
    source = topic.told[0]["source"]
    assert source["ts_ms"] == 77
    assert source["operation"] == "STREAMING UPDATE"
    assert source["proposal_id"] == str(UUID(int=7))
    assert (source["txn_app_id"], source["txn_version"]) == ("app", 5)
    assert source["table_id"] == "00000000-0000-0000-0000-00000000f11e"
