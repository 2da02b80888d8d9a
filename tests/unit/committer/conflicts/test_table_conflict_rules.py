"""Each conflict rule about the table itself fires where it should and only there."""

import pytest

from tests.builders import Gate, Row, add, info, metadata, proposal, protocol, remove
from tests.support.conflicts import conflict_of, rebase_state, rule, winner
from tests.support.feature_rows import BACKFILL, TAGGED, TRACKED, listed, mapped, named, numbered
from tests.support.outcomes import rejection_of, rule_of
from tests.support.tables import creating
from tidegate_committer.conflicts.conflict_rules import follow
from tidegate_committer.conflicts.rebase import RebaseState
from tidegate_messages.proposal import Operation, Predicate, ReadSet


@pytest.mark.parametrize(
    ("changed", "error_class"),
    [
        (protocol(4, 7, readerFeatures=[], writerFeatures=[]), "DELTA_INVALID_PROTOCOL_VERSION"),
        (protocol(1, 8, writerFeatures=[]), "DELTA_INVALID_PROTOCOL_VERSION"),
        (listed(reader=("fromMars",)), "DELTA_UNSUPPORTED_FEATURES_FOR_READ"),
        (listed("fromMars"), "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE"),
        (listed("collations"), "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE"),
        (listed(reader=("catalogManaged",)), "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE"),
    ],
)
def test_a_winner_that_requires_an_unsupported_feature_is_not_followed(
    changed: Row, error_class: str
) -> None:
    conflict = conflict_of(rebase_state(proposal(add("a"))), winner(1, changed))
    assert conflict.rule == "protocol_unsupported"
    assert conflict.rejection.error_class == error_class


def test_a_feature_that_binds_by_its_name_alone_stops_who_did_not_know_it() -> None:
    implied = ("appendOnly", "invariants")
    assert rule(
        rebase_state(proposal(add("a"))),
        winner(1, listed(*implied, "clustering", "domainMetadata")),
    ) == ("feature_binds_writers")
    assert (
        rule(rebase_state(proposal(add("a"))), winner(1, listed(*implied, "domainMetadata")))
        is None
    )
    assert rule(rebase_state(proposal(add("a"))), winner(1, protocol(1, 6))) is None
    knew = rebase_state(proposal(add("a")), listed("clustering"), metadata())
    assert rule(knew, winner(1, listed("clustering", "domainMetadata"))) is None


def test_a_dropped_feature_must_not_be_in_use_again() -> None:
    vectors = listed("appendOnly", reader=("deletionVectors",))
    drops = named("DROP FEATURE", listed("appendOnly"))
    on = winner(1, metadata(enableDeletionVectors="true"))
    assert rule(rebase_state(drops, vectors, metadata()), on) == "dropped_feature_in_use"
    vector = {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    deletes = winner(1, remove("a"), add("a", deletionVector=vector))
    assert rule(rebase_state(drops, vectors, metadata()), deletes) == "dropped_feature_in_use"
    assert rule(rebase_state(drops, vectors, metadata()), winner(1, add("b"))) is None


def test_a_dropped_domain_feature_meets_a_domain() -> None:
    drops = named("DROP FEATURE", listed("appendOnly"))
    table = (listed("appendOnly", "domainMetadata"), metadata())
    lives: Row = {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}}
    gone: Row = {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": True}}
    assert rule(rebase_state(drops, *table), winner(1, lives)) == "dropped_feature_in_use"
    assert rule(rebase_state(drops, *table), winner(1, gone)) is None


def test_numbering_rows_is_followed_and_adopted() -> None:
    table = (listed("identityColumns"), numbered(5))
    one = rebase_state(proposal(add("a")), *table)
    after = follow(one, [winner(1, TAGGED, numbered(9)), winner(2, TAGGED, numbered(12))])
    assert isinstance(after, RebaseState)
    assert "12" in after.now.metadata.schema_string
    fresh = rebase_state(proposal(add("a")), listed("identityColumns"), numbered(None))
    assert rule(fresh, winner(1, TAGGED, numbered(1))) is None


def test_a_tag_that_lies_is_not_believed() -> None:
    table = (listed("identityColumns"), numbered(5))
    lies = (
        numbered(9, id="other"),
        numbered(9, name="other"),
        numbered(9, description="other"),
        numbered(9, format={"provider": "orc", "options": {}}),
        numbered(9, partitionColumns=["x"]),
        numbered(9, configuration={"a": "1"}),
        # Without its high-water mark a column would allocate values twice.
        numbered(None),
    )
    other = numbered(9)
    other["metaData"]["schemaString"] = other["metaData"]["schemaString"].replace('"x"', '"y"')
    one = rebase_state(proposal(add("a")), *table)
    for lie in (*lies, other):
        assert rule(one, winner(1, TAGGED, lie)) == "metadata_changed", lie
    assert rule(one, winner(1, info(), numbered(9))) == "metadata_changed", "it has no tag"


def test_a_backfill_that_holds_more_than_files_ends_where_files_were_touched() -> None:
    txn: Row = {"txn": {"appId": "s", "version": 1}}
    odd = named("ROW TRACKING BACKFILL", add("a", dataChange=False), txn)
    table = (listed(*TRACKED), metadata())
    touched = winner(1, info("DELETE"), remove("z"))
    assert rule(rebase_state(odd, *table), touched) == "backfill_of_more_than_files"
    assert conflict_of(rebase_state(odd, *table), touched).rejection.error_class is None
    assert rule(rebase_state(odd, *table), winner(1, info(), {"txn": txn["txn"]})) is None
    plain = named("ROW TRACKING BACKFILL", add("a", dataChange=False))
    assert rule(rebase_state(plain, *table), touched) is None


@pytest.mark.parametrize("operation", ["ROW TRACKING BACKFILL", "ROW TRACKING UNBACKFILL"])
def test_row_ids_are_given_where_the_table_knows_of_them(operation: str) -> None:
    one = named(operation, add("a", dataChange=False))
    other = winner(1, info("WRITE"), add("b"))
    assert (
        rule(rebase_state(one, listed("domainMetadata"), metadata()), other)
        == "row_ids_of_no_table"
    )
    tracks = winner(1, listed(*TRACKED))
    assert rule(rebase_state(one, listed("domainMetadata"), metadata()), tracks) is None
    removal = winner(1, info("DELETE"), remove("b"))
    assert rule(rebase_state(one, listed(*TRACKED), metadata()), removal) is None


def test_row_tracking_is_not_dropped_while_row_ids_are_given() -> None:
    drops = named("DROP FEATURE", listed("domainMetadata"))
    table = (listed(*TRACKED), metadata(rowTrackingSuspended="true"))
    gives = winner(1, BACKFILL, add("a", dataChange=False, baseRowId=0))
    assert rule(rebase_state(drops, *table), gives) == "row_ids_of_no_table"
    assert rule(rebase_state(drops, *table), winner(1, info("DELETE"), remove("a"))) is None


def test_taking_ids_away_meets_giving_them() -> None:
    takes = named("ROW TRACKING UNBACKFILL", add("a", dataChange=False))
    gives = winner(1, BACKFILL, add("a", dataChange=False, baseRowId=0))
    table = (listed(*TRACKED), metadata(rowTrackingSuspended="true"))
    assert rule(rebase_state(takes, *table), gives) == "unbackfill_meets_backfill"


def test_what_is_suspended_is_not_turned_on() -> None:
    table = (listed(*TRACKED), metadata(rowTrackingSuspended="true"))
    turns_on = winner(1, metadata(rowTrackingSuspended="true", enableRowTracking="true"))
    assert rule(rebase_state(proposal(add("a")), *table), turns_on) == "unclear_table"
    plain = (listed("appendOnly"), metadata(rowTrackingSuspended="true"))
    assert rule(rebase_state(proposal(add("a")), *plain), winner(1, info(), add("b"))) is None


def test_who_was_given_only_row_ids_was_not_appended() -> None:
    reader = proposal(remove("z"), reads=ReadSet(whole_table=True))
    table = (listed(*TRACKED), metadata())
    gives = winner(1, BACKFILL, add("a", dataChange=False, baseRowId=0))
    assert rule(rebase_state(reader, *table), gives) is None
    lies = winner(1, BACKFILL, add("a", baseRowId=0))
    assert rule(rebase_state(reader, *table), lies) == "concurrent_append"


@pytest.mark.parametrize(
    ("kept", "remedy"), [((), "drop one at a time"), (("invariants",), "keep it")]
)
def test_dropping_a_feature_in_use_is_refused_with_the_remedy(
    kept: tuple[str, ...], remedy: str
) -> None:
    gate = Gate()
    rows = (listed("appendOnly", "invariants"), metadata())
    gate.ask(creating(*rows))
    drop = Operation(name="DROP FEATURE")
    [result] = gate.ask(proposal(listed(*kept), read_version=0, operation=drop))
    assert rejection_of(result).rule == "feature_in_use"
    assert f"; {remedy}" in rejection_of(result).reason


def test_what_only_calls_itself_a_backfill_is_none_where_no_table_knows_of_row_ids() -> None:
    reads = proposal(add("z"), reads=ReadSet(whole_table=True))
    new = add("a", dataChange=False)
    tracked = (listed(*TRACKED), metadata())
    for name in ("ROW TRACKING BACKFILL", "ROW TRACKING UNBACKFILL"):
        named_so = winner(1, info(name), new)
        assert rule(rebase_state(reads), named_so) == "concurrent_append"
        assert rule(rebase_state(reads, *tracked), named_so) is None
        begins = winner(1, listed(*TRACKED, "appendOnly", "invariants"))
        assert rule(rebase_state(reads), begins, winner(2, info(name), new)) is None


def test_a_backfill_forgets_the_files_that_went() -> None:
    gives = named(
        "ROW TRACKING BACKFILL", add("a", dataChange=False), reads=ReadSet(files=("a", "b"))
    )
    table = (listed(*TRACKED), metadata())
    assert rule(rebase_state(gives, *table), winner(1, remove("b"))) is None
    whole = named("ROW TRACKING BACKFILL", add("a", dataChange=False), reads=None)
    assert rule(rebase_state(whole, *table), winner(1, remove("b"))) == "concurrent_delete_read"


def test_partition_values_of_mapped_columns_have_physical_names() -> None:
    names = metadata(["p"], **{"columnMapping.mode": "name"})
    predicate: Predicate = {"op": "=", "column": ["P"], "value": 1, "type": "integer"}
    one = proposal(remove("z"), reads=ReadSet(predicates=(predicate,)))
    table = (protocol(2, 5), mapped(names, "c0", "c2", "c1"))
    there = winner(1, add("a", partitionValues={"c1": "1"}))
    elsewhere = winner(1, add("a", partitionValues={"c1": "2"}))
    logical = winner(1, add("a", partitionValues={"p": "1"}))
    assert rule(rebase_state(one, *table), there) == "concurrent_append"
    assert rule(rebase_state(one, *table), elsewhere) is None
    assert rule(rebase_state(one, *table), logical) is None


def test_a_new_definition_is_checked_whole() -> None:
    """Each of these was once accepted, and delta-rs could not open the table."""

    def rule_for(*rows: Row) -> str:
        [outcome] = Gate().ask(creating(*rows))
        return rule_of(outcome)

    both = {"readerFeatures": ["columnMapping"], "writerFeatures": ["columnMapping"]}
    plain = metadata(**{"columnMapping.mode": "name", "columnMapping.maxColumnId": "2"})
    right = mapped(plain, "col-1", "col-2")
    assert rule_for(protocol(3, 7, **both), right) == "committed"
    assert rule_for(protocol(3, 7, **both), plain) == "bad_metadata"
    twice = mapped(plain, "col-1", "col-2")
    text = twice["metaData"]["schemaString"]
    twice["metaData"]["schemaString"] = text.replace('Mapping.id": 2', 'Mapping.id": 1')
    assert rule_for(protocol(3, 7, **both), twice) == "bad_metadata"
    spelt = {"metaData": {**metadata()["metaData"]}}
    spelt["metaData"]["schemaString"] = spelt["metaData"]["schemaString"].replace(
        ', "nullable": true', ""
    )
    assert rule_for(protocol(), spelt) == "bad_metadata"
    reading = {"readerFeatures": ["v2Checkpoint"], "writerFeatures": []}
    assert rule_for(protocol(3, 7, **reading), metadata()) == "bad_protocol"


def test_a_change_of_a_definition_is_checked_against_the_one_before() -> None:
    both = {"readerFeatures": ["columnMapping"], "writerFeatures": ["columnMapping"]}
    plain = metadata(**{"columnMapping.mode": "name", "columnMapping.maxColumnId": "2"})
    before = mapped(plain, "col-1", "col-2")["metaData"]
    gate = Gate()
    [made] = gate.ask(creating(protocol(3, 7, **both), {"metaData": before}))
    assert made.status == "committed"
    by_id = {**before["configuration"], "delta.columnMapping.mode": "id"}
    [outcome] = gate.ask(proposal({"metaData": {**before, "configuration": by_id}}))
    assert rejection_of(outcome).rule == "bad_metadata"
