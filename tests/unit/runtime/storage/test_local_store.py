import errno
import multiprocessing
import os
import re
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tidegate_delta.errors import Misconfigured, Unavailable
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.storage.log_store import Put

PATH = "_delta_log/00000000000000000000.json"
VERSIONS = 200
PROCESSES = 5


def failing(number: int) -> Callable[..., None]:
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The places of the files and folders that are made durable."""
    places: list[str] = []
    fsync = os.fsync

    def noting_fsync(descriptor: int) -> None:
        places.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    return places


def hidden_files(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(".")]


class Stepping:
    """A clock that advances by a second at each call."""

    def __init__(self) -> None:
        self.asked = 0

    def now_ms(self) -> int:
        return 0

    def boot_s(self) -> float:
        self.asked += 1
        return float(self.asked)

    def sleep(self, seconds: float) -> None:
        self.asked += int(seconds)


def contend(number: int, root: str, told: "multiprocessing.Queue[tuple[int, list[str]]]") -> None:
    store = LocalStore(root)
    puts = [
        store.put_if_absent(f"_delta_log/{version:020d}.json", f"{number}".encode() * 4096, 30.0)
        for version in range(VERSIONS)
    ]
    told.put((number, [put.value for put in puts]))


def test_of_several_processes_one_wins_each_version(tmp_path: Path) -> None:
    spawning = multiprocessing.get_context("fork")
    told: multiprocessing.Queue[tuple[int, list[str]]] = spawning.Queue()
    processes = [
        spawning.Process(target=contend, args=(number, str(tmp_path), told))
        for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    answers = dict(told.get(timeout=60) for _ in processes)
    for process in processes:
        process.join(timeout=10)
    store = LocalStore(str(tmp_path))
    for version in range(VERSIONS):
        puts = [answers[number][version] for number in range(PROCESSES)]
        assert sorted(puts) == ["lost"] * (PROCESSES - 1) + ["won"]
        content = store.read(f"_delta_log/{version:020d}.json")
        assert content == f"{puts.index('won')}".encode() * 4096
    assert hidden_files(tmp_path / "_delta_log") == []


def test_the_hidden_file_lies_in_the_same_folder_and_no_listing_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(str(tmp_path))
    monkeypatch.setattr(os, "link", failing(errno.EIO))
    monkeypatch.setattr(os, "unlink", failing(errno.EIO))
    assert store.put_if_absent(PATH, b"x", 30.0) is Put.UNKNOWN
    [left] = hidden_files(tmp_path / "_delta_log")
    assert re.fullmatch(r"\.00000000000000000000\.json\.[0-9a-f]{16}\.tmp", left)
    assert list(store.list_from("_delta_log", "")) == []


def test_other_hidden_files_are_listed(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.put("_delta_log/.00000000000000000000.json.crc", b"")
    assert len(list(store.list_from("_delta_log", ""))) == 1


def test_a_folder_among_the_files_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / "_delta_log" / "0.json").mkdir(parents=True)
    assert list(LocalStore(str(tmp_path)).list_from("_delta_log", "")) == []


def test_content_is_durable_before_its_name_and_the_name_before_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(str(tmp_path))
    store.put("_delta_log/other", b"")
    steps: list[str] = []
    fsync, link = os.fsync, os.link

    def noting_fsync(descriptor: int) -> None:
        target = os.readlink(f"/proc/self/fd/{descriptor}")
        steps.append("fsync folder" if os.path.isdir(target) else "fsync file")
        fsync(descriptor)

    def noting_link(source: str, target: str) -> None:
        steps.append("link")
        link(source, target)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(os, "link", noting_link)
    assert store.put_if_absent(PATH, b"x", 30.0) is Put.WON
    assert steps == ["fsync file", "link", "fsync folder"]
    steps.clear()
    store.put(PATH, b"y")
    assert steps == ["fsync file", "fsync folder"]


def test_new_folders_are_made_durable_up_to_what_was_there(
    tmp_path: Path, synced: list[str]
) -> None:
    LocalStore(str(tmp_path / "a" / "b")).put("_delta_log/0.json", b"x")
    folders = [str(tmp_path / "a" / "b"), str(tmp_path / "a"), str(tmp_path)]
    assert [place for place in synced if place in folders] == folders


def test_a_folder_that_was_removed_is_made_again(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "t"))
    store.put(PATH, b"x")
    store.delete(PATH)
    (tmp_path / "t" / "_delta_log").rmdir()
    assert store.put_if_absent(PATH, b"y", 30.0) is Put.WON


def test_a_link_that_fails_after_it_was_made_has_won(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(str(tmp_path))
    link = os.link

    def losing_the_answer(source: str, target: str) -> None:
        link(source, target)
        raise FileExistsError(errno.EEXIST, "a second attempt found the first one's work")

    monkeypatch.setattr(os, "link", losing_the_answer)
    assert store.put_if_absent(PATH, b"x", 30.0) is Put.WON
    assert store.read(PATH) == b"x"


@pytest.mark.parametrize("number", [errno.EIO, errno.ETIMEDOUT, errno.ESTALE])
def test_what_may_have_happened_is_unknown(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(str(tmp_path))
    monkeypatch.setattr(os, "link", failing(number))
    assert store.put_if_absent(PATH, b"x", 30.0) is Put.UNKNOWN


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, "no space"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "read-only"),
        (errno.EPERM, "hard links"),
        (errno.ENOSYS, "hard links"),
        (errno.EACCES, "may not"),
    ],
)
@pytest.mark.parametrize("call", ["link", "fsync"])
def test_what_no_retry_cures_is_unavailable_with_a_remedy(
    call: str, number: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(str(tmp_path))
    monkeypatch.setattr(os, call, failing(number))
    with pytest.raises(Unavailable, match=message) as raised:
        store.put_if_absent(PATH, b"x", 30.0)
    assert store.root in str(raised.value)
    assert store.read(PATH) is None
    assert hidden_files(tmp_path / "_delta_log") == []


def test_an_io_error_before_the_link_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(str(tmp_path))
    monkeypatch.setattr(os, "fsync", failing(errno.EIO))
    with pytest.raises(Unavailable, match="the device reports an error"):
        store.put_if_absent(PATH, b"x", 30.0)
    assert not (tmp_path / PATH).exists()
    assert hidden_files(tmp_path / "_delta_log") == []


def test_what_is_named_and_not_yet_durable_is_read_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(str(tmp_path))
    store.put("_delta_log/other", b"")
    assert len(list(store.list_from("_delta_log", ""))) == 1
    fsync = os.fsync

    def failing_for_folders(descriptor: int) -> None:
        if os.path.isdir(os.readlink(f"/proc/self/fd/{descriptor}")):
            raise OSError(errno.EIO, "I/O error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing_for_folders)
    assert store.put_if_absent(PATH, b"x", 30.0) is Put.UNKNOWN
    assert (tmp_path / PATH).exists()
    with pytest.raises(Unavailable, match="the device reports an error"):
        store.read(PATH)
    with pytest.raises(Unavailable):
        list(store.list_from("_delta_log", ""))
    monkeypatch.setattr(os, "fsync", fsync)
    assert store.read(PATH) == b"x"
    assert store.put_if_absent(PATH, b"x", 30.0) is Put.WON


def test_a_name_that_a_file_system_lost_with_its_journal_is_never_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(str(tmp_path))
    store.put("_delta_log/other", b"")
    numbers = iter([errno.EIO, *[errno.EROFS] * 9])
    fsync = os.fsync

    def failing_for_folders(descriptor: int) -> None:
        if os.path.isdir(os.readlink(f"/proc/self/fd/{descriptor}")):
            failing(next(numbers))()
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing_for_folders)
    assert store.put_if_absent(PATH, b"x", 30.0) is Put.UNKNOWN
    for item in (store, LocalStore(str(tmp_path))):
        with pytest.raises(Unavailable, match=r"read-only.*kernel's log"):
            list(item.list_from("_delta_log", ""))
    with pytest.raises(Unavailable, match="read-only"):
        store.read(PATH)


def test_the_first_listing_makes_durable_what_a_dead_writer_named_last(
    tmp_path: Path, synced: list[str]
) -> None:
    LocalStore(str(tmp_path)).put(PATH, b"x")
    synced.clear()
    successor = LocalStore(str(tmp_path))
    assert len(list(successor.list_from("_delta_log", ""))) == 1
    assert len(list(successor.list_from("_delta_log", ""))) == 1
    assert synced == [str(tmp_path / "_delta_log")]


def test_who_lost_makes_durable_what_he_lost_to(tmp_path: Path, synced: list[str]) -> None:
    store = LocalStore(str(tmp_path))
    store.put("_delta_log/other", b"")
    assert len(list(store.list_from("_delta_log", ""))) == 1
    rival = tmp_path / PATH

    def dies_before_its_folder_is_synced() -> bool:
        rival.write_bytes(b"theirs")
        synced.clear()
        return True

    put = store.put_if_absent(PATH, b"mine", 30.0, dies_before_its_folder_is_synced)
    assert put is Put.LOST
    assert synced == [str(tmp_path / "_delta_log")]


def test_hidden_files_of_long_dead_writers_are_dropped(tmp_path: Path) -> None:
    folder = tmp_path / "_delta_log"
    folder.mkdir()
    old, young = (folder / f".0.json.{digit * 16}.tmp" for digit in "ab")
    other = folder / ".0.json.crc"
    for file in (old, young, other):
        file.write_bytes(b"")
    for file in (old, other):
        os.utime(file, ns=(0, 0))
    LocalStore(str(tmp_path)).put(PATH, b"x")
    assert sorted(hidden_files(folder)) == sorted([young.name, other.name])


def in_a_child(attempt: Callable[[], object]) -> str:
    """Return the result of `attempt` in a child process, or its error, as text."""
    result: multiprocessing.Queue[str] = multiprocessing.get_context("fork").Queue()

    def tell() -> None:
        try:
            result.put(str(attempt()))
        except Unavailable as error:
            result.put(f"{error.error_class}: {error}")

    child = multiprocessing.get_context("fork").Process(target=tell)
    child.start()
    said = result.get(timeout=30)
    child.join(timeout=10)
    return said


def test_a_write_that_the_kernel_stops_midway_leaves_nothing(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.put("_delta_log/_last_checkpoint", b"whole")

    def write_too_much() -> Put:
        resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536))
        return store.put_if_absent(PATH, bytes(1_000_000), 30.0)

    assert "larger than may be written here" in in_a_child(write_too_much)
    assert store.read(PATH) is None
    assert os.listdir(tmp_path / "_delta_log") == ["_last_checkpoint"]


def test_a_folder_without_write_permission_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "_delta_log"
    folder.mkdir()
    folder.chmod(0o555)

    def write_as_nobody() -> Put:
        if os.geteuid() == 0:
            os.seteuid(65_534)
        return LocalStore(str(tmp_path)).put_if_absent(PATH, b"x", 30.0)

    said = in_a_child(write_as_nobody)
    assert said.startswith("Unavailable: cannot write")
    assert "this user may not: grant the rights" in said
    assert os.listdir(folder) == []


def test_a_full_disk_leaves_no_torn_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(str(tmp_path))
    store.put("_delta_log/_last_checkpoint", b"whole")
    monkeypatch.setattr(os, "fsync", failing(errno.ENOSPC))
    with pytest.raises(Unavailable):
        store.put("_delta_log/_last_checkpoint", b"half of something longer")
    assert store.read("_delta_log/_last_checkpoint") == b"whole"
    assert hidden_files(tmp_path / "_delta_log") == []


def test_past_its_deadline_nothing_is_linked(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path), Stepping())
    assert store.put_if_absent(PATH, b"x", 0.5) is Put.UNKNOWN
    assert store.read(PATH) is None
    assert store.put_if_absent(PATH, b"x", 5.0) is Put.WON


def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").write_text("a file")
    store = LocalStore(str(tmp_path))
    with pytest.raises(Unavailable, match="another place"):
        store.put_if_absent(PATH, b"x", 30.0)
    assert store.read(PATH) is None


def test_modification_times_are_the_file_systems(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.put(PATH, b"x")
    os.utime(tmp_path / PATH, ns=(0, 1_700_000_000_123_456_789))
    [stat] = store.list_from("_delta_log", "")
    assert stat.modified_ms == 1_700_000_000_123


def test_only_a_place_on_a_file_system_is_taken() -> None:
    with pytest.raises(Misconfigured, match="file system"):
        LocalStore("s3://bucket/table")


@pytest.mark.parametrize("left", ["_delta_log/_staged_commits", ""])
def test_no_version_is_written_where_the_one_before_is_not(tmp_path: Path, left: str) -> None:
    store = LocalStore(str(tmp_path / "t"))
    first, second, third = (f"_delta_log/{version:020d}.json" for version in range(3))
    assert store.put_if_absent(first, b"x", 30.0) is Put.WON
    assert store.put_if_absent(second, b"y", 30.0) is Put.WON
    (tmp_path / "t").rename(tmp_path / "away")
    (tmp_path / "t" / left).mkdir(parents=True)
    with pytest.raises(Unavailable, match=r"0001\.json.* is not there: mount the file system"):
        store.put_if_absent(third, b"z", 30.0)
    assert [place for place in (tmp_path / "t").rglob("*") if place.is_file()] == []
    assert (tmp_path / "t" / "_delta_log").exists() == bool(left), "none is made in its place"
    shutil.rmtree(tmp_path / "t")
    (tmp_path / "away").rename(tmp_path / "t")
    assert store.put_if_absent(third, b"z", 30.0) is Put.WON


def test_a_version_whose_forerunner_is_cleaned_up_behind_its_checkpoint_is_written(
    tmp_path: Path,
) -> None:
    store = LocalStore(str(tmp_path))
    store.put(f"_delta_log/{7:020d}.checkpoint.parquet", b"x")
    with pytest.raises(Unavailable):
        store.put_if_absent(f"_delta_log/{7 + 2:020d}.json", b"y", 30.0)
    assert store.put_if_absent(f"_delta_log/{7 + 1:020d}.json", b"y", 30.0) is Put.WON
