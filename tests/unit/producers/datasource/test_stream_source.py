"""A table as the source of a stream: order, limits, and the versions that stop it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.builders import (
    Row,
    add,
    creation,
    info,
    metadata,
    protocol,
    remove,
    schema,
    table_in_memory,
)
from tidegate_delta.errors import InvalidRequest, UnsupportedFeature
from tidegate_producers.datasource.change_feed_stream import ChangeFeedSource, ChangeItem
from tidegate_producers.datasource.stream_source import FilePosition, StreamSource
from tidegate_producers.options import (
    for_changes_of_any_kind,
    for_reading,
    for_schema,
    for_stream_reading,
)
from tidegate_runtime.storage.log_store import LogStore

CHANGING: Sequence[Sequence[Row]] = [
    [*creation(), add("a"), add("b")],
    [info(), add("c"), add("d")],
    [info("OPTIMIZE"), remove("a", dataChange=False), add("e", dataChange=False)],
    [info(), add("f")],
]


def source(store: LogStore, **options: str) -> StreamSource:
    return StreamSource(store, for_stream_reading({"path": "memory://t", **options}))


def all_of(
    one: StreamSource, start: FilePosition | None = None, files_max: int = 2
) -> list[list[str]]:
    """Return the paths of each batch until nothing is left; each is read as Spark would."""
    at, result = start or one.first(), list[list[str]]()
    while True:
        head = one.head()
        end = one.up_to(at, head, files_max, None) if head >= at.version else at
        if end == at:
            return result
        offset = FilePosition.from_json(end.to_json())
        result.append([str(file["path"]) for file in one.between(at, offset)])
        at = offset


def with_operation(*rows: Row) -> LogStore:
    return table_in_memory(*CHANGING, [info("DELETE"), *rows])


def test_a_stream_begins_with_the_table_as_it_is() -> None:
    store = table_in_memory(*CHANGING)
    one = source(store)
    assert one.first() == FilePosition(3, is_snapshot=True)
    assert all_of(one) == [["b", "c"], ["d", "e"], ["f"]]


def test_a_stream_of_versions_reads_what_each_added_once() -> None:
    store = table_in_memory(*CHANGING)
    assert all_of(source(store, startingVersion="0")) == [["a", "b"], ["c", "d"], ["f"]]
    assert all_of(source(store, startingVersion="1"), files_max=100) == [["c", "d", "f"]]
    assert all_of(source(store, startingVersion="latest")) == []


def test_a_batch_has_at_least_one_file_and_stays_within_the_bytes() -> None:
    one = source(table_in_memory(*CHANGING), startingVersion="0")
    size = int(one.between(FilePosition(0), FilePosition(1))[0]["size"])
    assert one.up_to(FilePosition(0), 3, None, 1) == FilePosition(0, 1)
    assert one.up_to(FilePosition(0), 3, None, 3 * size) == FilePosition(1, 1)
    assert one.up_to(FilePosition(0), 3, None, None) == FilePosition(4)


def test_new_versions_continue_where_the_stream_was() -> None:
    store = table_in_memory(*CHANGING)
    one = source(store)
    behind = one.up_to(one.first(), 3, None, None)
    assert behind == FilePosition(4)
    assert one.up_to(behind, 3, None, None) == behind


@pytest.mark.parametrize(
    ("rows", "passes", "stops"),
    [
        ([remove("c")], ({"ignoreDeletes": "true"}, {"ignoreChanges": "true"}), "ignoreDeletes"),
        ([remove("c"), add("g")], ({"ignoreChanges": "true"},), "skipChangeCommits"),
    ],
)
def test_a_version_that_takes_rows_away_stops_the_stream(
    rows: Sequence[Row], passes: Sequence[Mapping[str, str]], stops: str
) -> None:
    store = with_operation(*rows)
    added = [row["add"]["path"] for row in rows if "add" in row]
    with pytest.raises(InvalidRequest, match=rf"version 4 .*\(DELETE\).*{stops}"):
        all_of(source(store, startingVersion="3"))
    for options in passes:
        result = all_of(source(store, startingVersion="3", **options))
        assert result == [["f", *added]]
    assert all_of(source(store, startingVersion="3", skipChangeCommits="true")) == [["f"]]


def test_a_version_with_other_columns_stops_the_stream_until_it_starts_again() -> None:
    store = table_in_memory(*CHANGING)
    one = source(store, startingVersion="3")
    changed = metadata()
    changed["metaData"]["schemaString"] = schema(x="long", s="string", new="double")
    after = table_in_memory(*CHANGING, [info("ADD COLUMNS"), changed], [info(), add("g")])
    one._store = after
    with pytest.raises(InvalidRequest, match=r"version 4 .* has the column 'new' of type double"):
        all_of(one)
    assert all_of(source(after, startingVersion="3")) == [["f", "g"]]


def with_structs(*fields: tuple[str, str], nullable: bool = True, has_nulls: bool = True) -> Row:
    """Return metadata with a struct of these fields, and with it in an array and a map."""
    listed = [{"name": n, "type": k, "nullable": nullable, "metadata": {}} for n, k in fields]
    struct = {"type": "struct", "fields": listed}
    array = {"type": "array", "elementType": struct, "containsNull": has_nulls}
    values = {"valueType": struct, "valueContainsNull": has_nulls}
    kinds = {"s": struct, "l": array, "m": {"type": "map", "keyType": "string", **values}}
    columns = [{"name": n, "type": k, "nullable": True, "metadata": {}} for n, k in kinds.items()]
    row = metadata()
    row["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": columns})
    return row


def test_a_stream_that_starts_again_holds_versions_with_fewer_and_narrower_fields() -> None:
    first: Sequence[Row] = [
        info("CREATE TABLE"),
        protocol(),
        with_structs(("x", "integer")),
        add("a"),
    ]
    middle: Sequence[Row] = [with_structs(("x", "decimal(12,2)")), add("b")]
    last: Sequence[Row] = [with_structs(("x", "decimal(14,4)"), ("y", "string")), add("c")]
    one = source(table_in_memory(first, middle, last), startingVersion="0")
    assert all_of(one, files_max=9) == [["a", "b", "c"]]
    narrower: Sequence[Row] = [with_structs(("x", "long")), add("d")]
    one = source(table_in_memory(first, middle, narrower), startingVersion="0")
    with pytest.raises(InvalidRequest, match=r"version 1 .* has the column 's'"):
        all_of(one)


@pytest.mark.parametrize(
    ("strict", "column"), [({"nullable": False}, "s"), ({"has_nulls": False}, "l")]
)
def test_a_field_that_takes_nulls_now_stops_a_stream_that_runs(
    strict: dict[str, bool], column: str
) -> None:
    never = with_structs(("x", "long"), **strict)
    first: Sequence[Row] = [info("CREATE TABLE"), protocol(), never, add("a")]
    one = source(table_in_memory(first), startingVersion="0")
    after = table_in_memory(first, [with_structs(("x", "long")), add("b")])
    one._store = after
    with pytest.raises(InvalidRequest, match=rf"version 1 .* has the column '{column}'"):
        all_of(one)
    assert all_of(source(after, startingVersion="0")) == [["a", "b"]]


def read_to_the_end(store: LogStore) -> FilePosition:
    """Return the position of a stream that has read everything, as Spark keeps it."""
    one = source(store)
    end = one.noted(one.up_to(one.first(), one.head(), None, None))
    return FilePosition.from_json(end.to_json())


def again(rows: Sequence[Row], table_id: str) -> Sequence[Row]:
    return [
        {"metaData": {**row["metaData"], "id": table_id}} if "metaData" in row else row
        for row in rows
    ]


def test_a_table_made_anew_at_the_path_is_not_the_one_that_was_read() -> None:
    place = read_to_the_end(table_in_memory(*CHANGING))
    other = table_in_memory(again(CHANGING[0], "other"), *CHANGING[1:], [info(), add("g")])
    with pytest.raises(InvalidRequest, match="its id is other, and was") as caught:
        source(other).check(place, 4)
    assert caught.value.error_class == "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE"


def test_versions_that_replaced_those_that_were_read_stop_the_stream() -> None:
    """An older backup of the log was put back, and other versions were written on top."""
    place = read_to_the_end(table_in_memory(*CHANGING))
    source(table_in_memory(*CHANGING, [info(), add("g")])).check(place, 4)
    shorter = table_in_memory(*CHANGING[:3])
    with pytest.raises(InvalidRequest, match=r"version 3 .* is gone: the newest is 2"):
        source(shorter).check(place, 2)
    replaced = table_in_memory(*CHANGING[:3], [info(), add("other")], [info(), add("g")])
    with pytest.raises(InvalidRequest, match=r"version 3 .* is another one now"):
        source(replaced).check(place, 4)
    source(replaced, failOnDataLoss="false").check(place, 4)


def test_a_place_of_an_earlier_release_has_no_identity_to_compare() -> None:
    old = {"version": 4, "index": 0, "isStartingVersion": False}
    place = FilePosition.from_json(old)
    assert place == FilePosition(4)
    source(table_in_memory(again(CHANGING[0], "other"), *CHANGING[1:])).check(place, 3)


def mapped(physical: str) -> Row:
    """Return metadata with a column `x`, in a struct too, under a physical name."""
    row = metadata(**{"delta.columnMapping.mode": "name"})
    column: dict[str, Any] = {"name": "x", "type": "long", "nullable": True}
    column["metadata"] = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": physical}
    about = {"delta.columnMapping.id": 2, "delta.columnMapping.physicalName": "s"}
    inside = {"type": "struct", "fields": [column]}
    outer = {"name": "s", "type": inside, "nullable": True, "metadata": about}
    row["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": [outer]})
    return row


def test_a_mapped_column_that_was_dropped_and_added_again_stops_the_stream() -> None:
    listed = protocol(2, 5)
    first: Sequence[Row] = [info("CREATE TABLE"), listed, mapped("first"), add("a")]
    one = source(table_in_memory(first), startingVersion="0")
    after = table_in_memory(first, [info("REPLACE"), mapped("second")], [info(), add("b")])
    one._store = after
    with pytest.raises(InvalidRequest, match=r"version 1 .* has the column 's'"):
        all_of(one)
    restarted = source(after, startingVersion="0")
    with pytest.raises(InvalidRequest, match=r"version 0 .* has the column 's'"):
        restarted.check(FilePosition(0, 1), 2)


def test_a_version_that_is_gone_from_the_log_is_no_silent_loss() -> None:
    store = table_in_memory(*CHANGING)
    store.delete("_delta_log/00000000000000000001.json")
    store.delete("_delta_log/00000000000000000000.json")
    one = source(table_in_memory(*CHANGING), startingVersion="1")
    one._store = store
    with pytest.raises(InvalidRequest, match="is gone from the log"):
        all_of(one)


def test_a_lost_version_is_skipped_if_the_option_allows_it() -> None:
    store = table_in_memory(*CHANGING)
    store.delete("_delta_log/00000000000000000001.json")
    store.delete("_delta_log/00000000000000000000.json")
    one = source(table_in_memory(*CHANGING), startingVersion="0", failOnDataLoss="false")
    one._store = store
    assert all_of(one) == [["f"]]


def test_files_that_the_regex_finds_are_left_out_and_the_others_keep_their_numbers() -> None:
    store = table_in_memory(*CHANGING)
    without = source(store, startingVersion="0", excludeRegex="^[bc]$")
    assert all_of(without) == [["a", "d"], ["f"]]
    behind_a = without.up_to(FilePosition(0), 3, 1, None)
    assert all_of(source(store, startingVersion="0"), behind_a, 100) in (
        [["b", "c", "d", "f"]],
        [["d", "f"]],
    )
    with pytest.raises(InvalidRequest, match=r"excludeRegex=\(: expected a regular expression"):
        source(store, excludeRegex="(")


FEED = {"enableChangeDataFeed": "true"}
FED: Sequence[Sequence[Row]] = [
    [*creation(**FEED), add("a"), add("b")],
    [info(), add("c"), add("d")],
    [info("DELETE"), remove("a"), {"cdc": {"path": "_c/x", "partitionValues": {}, "size": 9}}],
    [info("OPTIMIZE"), remove("b", dataChange=False), add("e", dataChange=False)],
    [info(), add("f"), remove("c")],
]


def of_changes(store: LogStore, **options: str) -> ChangeFeedSource:
    asked = {"path": "memory://t", "readChangeFeed": "true", **options}
    return ChangeFeedSource(store, for_stream_reading(asked))


def batches(one: ChangeFeedSource, files_max: int = 1) -> list[list[tuple[str, str, int]]]:
    """Return the changes of each batch: kind, path and version."""
    at, result = one.first(), list[list[tuple[str, str, int]]]()
    while (end := one.up_to(at, one.head(), files_max, None)) != at:
        offset = FilePosition.from_json(end.to_json())
        items: list[ChangeItem] = [file["item"] for file in one.between(at, offset)]
        result.append([(item.file.change, item.file.path, item.of.version) for item in items])
        at = offset
    return result


def test_a_stream_of_changes_reads_each_version_whole() -> None:
    store = table_in_memory(*FED)
    one, two = ("insert", "c", 1), ("insert", "d", 1)
    rest = [[("cdc", "_c/x", 2)], [("delete", "c", 4), ("insert", "f", 4)]]
    assert batches(of_changes(store, startingVersion="1")) == [[one, two], *rest]
    whole = [[one, two, *rest[0], *rest[1]]]
    assert batches(of_changes(store, startingVersion="1"), 100) == whole
    assert batches(of_changes(store, startingVersion="latest")) == []


def test_a_stream_of_changes_begins_with_the_table_as_inserts() -> None:
    result = batches(of_changes(table_in_memory(*FED)), 2)
    assert result == [[("insert", "d", 4), ("insert", "e", 4)], [("insert", "f", 4)]]


def test_a_stream_of_changes_that_are_not_recorded_is_refused_with_the_property() -> None:
    with pytest.raises(InvalidRequest, match=r"delta\.enableChangeDataFeed=true"):
        of_changes(table_in_memory(*CHANGING)).first()
    for name in ("ignoreDeletes", "skipChangeCommits"):
        with pytest.raises(InvalidRequest, match=f"{name} is for a stream of rows"):
            of_changes(table_in_memory(*FED), **{name: "true"})


def test_the_columns_of_changes_are_selected_in_a_batch_or_a_stream() -> None:
    feed = {"path": "memory://t", "readChangeFeed": "true"}
    for of_stream in ({}, {"startingVersion": "latest"}, {"maxFilesPerTrigger": "1"}):
        assert for_changes_of_any_kind({**feed, **of_stream}) is not None
    for of_batch in ({"startingVersion": "1"}, {"endingVersion": "1"}):
        assert for_changes_of_any_kind({**feed, **of_batch}) is None
    assert for_changes_of_any_kind({"path": "memory://t"}) is None


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"startingVersion": "-1"}, "startingVersion"),
        ({"startingVersion": "1", "startingTimestamp": "2024-01-01"}, "not both"),
        ({"maxFilesPerTrigger": "0"}, "maxFilesPerTrigger"),
        ({"maxBytesPerTrigger": "10x"}, "maxBytesPerTrigger"),
        ({"ignoreDeletes": "perhaps"}, "ignoreDeletes"),
        ({"versionAsOf": "1"}, "startingVersion"),
        ({"maxFilesPerTriger": "1"}, "did you mean 'maxFilesPerTrigger'"),
    ],
)
def test_an_invalid_option_is_named(options: dict[str, str], wrong: str) -> None:
    with pytest.raises(InvalidRequest, match=wrong):
        for_stream_reading({"path": "memory://t", **options})


def test_options_of_the_other_kind_of_read_are_refused() -> None:
    stream = {"path": "memory://t", "startingVersion": "1"}
    with pytest.raises(InvalidRequest, match=r"option of spark\.readStream"):
        for_reading(stream)
    assert for_schema(stream).version is None
    assert for_schema({"path": "memory://t", "versionAsOf": "3"}).version == 3
    with pytest.raises(UnsupportedFeature, match="schemaTrackingLocation"):
        for_stream_reading({"path": "memory://t", "schemaTrackingLocation": "x"})


def test_a_size_has_sparks_units() -> None:
    asked = for_stream_reading({"path": "memory://t", "maxBytesPerTrigger": "64m"})
    assert asked.bytes_max == 64 * 1024 * 1024


def test_a_start_past_the_head_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="the newest version"):
        source(table_in_memory(*CHANGING), startingVersion="9").first()
