"""Files of tables below a root, on stores that list folders and on flat ones."""

from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest

from tests.builders import add, metadata, protocol, remove, to_bytes
from tests.fakes.memory_store import MemoryStore
from tests.support.refusals import refused
from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.table_files import (
    list_own_files,
    named_by_tables_below,
    without_tables,
)


@pytest.fixture(params=["folders", "flat"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> LogStore:
    return LocalStore(str(tmp_path)) if request.param == "folders" else MemoryStore()


def write_table(store: LogStore, folder: str, *names: str) -> None:
    prefix = f"{folder}/" if folder else ""
    # The data comes first, as in a listing in the order of names.
    for name in names:
        store.put(f"{prefix}{name.rpartition('://')[2].rpartition('/')[2]}", b"x")
    rows = [protocol(), metadata(), *map(add, names)]
    store.put(f"{prefix}{in_log(commit_name(0))}", to_bytes(rows))


def test_files_of_tables_below_at_any_depth_are_left_out(store: LogStore) -> None:
    write_table(store, "", "a")
    write_table(store, "archive", "0")
    write_table(store, "x/y/z", "b")
    store.put("x/y/own", b"x")
    store.put("archive/2024/deep", b"x")
    store.put("archived", b"x")
    listing = list_own_files(store, [])
    assert sorted(listing.files["path"].to_pylist()) == ["a", "archived", "x/y/own"]
    assert listing.tables_below == ("archive", "x/y/z")
    found = pa.table({"path": ["a", "archive/2024/deep", "archived", "x/y/own", "x/y/z/b"]})
    kept = without_tables(found, listing.tables_below)
    assert kept["path"].to_pylist() == ["a", "archived", "x/y/own"]


def test_a_shallow_clone_below_its_source_names_files_of_the_source(store: LogStore) -> None:
    write_table(store, "", "a", "b", "c")
    rows = [protocol(), metadata(), add(f"{store.root}/a"), remove(f"{store.root}/b"), add("c")]
    store.put("_dev/clone/_delta_log/00000000000000000000.json", to_bytes(rows))
    tables = list_own_files(store, []).tables_below
    assert tables == ("_dev/clone",)
    named = named_by_tables_below(store, tables)
    assert {root: paths.to_pylist() for root, paths in named.items()} == {
        f"{store.root}/_dev/clone": ["a", "b"]
    }


@pytest.mark.parametrize("name", ["sp ace", "sp%20ace", "ü#?"])
def test_a_clone_below_its_source_names_its_files_in_every_form_of_a_uri(
    tmp_path: Path, name: str
) -> None:
    store = LocalStore(str(tmp_path / name))
    place = quote(f"{tmp_path}/{name}")
    rows = [protocol(), metadata()]
    rows += [add(f"{store.root}/a%2520b"), add(f"file:{place}/c"), remove(f"{place}/d")]
    store.put("clone/_delta_log/00000000000000000000.json", to_bytes(rows))
    [(root, paths)] = named_by_tables_below(store, ["clone"]).items()
    assert root == f"{store.root}/clone"
    assert sorted(paths.to_pylist()) == ["a%20b", "c", "d"]


def test_a_table_below_that_cannot_be_read_is_named(store: LogStore) -> None:
    store.put("clone/_delta_log/00000000000000000000.json", b"{")
    with refused(BrokenLog, "TableBelowUnreadable", match="/clone lies below the table at"):
        named_by_tables_below(store, ["clone", "empty"])
