"""`tidegate table fsck`: each kind of damage to a real table is found, named and, if it can be,
repaired.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner, Result

from tests.checkpoints import put_classic
from tests.support.delta_logs import NOW_MS, delete_commits, log_folder
from tests.unit.cdc_publisher.written_table import WrittenTable, rows
from tidegate_checkpointer.cli import table_commands
from tidegate_checkpointer.fsck import CheckRequest, check_log
from tidegate_delta.deletion_vectors.descriptors import placed
from tidegate_delta.deletion_vectors.roaring_bitmap import of_rows
from tidegate_delta.log.commit import sha256
from tidegate_delta.log.file_names import checkpoint_name, checksum_name, commit_name
from tidegate_messages.published_records import CommittedFile
from tidegate_runtime.storage.local_store import LocalStore
from tidegate_runtime.table_io.checkpoint_writer import move_hint_forward
from tidegate_runtime.table_io.open_table import open_snapshot

Damage = Callable[[WrittenTable], None]


@pytest.fixture
def table(tmp_path: Path) -> WrittenTable:
    """A table of twelve versions with a file of deletion vectors, and checkpoints of 5 and 10."""
    table = WrittenTable(tmp_path / "t").create()
    table.allow_vectors()
    for version in range(10):
        table.append(rows(10 * version, 10 * version + 1))
    table.mask(11)
    store = LocalStore(table.root)
    for version in (5, 10):
        hint = put_classic(store, open_snapshot(store, version), NOW_MS)
        move_hint_forward(store, hint)
    return table


def run(table: WrittenTable, *arguments: str) -> Result:
    return CliRunner().invoke(table_commands.app, ["fsck", table.root, "--offline", *arguments])


def findings(table: WrittenTable, *arguments: str) -> list[dict[str, Any]]:
    result = run(table, "--json", *arguments)
    assert result.exit_code in (0, 1), result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)["findings"]
    assert (result.exit_code == 1) == bool([item for item in found if not item["repair"]] or found)
    return found


def kinds_found(table: WrittenTable) -> list[str]:
    return [finding["kind"] for finding in findings(table)]


def data_file(table: WrittenTable, place: int = 0) -> Path:
    return table.folder / list(table.files)[place]


def lose_a_file(table: WrittenTable) -> None:
    data_file(table).unlink()


def lengthen_a_file(table: WrittenTable) -> None:
    data_file(table).write_bytes(data_file(table).read_bytes() + b"more")


def replace_a_file(table: WrittenTable) -> None:
    content, size = data_file(table, 1).read_bytes(), data_file(table).stat().st_size
    data_file(table).write_bytes(b"PAR1" + content[4:size].ljust(size - 4, b"?"))


def tear_a_checkpoint(table: WrittenTable) -> None:
    path = log_folder(table) / checkpoint_name(10)
    path.write_bytes(path.read_bytes()[:-20])


def forge_a_checkpoint(table: WrittenTable) -> None:
    (log_folder(table) / checkpoint_name(10)).write_bytes(
        (log_folder(table) / checkpoint_name(5)).read_bytes()
    )


def turn_the_hint_back(table: WrittenTable) -> None:
    hint = json.loads((log_folder(table) / "_last_checkpoint").read_bytes())
    hint["version"] = 5
    del hint["checksum"]
    (log_folder(table) / "_last_checkpoint").write_text(json.dumps(hint))


def forge_a_checksum(table: WrittenTable) -> None:
    (log_folder(table) / checksum_name(table.version)).write_text(
        '{"tableSizeBytes":1,"numFiles":1}'
    )


def tear_a_checksum(table: WrittenTable) -> None:
    (log_folder(table) / checksum_name(table.version)).write_text('{"tableSi')


def lose_a_commit(table: WrittenTable) -> None:
    (log_folder(table) / commit_name(7)).unlink()


def tear_a_commit(table: WrittenTable) -> None:
    path = log_folder(table) / commit_name(3)
    path.write_bytes(path.read_bytes()[:-9])


DAMAGES: dict[Damage, tuple[str, bool]] = {
    lose_a_file: ("missing_file", True),
    lengthen_a_file: ("wrong_size", False),
    replace_a_file: ("unreadable_file", False),
    tear_a_checkpoint: ("torn_checkpoint", True),
    forge_a_checkpoint: ("lying_checkpoint", True),
    turn_the_hint_back: ("stale_hint", True),
    forge_a_checksum: ("lying_checksum", False),
    tear_a_checksum: ("lying_checksum", True),
    lose_a_commit: ("gap", False),
    tear_a_commit: ("unreadable_commit", False),
}
"""A damage -> the kind of the finding, and whether it can be repaired."""


def test_a_sound_table_has_no_findings(table: WrittenTable) -> None:
    assert findings(table, "--all-checkpoints") == []
    result = run(table)
    assert result.exit_code == 0
    assert "nothing is wrong with" in result.stdout
    assert "checking 10 live files" in result.stderr


def test_the_only_checkpoint_after_a_cleanup_is_no_finding(table: WrittenTable) -> None:
    delete_commits(table, below=10)
    (log_folder(table) / checkpoint_name(5)).unlink()
    assert findings(table, "--all-checkpoints") == []


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__name__)
def test_each_damage_is_found_with_its_remedy(table: WrittenTable, damage: Damage) -> None:
    damage(table)
    kind, can_repair = DAMAGES[damage]
    result = findings(table)
    assert kind in [item["kind"] for item in result]
    one = next(one for one in result if one["kind"] == kind)
    assert (one["repair"] is not None) == can_repair
    printed = run(table)
    assert printed.exit_code == 1
    assert f"{kind}: {one['about']}: " in printed.stdout
    assert "  do: " in printed.stdout


@pytest.mark.parametrize(
    "damage",
    [tear_a_checkpoint, forge_a_checkpoint, turn_the_hint_back, tear_a_checksum],
    ids=lambda one: one.__name__,
)
def test_damaged_files_of_the_log_are_repaired_and_the_table_reads_as_before(
    table: WrittenTable, damage: Damage
) -> None:
    before = sorted(DeltaTable(table.root).file_uris())
    damage(table)
    result = run(table, "--repair")
    assert result.exit_code == 0, result.output
    assert "repaired: " in result.stdout
    assert findings(table) == []
    assert sorted(DeltaTable(table.root).file_uris()) == before


def test_a_hint_to_a_checkpoint_that_is_gone_is_deleted_for_delta_rs(table: WrittenTable) -> None:
    tear_a_checkpoint(table)
    (log_folder(table) / checkpoint_name(5)).unlink()
    assert kinds_found(table) == ["torn_checkpoint", "stale_hint"]
    assert "_last_checkpoint is deleted" in run(table, "--repair").stdout
    assert len(DeltaTable(table.root).file_uris()) == 10
    assert findings(table) == []


def test_a_checkpoint_that_nothing_can_replace_stays(table: WrittenTable) -> None:
    tear_a_checkpoint(table)
    delete_commits(table, below=6)
    (log_folder(table) / checkpoint_name(5)).unlink()
    lacking = run(table, "--repair")
    assert lacking.exit_code != 0
    assert (log_folder(table) / checkpoint_name(10)).exists()


def test_missing_files_need_a_commit_and_so_the_broker(table: WrittenTable) -> None:
    lose_a_file(table)
    result = run(table, "--repair")
    assert result.exit_code == 2
    assert "taking them out of the table needs a commit" in result.stderr


def test_a_commit_that_is_not_what_the_committer_wrote_is_found(table: WrittenTable) -> None:
    store, path = LocalStore(table.root), log_folder(table) / commit_name(3)
    own = CommittedFile(version=3, sha256=sha256(path.read_bytes()))
    request = CheckRequest(NOW_MS, committed=own)
    assert list(check_log(store, request, lambda _: None)) == []
    path.write_bytes(path.read_bytes().replace(b'"WRITE"', b'"MERGE"'))
    kinds = [item.kind for item in check_log(store, request, lambda _: None)]
    assert kinds == ["overwritten_commit"]


def test_rows_that_statistics_state_wrongly_are_found(table: WrittenTable) -> None:
    path = log_folder(table) / commit_name(4)
    path.write_text(path.read_text().replace('numRecords\\": 2', 'numRecords\\": 3'))
    (log_folder(table) / checkpoint_name(5)).unlink()
    (log_folder(table) / checkpoint_name(10)).unlink()
    (log_folder(table) / "_last_checkpoint").unlink()
    if '"numRecords' not in path.read_text().replace("\\", ""):
        pytest.fail("the table's files state no numRecords")
    assert kinds_found(table) == ["wrong_row_count"]
    assert findings(table, "--footers", "0") == []


def test_a_missing_or_damaged_file_of_deletion_vectors_is_named(table: WrittenTable) -> None:
    [vector], stored = placed([of_rows([1])], UUID(int=7), 0)
    assert stored is not None
    path, content = stored
    (table.folder / path).write_bytes(content)
    name = next(iter(table.files))
    size = (table.folder / name).stat().st_size
    body = {"path": name, "partitionValues": {}, "size": size, "dataChange": True}
    result = vector.model_dump(by_alias=True, exclude_none=True)
    stats = json.dumps({"numRecords": 2})
    added = {**body, "modificationTime": 0, "deletionVector": result, "stats": stats}
    table.commit("DELETE", {"remove": {**body, "deletionTimestamp": NOW_MS}}, {"add": added})
    assert findings(table) == []
    (table.folder / path).write_bytes(content[:-4] + b"torn")
    assert kinds_found(table) == ["broken_vector"]
    (table.folder / path).unlink()
    [one] = findings(table)
    assert (one["kind"], one["about"], one["repair"]) == ("broken_vector", path, None)
