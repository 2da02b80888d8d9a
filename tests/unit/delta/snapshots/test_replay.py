import json
from typing import Any

import pyarrow as pa
import pytest

from tidegate_delta.errors import BrokenLog
from tidegate_delta.snapshots.replay import (
    SLICES_MAX,
    LogPart,
    advance,
    keys,
    parse_log_file,
    replay,
)

HEAD: list[dict[str, Any]] = [
    {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
    {"metaData": {"id": "t", "schemaString": "{}", "format": {"provider": "parquet"}}},
]


def add(path: str, dv: str | None = None, size: int = 1) -> dict[str, Any]:
    return {
        "add": {
            "path": path,
            "partitionValues": {},
            "size": size,
            "modificationTime": 1,
            "dataChange": True,
            **vector(dv),
        }
    }


def remove(path: str, dv: str | None = None) -> dict[str, Any]:
    return {"remove": {"path": path, "dataChange": True, "deletionTimestamp": 9, **vector(dv)}}


def vector(dv: str | None) -> dict[str, Any]:
    if dv is None:
        return {}
    body, _, offset = dv.partition("@")
    descriptor: dict[str, Any] = {"storageType": "u", "pathOrInlineDv": body, "sizeInBytes": 1}
    if offset:
        descriptor["offset"] = int(offset)
    return {"deletionVector": {**descriptor, "cardinality": 1}}


def part(*rows: dict[str, Any]) -> LogPart:
    return parse_log_file("here", b"\n".join(json.dumps(row).encode() for row in rows))


def paths(table: pa.Table) -> list[str]:
    return sorted(table["path"].to_pylist())


def test_the_newest_word_on_a_file_counts() -> None:
    state = replay(
        [part(*HEAD, add("a"), add("b")), part(remove("a")), part(add("a", size=2))], None
    )
    assert paths(state.files) == ["a", "b"]
    assert state.files.num_rows == 2
    assert 2 in state.files["size"].to_pylist()
    assert state.tombstones.num_rows == 0


def test_a_file_that_is_added_twice_is_there_once() -> None:
    state = replay([part(*HEAD, add("a")), part(add("a", size=7))], None)
    assert state.files["size"].to_pylist() == [7]


def test_a_removed_file_leaves_a_tombstone() -> None:
    state = replay([part(*HEAD, add("a")), part(remove("a")), part(remove("never-there"))], None)
    assert paths(state.files) == []
    assert paths(state.tombstones) == ["a", "never-there"]


def test_two_spellings_are_one_file() -> None:
    state = replay([part(*HEAD, add("p=a%20b/x")), part(remove("p=a b/x"))], None)
    assert state.files.num_rows == 0


def test_a_file_with_another_vector_is_another_logical_file() -> None:
    first = part(*HEAD, add("a"), add("b", dv="x@1"))
    second = part(remove("a"), add("a", dv="y@1"), remove("b", dv="x@2"))
    state = replay([first, second], None)
    assert paths(state.files) == ["a", "b"]
    assert paths(state.tombstones) == ["a", "b"]


def test_a_key_holds_the_vectors_id() -> None:
    table = part(add("a"), add("a", dv="x"), add("a", dv="x@1")).files
    assert keys(table).to_pylist() == ["a", "a\0ux", "a\0ux@1"]


def test_what_follows_a_checkpoint_wins_over_it() -> None:
    below = part(*HEAD, add("a"), add("b"), add("c"), remove("d"))
    state = replay([part(remove("a"), add("c", size=3), add("d"))], below)
    assert paths(state.files) == ["b", "c", "d"]
    assert paths(state.tombstones) == ["a"]
    assert sorted(state.files["size"].to_pylist()) == [1, 1, 3]


def test_a_checkpoint_alone_is_enough() -> None:
    assert paths(replay([], part(*HEAD, add("a"))).files) == ["a"]


def test_the_keys_stand_in_the_order_of_the_files() -> None:
    below = part(*HEAD, *(add(f"f{i}") for i in range(5)))
    state = replay([part(remove("f3"), add("g%20g"))], below)
    assert state.file_keys.to_pylist() == keys(state.files).to_pylist()


def test_the_latest_app_transaction_wins_and_not_the_greatest() -> None:
    txns = [{"txn": {"appId": "a", "version": version}} for version in (5, 3)]
    state = replay([part(*HEAD, txns[0]), part(txns[1])], None)
    assert state.app_transactions["a"].version == 3


def test_a_removed_domain_is_gone() -> None:
    here = {"domainMetadata": {"domain": "d", "configuration": "1", "removed": False}}
    gone = {"domainMetadata": {"domain": "d", "configuration": "1", "removed": True}}
    assert "d" in replay([part(*HEAD, here)], None).domains
    assert "d" not in replay([part(*HEAD, here), part(gone)], None).domains


@pytest.mark.parametrize(("row", "error"), [(1, "MissingProtocol"), (0, "MissingMetadata")])
def test_a_log_without_its_head_is_refused(row: int, error: str) -> None:
    with pytest.raises(BrokenLog) as caught:
        replay([part(HEAD[row])], None)
    assert caught.value.error_class == error


@pytest.mark.parametrize("removed", [1, SLICES_MAX, SLICES_MAX + 1, 99, 100])
def test_cutting_and_filtering_come_to_the_same(removed: int) -> None:
    table = part(*(add(f"f{i:02}") for i in range(100))).files
    gone = [f"f{i:02}" for i in range(0, 2 * removed, 2)] if removed <= 50 else None
    gone = gone or [f"f{i:02}" for i in range(removed)]
    none = LogPart().tombstones
    after = part(*(remove(path) for path in gone))
    files, file_keys, tombstones = advance(table, keys(table), none, [after])
    assert sorted(tombstones["path"].to_pylist()) == sorted(set(gone))
    assert paths(files) == sorted(set(paths(table)) - set(gone))
    assert file_keys.to_pylist() == keys(files).to_pylist()


def test_unknown_actions_and_null_actions_are_ignored() -> None:
    read = part({"fromTheFuture": {"a": 1}}, {"add": None, "remove": None, "txn": None})
    assert read.files.num_rows == read.tombstones.num_rows == 0


TORN = [
    b"{",
    b"[]",
    b'{"add": 1}',
    b'{"add": {}}',
    b'{"txn": {}}',
    b'{"x": 1}{"x": 1}',
    b'{"x": 1},{"x": 1}',
    b'{"x": 1},0,{"x": 1}',
    b'{"x": [1\n2]}',
    b'{"x": 1},{"y": [1\n2]}',
    b'{"x": \n1}',
    b'{"x": 1}\n0\n{"x": 1}',
    b'{"x": 1}],[{"x": 1}',
]


@pytest.mark.parametrize("content", TORN)
def test_a_torn_part_is_refused(content: bytes) -> None:
    with pytest.raises(BrokenLog) as caught:
        parse_log_file("here", content)
    assert caught.value.error_class == "CorruptCommit"


def test_lines_may_be_empty_and_end_as_they_like() -> None:
    said = parse_log_file("here", b'\r\n {"txn":{"appId":"a","version":1}} \r\n\n\t\n{"x":1}\r\n')
    assert [txn.app_id for txn in said.txns] == ["a"]


@pytest.mark.parametrize("info", ["by hand", [], {"operationParameters": []}, {"timestamp": "now"}])
def test_unknown_fields_of_a_commit_do_not_hide_its_files(info: Any) -> None:
    assert paths(part({"commitInfo": info}, *HEAD, add("a")).files) == ["a"]
