"""A subscriber reads each change once, from where its last run ended."""

import json
from base64 import b64encode
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import islice
from uuid import UUID

import pyarrow as pa
import pytest

from tests.fakes.memory_bus import MemoryBus
from tidegate_delta.errors import InvalidRequest
from tidegate_messages import codec
from tidegate_messages.schema_announcement import (
    CONTENT,
    END,
    MARKER,
    SCHEMA,
    Column,
    SchemaChange,
    SchemaStep,
)
from tidegate_messages.topics import Topics
from tidegate_runtime.client.change_stream import Change, ChangeStream, TableCopy
from tidegate_runtime.kafka.client_protocols import TopicPartition

TOPIC = "tidegate.cdc.t"
QUIET_S = 0.1


def bus(partitions: int = 1) -> MemoryBus:
    return MemoryBus({TOPIC: partitions})


def publish(
    of: MemoryBus,
    version: int,
    index: int,
    op: str,
    k: int,
    partition: int = 0,
    *,
    with_schema: bool = False,
) -> None:
    """Put a change on the topic, and its tombstone."""
    row = {"k": k, "v": f"{version}:{index}"}
    value = {
        "op": op,
        "before": row if op in "ud" else None,
        "after": None if op == "d" else row,
        "source": {"sequence": json.dumps([str(version), str(index)])},
    }
    schema = {"type": "struct", "fields": []}
    content = {"schema": schema, "payload": value} if with_schema else value
    at, key = TopicPartition(TOPIC, partition), json.dumps({"k": k}).encode()
    of.append(at, key, json.dumps(content).encode())
    if op == "d":
        of.append(at, key, None)


def mark(of: MemoryBus, version: int, *partitions: int) -> None:
    """Put a marker of a changed schema on partitions of the topic."""
    change = SchemaChange(
        table=UUID(int=1),
        name="t",
        version=version,
        timestamp_ms=0,
        steps=(SchemaStep(change="rename", column=("v",), before="v", after="w"),),
        columns=(Column(name="k", before="k"), Column(name="w", before="v")),
        key_columns=("k",),
        schema_string="{}",
    )
    headers = ((MARKER, SCHEMA.encode()), (CONTENT, b64encode(codec.encode(change))))
    for partition in partitions:
        of.append(TopicPartition(TOPIC, partition), b"marker", None, headers)


def end(of: MemoryBus, version: int, *partitions: int) -> None:
    """Put the marker behind a version's last change on partitions of the topic."""
    headers = ((MARKER, END.encode()), ("delta_version", str(version).encode()))
    for partition in partitions:
        of.append(TopicPartition(TOPIC, partition), b"marker", None, headers)


def read(
    of: MemoryBus, position: object = None, most: int | None = None
) -> tuple[list[str], object]:
    """Return the changes of a run, and the position after it."""
    with ChangeStream(of, TOPIC, position) as stream:  # type: ignore[arg-type]  # from JSON
        result = [
            f"m{item.version}" if item.op == "m" else f"{item.op}{item.version}:{item.index}"
            for item in islice(stream.changes(QUIET_S), most)
        ]
        return result, json.loads(json.dumps(stream.position))


def test_changes_come_once_over_several_runs_and_tombstones_do_not_count() -> None:
    of = bus()
    publish(of, 0, 0, "r", 1)
    publish(of, 1, 0, "d", 1)
    publish(of, 1, 1, "c", 2, with_schema=True)
    first, position = read(of, None, 2)
    assert first == ["r0:0", "d1:0"]
    assert read(of, position) == (["c1:1"], read(of, None)[1])
    _, position = read(of)
    publish(of, 2, 0, "u", 2)
    result, position = read(of, position)
    assert result == ["u2:0"]
    assert read(of, position)[0] == []


def test_what_the_publisher_sent_twice_comes_once() -> None:
    of = bus()
    for _ in range(2):
        publish(of, 0, 0, "r", 1)
        publish(of, 1, 0, "c", 2)
        publish(of, 1, 1, "c", 3)
    assert read(of)[0] == ["r0:0", "c1:0", "c1:1"]


def test_a_recreated_topic_is_read_again_without_what_came_before() -> None:
    of = bus()
    publish(of, 0, 0, "r", 1)
    publish(of, 1, 0, "c", 2)
    _, position = read(of)
    of.create_topic(TOPIC, 1)
    publish(of, 1, 0, "c", 2)
    assert read(of, position)[0] == []
    publish(of, 2, 0, "c", 3)
    assert read(of, position)[0] == ["c2:0"]


def test_each_partition_has_its_own_place() -> None:
    of = bus(2)
    publish(of, 1, 1, "c", 1, 0)
    publish(of, 1, 0, "c", 2, 1)
    result, position = read(of)
    assert sorted(result) == ["c1:0", "c1:1"]
    publish(of, 2, 0, "c", 3, 1)
    assert read(of, position)[0] == ["c2:0"]


def test_a_changed_schema_comes_once_after_what_is_before_it_in_every_partition() -> None:
    of = bus(2)
    publish(of, 0, 0, "r", 1, 0)
    mark(of, 1, 0, 1)
    publish(of, 2, 0, "u", 1, 0)
    publish(of, 2, 1, "u", 2, 1)
    result, position = read(of)
    assert result[:2] == ["r0:0", "m1"]
    assert sorted(result[2:]) == ["u2:0", "u2:1"]
    mark(of, 1, 0, 1)
    assert read(of, position)[0] == [], "the publisher announced it again"
    for most in range(4):
        first, position = read(of, None, most)
        assert sorted(first + read(of, position)[0]) == sorted(result), most


def test_a_partition_that_lost_its_marker_holds_nothing_up() -> None:
    of = bus(3)
    mark(of, 1, 0)
    publish(of, 2, 0, "u", 1, 0)
    publish(of, 2, 1, "c", 2, 1)
    result, _ = read(of)
    assert result[0] == "m1"
    assert sorted(result[1:]) == ["c2:1", "u2:0"]


def test_a_copy_follows_a_changed_schema() -> None:
    of, copy = bus(), TableCopy()
    publish(of, 0, 0, "r", 1)
    mark(of, 1, 0)
    with ChangeStream(of, TOPIC) as stream:
        for change in stream.changes(QUIET_S):
            copy.apply(change)
    assert copy.rows == [{"k": 1, "w": "0:0"}]


def test_changes_that_are_gone_and_a_position_of_another_topic_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of = bus()
    publish(of, 0, 0, "r", 1)
    with pytest.raises(InvalidRequest, match=r"not of 'tidegate\.cdc\.t'"):
        read(of, {"topic": "other", "id": "", "partitions": {}})
    _, position = read(of)
    assert isinstance(position, dict)
    reader = type(of.reader())
    monkeypatch.setattr(reader, "bounds", lambda self, at: (5, 9))
    with pytest.raises(InvalidRequest, match="were deleted"):
        read(of, {**position, "partitions": {"0": {"offset": 3, "last": None}}})


def test_a_table_that_is_not_registered_is_named() -> None:
    topics = Topics()
    with pytest.raises(InvalidRequest, match="no table 'nobody'"):
        ChangeStream.of_table(MemoryBus(topics.declared()), topics, "nobody")


def test_a_copy_has_the_newest_row_of_each_key() -> None:
    of, copy = bus(), TableCopy()
    publish(of, 0, 0, "r", 1)
    publish(of, 0, 1, "r", 2)
    publish(of, 1, 0, "d", 1)
    publish(of, 1, 1, "u", 2)
    with ChangeStream(of, TOPIC) as stream:
        for change in stream.changes(QUIET_S):
            copy.apply(change)
    assert copy.rows == [{"k": 2, "v": "1:1"}]
    assert copy.to_arrow().to_pylist() == copy.rows
    assert isinstance(change, Change)
    with pytest.raises(InvalidRequest, match="key columns"):
        copy.apply(replace(change, key=None))


def test_a_copy_has_the_types_of_a_schema() -> None:
    schema = pa.schema(
        [
            ("k", pa.int64()),
            ("amount", pa.decimal128(38, 2)),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("blob", pa.binary()),
            ("counts", pa.map_(pa.int32(), pa.string())),
            ("place", pa.struct([("zip", pa.int32()), ("since", pa.date32())])),
            ("days", pa.list_(pa.date32())),
            ("ratio", pa.float64()),
        ]
    )
    result = {
        "k": 1,
        "amount": "12.30",
        "day": "2024-02-29",
        "at": "2024-02-29T01:02:03.000004Z",
        "blob": "AP8=",
        "counts": {"7": "a"},
        "place": {"zip": 1, "since": "1999-12-31"},
        "days": ["2000-01-01", None],
        "ratio": "Infinity",
    }
    copy = TableCopy.of([('{"k":1}', result), ('{"k":2}', {"k": 2})])
    assert TableCopy.of(copy.saved).rows == copy.rows
    first, second = copy.to_arrow(schema).to_pylist()
    assert first == {
        "k": 1,
        "amount": Decimal("12.30"),
        "day": date(2024, 2, 29),
        "at": datetime(2024, 2, 29, 1, 2, 3, 4, UTC),
        "blob": b"\x00\xff",
        "counts": [(7, "a")],
        "place": {"zip": 1, "since": date(1999, 12, 31)},
        "days": [date(2000, 1, 1), None],
        "ratio": float("inf"),
    }
    assert second == {**dict.fromkeys(schema.names), "k": 2}


def test_whole_versions_come_once_they_have_ended_in_every_partition() -> None:
    of = bus(2)
    publish(of, 3, 0, "c", 1, 0)
    end(of, 3, 0)
    publish(of, 4, 0, "u", 1, 0)
    with ChangeStream(of, TOPIC) as stream:
        assert list(stream.versions(QUIET_S)) == []
        publish(of, 3, 1, "c", 2, 1)
        end(of, 3, 1)
        [version] = stream.versions(QUIET_S)
    assert version.version == 3
    assert sorted(change.index for change in version.changes if change.op != "m") == [0, 1]
    end(of, 4, 0, 1)
    with ChangeStream(of, TOPIC, version.position) as stream:
        [version] = stream.versions(QUIET_S)
    assert [change.version for change in version.changes] == [4], "as the position says"


def test_a_reader_waits_for_the_end_of_a_version() -> None:
    of = bus(2)
    publish(of, 3, 0, "c", 1, 0)
    end(of, 3, 0, 1)
    publish(of, 4, 0, "c", 2, 1)
    with ChangeStream(of, TOPIC) as stream:
        read_until = [change.version for change in stream.changes(until=3)]
        assert 3 in read_until
        assert stream.ended == 3
        assert list(stream.changes(until=3)) == []


def test_key_columns_may_have_the_names_of_a_record_with_its_schema() -> None:
    topic, key = bus(), {"schema": "s", "payload": "p"}
    value = {"op": "c", "before": None, "after": key, "source": {"sequence": '["1","0"]'}}
    place = TopicPartition(TOPIC, 0)
    topic.append(place, json.dumps(key).encode(), json.dumps(value).encode())
    (change,) = ChangeStream(topic, TOPIC).changes(QUIET_S)
    assert isinstance(change, Change)
    assert change.key == key


@pytest.mark.parametrize("value", [b'{"__op":"c","source":1,"op":2}', b"\x00\x00\x00\x00\x01"])
def test_a_value_in_another_envelope_or_format_is_named(value: bytes) -> None:
    topic = bus()
    topic.append(TopicPartition(TOPIC, 0), b"{}", value)
    with pytest.raises(ValueError, match=r"offset 0.*envelope=debezium"):
        list(ChangeStream(topic, TOPIC).changes(QUIET_S))
