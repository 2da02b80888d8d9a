"""Features that the metaData needs are added to the protocol, without action by the writer."""

import json

from tests.builders import NOW_MS, Row, add, info, metadata, proposal, protocol, schema
from tests.support.decisions import ORIGIN, planned, rules, table
from tests.support.outcomes import rejection_of
from tidegate_committer.group_commit.entry_encoding import Attempt, encode
from tidegate_committer.state.table_state import TableState

PLAIN: tuple[Row, Row] = (protocol(), metadata())


def written(state: TableState, row: Row) -> list[Row]:
    decided = planned(state, proposal(row))
    assert rules(decided) == ["committed"]
    one = encode(state, decided.group, ORIGIN, Attempt(ORIGIN.epoch, NOW_MS))
    return [json.loads(line) for line in one.content.splitlines()]


def test_a_property_brings_its_feature() -> None:
    rows = written(table([info(), *PLAIN], [add("a")]), metadata(enableDeletionVectors="true"))
    assert [next(iter(row)) for row in rows] == ["commitInfo", "protocol", "metaData", "txn"]
    listed = rows[1]["protocol"]
    assert listed["readerFeatures"] == ["deletionVectors"]
    assert sorted(listed["writerFeatures"]) == ["appendOnly", "deletionVectors", "invariants"]


def test_a_feature_brings_those_that_it_needs() -> None:
    asked = metadata(**{"feature.rowTracking": "supported"})
    rows = written(table([info(), *PLAIN]), asked)
    assert {"domainMetadata", "rowTracking"} <= set(rows[1]["protocol"]["writerFeatures"])


def test_an_instruction_is_obeyed_and_gone() -> None:
    asked = metadata(**{"feature.domainMetadata": "supported", "appendOnly": "false"})
    rows = written(table([info(), *PLAIN]), asked)
    assert "domainMetadata" in rows[1]["protocol"]["writerFeatures"]
    assert rows[2]["metaData"]["configuration"] == {"delta.appendOnly": "false"}


def test_what_enables_no_new_feature_is_written_as_it_came() -> None:
    asked = metadata(logRetentionDuration="interval 1 day")
    rows = written(table([info(), *PLAIN]), asked)
    assert [next(iter(row)) for row in rows] == ["commitInfo", "metaData", "txn"]
    assert rows[1] == asked


def test_a_feature_that_must_be_added_by_hand_is_refused_where_it_is_missing() -> None:
    asked = metadata()
    asked["metaData"]["schemaString"] = schema(x="timestamp_ntz")
    decided = planned(table([info(), *PLAIN]), proposal(asked))
    assert rules(decided) == ["feature_by_hand"]
    [verdict] = decided.verdicts
    assert rejection_of(verdict).error_class == "DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT"


def test_who_writes_a_protocol_is_taken_at_its_word() -> None:
    rows = (protocol(1, 3), metadata(enableDeletionVectors="true"))
    assert rules(planned(table([info(), *PLAIN]), proposal(*rows))) == ["feature_not_listed"]


def test_versions_bring_what_they_imply_together_and_no_more() -> None:
    """Writer version 6 implies column mapping, which needs reader version 2."""
    state = table([info(), protocol(1, 6), metadata()], [add("a")])
    rows = written(state, metadata(enableDeletionVectors="true"))
    listed = rows[1]["protocol"]
    assert listed["readerFeatures"] == ["deletionVectors"]
    assert "identityColumns" in listed["writerFeatures"]
    assert "columnMapping" not in listed["writerFeatures"]
