"""The contract of `LogStore`, one law per function; every store must satisfy all of them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from tidegate_delta.errors import InvalidRequest
from tidegate_runtime.storage.log_store import LogStore, Put

DEADLINE_S = 30.0


def the_first_put_wins_and_the_next_loses(store: LogStore) -> None:
    assert store.put_if_absent("_delta_log/0.json", b"first", DEADLINE_S) is Put.WON
    assert store.put_if_absent("_delta_log/0.json", b"second", DEADLINE_S) is Put.LOST
    assert store.read("_delta_log/0.json") == b"first"


def the_same_bytes_again_have_won(store: LogStore) -> None:
    assert store.put_if_absent("_delta_log/0.json", b"mine", DEADLINE_S) is Put.WON
    assert store.put_if_absent("_delta_log/0.json", b"mine", DEADLINE_S) is Put.WON


def bytes_that_only_begin_alike_have_lost(store: LogStore) -> None:
    assert store.put_if_absent("a", b"mine and more", DEADLINE_S) is Put.WON
    assert store.put_if_absent("a", b"mine", DEADLINE_S) is Put.LOST
    assert store.put_if_absent("a", b"", DEADLINE_S) is Put.LOST


def an_empty_file_is_a_file(store: LogStore) -> None:
    assert store.put_if_absent("a", b"", DEADLINE_S) is Put.WON
    assert store.read("a") == b""
    assert store.put_if_absent("a", b"x", DEADLINE_S) is Put.LOST


def a_put_whose_turn_never_comes_is_withheld(store: LogStore) -> None:
    store.put_if_absent("_delta_log/0.json", b"first", DEADLINE_S)
    for path in ("_delta_log/1.json", "_delta_log/0.json", "a"):
        assert store.put_if_absent(path, b"x", DEADLINE_S, lambda: False) is Put.WITHHELD
    assert [item.path for item in store.list_from("_delta_log", "")] == ["_delta_log/0.json"]
    assert store.read("_delta_log/1.json") is None
    assert store.read("a") is None


def nothing_of_a_put_is_seen_before_its_turn(store: LogStore) -> None:
    store.put_if_absent("_delta_log/0.json", b"first", DEADLINE_S)
    seen: list[list[str]] = []

    def look() -> bool:
        seen.append([item.path for item in store.list_from("_delta_log", "")])
        return True

    assert store.put_if_absent("_delta_log/1.json", b"second", DEADLINE_S, look) is Put.WON
    assert store.put_if_absent("_delta_log/1.json", b"third", DEADLINE_S, look) is Put.LOST
    assert seen == [["_delta_log/0.json"], ["_delta_log/0.json", "_delta_log/1.json"]]
    assert store.read("_delta_log/1.json") == b"second"


def a_name_is_free_again_after_a_delete(store: LogStore) -> None:
    store.put_if_absent("a", b"1", DEADLINE_S)
    store.delete("a")
    assert store.read("a") is None
    assert store.put_if_absent("a", b"2", DEADLINE_S) is Put.WON


def deleting_what_is_not_there_is_no_error(store: LogStore) -> None:
    store.delete("never/was")
    assert store.read("never/was") is None


def a_put_replaces_what_is_there(store: LogStore) -> None:
    store.put("_delta_log/_last_checkpoint", b"1")
    store.put("_delta_log/_last_checkpoint", b"22")
    assert store.read("_delta_log/_last_checkpoint") == b"22"


def a_missing_file_is_none_to_read_and_an_error_to_open(store: LogStore) -> None:
    assert store.read("part-0.parquet") is None
    with pytest.raises(FileNotFoundError):
        store.open("part-0.parquet")


def an_open_file_can_be_sought_in(store: LogStore) -> None:
    content = bytes(range(256)) * 8192
    store.put("part-0.parquet", content)
    with store.open("part-0.parquet") as file:
        assert file.seek(-5, 2) == len(content) - 5
        assert file.read() == content[-5:]
        file.seek(1_000_003)
        assert file.read(7) == content[1_000_003:1_000_010]
        file.seek(0)
        assert file.read() == content
        assert file.read() == b""


def a_missing_folder_lists_nothing(store: LogStore) -> None:
    assert list(store.list_from("_delta_log", "")) == []


def a_listing_begins_at_its_start_in_the_order_of_names(store: LogStore) -> None:
    for name in ("3.json", "1.json", "2.checkpoint.parquet", "2.json", "10.json"):
        store.put(f"_delta_log/{name}", name.encode())
    everything = ["1.json", "10.json", "2.checkpoint.parquet", "2.json", "3.json"]
    assert _names(store, "") == everything
    assert _names(store, "2.json") == everything[3:]
    assert _names(store, "2.") == everything[2:]
    assert _names(store, "3.jsom") == everything[4:]
    assert _names(store, "4") == []


def a_listing_shows_sizes_and_times_and_paths_from_the_root(store: LogStore) -> None:
    store.put("_delta_log/0.json", b"12345")
    [stat] = store.list_from("_delta_log", "")
    assert (stat.path, stat.size) == ("_delta_log/0.json", 5)
    assert stat.modified_ms >= 0


def a_listing_shows_files_of_that_folder_only(store: LogStore) -> None:
    store.put("_delta_log/0.json", b"")
    store.put("_delta_log/_sidecars/a.parquet", b"")
    store.put("_delta_log2/0.json", b"")
    store.put("part-0.parquet", b"")
    assert _names(store, "") == ["0.json"]
    assert [stat.path for stat in store.list_from("", "")] == ["part-0.parquet"]
    assert [stat.path for stat in store.list_from("_delta_log/_sidecars", "")] == [
        "_delta_log/_sidecars/a.parquet"
    ]


def a_tree_has_every_file_outside_of_folders_that_are_not_wanted(store: LogStore) -> None:
    kept = ["a.parquet", "p=%2F 1/b.parquet", "p=2/_q=3/c.parquet", "_change_data/d.parquet"]
    for path in (
        *kept,
        "_delta_log/0.json",
        "_delta_log/_sidecars/s",
        "p=2/_old/e",
        "p=2/_old/f/g",
    ):
        store.put(path, path.encode())
    asked: list[str] = []

    def is_wanted(folder: str) -> bool:
        asked.append(folder)
        return not folder.endswith(("_delta_log", "_old"))

    result = {stat.path: stat.size for stat in store.list_tree(is_wanted)}
    assert result == {path: len(path) for path in kept}
    assert not any(folder.startswith(("_delta_log/", "p=2/_old/")) for folder in asked)
    everything = {stat.path for stat in store.list_tree(lambda _: True)}
    assert everything == {*kept, "_delta_log/0.json", "_delta_log/_sidecars/s", "p=2/_old/e"} | {
        "p=2/_old/f/g"
    }


def a_long_listing_is_whole(store: LogStore) -> None:
    paths = [f"_delta_log/{version:020d}.json" for version in range(1_100)]
    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(lambda path: store.put(path, b"x"), paths))
    assert [stat.path for stat in store.list_from("_delta_log", "")] == paths
    tail = [stat.path for stat in store.list_from("_delta_log", f"{1_090:020d}.json")]
    assert tail == paths[1_090:]


def names_are_taken_as_they_are(store: LogStore) -> None:
    paths = ["a=%2F b+c/part ü.parquet", "a=%2F b+c/part'#?.parquet", "a=%2F b+c/%41"]
    for path in paths:
        assert store.put_if_absent(path, path.encode(), DEADLINE_S) is Put.WON
    assert [store.read(path) for path in paths] == [path.encode() for path in paths]
    assert [stat.path for stat in store.list_from("a=%2F b+c", "")] == sorted(paths)
    assert store.read("a=%2F b+c/A") is None


def a_path_out_of_the_root_is_refused(store: LogStore) -> None:
    for path in ("../x", "a/../../x", "/etc/passwd", "", "a//b", "./a", "a/", "a\0b"):
        for ask in (store.read, store.open, store.delete):
            with pytest.raises(InvalidRequest) as refused:
                ask(path)
            assert refused.value.error_class == "PathOutsideTable"
        with pytest.raises(InvalidRequest):
            store.put(path, b"")
        with pytest.raises(InvalidRequest):
            store.put_if_absent(path, b"", DEADLINE_S)
    with pytest.raises(InvalidRequest):
        list(store.list_from("..", ""))


LAWS: tuple[Callable[[LogStore], None], ...] = (
    the_first_put_wins_and_the_next_loses,
    the_same_bytes_again_have_won,
    bytes_that_only_begin_alike_have_lost,
    an_empty_file_is_a_file,
    a_put_whose_turn_never_comes_is_withheld,
    nothing_of_a_put_is_seen_before_its_turn,
    a_name_is_free_again_after_a_delete,
    deleting_what_is_not_there_is_no_error,
    a_put_replaces_what_is_there,
    a_missing_file_is_none_to_read_and_an_error_to_open,
    an_open_file_can_be_sought_in,
    a_missing_folder_lists_nothing,
    a_listing_begins_at_its_start_in_the_order_of_names,
    a_listing_shows_sizes_and_times_and_paths_from_the_root,
    a_listing_shows_files_of_that_folder_only,
    a_tree_has_every_file_outside_of_folders_that_are_not_wanted,
    a_long_listing_is_whole,
    names_are_taken_as_they_are,
    a_path_out_of_the_root_is_refused,
)


def contest(stores: list[LogStore], versions: int) -> list[dict[int, Put]]:
    """Let one thread per store put every version at the same time; return each thread's results."""
    together = Barrier(len(stores))

    def contend(number: int) -> dict[int, Put]:
        result = {}
        for version in range(versions):
            together.wait(DEADLINE_S)
            content = f"{number} at {version}".encode() * 50
            path = f"_delta_log/{version:020d}.json"
            result[version] = stores[number].put_if_absent(path, content, DEADLINE_S)
        return result

    with ThreadPoolExecutor(max_workers=len(stores)) as pool:
        return list(pool.map(contend, range(len(stores))))


def assert_one_winner_each(told: list[dict[int, Put]], store: LogStore) -> None:
    """Check that each version has one winner, whose bytes are stored, and that all others lost."""
    for version in told[0]:
        puts = [of_one[version] for of_one in told]
        assert sorted(put.value for put in puts) == ["lost"] * (len(told) - 1) + ["won"], version
        winner = puts.index(Put.WON)
        content = store.read(f"_delta_log/{version:020d}.json")
        assert content == f"{winner} at {version}".encode() * 50


def _names(store: LogStore, start: str) -> list[str]:
    return [stat.path.removeprefix("_delta_log/") for stat in store.list_from("_delta_log", start)]
