"""Each conflict rule fires where it should and only there; the conflict vectors hold
delta-spark's own decisions.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from pydantic import JsonValue

from tests import builders
from tests.builders import Row, add, commit, delete, info, metadata, proposal, protocol, remove
from tidegate_committer.conflicts.conflict_rules import (
    CONCURRENT,
    DELTA_NAMES,
    RULES,
    Conflict,
    RebaseState,
    TableDefinition,
    check,
)
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_reader import read_record
from tidegate_committer.policy import Level, Policy
from tidegate_committer.state.log_entry import Entry, entry_of
from tidegate_messages.proposal import Operation, Predicate, Proposal, ReadSet

P1: Predicate = {"op": "=", "column": ["p"], "value": 1, "type": "integer"}


def winner(version: int, *rows: Row) -> Entry:
    return entry_of(commit(version, *rows), "0" * 64, 1)


def with_full_adds(version: int, *rows: Row) -> Entry:
    return replace(winner(version, *rows), adds=tuple(commit(version, *rows).adds))


def found(
    one: Proposal,
    *winners: Entry,
    level: Level = "Serializable",
    partitioned_by: Sequence[str] = ("p",),
    features: Sequence[str] = (),
    versions: tuple[int, int] = (1, 2),
) -> Conflict | None:
    """Return the conflict of a proposal that read version 0 of a table partitioned by `p`."""
    candidate = read_record(builders.value_of(one), 0, Policy())
    assert isinstance(candidate, Candidate)
    assert candidate.flaw is None
    named = protocol(1, 7, writerFeatures=list(features)) if features else protocol(*versions)
    made = commit(0, named, metadata(partitioned_by))
    assert made.metadata is not None
    assert made.protocol is not None
    table_definition = TableDefinition(made.metadata, made.protocol)
    return check(
        RebaseState(candidate, table_definition, table_definition, candidate.level(level)), winners
    )


def test_who_would_be_refused_again_is_not_told_to_run_again() -> None:
    features = {"writerFeatures": ["flying"], "readerFeatures": []}
    unknown = found(proposal(add("a"), reads=ReadSet()), winner(1, protocol(3, 7, **features)))
    later = found(delete("x"), winner(1, info("DELETE"), remove("x")))
    assert unknown is not None
    assert later is not None
    assert (unknown.rejection.rule, unknown.rejection.advice) == ("protocol_unsupported", "fix")
    assert (later.rejection.rule, later.rejection.advice) == ("concurrent_delete_read", "rerun")
    assert unknown.rejection.reason == "version 1 asks for the unknown feature 'flying'"


def rule_of(conflict: Conflict | None) -> str | None:
    return conflict.rule if conflict else None


def test_blind_append_never_conflicts_on_files() -> None:
    others = winner(1, info(), add("p=1/x"), remove("p=1/y"))
    assert found(proposal(add("p=1/a")), others) is None


def test_blind_append_conflicts_with_a_new_schema() -> None:
    row = metadata(["p"])
    row["metaData"]["schemaString"] = builders.schema(x="string", s="string", p="integer")
    assert rule_of(found(proposal(add("p=1/a")), winner(1, row))) == "metadata_changed"


def test_what_was_read_by_partition_conflicts_with_an_append_there() -> None:
    one = proposal(remove("p=1/a"), reads=ReadSet(predicates=(P1,), files=("p=1/a",)))
    there = winner(1, info(isBlindAppend=True), add("p=1/x"))
    elsewhere = winner(1, info(isBlindAppend=True), add("p=2/x"))
    conflict = found(one, there)
    assert conflict is not None
    assert conflict.rule == "concurrent_append"
    assert conflict.found.path == "p=1/x"
    assert found(one, elsewhere) is None


@pytest.mark.parametrize("op", ["in", "not"])
def test_what_a_node_says_besides_does_not_make_it_another_one(op: str) -> None:
    made = commit(0, protocol(), metadata(["p"]))
    assert made.metadata is not None
    assert made.protocol is not None
    table_definition = TableDefinition(made.metadata, made.protocol)

    def partitions(value: int) -> list[bool]:
        besides: dict[str, JsonValue] = {"column": "p", "type": "integer", "value": 7}
        equal: dict[str, JsonValue] = {**P1, "value": value}
        own: dict[str, JsonValue] = {"values": [value]} if op == "in" else {"arg": equal}
        test = table_definition.partition_test({"op": op, **besides, **own})
        return [test[frozenset({("p", text)})] for text in ("1", "2")]

    wanted = [[True, False], [False, True]]
    assert [partitions(1), partitions(2)] == (wanted if op == "in" else wanted[::-1])


def test_write_serializable_lets_blind_appends_come_later() -> None:
    one = proposal(remove("p=1/a"), reads=ReadSet(predicates=(P1,), files=("p=1/a",)))
    blind = winner(1, info(isBlindAppend=True), add("p=1/x"))
    seeing = winner(1, info(isBlindAppend=False), add("p=1/x"))
    assert found(one, blind, level="WriteSerializable") is None
    assert rule_of(found(one, seeing, level="WriteSerializable")) == "concurrent_append"


def test_a_compaction_passes_appends_and_meets_removals() -> None:
    rows = (remove("p=1/a", dataChange=False), add("p=1/b", dataChange=False))
    reads = ReadSet(predicates=(P1,), files=("p=1/a",))
    one = proposal(*rows, reads=reads, operation=Operation(name="OPTIMIZE"))
    assert found(one, winner(1, add("p=1/x"))) is None
    assert rule_of(found(one, winner(1, remove("p=1/a")))) == "concurrent_delete_read"


def test_two_removals_of_one_file_conflict_however_it_is_spelled() -> None:
    one = proposal(remove("p=1/a%20b"), reads=ReadSet(predicates=()))
    assert rule_of(found(one, winner(1, remove("p=1/a b")))) == "concurrent_delete_delete"


def test_a_file_that_was_read_must_not_go() -> None:
    assert rule_of(found(delete("p=1/a"), winner(1, remove("p=1/a")))) == "concurrent_delete_read"
    assert found(delete("p=1/a"), winner(1, remove("p=1/z"))) is None


def test_a_reader_of_everything_conflicts_with_any_removal() -> None:
    one = proposal(add("p=1/a"), reads=None)
    assert rule_of(found(one, winner(1, remove("p=9/z")))) == "concurrent_delete_read"


def test_an_application_that_was_asked_for_must_not_move() -> None:
    one = proposal(add("p=1/a"), reads=ReadSet(app_ids=("s",)))
    moved: Row = {"txn": {"appId": "s", "version": 1}}
    ours: Row = {"txn": {"appId": "tidegate/t/0", "version": 1}}
    assert rule_of(found(one, winner(1, moved))) == "concurrent_transaction"
    assert found(one, winner(1, ours)) is None
    assert found(proposal(add("p=1/a")), winner(1, moved)) is None


def test_one_domain_is_written_by_one() -> None:
    row: Row = {"domainMetadata": {"domain": "d", "configuration": "x", "removed": False}}
    assert rule_of(found(proposal(row), winner(1, row))) == "domain_metadata_changed"
    reader = proposal(add("p=1/a"), reads=ReadSet(domains=("d",)))
    assert rule_of(found(reader, winner(1, row))) == "domain_metadata_changed"


def test_a_winner_that_says_two_things_of_one_domain_is_told_by_deltas_name() -> None:
    rows = [
        {"domainMetadata": {"domain": "d", "configuration": text, "removed": False}}
        for text in ("x", "y")
    ]
    twice, one = winner(1, *rows), delete("p=1/a")
    result = found(one, twice, features=("domainMetadata",))
    assert result is not None
    assert result.rejection.error_class == "DELTA_DUPLICATE_DOMAIN_METADATA_INTERNAL_ERROR"
    assert result.rejection.exception not in CONCURRENT
    assert found(one, winner(1, rows[0]), features=("domainMetadata",)) is None
    assert found(one, twice, features=("appendOnly",)) is None


def test_a_switch_that_is_neither_on_nor_off_is_no_conflict_by_name() -> None:
    feature = ("inCommitTimestamp",)
    for text, is_conflict in (("false", True), ("yes", False), ("1", False)):
        row = metadata(["p"])
        row["metaData"]["configuration"] = {"delta.enableInCommitTimestamps": text}
        result = found(proposal(add("p=1/a")), winner(1, row), features=feature)
        assert result is not None
        assert result.rule == "metadata_changed"
        assert (result.rejection.exception in CONCURRENT) is is_conflict
        elsewhere = found(proposal(add("p=1/a")), winner(1, row), features=("appendOnly",))
        assert elsewhere is not None
        assert elsewhere.rejection.exception in CONCURRENT
    # Row tracking's property is read even if the protocol does not list the feature.
    row["metaData"]["configuration"] = {"delta.enableRowTracking": "yes"}
    read = found(proposal(add("p=1/a")), winner(1, row), features=("appendOnly",))
    assert read is not None
    assert read.rejection.exception not in CONCURRENT


def test_two_protocols_conflict_and_so_does_a_dropped_feature() -> None:
    assert rule_of(found(proposal(protocol()), winner(1, protocol()))) == "protocol_changed"
    assert rule_of(found(proposal(add("p=1/a")), winner(1, protocol(1, 1)))) == "protocol_changed"
    assert found(proposal(add("p=1/a")), winner(1, protocol())) is None


def test_what_two_versions_do_not_imply_together_is_not_dropped() -> None:
    """Writer version 5 implies column mapping, which needs reader version 2."""
    names = ["appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"]
    listed = winner(1, protocol(1, 7, writerFeatures=names))
    for reader, is_dropped in ((1, False), (2, True)):
        result = found(proposal(add("p=1/a")), listed, versions=(reader, 5))
        assert (rule_of(result) == "protocol_changed") is is_dropped


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
    assert rule_of(found(delete("p=1/a"), everything)) == "protocol_unsupported"


def test_the_first_winner_with_a_conflict_decides() -> None:
    one = proposal(remove("p=1/a"), reads=ReadSet(predicates=(P1,), files=("p=1/a",)))
    conflict = found(
        one, winner(1, add("p=2/x")), winner(2, add("p=1/x")), winner(3, protocol(1, 1))
    )
    assert conflict is not None
    assert (conflict.rule, conflict.winner_version) == ("concurrent_append", 2)
    assert conflict.rejection.error_class == "DELTA_CONCURRENT_APPEND"
    assert conflict.rejection.exception == "ConcurrentAppendException"


def test_a_partition_value_that_is_none_is_told_as_such() -> None:
    one = proposal(remove("p=1/a"), reads=ReadSet(predicates=(P1,), files=("p=1/a",)))
    conflict = found(one, winner(1, add("p=x/a")))
    assert conflict is not None
    assert conflict.rejection.error_class == "CAST_INVALID_INPUT"
    assert conflict.rejection.exception not in CONCURRENT


def test_a_partition_value_that_is_none_is_told_before_one_that_matches() -> None:
    one = proposal(remove("p=1/a"), reads=ReadSet(predicates=(P1,)))
    odd = add("p=x/y", partitionValues={"p": "x"})
    conflict = found(one, winner(1, info(), add("p=1/x"), odd))
    assert conflict is not None
    assert conflict.rejection.error_class == "CAST_INVALID_INPUT"


def test_a_partition_value_that_is_none_is_told_of_a_file_that_statistics_rule_out() -> None:
    both: Predicate = {"op": "and", "args": [{**P1, "column": ["q"]}, {**P1}]}
    one = proposal(
        remove("p=1/a", partitionValues={"p": "1", "q": "1"}), reads=ReadSet(predicates=(both,))
    )
    odd, empty = (add("b", partitionValues={"p": "2", "q": text}) for text in ("x", ""))
    conflict = found(one, with_full_adds(1, info(), odd), partitioned_by=["p", "q"])
    assert conflict is not None
    assert conflict.rejection.error_class == "CAST_INVALID_INPUT"
    assert found(one, with_full_adds(1, info(), empty), partitioned_by=["p", "q"]) is None


def test_every_rule_has_deltas_names() -> None:
    assert {rule.__name__ for rule in RULES} == DELTA_NAMES.keys()
    assert all(rule.__doc__ for rule in RULES)


def test_a_tolerated_winner_is_adopted() -> None:
    # Each change is compared with the rebased metadata, not with the metadata that was read.
    row, back = metadata(["p"]), metadata(["p"])
    row["metaData"]["configuration"] = {"io.unitycatalog.tableId": "u"}
    assert found(proposal(add("p=1/a")), winner(1, row)) is None
    assert rule_of(found(proposal(add("p=1/a")), winner(1, row), winner(2, back)))
