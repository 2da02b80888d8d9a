"""The conflict prefilter passes no proposal for which a rule fires or that a rebase changes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.builders import Row, add, compact, info, metadata, proposal, remove, row_delete, rows_of
from tests.builders import commit as made
from tests.property.conflict_strategies import PLAIN, TRACKED, candidate_of, domain, vector
from tests.property.test_conflict_prefilter import table_definition
from tidegate_committer.conflicts.conflict_rules import RULES, skips_rules
from tidegate_committer.conflicts.rebase import RebaseState, adopt, begin
from tidegate_committer.policy import Level
from tidegate_committer.state.fetched_inputs import NO_VECTOR, FetchedInputs, key_of
from tidegate_committer.state.log_entry import Entry, entry_of
from tidegate_committer.state.table_definition import TableDefinition
from tidegate_delta.deletion_vectors.descriptors import inline_rows
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_messages.proposal import Operation, Proposal, ReadSet

BACKFILL = "ROW TRACKING BACKFILL"
X_IS_5: Row = {"op": "=", "column": "x", "value": 5, "type": "long"}
P_IS_1: Row = {"op": "=", "column": "p", "value": 1, "type": "integer"}
PATCH = {"changes": [{"op": "set_property", "key": "mine", "value": "1"}]}


@dataclass(frozen=True)
class Meeting:
    """A proposal, and a version that the prefilter must not skip."""

    one: Proposal
    rows: Sequence[Row]
    level: Level = "Serializable"
    protocol: Row = field(default_factory=lambda: PLAIN)
    operation: str = "WRITE"
    is_blind: bool = False

    @property
    def winner(self) -> Entry:
        result = info(self.operation, isBlindAppend=self.is_blind)
        commit = made(1, result, *self.rows)
        return replace(entry_of(commit, "0" * 64, 1), adds=tuple(commit.adds))

    @property
    def rebase_state(self) -> RebaseState:
        winner = self.winner
        vectors = [item.after for item in winner.revised.values() if item.after is not None]
        known = FetchedInputs(
            rows={key_of(vector): inline_rows(vector) for vector in vectors},
            growths={(NO_VECTOR, key_of(vector)): True for vector in vectors},
            adds={1: winner.adds or ()},
        )
        return begin(candidate_of(self.one), table_definition(self.protocol), self.level, known)


def reading(*rows: Row, name: str = "WRITE", **reads: Any) -> Proposal:
    return proposal(*rows, reads=ReadSet(**reads), operation=Operation(name=name))


def bounded(path: str, low: int, high: int) -> Row:
    bounds = {"minValues": {"x": low}, "maxValues": {"x": high}, "nullCount": {"x": 0}}
    return add(path, stats=json.dumps({"numRecords": 10, **bounds}))


PATCHED = proposal(metadata_patch=PATCH, reads=ReadSet(whole_table=True))
KEPT = {"dataChange": False}
MEETINGS = {
    "a changed table": Meeting(reading(add("p=1/b")), [metadata(["p"], note="x")]),
    "row ids that came": Meeting(
        reading(remove("p=1/a"), files=("p=1/z",)),
        [add("p=1/a", **KEPT, baseRowId=3, defaultRowCommitVersion=1)],
        protocol=TRACKED,
        operation=BACKFILL,
    ),
    "a patch and a blind append": Meeting(
        PATCHED, [add("p=1/a")], level="WriteSerializable", is_blind=True
    ),
    "a commit version that was taken": Meeting(
        reading(add("p=1/b", baseRowId=3, defaultRowCommitVersion=1), files=("p=1/z",)),
        [add("p=1/a")],
        protocol=TRACKED,
    ),
    "files that a backfill need not look at": Meeting(
        reading(add("p=1/a", **KEPT), name=BACKFILL, files=("p=1/z",)),
        [add("p=1/a")],
        protocol=TRACKED,
    ),
    "one domain": Meeting(reading(domain("d"), files=("p=1/z",)), [domain("d")]),
    "a domain that was read": Meeting(reading(add("p=1/b"), domains=("d",)), [domain("d")]),
    "clustering of a table that is replaced": Meeting(
        reading(add("p=1/b"), name="REPLACE TABLE", files=("p=1/z",)),
        [domain("delta.clustering")],
        protocol=TRACKED,
    ),
    "an application that was read": Meeting(
        reading(add("p=1/b"), app_ids=("s",)), [{"txn": {"appId": "s", "version": 1}}]
    ),
    "a file of the whole table": Meeting(
        reading(add("p=1/b"), whole_table=True), [remove("p=1/a")]
    ),
    "a file that was read": Meeting(reading(add("p=1/b"), files=("p=1/a",)), [remove("p=1/a")]),
    "a file that both remove": Meeting(reading(remove("p=1/a")), [remove("p=1/a")]),
    "a file that is gone, of which rows are deleted": Meeting(
        row_delete(rows_of("p=1/a", [1]), reads=ReadSet(delete_insensitive=True)), [remove("p=1/a")]
    ),
    "rows that moved": Meeting(
        compact({"p=1/a": 10}, "p=1/g"), [remove("p=1/a"), add("p=1/a", deletionVector=vector(1))]
    ),
    "a file that joins the whole table": Meeting(
        reading(add("p=1/b"), whole_table=True), [add("p=1/a")]
    ),
    "a file in a partition that was read": Meeting(
        reading(add("p=1/b"), predicates=(P_IS_1,)), [add("p=1/a")]
    ),
    "a file with rows that were read": Meeting(
        reading(add("p=1/b"), predicates=(X_IS_5,)), [bounded("p=2/a", 5, 9)]
    ),
    "one file among others": Meeting(
        reading(add("p=1/b"), predicates=(P_IS_1,)), [add("p=2/a"), add("p=1/a")]
    ),
    "an append by somebody who looked": Meeting(
        reading(add("p=1/b"), whole_table=True), [add("p=1/a")], level="WriteSerializable"
    ),
    "a partition that is none": Meeting(
        reading(add("p=1/b"), predicates=(P_IS_1,)), [add("p=1/a", partitionValues={"p": "one"})]
    ),
}


@pytest.mark.parametrize("name", MEETINGS)
def test_who_meets_is_left_to_the_rules(name: str) -> None:
    meeting = MEETINGS[name]
    before, winner = meeting.rebase_state, meeting.winner
    assert not skips_rules(before, winner.write_summary, winner.adds)
    assert meets(before, winner)


def meets(before: RebaseState, winner: Entry) -> bool:
    """Return whether a rule fires, or following the winner changes the proposal."""
    return any(rule(before, winner) for rule in RULES) or adopt(before, winner) != before


def test_statistics_are_not_read_where_they_are_unknown_or_too_late() -> None:
    predicates = ({"op": "and", "args": [P_IS_1, X_IS_5]},)
    meeting = Meeting(reading(add("p=1/b"), predicates=predicates), [bounded("p=1/a", 6, 9)])
    before, winner = meeting.rebase_state, meeting.winner
    assert skips_rules(before, winner.write_summary, winner.adds)
    assert not meets(before, winner)
    unknown, late = replace(before, known=FetchedInputs()), replace(winner, version=65)
    assert not skips_rules(unknown, winner.write_summary, None)
    assert meets(unknown, replace(winner, adds=None))
    # The same holds for a version whose commit file was cleaned up.
    assert not skips_rules(before, winner.write_summary, ())
    assert meets(replace(before, known=FetchedInputs(adds={1: ()})), winner)
    assert not skips_rules(before, late.write_summary, late.adds)
    assert meets(before, late)


def test_a_file_that_no_predicate_matches_alone_does_not_count() -> None:
    """Each predicate is compared with its partition and its statistics together."""
    beyond: Row = {"op": ">", "column": "p", "value": 5.0, "type": "double"}
    equal: Row = {"op": "=", "column": "p", "value": 3.0, "type": "double"}
    predicates = (beyond, {"op": "and", "args": [equal, X_IS_5]})
    meeting = Meeting(reading(add("p=1/b"), predicates=predicates), [bounded("p=3/a", 6, 9)])
    row = metadata(["p"])
    row["metaData"]["schemaString"] = row["metaData"]["schemaString"].replace("integer", "double")
    table = made(0, PLAIN, row)
    assert isinstance(table.metadata, Metadata)
    assert isinstance(table.protocol, Protocol)
    at = TableDefinition(table.metadata, table.protocol)
    before = begin(meeting.rebase_state.candidate, at, "Serializable", meeting.rebase_state.known)
    assert not meets(before, meeting.winner)
    assert skips_rules(before, meeting.winner.write_summary, meeting.winner.adds)
