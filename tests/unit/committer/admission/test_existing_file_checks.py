"""Enabling row tracking needs row ids on every file: readers fail at a file without them."""

from collections.abc import Callable

import pytest

from tests.builders import Gate, Row, add, create, info, metadata, proposal, protocol, remove
from tests.support.feature_rows import mapped
from tests.support.outcomes import rule_of
from tests.support.tables import creating
from tests.verbatim_proposals import verbatim
from tidegate_messages.metadata_patch import MetadataPatch, SetProperty
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Operation, Proposal

NAMES = {
    "rowTracking.materializedRowIdColumnName": "_ids",
    "rowTracking.materializedRowCommitVersionColumnName": "_versions",
}
MAPPED = {"columnMapping.mode": "name", "columnMapping.maxColumnId": "2"}
ON = {"enableRowTracking": "true", **NAMES}
IN_ANY_CASE = {"ENABLErowTracking": "true", **NAMES}

PROPERTIES = Operation(name="SET TBLPROPERTIES")
BACKFILL = Operation(name="ROW TRACKING BACKFILL")
TRACKS = protocol(
    1, 7, writerFeatures=["appendOnly", "domainMetadata", "invariants", "rowTracking"]
)


def by_metadata(read_version: int) -> Proposal:
    return proposal(metadata(**IN_ANY_CASE), read_version=read_version, operation=PROPERTIES)


def by_patch(read_version: int) -> Proposal:
    changes = (
        SetProperty(op="set_property", key=f"delta.{key}", value=on)
        for key, on in IN_ANY_CASE.items()
    )
    patch = MetadataPatch(changes=tuple(changes))
    return proposal(read_version=read_version, metadata_patch=patch, operation=PROPERTIES)


def answers(gate: Gate, *proposals: Proposal) -> list[str]:
    def word(one: Outcome) -> str:
        return rule_of(one)

    return [word(item) for item in gate.ask(*proposals)]


def version(gate: Gate, one: Proposal) -> int:
    [outcome] = gate.ask(one)
    assert outcome.version is not None
    return outcome.version


@pytest.mark.parametrize("turned_on", [by_metadata, by_patch])
def test_row_tracking_is_turned_on_once_every_file_has_row_ids(
    turned_on: Callable[[int], Proposal],
) -> None:
    gate = Gate()
    gate.ask(create(), proposal(add("a")))
    assert answers(gate, turned_on(1)) == ["rows_without_ids"]
    listed = version(gate, proposal(TRACKS, read_version=1, operation=PROPERTIES))
    gate.ask(proposal(add("b"), read_version=1))
    assert answers(gate, turned_on(listed)) == ["rows_without_ids"]
    backfill = proposal(add("a", dataChange=False), read_version=4, operation=BACKFILL)
    filled = version(gate, backfill)
    assert answers(gate, turned_on(listed)) == ["rows_without_ids"], "that one had no ids yet"
    assert answers(gate, turned_on(filled)) == ["committed"]
    assert answers(gate, proposal(add("c"), read_version=filled)) == ["committed"]


def test_files_that_came_since_need_ids_too() -> None:
    gate = Gate()
    gate.ask(create(), proposal(add("a")))
    assert answers(gate, by_patch(0)) == ["rows_without_ids"]


def test_a_table_without_files_or_that_loses_all_of_them_may_have_it() -> None:
    for turned_on in (by_metadata, by_patch):
        gate = Gate()
        gate.ask(create())
        assert answers(gate, turned_on(0)) == ["committed"]
    gate = Gate()
    gate.ask(create(), proposal(add("a"), add("b")))
    replace = Operation(name="REPLACE TABLE AS SELECT")
    some = proposal(TRACKS, metadata(**ON), remove("a"), read_version=1, operation=replace)
    every = proposal(
        *(TRACKS, metadata(**ON), remove("a"), remove("b"), add("c")),
        read_version=1,
        operation=replace,
    )
    assert answers(gate, some, every) == ["rows_without_ids", "committed"]


def test_who_would_create_the_table_once_more_hears_that_it_exists() -> None:
    for name in ("DROP FEATURE", "CREATE TABLE"):
        gate = Gate()
        gate.ask(proposal(TRACKS, metadata(), read_version=-1))
        rows = (protocol(1, 7, writerFeatures=["appendOnly"]), metadata(**ON))
        again = proposal(*rows, read_version=-1, operation=Operation(name=name))
        assert answers(gate, again) == ["table_exists"]


def renamed(*physical_names: str) -> Row:
    """Return metaData of a table with columns x and s under other physical names."""
    return mapped(metadata(**MAPPED), *physical_names)


OTHERWISE = ["bad_metadata", "bad_metadata", "bad_metadata", "committed"]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (renamed("a", "b"), metadata(), OTHERWISE),
        (metadata(), renamed("x", "b"), OTHERWISE),
        (renamed("x", "s"), metadata(), ["committed"]),
        (metadata(), renamed("x", "s"), ["committed"]),
    ],
)
def test_columns_get_no_other_names_than_the_files_that_stay_have_for_them(
    before: Row, after: Row, expected: list[str]
) -> None:
    gate = Gate()
    maps = protocol(3, 7, readerFeatures=["columnMapping"], writerFeatures=["columnMapping"])
    gate.ask(creating(maps, before), proposal(add("a"), add("b")))
    told_of = [
        proposal(after, read_version=1),
        proposal(after, remove("a"), add("c"), read_version=1),
        verbatim(gate, 4, info(txnId="w"), after),
        proposal(after, remove("a"), remove("b"), add("c"), read_version=1),
    ]
    result = [word for item in told_of[: len(expected)] for word in answers(gate, item)]
    assert [word.replace("denied", "bad_metadata") for word in result] == expected
