"""A clone that is made again brings what changed in its source, judged by the real committer."""

from pathlib import Path

import pytest

from tests.simulation.test_maintainers_that_die import ROWS, Sea, sea_of
from tidegate_delta.log.commit import Commit
from tidegate_producers.history.table_history import history
from tidegate_producers.options import for_writing
from tidegate_producers.writing.shallow_clone import CloneRequest, clone
from tidegate_runtime.client.client import Client
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.table_io.data_file_reader import read_table
from tidegate_runtime.table_io.open_table import open_snapshot


@pytest.fixture
def sea(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sea:
    sea = sea_of(tmp_path, 3, monkeypatch)
    root = (tmp_path / "clone").as_uri()
    sea.gate.stores[root] = LocalStore(root)
    return sea


def cloned(sea: Sea) -> Commit:
    """Clone the table, or do so again, and return the commit."""
    target = for_writing({"path": str(sea.root.with_name("clone"))})
    source = for_writing({"path": str(sea.root)})
    with Client(sea.gate.bus, sea.gate.topics) as client:
        outcome = clone(client, target, CloneRequest(source.place, replaces=True))
    assert outcome.status == "committed", outcome
    store = LocalStore(target.place.root)
    content = read_table(store, open_snapshot(store), ["k"])["k"].to_pylist()
    assert sorted(content) == sorted(sea.expected)
    assert outcome.version is not None
    name = f"_delta_log/{outcome.version:020d}.json"
    return Commit.decode(outcome.version, store.read(name) or b"")


def test_files_that_the_source_still_has_stay_in_a_clone(sea: Sea) -> None:
    assert len(cloned(sea).adds) == 3
    sea.delete("f-01.parquet", 4, ROWS + 4, 0)
    changed = cloned(sea)
    [left], [came] = changed.removes, changed.adds
    assert left.path == came.path == f"{sea.root.as_uri()}/f-01.parquet"
    assert left.deletion_vector is None
    assert came.deletion_vector is not None
    assert came.deletion_vector.cardinality == 1
    same = cloned(sea)
    assert (same.adds, same.removes) == ([], [])
    [entry] = history(LocalStore(sea.root.with_name("clone").as_uri()), limit=1)
    assert entry.metrics["sourceNumOfFiles"] == "3"
