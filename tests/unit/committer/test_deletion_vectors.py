"""Tables whose files have deletion vectors: others write them, the gate keeps them exact."""

from typing import Any

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
from tidegate.committer import recovery
from tidegate.delta.errors import BrokenLog
from tidegate.delta.names import commit_name, in_log
from tidegate.pipeline.outcome import Outcome
from tidegate.pipeline.proposal import Operation
from tidegate.pipeline.read_set import ReadSet
from tidegate.runtime.memory import MemoryStore

ROOT = "memory://tables/t"
NAMES = ["deletionVectors"]
FEATURE = protocol(3, 7, readerFeatures=NAMES, writerFeatures=NAMES)


def vector(name: str = "x", **changed: Any) -> Row:
    body = {"storageType": "u", "pathOrInlineDv": name, "offset": 1, "sizeInBytes": 34}
    return {**body, "cardinality": 1, **changed}


def creating(*rows: Row) -> Any:
    return proposal(*rows, read_version=-1, operation=Operation(name="CREATE TABLE"))


def write(gate: Gate, version: int, *rows: Row) -> None:
    """Write a version as another engine does."""
    store = gate.stores[ROOT]
    assert isinstance(store, MemoryStore)
    store.files[in_log(commit_name(version))] = to_bytes([info("DELETE"), *rows])


@pytest.fixture
def gate() -> Gate:
    """A gate with a table of the files a and b; a row of b was deleted by somebody else."""
    gate = Gate()
    created, appended = gate.ask(
        creating(FEATURE, metadata(enableDeletionVectors="true")), proposal(add("a"), add("b"))
    )
    assert [created.status, appended.status] == ["committed", "committed"]
    write(gate, 2, remove("b"), add("b", deletionVector=vector()))
    return gate


def ask(gate: Gate, *rows: Row, read_version: int = 2) -> Outcome:
    reads = ReadSet(files=tuple(row["remove"]["path"] for row in rows if "remove" in row))
    [outcome] = gate.ask(proposal(*rows, read_version=read_version, reads=reads))
    return outcome


def rule(outcome: Outcome) -> str:
    assert outcome.rejection is not None
    return outcome.rejection.rule


def test_plain_files_are_appended(gate: Gate) -> None:
    assert ask(gate, add("c"), read_version=1).version == 3


def test_a_file_leaves_with_the_vector_that_it_has(gate: Gate) -> None:
    outcome = ask(gate, remove("b", deletionVector=vector()), add("c"))
    assert outcome.status == "committed"
    [removed] = [row["remove"] for row in gate.entries()[3] if "remove" in row]
    assert removed["deletionVector"] == vector()
    assert rule(ask(gate, remove("b", deletionVector=vector()), read_version=3)) == (
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
    outcome = ask(gate, row)
    assert rule(outcome) == "removed_file_not_live"
    assert outcome.rejection is not None
    assert "deletion vector" in outcome.rejection.reason


def test_a_writer_that_had_not_seen_the_vector_comes_too_late(gate: Gate) -> None:
    outcome = ask(gate, remove("b"), read_version=1)
    assert outcome.rejection is not None
    assert outcome.rejection.winner_version == 2


def test_a_file_with_a_vector_is_not_added_again_without_it(gate: Gate) -> None:
    for row in (add("b"), add("b", dataChange=False)):
        assert rule(ask(gate, row)) == "added_file_live"


WIDE = '{"numRecords":10,"tightBounds":false}'


def new(**changed: Any) -> Row:
    return vector("0" * 20, **changed)


def test_rows_are_deleted_by_a_vector_and_the_vector_by_another(gate: Gate) -> None:
    first = ask(gate, remove("a"), add("a", deletionVector=new(), stats=WIDE))
    assert first.status == "committed"
    second = ask(
        gate,
        remove("a", deletionVector=new()),
        add("a", deletionVector=new(offset=99, cardinality=2), stats=WIDE),
        read_version=3,
    )
    assert second.status == "committed"
    state = gate.desk().state
    assert state is not None
    assert state.files["a"] == f"u{'0' * 20}@99:34:2"


def test_a_vector_is_added_only_to_a_file_that_leaves_with_the_one_it_has(gate: Gate) -> None:
    added = add("b", deletionVector=new(), stats=WIDE)
    assert rule(ask(gate, remove("b"), added)) == "removed_file_not_live"
    assert rule(ask(gate, added)) == "added_file_live"
    twice = add("b", deletionVector=new(), stats=WIDE)
    assert rule(ask(gate, remove("b", deletionVector=new()), twice)) == "duplicate_action"


def test_a_file_may_lose_its_vector(gate: Gate) -> None:
    assert ask(gate, remove("b", deletionVector=vector()), add("b")).status == "committed"
    state = gate.desk().state
    assert state is not None
    assert state.files["b"] is None


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
    assert rule(ask(gate, remove("a"), add("a", deletionVector=new(), stats=stats))) == why


def test_a_repeated_file_keeps_its_vector_under_any_bounds(gate: Gate) -> None:
    known = {"deletionVector": vector("0" * 20), "stats": '{"numRecords":10}'}
    write(gate, 3, remove("a"), add("a", **known))
    repeat = proposal(
        add("a", dataChange=False, **known),
        read_version=3,
        operation=Operation(name="COMPUTE STATS"),
    )
    [outcome] = gate.ask(repeat)
    assert outcome.status == "committed"


def test_no_vector_is_added_to_a_table_without_the_property() -> None:
    gate = Gate()
    gate.ask(creating(FEATURE, metadata()), proposal(add("a")))
    rows = (remove("a"), add("a", deletionVector=new(), stats=WIDE))
    assert rule(ask(gate, *rows, read_version=1)) == "vectors_not_allowed"


def test_whoever_begins_anew_remembers_the_vectors(gate: Gate) -> None:
    ask(gate, add("c"))
    state = gate.desk().state
    assert state is not None
    assert dict(state.files) == {"a": None, "b": "ux@1:34:1", "c": None}
    assert dict(recovery.load(gate.stores[ROOT], TABLE, 10).files) == dict(state.files)


def test_a_vector_that_was_taken_away_again_is_forgotten(gate: Gate) -> None:
    write(gate, 3, remove("b", deletionVector=vector()), add("b"))
    assert ask(gate, remove("b"), read_version=3).status == "committed"


def test_a_malformed_vector_in_the_log_stops_the_table() -> None:
    store = MemoryStore(ROOT)
    rows = [info(), FEATURE, metadata(), add("a", deletionVector={"storageType": "u"})]
    store.files[in_log(commit_name(0))] = to_bytes(rows)
    with pytest.raises(BrokenLog, match="deletion"):
        recovery.load(store, TABLE, 10)


def test_a_property_whose_feature_the_protocol_does_not_list_is_refused() -> None:
    gate = Gate()
    plain = creating(protocol(), metadata(enableDeletionVectors="true"))
    [refused] = gate.ask(plain)
    assert rule(refused) == "feature_not_listed"
    [created] = gate.ask(creating(FEATURE, metadata(enableDeletionVectors="true")))
    assert created.status == "committed"
