"""Each conflict rule fires where it should and only there; the conflict vectors hold
delta-spark's own decisions.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pydantic import JsonValue

from tests import builders
from tests.builders import (
    Row,
    add,
    commit,
    compact,
    delete,
    info,
    metadata,
    proposal,
    protocol,
    remove,
    row_delete,
    rows_of,
)
from tests.builders import commit as made
from tests.property.conflict_strategies import PLAIN, TRACKED, candidate_of, domain, vector
from tests.property.test_conflict_prefilter import table_definition
from tests.support.conflicts import conflict_of, definition_of, rebase_state, rule, winner
from tidegate_committer.conflicts.conflict_rules import CONCURRENT, DELTA_NAMES, RULES, skips_rules
from tidegate_committer.conflicts.rebase import RebaseState, adopt, begin
from tidegate_committer.policy import Level
from tidegate_committer.state.fetched_inputs import NO_VECTOR, FetchedInputs, key_of
from tidegate_committer.state.log_entry import Entry, entry_of
from tidegate_committer.state.table_definition import TableDefinition
from tidegate_delta.deletion_vectors.descriptors import inline_rows
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_messages.proposal import Operation, Predicate, Proposal, ReadSet

P1: Predicate = {"op": "=", "column": ["p"], "value": 1, "type": "integer"}
TABLE = (protocol(), metadata(["p"]))
IN_P1 = ReadSet(predicates=(P1,), files=("p=1/a",))
DELETE_IN_P1 = proposal(remove("p=1/a"), reads=IN_P1)
APPEND = proposal(add("p=1/a"))
COMPACTION = proposal(
    *(remove("p=1/a", dataChange=False), add("p=1/b", dataChange=False)),
    reads=IN_P1,
    operation=Operation(name="OPTIMIZE"),
)
APP_READER = proposal(add("p=1/a"), reads=ReadSet(app_ids=("s",)))
EVERYTHING_READER = proposal(add("p=1/a"), reads=None)
DOMAIN: Row = {"domainMetadata": {"domain": "d", "configuration": "x", "removed": False}}
DOMAIN_READER = proposal(add("p=1/a"), reads=ReadSet(domains=("d",)))


def txn(app_id: str) -> Row:
    return {"txn": {"appId": app_id, "version": 1}}


def with_configuration(**configuration: str) -> Row:
    row = metadata(["p"])
    row["metaData"]["configuration"] = {**configuration}
    return row


def with_schema(**columns: str) -> Row:
    row = metadata(["p"])
    row["metaData"]["schemaString"] = builders.schema(**columns)
    return row


TOLERATED = with_configuration(**{"io.unitycatalog.tableId": "u"})


@pytest.mark.parametrize(
    ("one", "rows", "expected"),
    [
        pytest.param(one, rows, expected, id=name)
        for name, one, rows, expected in [
            ("blind append, files", APPEND, (add("p=1/x"), remove("p=1/y")), None),
            ("blind append, schema", APPEND, (with_schema(x="string"),), "metadata_changed"),
            (
                "tolerated property",
                APPEND,
                (with_configuration(**{"io.unitycatalog.tableId": "u"}),),
                None,
            ),
            ("predicate, file outside", DELETE_IN_P1, (add("p=2/x"),), None),
            ("compaction, append", COMPACTION, (add("p=1/x"),), None),
            ("compaction, removal", COMPACTION, (remove("p=1/a"),), "concurrent_delete_read"),
            (
                "removal of one file in two spellings",
                proposal(remove("p=1/a%20b"), reads=ReadSet(predicates=())),
                (remove("p=1/a b"),),
                "concurrent_delete_delete",
            ),
            ("file that was read", delete("p=1/a"), (remove("p=1/a"),), "concurrent_delete_read"),
            ("file that was not read", delete("p=1/a"), (remove("p=1/z"),), None),
            ("whole table", EVERYTHING_READER, (remove("p=9/z"),), "concurrent_delete_read"),
            ("application that was read", APP_READER, (txn("s"),), "concurrent_transaction"),
            ("our own watermark", APP_READER, (txn("tidegate/t/0"),), None),
            ("application that was not read", APPEND, (txn("s"),), None),
            ("domain of both", proposal(DOMAIN), (DOMAIN,), "domain_metadata_changed"),
            ("domain that was read", DOMAIN_READER, (DOMAIN,), "domain_metadata_changed"),
            ("protocols of both", proposal(protocol()), (protocol(),), "protocol_changed"),
            ("dropped feature", APPEND, (protocol(1, 1),), "protocol_changed"),
            ("protocol as before", APPEND, (protocol(),), None),
        ]
    ],
)
def test_a_winner_conflicts_by_the_rule(
    one: Proposal, rows: tuple[Row, ...], expected: str | None
) -> None:
    assert rule(rebase_state(one, *TABLE), winner(1, info(), *rows)) == expected


@pytest.mark.parametrize(
    ("level", "is_blind", "expected"),
    [
        ("Serializable", True, "concurrent_append"),
        ("WriteSerializable", True, None),
        ("WriteSerializable", False, "concurrent_append"),
    ],
)
def test_write_serializable_lets_blind_appends_come_later(
    level: Level, is_blind: bool, expected: str | None
) -> None:
    appends = winner(1, info(isBlindAppend=is_blind), add("p=1/x"))
    assert rule(rebase_state(DELETE_IN_P1, *TABLE, level=level), appends) == expected


@pytest.mark.parametrize("op", ["in", "not"])
def test_only_the_fields_of_its_operator_make_a_predicate(op: str) -> None:
    definition = definition_of(*TABLE)

    def partitions(value: int) -> list[bool]:
        besides: dict[str, JsonValue] = {"column": "p", "type": "integer", "value": 7}
        equal: dict[str, JsonValue] = {**P1, "value": value}
        own: dict[str, JsonValue] = {"values": [value]} if op == "in" else {"arg": equal}
        test = definition.partition_test({"op": op, **besides, **own})
        return [test[frozenset({("p", text)})] for text in ("1", "2")]

    wanted = [[True, False], [False, True]]
    assert [partitions(1), partitions(2)] == (wanted if op == "in" else wanted[::-1])


def test_a_domain_that_a_winner_names_twice_has_deltas_error() -> None:
    other = {"domainMetadata": {**DOMAIN["domainMetadata"], "configuration": "y"}}
    twice, one = winner(1, DOMAIN, other), delete("p=1/a")
    listed, unlisted = (
        (protocol(1, 7, writerFeatures=[name]), TABLE[1])
        for name in ("domainMetadata", "appendOnly")
    )
    result = conflict_of(rebase_state(one, *listed), twice)
    assert result.rejection.error_class == "DELTA_DUPLICATE_DOMAIN_METADATA_INTERNAL_ERROR"
    assert result.rejection.exception not in CONCURRENT
    assert rule(rebase_state(one, *listed), winner(1, DOMAIN)) is None
    assert rule(rebase_state(one, *unlisted), twice) is None


@pytest.mark.parametrize(
    ("feature", "key", "text", "is_conflict_by_name"),
    [
        ("inCommitTimestamp", "delta.enableInCommitTimestamps", "false", True),
        ("inCommitTimestamp", "delta.enableInCommitTimestamps", "yes", False),
        ("inCommitTimestamp", "delta.enableInCommitTimestamps", "1", False),
        ("appendOnly", "delta.enableInCommitTimestamps", "yes", True),
        # Row tracking's property is read even if the protocol does not list the feature.
        ("appendOnly", "delta.enableRowTracking", "yes", False),
    ],
)
def test_a_switch_that_is_neither_on_nor_off_is_no_conflict_by_name(
    feature: str, key: str, text: str, is_conflict_by_name: bool
) -> None:
    one = rebase_state(APPEND, protocol(1, 7, writerFeatures=[feature]), TABLE[1])
    result = conflict_of(one, winner(1, with_configuration(**{key: text})))
    assert result.rule == "metadata_changed"
    assert (result.rejection.exception in CONCURRENT) is is_conflict_by_name


@pytest.mark.parametrize(("reader", "expected"), [(1, None), (2, "protocol_changed")])
def test_what_two_versions_do_not_imply_together_is_not_dropped(
    reader: int, expected: str | None
) -> None:
    """Writer version 5 implies column mapping, which needs reader version 2."""
    names = ["appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"]
    listed = winner(1, protocol(1, 7, writerFeatures=names))
    assert rule(rebase_state(APPEND, protocol(reader, 5), TABLE[1]), listed) == expected


@pytest.mark.parametrize(
    "row",
    [
        protocol(3, 7, readerFeatures=["unheardOf"], writerFeatures=["unheardOf"]),
        protocol(1, 7, writerFeatures=["unheardOf"]),
        protocol(4, 7),
        protocol(1, 8),
        protocol(1, 0),
    ],
)
def test_an_unknown_protocol_is_reported_first(row: Row) -> None:
    everything = winner(1, row, metadata(["p"]), remove("p=1/a"))
    result = conflict_of(rebase_state(delete("p=1/a"), *TABLE), everything)
    assert (result.rule, result.rejection.advice) == ("protocol_unsupported", "fix")
    if "writerFeatures" in row["protocol"]:
        assert result.rejection.reason == "version 1 asks for the unknown feature 'unheardOf'"


def test_the_first_winner_with_a_conflict_decides() -> None:
    result = conflict_of(
        rebase_state(DELETE_IN_P1, *TABLE),
        *(winner(1, add("p=2/x")), winner(2, add("p=1/x")), winner(3, protocol(1, 1))),
    )
    assert (result.rule, result.winner_version) == ("concurrent_append", 2)
    assert (result.found.path, result.rejection.advice) == ("p=1/x", "rerun")
    assert result.rejection.error_class == "DELTA_CONCURRENT_APPEND"
    assert result.rejection.exception == "ConcurrentAppendException"


def test_a_tolerated_winner_is_adopted() -> None:
    """Each change is compared with the rebased metadata, not with the metadata that was read."""
    one = rebase_state(APPEND, *TABLE)
    assert rule(one, winner(1, TOLERATED), winner(2, metadata(["p"]))) == "metadata_changed"


@pytest.mark.parametrize(
    "rows",
    [
        (add("p=x/a"),),
        # It is reported before a file that matches.
        (info(), add("p=1/x"), add("p=x/y", partitionValues={"p": "x"})),
    ],
)
def test_a_partition_value_that_is_none_has_deltas_error(rows: Sequence[Row]) -> None:
    result = conflict_of(rebase_state(DELETE_IN_P1, *TABLE), winner(1, *rows))
    assert result.rejection.error_class == "CAST_INVALID_INPUT"
    assert result.rejection.exception not in CONCURRENT


def test_a_partition_value_that_is_none_counts_though_statistics_rule_its_file_out() -> None:
    both: Predicate = {"op": "and", "args": [{**P1, "column": ["q"]}, {**P1}]}
    gone = remove("p=1/a", partitionValues={"p": "1", "q": "1"})
    one = rebase_state(
        proposal(gone, reads=ReadSet(predicates=(both,))), protocol(), metadata(["p", "q"])
    )
    odd, empty = (
        replace(winner(1, info(), row), adds=tuple(commit(1, row).adds))
        for row in (add("b", partitionValues={"p": "2", "q": text}) for text in ("x", ""))
    )
    assert conflict_of(one, odd).rejection.error_class == "CAST_INVALID_INPUT"
    assert rule(one, empty) is None


def test_every_rule_has_deltas_names() -> None:
    assert {rule.__name__ for rule in RULES} == DELTA_NAMES.keys()
    assert all(rule.__doc__ for rule in RULES)
    assert {exception for _, exception in DELTA_NAMES.values()} > CONCURRENT


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
