from tests.fakes.memory_bus import MemoryBus as TheSameBus
from tests.fakes.memory_store import MemoryBus, MemoryStore
from tidegate_runtime.storage.log_store import Put


def test_modification_times_come_from_the_clock_it_is_given() -> None:
    now_ms = iter([10, 20])
    store = MemoryStore(now_ms=lambda: next(now_ms))
    store.put("a", b"")
    store.put("b", b"")
    assert [stat.modified_ms for stat in store.list_from("", "")] == [10, 20]


def test_a_lost_put_changes_no_time() -> None:
    now_ms = iter([10, 20])
    store = MemoryStore(now_ms=lambda: next(now_ms))
    store.put_if_absent("a", b"1", 1.0)
    assert store.put_if_absent("a", b"2", 1.0) is Put.LOST
    assert [stat.modified_ms for stat in store.list_from("", "")] == [10]


def test_what_a_test_lays_into_the_files_is_there() -> None:
    store = MemoryStore("memory://tables/t")
    store.files["_delta_log/0.json"] = b"{}"
    assert store.read("_delta_log/0.json") == b"{}"
    assert [stat.modified_ms for stat in store.list_from("_delta_log", "")] == [0]
    assert store.root == "memory://tables/t"


def test_the_bus_is_had_from_here_too() -> None:
    assert MemoryBus is TheSameBus
