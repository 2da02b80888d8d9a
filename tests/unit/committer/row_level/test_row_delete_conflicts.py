"""Deletes and updates of rows of one file: all commit where the rows differ, none is lost."""

from typing import Any
from uuid import UUID

import pytest

from tests.builders import (
    ROOT,
    Gate,
    add,
    info,
    metadata,
    proposal,
    protocol,
    remove,
    row_delete,
    rows_of,
    to_bytes,
)
from tests.checkpoints import put_classic
from tests.fakes.memory_store import MemoryStore
from tests.support.other_engines import write
from tests.support.outcomes import rejection_of, rules_of
from tests.support.row_deletes import FEATURE, IN_THE_LOG, NAMES, ON, begun, gone, vector
from tests.support.stores import store_of
from tests.support.tables import creating
from tidegate_committer.store_reads import read_cache
from tidegate_delta.deletion_vectors.descriptors import in_file, inline
from tidegate_delta.deletion_vectors.roaring_bitmap import of_rows
from tidegate_delta.log.actions import DeletionVector
from tidegate_delta.log.file_names import Version, commit_name, in_log
from tidegate_messages.proposal import Operation, Predicate, ReadSet
from tidegate_runtime.storage.log_store import Put, Turn, at_once
from tidegate_runtime.table_io.checkpoint_writer import move_hint_forward
from tidegate_runtime.table_io.deletion_vector_reader import read_vector
from tidegate_runtime.table_io.open_table import open_snapshot

NOTHING_READ = {"reads": ReadSet()}


def rule_for(gate: Gate, *intents: Any, **fields: Any) -> str:
    [outcome] = gate.ask(row_delete(*intents, **{"read_version": 1, **fields}))
    return rules_of([outcome])[0]


def test_deletes_of_different_rows_share_one_entry_and_one_vector(gate: Gate) -> None:
    result = gate.ask(*(row_delete(rows_of("a", [row]), read_version=1) for row in range(5)))
    assert [(item.status, item.version, item.sub_index) for item in result] == [
        ("committed", 2, place) for place in range(5)
    ]
    assert gone(gate, "a") == [0, 1, 2, 3, 4]
    assert result[0].assigned["rows_deleted"] == 1
    assert result[0].assigned["deletion_vectors"] == {"a": vector(0, 1, 2, 3, 4)}


def test_rows_that_another_engine_deleted_are_kept(gate: Gate) -> None:
    write(gate, 2, remove("a"), add("a", deletionVector=vector(1)))
    assert rule_for(gate, rows_of("a", [2])) == "committed"
    assert gone(gate, "a") == [1, 2]
    [removed] = [row["remove"] for row in gate.entries()[3] if "remove" in row]
    assert removed["deletionVector"] == vector(1)


def test_what_is_known_of_a_file_is_forgotten_when_others_revise_it(gate: Gate) -> None:
    assert rule_for(gate, rows_of("a", [0])) == "committed"
    write(gate, 3, remove("a", deletionVector=vector(0)), add("a", deletionVector=vector(0, 1)))
    assert rule_for(gate, rows_of("a", [2])) == "committed"
    assert gone(gate, "a") == [0, 1, 2]


def test_deletes_go_on_where_less_is_kept_of_files_and_vectors(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_cache, "FILES_MAX", 1)
    monkeypatch.setattr(read_cache, "VECTOR_BYTES_MAX", 1)
    for row in (1, 2):
        assert rule_for(gate, rows_of("a", [row])) == "committed"
        assert rule_for(gate, rows_of("b", [row])) == "committed"
    held = gate.table_committer().cache.read_cache
    assert max(len(held._files), len(held._growths), len(held._rows)) <= 1
    assert (gone(gate, "a"), gone(gate, "b")) == ([1, 2], [1, 2])


def test_a_vector_that_could_not_be_read_is_read_again(gate: Gate) -> None:
    content, [stored] = in_file([of_rows([4])], UUID(int=9))
    result = stored.model_dump(by_alias=True, exclude_none=True)
    write(gate, 2, remove("a"), add("a", deletionVector=result))
    assert rule_for(gate, rows_of("a", [5])) == "vector_unreadable"
    gate.stores[ROOT].put(f"deletion_vector_{UUID(int=9)}.bin", content)
    assert rule_for(gate, rows_of("a", [5])) == "committed"
    assert gone(gate, "a") == [4, 5]


def test_a_vector_in_a_file_is_read(gate: Gate) -> None:
    content, [stored] = in_file([of_rows([4])], UUID(int=9))
    gate.stores[ROOT].put(f"deletion_vector_{UUID(int=9)}.bin", content)
    result = stored.model_dump(by_alias=True)
    write(gate, 2, remove("a"), add("a", deletionVector=result))
    assert rule_for(gate, rows_of("a", [5])) == "committed"
    assert gone(gate, "a") == [4, 5]
    assert rule_for(gate, rows_of("a", [6], base=stored.unique_id), read_version=2) == "committed"
    assert gone(gate, "a") == [4, 5, 6]


def test_rows_proposed_in_a_file_are_read(gate: Gate) -> None:
    content, [stored] = in_file([of_rows([4, 5])], UUID(int=9))
    gate.stores[ROOT].put(f"deletion_vector_{UUID(int=9)}.bin", content)
    one = rows_of("a", [1], rows=stored.model_dump(by_alias=True))
    assert rule_for(gate, one) == "committed"
    assert gone(gate, "a") == [4, 5]


def test_where_a_vector_is_lost_no_row_of_its_file_is_deleted(gate: Gate) -> None:
    _, [stored] = in_file([of_rows([4])], UUID(int=9))
    write(gate, 2, remove("a"), add("a", deletionVector=stored.model_dump(by_alias=True)))
    assert rule_for(gate, rows_of("a", [5])) == "vector_unreadable"
    assert rule_for(gate, rows_of("a", [5]), **NOTHING_READ) == "vector_unreadable"
    assert rule_for(gate, rows_of("a", [5], base=stored.unique_id), read_version=2) == (
        "vector_unreadable"
    )
    assert rule_for(gate, rows_of("b", [5])) == "committed"


def test_deleting_deleted_rows_changes_nothing_and_is_answered_so(gate: Gate) -> None:
    result = gate.ask(
        row_delete(rows_of("a", [1, 2]), read_version=1),
        row_delete(rows_of("a", [2, 3]), read_version=1),
    )
    assert [item.assigned["rows_deleted"] for item in result] == [2, 1]
    [nothing] = gate.ask(row_delete(rows_of("a", [1, 3]), read_version=1))
    assert nothing.status == "committed"
    assert nothing.assigned == {"deletion_vectors": {}, "rows_deleted": 0}
    assert not any("add" in row or "remove" in row for row in gate.entries()[3])
    assert gone(gate, "a") == [1, 2, 3]
    reads = ReadSet(files=("a",))
    assert rule_for(gate, rows_of("b", [1]), reads=reads, read_version=2) == "committed"


@pytest.mark.parametrize("alone", [True, False])
def test_a_row_is_updated_once(gate: Gate, alone: bool) -> None:
    first = row_delete(rows_of("a", [1, 2], op="update"), read_version=1)
    second = row_delete(rows_of("a", [0, 2], op="update"), read_version=1)
    third = row_delete(rows_of("a", [3], op="update"), read_version=1)
    result = [gate.ask(item)[0] for item in (first, second, third)]
    if not alone:
        gate = begun()
        result = gate.ask(first, second, third)
    assert rules_of(result) == ["committed", "concurrent_row_delete", "committed"]
    assert gone(gate, "a") == [1, 2, 3]
    assert rejection_of(result[1]).path == "a"
    assert "row 2" in rejection_of(result[1]).reason


def test_who_deleted_rows_of_a_file_is_named_where_nobody_else_of_the_entry_did(gate: Gate) -> None:
    first, second, third = (
        row_delete(rows_of("a", [1]), rows_of("b", [1]), read_version=1),
        row_delete(rows_of("a", [2]), read_version=1),
        row_delete(rows_of("wide", [2], num_records=200_000), read_version=1),
    )
    assert [item.version for item in gate.ask(first, second, third)] == [2, 2, 2]
    named = []
    for path in ("a", "b", "wide"):
        [result] = gate.ask(proposal(remove(path), reads=ReadSet(files=(path,)), read_version=1))
        assert result.rejection is not None
        assert (result.rejection.winner_version, result.rejection.path) == (2, path)
        named.append(result.rejection.winner_proposal_id)
    assert named == [None, str(first.proposal_id), str(third.proposal_id)]


def test_proposals_that_need_lost_rows_conflict_with_their_deletes(gate: Gate) -> None:
    sensitive = {"reads": ReadSet(files=("a",))}
    assert rule_for(gate, rows_of("a", [1])) == "committed"
    assert rule_for(gate, rows_of("a", [2]), **sensitive) == "concurrent_delete_read"
    elsewhere = {"reads": ReadSet(files=("b",))}
    assert rule_for(gate, rows_of("a", [2]), **elsewhere) == "committed"
    assert rule_for(gate, rows_of("a", [2]), **NOTHING_READ) == "concurrent_row_delete"
    assert rule_for(gate, rows_of("a", [3]), **NOTHING_READ) == "committed"


def test_deletes_with_files_or_changes_do_not_publish_a_row_twice(gate: Gate) -> None:
    assert rule_for(gate, rows_of("a", [1])) == "committed"
    reads = ReadSet(files=("a",), delete_insensitive=True)
    one = proposal(add("c"), read_version=1, reads=reads, dv_intents=(rows_of("a", [1]),))
    assert rules_of(gate.ask(one)) == ["concurrent_row_delete"]


def test_ignoring_lost_rows_covers_the_whole_table(gate: Gate) -> None:
    everything = {"reads": ReadSet(whole_table=True, delete_insensitive=True)}
    write(gate, 2, remove("a"), add("a", deletionVector=vector(1)))
    assert rule_for(gate, rows_of("b", [1]), **everything) == "committed"
    assert rule_for(gate, rows_of("b", [2]), **everything) == "committed"
    assert rule_for(gate, rows_of("a", [3]), **everything) == "committed"
    gate.ask(proposal(remove("wide"), read_version=1, **NOTHING_READ))
    assert rule_for(gate, rows_of("b", [3]), **everything) == "concurrent_delete_read"


def test_rows_of_a_file_that_is_gone_are_not_deleted(gate: Gate) -> None:
    assert rules_of(gate.ask(proposal(remove("a"), read_version=1, **NOTHING_READ))) == [
        "committed"
    ]
    assert rule_for(gate, rows_of("a", [1])) == "concurrent_delete_read"
    assert rule_for(gate, rows_of("a", [1]), **NOTHING_READ) == "concurrent_row_delete"
    assert rule_for(gate, rows_of("a", [1]), read_version=2) == "file_not_live"


def test_rows_that_came_back_are_a_conflict(gate: Gate) -> None:
    write(gate, 2, remove("a"), add("a", deletionVector=vector(1, 2)))
    write(gate, 3, remove("a", deletionVector=vector(1, 2)), add("a", deletionVector=vector(2)))
    one = rows_of("a", [5], base=inline(of_rows([1, 2])).unique_id)
    assert rule_for(gate, one, read_version=2, **NOTHING_READ) == "concurrent_row_delete"
    assert rule_for(gate, one, read_version=2) == "concurrent_delete_read"
    assert rule_for(
        gate, rows_of("a", [5], base=inline(of_rows([2])).unique_id), read_version=3
    ) == ("committed")


def test_a_file_whose_last_row_goes_leaves(gate: Gate) -> None:
    result = gate.ask(
        row_delete(rows_of("a", range(5)), read_version=1),
        row_delete(rows_of("a", range(5, 10)), read_version=1),
    )
    assert rules_of(result) == ["committed", "committed"]
    assert gone(gate, "a") is None
    assert result[0].assigned["deletion_vectors"] == {"a": None}
    assert rule_for(gate, rows_of("a", [1]), **NOTHING_READ) == "concurrent_row_delete"


def test_images_of_updated_rows_are_appends_for_others(gate: Gate) -> None:
    stats = '{"numRecords":1,"minValues":{"x":50},"maxValues":{"x":50},"nullCount":{"x":0}}'
    update = proposal(
        add("image", stats=stats),
        read_version=1,
        reads=ReadSet(files=("a",), delete_insensitive=True),
        dv_intents=(rows_of("a", [1], op="update"),),
        operation=Operation(name="UPDATE"),
    )

    def deleting(value: int, row: int) -> Any:
        where: Predicate = {"op": "=", "column": ["x"], "value": value, "type": "long"}
        reads = ReadSet(files=("a",), predicates=(where,), delete_insensitive=True)
        return row_delete(rows_of("a", [row]), read_version=1, reads=reads)

    result = gate.ask(update, deleting(50, 2), deleting(51, 3))
    assert rules_of(result) == ["committed", "concurrent_append", "committed"]
    assert rules_of(gate.ask(deleting(50, 4), deleting(51, 5))) == [
        "concurrent_append",
        "committed",
    ]
    assert gone(gate, "a") == [1, 3, 5]


@pytest.mark.parametrize(
    ("intent", "read_version", "rule"),
    [
        (rows_of("nowhere", [1]), 1, "file_not_live"),
        (rows_of("a", [1], base="ux"), 1, "other_vector"),
        (rows_of("a", [1]), 2, "other_vector"),
        (rows_of("a", [1], num_records=11), 1, "rows_out_of_range"),
        (rows_of("a", [1], num_records=9), 1, "rows_out_of_range"),
        (rows_of("silent", [1]), 2, "no_row_count"),
        (rows_of("a", [5], base=inline(of_rows([5])).unique_id), 2, "rows_deleted_before"),
    ],
)
def test_rows_that_are_not_the_files_are_refused(
    gate: Gate, intent: Any, read_version: int, rule: str
) -> None:
    write(gate, 2, remove("a"), add("a", deletionVector=vector(5)), add("silent", stats=None))
    assert rule_for(gate, intent, read_version=read_version, **NOTHING_READ) == rule
    later = [row for entry in gate.entries()[3:] for row in entry]
    assert not any("add" in row or "remove" in row for row in later)


@pytest.mark.parametrize(
    ("properties", "rule"),
    [
        ({}, "deletion_vectors_off"),
        ({"enableDeletionVectors": "false"}, "deletion_vectors_off"),
        ({"appendOnly": "true", **ON}, "append_only"),
    ],
)
def test_a_table_that_takes_no_vectors_gets_none(properties: dict[str, str], rule: str) -> None:
    gate = Gate(IN_THE_LOG)
    create = creating(
        protocol(3, 7, readerFeatures=NAMES, writerFeatures=[*NAMES, "appendOnly"]),
        metadata(**properties),
    )
    assert rules_of(gate.ask(create, proposal(add("a")))) == ["committed", "committed"]
    assert rule_for(gate, rows_of("a", [1])) == rule


@pytest.mark.parametrize("names", [[], NAMES])
def test_who_turns_vectors_off_brings_none(gate: Gate, names: list[str]) -> None:
    listed = protocol(3, 7, readerFeatures=names, writerFeatures=names)
    result = row_delete(rows_of("a", [1]), read_version=1, operation=Operation(name="DROP FEATURE"))
    one = result.model_copy(update={"actions": (*([] if names else [listed]), metadata())})
    assert rules_of(gate.ask(one)) == ["deletion_vectors_off"]


def test_no_rows_are_deleted_from_a_table_that_is_not_there() -> None:
    gate = Gate(IN_THE_LOG)
    reads = ReadSet(delete_insensitive=True)
    rows = (FEATURE, metadata(**ON))
    one = proposal(*rows, read_version=-1, reads=reads, dv_intents=(rows_of("a", [1]),))
    assert rules_of(gate.ask(one)) == ["file_not_live"]


def test_a_restart_goes_on_with_the_same_vectors(gate: Gate) -> None:
    wide = {"num_records": 200_000}
    some = range(0, 4_000, 4)
    assert rule_for(gate, rows_of("wide", some, **wide), rows_of("a", [1])) == "committed"
    gate.restart()
    assert rule_for(gate, rows_of("wide", [1], **wide), rows_of("a", [2])) == "committed"
    assert gone(gate, "wide") == sorted([*some, 1])
    assert gone(gate, "a") == [1, 2]


class _Counting(MemoryStore):
    """Counts reads and writes."""

    reads: list[str]
    puts: list[str]

    def __init__(self) -> None:
        super().__init__(ROOT)
        self.reads, self.puts = [], []
        self.loses_next = False

    def read(self, path: str) -> bytes | None:
        self.reads.append(path)
        return super().read(path)

    def put_if_absent(
        self, path: str, content: bytes, deadline_s: float, turn: Turn = at_once
    ) -> Put:
        self.puts.append(path)
        if self.loses_next and path.endswith(".json"):
            self.loses_next = False
            others = [info("DELETE"), remove("b"), add("b", deletionVector=vector(0))]
            self.files[path] = to_bytes(others)
        return super().put_if_absent(path, content, deadline_s)


@pytest.mark.usefixtures("no_audit")
def test_deletes_of_a_known_file_read_nothing_and_put_once() -> None:
    store = _Counting()
    gate = begun(Gate(IN_THE_LOG, stores={ROOT: store}))
    wide = {"num_records": 200_000}
    rule_for(gate, rows_of("a", [0]), rows_of("wide", range(0, 2_000, 2), **wide))
    store.reads.clear()
    store.puts.clear()
    for row in range(1, 6):
        assert rule_for(gate, rows_of("a", [row])) == "committed"
    assert store.reads == []
    assert len(store.puts) == 5
    assert rule_for(gate, rows_of("wide", [1], **wide)) == "committed"
    assert store.reads == []
    assert len(store.puts) == 7


@pytest.mark.usefixtures("no_audit")
def test_by_default_every_vector_lies_in_a_file_that_delta_sparks_vacuum_knows() -> None:
    store = _Counting()
    gate = begun(Gate(stores={ROOT: store}))
    rule_for(gate, rows_of("a", [0]))
    store.reads.clear()
    store.puts.clear()
    assert rule_for(gate, rows_of("a", [1])) == "committed"
    assert store.reads == [], "what the gate wrote is known"
    assert len(store.puts) == 2
    [file] = [row["add"] for row in gate.entries()[-1] if "add" in row]
    assert file["deletionVector"]["storageType"] == "u"
    assert file["deletionVector"]["cardinality"] == 2


def test_a_lost_race_is_decided_anew_and_its_vector_file_is_never_used() -> None:
    store = _Counting()
    gate = begun(Gate(IN_THE_LOG, stores={ROOT: store}))
    wide = {"num_records": 200_000}
    store.loses_next = True
    store.puts.clear()
    one = (rows_of("wide", range(0, 2_000, 2), **wide), rows_of("b", [1]))
    assert rule_for(gate, *one) == "committed"
    assert gone(gate, "b") == [0, 1]
    assert gone(gate, "wide") == list(range(0, 2_000, 2))
    files = [path for path in store.puts if path.startswith("deletion_vector_")]
    assert len(set(files)) == 2
    [added] = [row["add"] for row in gate.entries()[-1] if row.get("add", {}).get("path") == "wide"]
    used = DeletionVector.model_validate(added["deletionVector"])
    assert read_vector(store, used) == of_rows(range(0, 2_000, 2))
    store.files.pop(files[0])
    assert gone(gate, "wide") == list(range(0, 2_000, 2))


def test_too_much_to_compare_is_refused(gate: Gate) -> None:
    _, [stored] = in_file([of_rows([4])], UUID(int=9))
    heavy = {**stored.model_dump(by_alias=True), "sizeInBytes": 2**27}
    write(gate, 2, remove("a"), add("a", deletionVector=heavy))
    assert rule_for(gate, rows_of("a", [5])) == "too_large"
    assert rule_for(gate, rows_of("b", [5])) == "committed"


def test_rows_leave_a_file_whose_commit_was_cleaned_up_since(gate: Gate) -> None:
    store = store_of(gate)
    move_hint_forward(store, put_classic(store, open_snapshot(store, Version(1)), 0))
    for version in (0, 1):
        store.delete(in_log(commit_name(version)))
    [result] = gate.ask(row_delete(rows_of("a", [1]), read_version=1))
    assert (result.status, result.version) == ("committed", 2)
