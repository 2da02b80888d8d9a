"""A table as the source of a stream: order, limits, and the versions that stop it."""

from collections.abc import Mapping, Sequence

import pytest

from tests.builders import Row, add, creation, info, metadata, remove, schema, table_in_memory
from tidegate_delta.errors import InvalidRequest, UnsupportedFeature
from tidegate_producers.datasource.stream_source import Position, StreamSource
from tidegate_producers.options import for_reading, for_schema, for_stream_reading
from tidegate_runtime.storage.log_store import LogStore

CHANGING: Sequence[Sequence[Row]] = [
    [*creation(), add("a"), add("b")],
    [info(), add("c"), add("d")],
    [info("OPTIMIZE"), remove("a", dataChange=False), add("e", dataChange=False)],
    [info(), add("f")],
]


def source(store: LogStore, **options: str) -> StreamSource:
    return StreamSource(store, for_stream_reading({"path": "memory://t", **options}))


def all_of(one: StreamSource, start: Position | None = None, files_max: int = 2) -> list[list[str]]:
    """Return the paths of each batch until nothing is left; each is read as Spark would."""
    at, found = start or one.first(), list[list[str]]()
    while True:
        head = one.head()
        end = one.up_to(at, head, files_max, None) if head >= at.version else at
        if end == at:
            return found
        offset = Position.from_json(end.to_json())
        found.append([str(file["path"]) for file in one.between(at, offset)])
        at = offset


def with_operation(*rows: Row) -> LogStore:
    return table_in_memory(*CHANGING, [info("DELETE"), *rows])


def test_a_stream_begins_with_the_table_as_it_is() -> None:
    store = table_in_memory(*CHANGING)
    one = source(store)
    assert one.first() == Position(3, is_snapshot=True)
    assert all_of(one) == [["b", "c"], ["d", "e"], ["f"]]


def test_a_stream_of_versions_reads_what_each_added_once() -> None:
    store = table_in_memory(*CHANGING)
    assert all_of(source(store, startingVersion="0")) == [["a", "b"], ["c", "d"], ["f"]]
    assert all_of(source(store, startingVersion="1"), files_max=100) == [["c", "d", "f"]]
    assert all_of(source(store, startingVersion="latest")) == []


def test_a_batch_has_at_least_one_file_and_stays_within_the_bytes() -> None:
    one = source(table_in_memory(*CHANGING), startingVersion="0")
    size = int(one.between(Position(0), Position(1))[0]["size"])
    assert one.up_to(Position(0), 3, None, 1) == Position(0, 1)
    assert one.up_to(Position(0), 3, None, 3 * size) == Position(1, 1)
    assert one.up_to(Position(0), 3, None, None) == Position(4)


def test_new_versions_continue_where_the_stream_was() -> None:
    store = table_in_memory(*CHANGING)
    one = source(store)
    behind = one.up_to(one.first(), 3, None, None)
    assert behind == Position(4)
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
    added = [one["add"]["path"] for one in rows if "add" in one]
    with pytest.raises(InvalidRequest, match=rf"version 4 .*\(DELETE\).*{stops}"):
        all_of(source(store, startingVersion="3"))
    for options in passes:
        found = all_of(source(store, startingVersion="3", **options))
        assert found == [["f", *added]]
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


def test_a_version_that_is_gone_from_the_log_is_no_silent_loss() -> None:
    store = table_in_memory(*CHANGING)
    store.delete("_delta_log/00000000000000000001.json")
    store.delete("_delta_log/00000000000000000000.json")
    one = source(table_in_memory(*CHANGING), startingVersion="1")
    one._store = store
    with pytest.raises(InvalidRequest, match="is gone from the log"):
        all_of(one)


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
def test_a_wrong_option_is_named(options: dict[str, str], wrong: str) -> None:
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
