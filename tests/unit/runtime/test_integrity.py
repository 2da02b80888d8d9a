import json

import pytest

from tests.builders import add, creation, info, table_in_memory
from tidegate.delta.checkpoints import checksum
from tidegate.delta.errors import BrokenLog
from tidegate.delta.names import checksum_name, in_log
from tidegate.runtime.integrity import check_stated, stated_checksum
from tidegate.runtime.memory import MemoryStore
from tidegate.runtime.open_table import open_snapshot


def table() -> MemoryStore:
    return table_in_memory(creation(), [info(), add("a"), add("b")])


def state(store: MemoryStore, **changed: object) -> None:
    body = json.loads(checksum.encode(checksum.of(open_snapshot(store))))
    store.files[in_log(checksum_name(1))] = json.dumps({**body, **changed}).encode()


def test_a_version_without_a_checksum_file_is_taken_as_it_is() -> None:
    check_stated(table(), open_snapshot(table()))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"numFiles":1}'])
def test_a_checksum_file_that_can_not_be_read_says_nothing(content: bytes) -> None:
    store = table()
    store.files[in_log(checksum_name(1))] = content
    assert stated_checksum(store, 1) is None
    check_stated(store, open_snapshot(store))


def test_a_version_is_what_its_checksum_file_says() -> None:
    store = table()
    state(store)
    check_stated(store, open_snapshot(store))


@pytest.mark.parametrize("name", ["tableSizeBytes", "numFiles"])
def test_a_contradiction_is_refused_and_named_and_a_plain_read_goes_on(name: str) -> None:
    store = table()
    state(store, **{name: 999})
    with pytest.raises(BrokenLog, match="999, not") as caught:
        check_stated(store, open_snapshot(store))
    assert caught.value.error_class == "CorruptChecksum"
    assert open_snapshot(store).files.num_rows == 2
