"""Tables whose files have deletion vectors of other engines: the committer keeps them exact."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from tests.builders import (
    TABLE,
    Gate,
    Row,
    add,
    info,
    metadata,
    proposal,
    protocol,
    remove,
    to_bytes,
)
from tests.fakes.memory_store import MemoryStore
from tests.support.decisions import state_of
from tests.support.feature_rows import WIDE
from tests.support.other_engines import write
from tests.support.outcomes import rejection_of, rule_of, rules_of
from tests.support.tables import creating
from tidegate_committer.store_reads import recovery
from tidegate_delta.deletion_vectors.descriptors import in_file, inline, path_of
from tidegate_delta.deletion_vectors.roaring_bitmap import of_rows
from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Operation, Proposal, ReadSet

ROOT = "memory://tables/t"
NAMES = ["deletionVectors"]
FEATURE = protocol(3, 7, readerFeatures=NAMES, writerFeatures=NAMES)


def vector(name: str = "x", **changed: Any) -> Row:
    body = {"storageType": "u", "pathOrInlineDv": name, "offset": 1, "sizeInBytes": 34}
    return {**body, "cardinality": 1, **changed}


@pytest.fixture
def first_proposals() -> list[Proposal]:
    """A table of the files a and b."""
    created = creating(FEATURE, metadata(enableDeletionVectors="true"))
    return [created, proposal(add("a"), add("b"))]


@pytest.fixture
def after_first_proposals() -> Callable[[Gate], None]:
    """Delete a row of b as another engine."""
    return lambda gate: write(gate, 2, remove("b"), add("b", deletionVector=vector()))


def answer_to(gate: Gate, *rows: Row, read_version: int = 2) -> Outcome:
    reads = ReadSet(files=tuple(row["remove"]["path"] for row in rows if "remove" in row))
    [outcome] = gate.ask(proposal(*rows, read_version=read_version, reads=reads))
    return outcome


def test_a_file_leaves_with_the_vector_that_it_has(gate: Gate) -> None:
    outcome = answer_to(gate, remove("b", deletionVector=vector()), add("c"))
    assert outcome.status == "committed"
    [removed] = [row["remove"] for row in gate.entries()[3] if "remove" in row]
    assert removed["deletionVector"] == vector()
    assert rule_of(answer_to(gate, remove("b", deletionVector=vector()), read_version=3)) == (
        "removed_file_not_live"
    )


@pytest.mark.parametrize(
    "row",
    [
        remove("b"),
        remove("b", deletionVector=vector("y")),
        remove("b", deletionVector=vector(cardinality=2)),
        remove("b", deletionVector=vector(sizeInBytes=35)),
        remove("b", deletionVector=vector(offset=2)),
        remove("a", deletionVector=vector()),
    ],
)
def test_a_file_does_not_leave_with_another_vector(gate: Gate, row: Row) -> None:
    outcome = answer_to(gate, row)
    assert rule_of(outcome) == "removed_file_not_live"
    assert "deletion vector" in rejection_of(outcome).reason


def test_a_file_with_a_vector_is_not_added_again_without_it(gate: Gate) -> None:
    for row in (add("b"), add("b", dataChange=False)):
        assert rule_of(answer_to(gate, row)) == "added_file_live"


def new(**changed: Any) -> Row:
    return vector("0" * 20, **changed)


def stored(gate: Gate, *rows: int, number: int = 0) -> Row:
    """Write a file of one vector and return the vector's descriptor."""
    content, (result,) = in_file([of_rows(rows)], UUID(int=number))
    gate.stores[ROOT].put(path_of(result), content)
    return result.model_dump(by_alias=True, exclude_none=True)


def test_rows_are_deleted_by_a_vector_and_the_vector_by_another(gate: Gate) -> None:
    one, other = stored(gate, 3), stored(gate, 3, 4, number=1)
    first = answer_to(gate, remove("a"), add("a", deletionVector=one, stats=WIDE))
    assert first.status == "committed"
    second = answer_to(
        gate,
        remove("a", deletionVector=one),
        add("a", deletionVector=other, stats=WIDE),
        read_version=3,
    )
    assert second.status == "committed"
    assert state_of(gate).files["a"] == f"u{'0' * 19}1@1:{other['sizeInBytes']}:2"


def test_a_vector_is_read_before_it_is_believed(gate: Gate) -> None:
    def rule_for(wrong: Row) -> str:
        return rule_of(answer_to(gate, remove("a"), add("a", deletionVector=wrong, stats=WIDE)))

    right = stored(gate, 3, 4)
    assert rule_for(new()) == "vector_unreadable"
    assert rule_for({**right, "cardinality": 3}) == "vector_unreadable"
    assert rule_for({**right, "offset": 2}) == "vector_unreadable"
    assert rule_for(stored(gate, 10, number=2)) == "rows_out_of_range"
    inline_one = inline(of_rows([10])).model_dump(by_alias=True, exclude_none=True)
    assert rule_for(inline_one) == "rows_out_of_range"


def test_a_vector_that_is_there_already_is_not_read_again(gate: Gate) -> None:
    write(gate, 3, remove("b", deletionVector=vector()), add("b", deletionVector=new()))
    again = add("b", deletionVector=new(), stats=WIDE, dataChange=False)
    assert answer_to(gate, again, read_version=3).status == "committed"


@pytest.mark.parametrize(
    "folder", ["file:", "%2e%2e", "..\\x", "a#b", "_delta_log", ".git", "a b", "a\0b", "é"]
)
def test_a_vector_lies_in_a_folder_that_means_the_same_to_all(gate: Gate, folder: str) -> None:
    added = add("a", deletionVector=vector(folder + "0" * 20), stats=WIDE)
    assert rule_of(answer_to(gate, remove("a"), added)) == "bad_path"


def test_a_vector_is_added_only_to_a_file_that_leaves_with_the_one_it_has(gate: Gate) -> None:
    added = add("b", deletionVector=new(), stats=WIDE)
    assert rule_of(answer_to(gate, remove("b"), added)) == "removed_file_not_live"
    assert rule_of(answer_to(gate, added)) == "added_file_live"
    twice = add("b", deletionVector=new(), stats=WIDE)
    assert rule_of(answer_to(gate, remove("b", deletionVector=new()), twice)) == "duplicate_action"


def test_a_file_may_lose_its_vector(gate: Gate) -> None:
    assert answer_to(gate, remove("b", deletionVector=vector()), add("b")).status == "committed"
    assert state_of(gate).files["b"] is None


@pytest.mark.parametrize(
    ("stats", "why"),
    [
        (None, "vector_without_count"),
        ('{"numRecords":0,"tightBounds":false}', "vector_without_count"),
        ('{"numRecords":10}', "vector_with_tight_bounds"),
        ('{"numRecords":10,"tightBounds":true}', "vector_with_tight_bounds"),
    ],
)
def test_a_vector_needs_the_count_of_rows_and_wide_bounds(
    gate: Gate, stats: str | None, why: str
) -> None:
    assert rule_of(answer_to(gate, remove("a"), add("a", deletionVector=new(), stats=stats))) == why


def test_a_repeated_file_keeps_its_vector_under_any_bounds(gate: Gate) -> None:
    known = {"deletionVector": vector("0" * 20), "stats": '{"numRecords":10}'}
    write(gate, 3, remove("a"), add("a", **known))
    repeat = proposal(
        add("a", dataChange=False, **known),
        read_version=3,
        operation=Operation(name="COMPUTE STATS"),
    )
    assert rules_of(gate.ask(repeat)) == ["committed"]


def test_no_vector_is_added_to_a_table_without_the_property() -> None:
    gate = Gate()
    gate.ask(creating(FEATURE, metadata()), proposal(add("a")))
    rows = (remove("a"), add("a", deletionVector=new(), stats=WIDE))
    assert rule_of(answer_to(gate, *rows, read_version=1)) == "vectors_not_allowed"


def test_a_restart_remembers_the_vectors(gate: Gate) -> None:
    answer_to(gate, add("c"))
    state = state_of(gate)
    assert dict(state.files) == {"a": None, "b": "ux@1:34:1", "c": None}
    assert dict(recovery.load(gate.stores[ROOT], TABLE, 10).files) == dict(state.files)


def test_a_vector_that_was_taken_away_again_is_forgotten(gate: Gate) -> None:
    write(gate, 3, remove("b", deletionVector=vector()), add("b"))
    assert answer_to(gate, remove("b"), read_version=3).status == "committed"


def test_a_malformed_vector_in_the_log_stops_the_table() -> None:
    store = MemoryStore(ROOT)
    rows = [info(), FEATURE, metadata(), add("a", deletionVector={"storageType": "u"})]
    store.files[in_log(commit_name(0))] = to_bytes(rows)
    with pytest.raises(BrokenLog, match="deletion"):
        recovery.load(store, TABLE, 10)


def test_a_property_whose_feature_the_protocol_does_not_list_is_refused() -> None:
    gate = Gate()
    plain = creating(protocol(), metadata(enableDeletionVectors="true"))
    assert rules_of(gate.ask(plain)) == ["feature_not_listed"]
    [created] = gate.ask(creating(FEATURE, metadata(enableDeletionVectors="true")))
    assert created.status == "committed"


@pytest.mark.parametrize(("values", "rule"), [("1", None), ("2", "partition_values")])
def test_a_file_with_another_vector_stays_in_its_partition(values: str, rule: str | None) -> None:
    gate = Gate()
    gate.ask(creating(FEATURE, metadata(["p"], enableDeletionVectors="true")))
    gate.ask(proposal(add("p=1/a")))
    stats = WIDE
    here = inline(of_rows([1])).model_dump(by_alias=True, exclude_none=True)
    result = {"partitionValues": {"p": values}, "stats": stats, "deletionVector": here}
    one = proposal(remove("p=1/a"), add("p=1/a", **result), read_version=1)
    [outcome] = gate.ask(one)
    assert (outcome.rejection and outcome.rejection.rule) == rule


def test_a_removal_that_leaves_out_null_values_is_of_the_same_partition() -> None:
    gate = Gate()
    gate.ask(creating(FEATURE, metadata(["p", "q"], enableDeletionVectors="true")))
    values = {"p": "1", "q": None}
    gate.ask(proposal(add("a", partitionValues=values)))
    here = inline(of_rows([1])).model_dump(by_alias=True, exclude_none=True)
    stats = WIDE
    gone = remove("a", partitionValues={"p": "1"})
    back = add("a", partitionValues=values, stats=stats, deletionVector=here)
    assert rules_of(gate.ask(proposal(gone, back, read_version=1))) == ["committed"]
