"""A local table's files are regular files below its root, whatever links exist there."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders import creation, to_bytes
from tests.support.refusals import refused
from tidegate_delta.errors import BrokenLog, InvalidRequest
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.storage.log_store import LogStore, Put
from tidegate_runtime.table_io.open_table import open_snapshot
from tidegate_runtime.table_io.table_files import open_table_file

NAME = "_tidegate/proposals/one.ndjson"
VERSION = "_delta_log/00000000000000000000.json"

Reading = Callable[[LogStore, str], object]


def _open(store: LogStore, path: str) -> object:
    with store.open(path) as file:
        return file.read()


READINGS: dict[str, Reading] = {
    "read": lambda store, path: store.read(path),
    "open": _open,
    "absolute": lambda store, path: open_table_file(store, f"{store.root}/{path}"),
}

OTHERS: dict[str, Reading] = {
    "absolute, of another table": lambda store, path: open_table_file(
        LocalStore("/other"), f"{store.root}/{path}"
    )
}


@pytest.fixture(params=READINGS)
def reading(request: pytest.FixtureRequest) -> Reading:
    return READINGS[request.param]


@pytest.fixture(params=[*READINGS, *OTHERS])
def any_reading(request: pytest.FixtureRequest) -> Reading:
    return {**READINGS, **OTHERS}[request.param]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    place = tmp_path / "roots" / "t" / NAME
    place.parent.mkdir(parents=True)
    return tmp_path / "roots" / "t"


def _socket(place: Path) -> None:
    # A socket's path may have at most about 100 bytes, so bind it from within its folder.
    before = Path.cwd()
    os.chdir(place.parent)
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(place.name)
    finally:
        os.chdir(before)


ODDITIES: dict[str, Callable[[Path], None]] = {
    "a pipe": os.mkfifo,
    "a folder": lambda place: place.mkdir(),
    "a socket": _socket,
    "a loop of links": lambda place: place.symlink_to(place),
}


@pytest.mark.parametrize("what", ODDITIES)
def test_what_is_no_regular_file_is_refused_at_once(
    what: str, any_reading: Reading, table: Path
) -> None:
    ODDITIES[what](table / NAME)
    with refused(BrokenLog, "NoRegularFile", match="no regular file") as caught:
        any_reading(LocalStore(str(table)), NAME)
    assert "one.ndjson" in str(caught.value)


@pytest.mark.parametrize("target", ["/dev/zero", "/dev/null"])
def test_a_link_to_a_device_is_refused(target: str, any_reading: Reading, table: Path) -> None:
    (table / NAME).symlink_to(target)
    with pytest.raises(BrokenLog):
        any_reading(LocalStore(str(table)), NAME)


def test_a_link_that_leads_out_of_the_table_is_refused(
    any_reading: Reading, table: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("root:x:0")
    (table / NAME).symlink_to(tmp_path / "secret")
    with refused(BrokenLog, "PathOutsideTable", match="leads out of") as caught:
        any_reading(LocalStore(str(table)), NAME)
    assert "secret" not in str(caught.value)


def test_a_linked_folder_that_leads_out_of_the_table_is_refused(
    reading: Reading, table: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "roots" / "t2"
    outside.mkdir()
    (outside / "f").write_text("x")
    (table / "part").symlink_to(outside)
    with pytest.raises(BrokenLog, match="leads out of"):
        reading(LocalStore(str(table)), "part/f")


def test_a_link_within_the_table_is_followed(reading: Reading, table: Path) -> None:
    (table / "there").write_text("x")
    (table / NAME).symlink_to(table / "there")
    reading(LocalStore(str(table)), NAME)


@pytest.mark.parametrize("part", ["x" * 300, "file/below"])
def test_a_name_that_no_file_can_have_is_not_there(part: str, table: Path) -> None:
    (table / "file").write_text("x")
    store = LocalStore(str(table))
    assert store.read(part) is None
    with pytest.raises(FileNotFoundError):
        store.open(part)


# Links above the root are the operator's choice


def test_a_root_below_a_linked_folder_is_served(table: Path, tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to(tmp_path / "roots")
    (table / NAME).write_text("x")
    store = LocalStore(str(tmp_path / "data" / "t"), within=(f"file://{tmp_path}/data",))
    assert store.read(NAME) == b"x"
    assert store.put_if_absent(VERSION, b"{}", 5.0) is Put.WON
    assert [file.path for file in store.list_from("_delta_log", "")] == [VERSION]
    store.delete(VERSION)
    assert not (table / VERSION).exists()


def test_a_table_that_is_moved_and_linked_to_is_served_on(table: Path, tmp_path: Path) -> None:
    (table / NAME).write_text("x")
    store = LocalStore(str(table))
    assert store.read(NAME) == b"x"
    table.rename(tmp_path / "elsewhere")
    table.symlink_to(tmp_path / "elsewhere")
    assert store.read(NAME) == b"x"


# A root that resolves outside the operator's allowed roots

DOINGS: dict[str, Callable[[LocalStore], object]] = {
    "list": lambda store: list(store.list_from("_delta_log", "")),
    "read": lambda store: store.read(NAME),
    "open": lambda store: store.open(NAME),
    "put": lambda store: store.put(NAME, b"x"),
    "put if absent": lambda store: store.put_if_absent(VERSION, b"x", 5.0),
    "delete": lambda store: store.delete(NAME),
}


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("doing", DOINGS)
def test_nothing_is_done_in_a_root_that_leads_out_of_the_allowed_ones(
    doing: str, is_late: bool, table: Path, tmp_path: Path
) -> None:
    store = LocalStore(str(table), within=(f"file://{tmp_path}/roots/",))
    if is_late:
        store.put("before", b"x")
        store.put(f"{NAME}.before", b"x")
        list(store.list_from("_delta_log", ""))
    outside = tmp_path / "outside"
    table.rename(outside)
    (outside / NAME).write_text("x")
    before = sorted(outside.rglob("*"))
    table.symlink_to(outside)
    with refused(InvalidRequest, "root_not_allowed", match=r"committer\.roots"):
        DOINGS[doing](store)
    assert sorted(outside.rglob("*")) == before


def test_a_table_is_not_created_behind_a_link(tmp_path: Path) -> None:
    outside, roots = tmp_path / "outside", tmp_path / "roots"
    outside.mkdir()
    roots.mkdir()
    (roots / "link").symlink_to(outside)
    store = LocalStore(str(roots / "link" / "t"), within=(f"file://{roots}",))
    with pytest.raises(InvalidRequest):
        store.put_if_absent(VERSION, b"x", 5.0)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("doing", ["list", "put", "put if absent", "delete"])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_folder_of_the_table_that_leads_elsewhere_is_neither_listed_nor_written(
    doing: str, is_late: bool, table: Path, tmp_path: Path
) -> None:
    store = LocalStore(str(table))
    if is_late:
        store.put(NAME, b"x")
        store.put(VERSION, b"x")
        list(store.list_from("_delta_log", ""))
        store.delete(VERSION)
        store.delete(NAME)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "one.ndjson").write_text("x")
    for name in ("_tidegate", "_delta_log"):
        if (table / name).exists():
            (table / name).rename(tmp_path / name)
    (table / "_tidegate").mkdir()
    (table / "_tidegate" / "proposals").symlink_to(outside)
    (table / "_delta_log").symlink_to(outside)
    with pytest.raises(BrokenLog, match="leads out of"):
        DOINGS[doing](store)
    assert [path.name for path in outside.iterdir()] == ["one.ndjson"]


@pytest.mark.parametrize("what", ODDITIES)
def test_a_version_whose_name_is_not_a_file_is_an_error(what: str, table: Path) -> None:
    (table / "_delta_log").mkdir()
    ODDITIES[what](table / VERSION)
    with pytest.raises(BrokenLog, match="no regular file"):
        LocalStore(str(table)).put_if_absent(VERSION, b"x", 5.0)


@pytest.mark.parametrize("what", ODDITIES)
def test_what_stands_for_a_checkpoint_is_passed_over_and_for_a_commit_breaks_the_log(
    what: str, table: Path
) -> None:
    store = LocalStore(str(table))
    store.put(VERSION, to_bytes(creation()))
    ODDITIES[what](table / "_delta_log" / f"{0:020d}.checkpoint.parquet")
    assert open_snapshot(store).version == 0
    ODDITIES[what](table / "_delta_log" / "_last_checkpoint")
    with pytest.raises(BrokenLog, match="no regular file"):
        open_snapshot(store)
