"""Change files: complete, not needed or refused; and which proposals may share their entry."""

from typing import Any, Final

import pytest

from tests.builders import (
    Gate,
    Row,
    add,
    info,
    metadata,
    proposal,
    protocol,
    remove,
    row_delete,
    rows_of,
    schema,
)
from tests.support.decisions import planned, refusal_of, refused, rules, table
from tests.support.feature_rows import VECTOR, WIDE, listed, mapped, named
from tests.support.outcomes import rules_of
from tests.support.tables import creating
from tidegate_committer.state.table_state import TableState
from tidegate_messages.proposal import Operation, Proposal

MAPPING: Final = "delta.columnMapping"
FEED = metadata(enableChangeDataFeed="true")
PARTITIONED = metadata(["p"], enableChangeDataFeed="true")


def cdc(path: str, **changed: Any) -> Row:
    values = dict(part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)
    body = {"path": f"_change_data/{path}", "partitionValues": values, "size": 9}
    return {"cdc": {**body, "dataChange": False, **changed}}


def fed(*files: str, of: Row = FEED) -> TableState:
    features = listed("changeDataFeed", reader=("deletionVectors",))
    with_vectors = {**of["metaData"]["configuration"], "delta.enableDeletionVectors": "true"}
    meta = {"metaData": {**of["metaData"], "configuration": with_vectors}}
    return table([info(), features, meta], [info(), *map(add, files)])


def rule(state: TableState, *rows: Row, **fields: Any) -> str | None:
    wrong = refusal_of(state, proposal(*rows, read_version=1, **fields))
    return wrong.rule if wrong else None


REVISED = (remove("a"), add("a", deletionVector=VECTOR, stats=WIDE))


@pytest.mark.parametrize(
    "rows",
    [
        (add("b"), add("c")),
        (remove("a"),),
        REVISED,
        (*REVISED, remove("z")),
        (remove("a", dataChange=False), add("b", dataChange=False)),
    ],
    ids=["joins", "leaves", "loses rows", "both", "moves"],
)
def test_what_readers_can_derive_needs_no_change_files(rows: tuple[Row, ...]) -> None:
    assert rule(fed("a", "z"), *rows) is None


@pytest.mark.parametrize("operation", ["DELETE", "UPDATE", "MERGE", "WRITE"])
def test_a_rewrite_without_change_files_is_refused(operation: str) -> None:
    rewrites = named(operation, remove("a"), add("b"), read_version=1)
    wrong = refused(fed("a"), rewrites)
    assert (wrong.rule, wrong.field, wrong.advice) == ("change_files_missing", "actions.cdc", "fix")
    assert "write the rows that changed into change files" in wrong.reason
    plain = table([info(), protocol(), metadata()], [info(), add("a")])
    assert refusal_of(plain, rewrites) is None


def test_a_rewrite_with_change_files_is_not() -> None:
    assert rule(fed("a"), remove("a"), add("b"), cdc("c")) is None
    assert rule(fed("a"), remove("a"), add("b"), cdc("c"), cdc_mode="explicit") is None


def test_rows_that_replace_others_are_accepted_as_their_writer_declares() -> None:
    overwrites = (remove("a"), add("b"))
    assert rule(fed("a"), *overwrites, cdc_mode="implicit") is None
    for operation in ("DELETE", "UPDATE"):
        result = {"operation": Operation(name=operation), "cdc_mode": "implicit"}
        assert rule(fed("a"), *overwrites, **result) == "change_files_missing"
    images = (rows_of("a", [1], op="update"),)
    assert rule(fed("a"), add("b"), dv_intents=images, cdc_mode="implicit") == (
        "change_files_missing"
    )


@pytest.mark.parametrize(
    ("rows", "mode", "expected"),
    [
        ((add("b"),), "none", "wrong_cdc_mode"),
        ((remove("a"),), "none", "wrong_cdc_mode"),
        ((remove("a", dataChange=False), add("b", dataChange=False)), "none", None),
        ((remove("a"), add("b"), cdc("c")), "implicit", "wrong_cdc_mode"),
        ((remove("a"), add("b"), cdc("c")), "none", "wrong_cdc_mode"),
        ((cdc("c"),), None, "wrong_cdc_mode"),
        (
            (remove("a", dataChange=False), add("b", dataChange=False), cdc("c")),
            None,
            "wrong_cdc_mode",
        ),
        ((add("b"),), "explicit", "change_files_missing"),
        ((add("b"),), "implicit", None),
    ],
)
def test_declared_change_data_is_what_is_attached(
    rows: tuple[Row, ...], mode: str | None, expected: str | None
) -> None:
    assert rule(fed("a"), *rows, cdc_mode=mode) == expected


def test_every_partition_that_changes_has_a_change_file() -> None:
    state = fed("p=1/a", "p=2/b", of=PARTITIONED)
    rewrite = (remove("p=1/a"), add("p=1/c"), remove("p=2/b"), add("p=2/d"))
    wrong = refused(state, proposal(*rewrite, cdc("p=1/x"), read_version=1))
    assert (wrong.rule, wrong.path) == ("change_files_missing", "p=2/d")
    assert rule(state, *rewrite, cdc("p=1/x"), cdc("p=2/x")) is None
    merge = {"operation": Operation(name="MERGE")}
    assert rule(state, *rewrite, cdc("p=1/x"), **merge) is None


def test_a_removal_without_partition_values_needs_no_change_file_of_a_partition() -> None:
    state = fed("p=1/a", of=PARTITIONED)
    bare = remove("p=1/a", partitionValues=None, extendedFileMetadata=None, size=None)
    assert rule(state, bare, add("p=1/c"), cdc("p=1/x")) is None
    assert rule(state, bare, add("p=2/c"), cdc("p=1/x")) == "change_files_missing"


def test_rows_deleted_by_vectors_beside_change_files_have_one_of_their_partition() -> None:
    features = listed("changeDataFeed", reader=("deletionVectors",))
    meta = metadata(["p"], enableChangeDataFeed="true", enableDeletionVectors="true")
    gate = Gate()
    gate.ask(creating(features, meta), proposal(add("p=1/a")))

    def deleting(*changes: Row) -> Proposal:
        return proposal(*changes, dv_intents=(rows_of("p=1/a", [1]),), read_version=1)

    result = gate.ask(deleting(cdc("p=2/x")), deleting(cdc("p=1/x")))
    assert rules_of(result) == [*("change_files_missing", "committed")]


def test_a_null_partition_is_one_however_it_is_spelt() -> None:
    state = fed("p=1/a", of=PARTITIONED)
    empty, null = {"partitionValues": {"p": ""}}, {"partitionValues": {"p": None}}
    assert rule(state, remove("p=1/a", **empty), cdc("x", **null)) is None
    assert rule(state, remove("p=1/a"), cdc("x", **null)) == "change_files_missing"


def test_a_partition_is_one_however_its_value_is_spelt() -> None:
    """`p` is a long; another writer may have spelt it in its own way."""
    state = fed("p=1/a", of=PARTITIONED)
    other = {"partitionValues": {"p": "+01"}}
    assert rule(state, remove("p=1/a", **other), add("p=1/c"), cdc("p=1/x")) is None


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"path": "../x"}, "bad_path"),
        ({"path": "/x"}, "bad_path"),
        ({"path": "s3://other/x"}, "bad_path"),
        ({"path": "_hidden/x"}, "bad_path"),
        ({"path": "_delta_log/x"}, "bad_path"),
        ({"partitionValues": {}}, "partition_values"),
        ({"partitionValues": {"p": "one"}}, "partition_values"),
        ({"size": -1}, "malformed"),
        ({"dataChange": True}, "malformed"),
        ({}, None),
    ],
)
def test_a_change_file_is_checked_as_other_files_are(changed: Row, expected: str | None) -> None:
    result = {"cdc": {**cdc("p=1/x")["cdc"], **changed}}
    assert rule(fed("p=1/a", of=PARTITIONED), remove("p=1/a"), result) == expected


def test_a_change_file_is_named_once() -> None:
    assert rule(fed("a"), remove("a"), add("b"), cdc("c"), cdc("c")) == "duplicate_action"


EXPLICIT = proposal(remove("a"), add("x"), cdc("c"), read_version=1)
OTHER_EXPLICIT = proposal(remove("b"), add("y"), cdc("d"), read_version=1)
LEAVES = proposal(remove("z"), read_version=1)
APPEND = proposal(add("n"), read_version=1)
REPLACES = proposal(remove("b"), add("w"), read_version=1, cdc_mode="implicit")


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        (EXPLICIT, OTHER_EXPLICIT, True),
        (EXPLICIT, LEAVES, False),
        (LEAVES, EXPLICIT, False),
        (EXPLICIT, REPLACES, False),
        (REPLACES, EXPLICIT, False),
        (EXPLICIT, APPEND, False),
        (APPEND, EXPLICIT, False),
        (LEAVES, REPLACES, True),
        (APPEND, proposal(add("m"), read_version=1), True),
    ],
)
def test_explicit_changes_share_no_entry_with_others(
    first: Proposal, second: Proposal, together: bool
) -> None:
    decided = planned(fed("a", "b", "z"), first, second)
    if together:
        assert rules(decided) == ["committed", "committed"]
    else:
        assert rules(decided) == ["committed"]


def test_who_only_deletes_rows_needs_no_change_files_and_joins_nobody_who_has_some() -> None:
    deletes = row_delete(rows_of("b", [1]), read_version=1)
    wrong = refused(fed("a", "b"), deletes.model_copy(update={"cdc_mode": "none"}))
    assert wrong.rule == "wrong_cdc_mode"


def renamed(**names: str) -> Row:
    """Return metaData of a table with a change feed and mapped columns: physical name=name."""
    mapping = {"columnMapping.mode": "name", "columnMapping.maxColumnId": "9"}
    row = metadata(enableChangeDataFeed="true", **mapping)
    row["metaData"]["schemaString"] = schema(**dict.fromkeys(names.values(), "long"))
    return mapped(row, *names)


def test_columns_are_mapped_renamed_and_dropped_in_versions_alone() -> None:
    before = renamed(x="x", s="s")
    features = listed("changeDataFeed", reader=("columnMapping",))
    state = table([info(), features, before], [info(), add("a")])
    for after in (renamed(x="x"), renamed(x="y", s="s")):
        assert rule(state, after, add("b")) == "columns_change_with_rows"
        assert rule(state, after, remove("a", dataChange=False)) == "columns_change_with_rows"
        assert rule(state, after) is None
    assert rule(state, renamed(x="x", s="s", y="y"), add("b")) is None
    unmapped = table([info(), features, FEED], [info(), add("a")])
    assert rule(unmapped, before, add("b")) == "columns_change_with_rows"
    plain = {"metaData": {**before["metaData"], "configuration": {}}}
    assert rule(unmapped, plain, add("b")) is None
