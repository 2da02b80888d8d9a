"""What features of the read table require of a proposal, and what dropping a feature requires."""

import json
from dataclasses import replace

import pytest

from tests import builders
from tests.builders import Row, add, info, metadata, proposal, remove
from tests.support.decisions import landed, planned, rules, table
from tests.support.feature_rows import TRACKED, VECTOR, WIDE, listed, named
from tests.support.outcomes import rejection_of
from tidegate_committer.admission.feature_checks import MARK_MAX, ROWS_MAX
from tidegate_committer.policy import Policy
from tidegate_committer.state.table_state import RowIds, TableState
from tidegate_messages.proposal import Proposal

VECTORS = listed("appendOnly", "checkpointProtection", reader=("deletionVectors",))
REFUSED = ("feature_in_use", "feature_not_listed", "not_supported")
"""Refusals for dropping a feature that is in use; a missing protocol feature is reported first."""


def rule_of_one(state: TableState, one: Proposal) -> str:
    [answer] = rules(planned(state, one))
    return answer


def domain(name: str, text: str = "{}", *, removed: bool = False) -> Row:
    return {"domainMetadata": {"domain": name, "configuration": text, "removed": removed}}


def test_the_mark_of_row_ids_is_nobodys_but_the_committers() -> None:
    state = table([info(), listed(*TRACKED), metadata()])
    for row in (domain("delta.rowTracking"), domain("delta.rowTracking", removed=True)):
        assert rule_of_one(state, proposal(row)) == "reserved_domain"
    gone = domain("delta.rowTracking", removed=True)
    drops = named("DROP FEATURE", listed("domainMetadata"), gone)
    suspended = table([info(), listed(*TRACKED), metadata(rowTrackingSuspended="true")])
    assert rule_of_one(suspended, drops) == "committed"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"clusteringColumns":[["x"],["a","b"]],"domainName":"delta.clustering"}', "committed"),
        ('{"clusteringColumns":[]}', "committed"),
        ('{"clusteringColumns":["x"]}', "malformed"),
        ('{"clusteringColumns":[[]]}', "malformed"),
        ("{}", "malformed"),
        ("[]", "malformed"),
        ("no json", "malformed"),
    ],
)
def test_clustering_names_columns(text: str, answer: str) -> None:
    state = table([info(), listed("clustering", "domainMetadata"), metadata()])
    assert rule_of_one(state, proposal(domain("delta.clustering", text))) == answer
    plain = table([info(), listed("domainMetadata"), metadata()])
    assert rule_of_one(plain, proposal(domain("delta.clustering", text))) == "domains_not_supported"
    # A domain that a dropped feature left behind may be removed.
    gone = domain("delta.clustering", text, removed=True)
    assert rule_of_one(plain, proposal(gone)) == "committed"


@pytest.mark.parametrize(
    "own", [{"rowTrackingSuspended": "true", "enableRowTracking": "true"}, {"isolationLevel": "No"}]
)
def test_a_table_that_leaves_open_how_it_is_written_is_not_written(own: dict[str, str]) -> None:
    unclear = table([info(), listed(*TRACKED), metadata(**own)])
    assert rule_of_one(unclear, proposal(add("a"))) == "unclear_table"
    assert rule_of_one(unclear, named("UNSET TBLPROPERTIES", metadata())) == "committed"


def test_who_drops_a_feature_drops_one() -> None:
    state = table([info(), listed("appendOnly", "invariants"), metadata()])
    same = named("DROP FEATURE", listed("appendOnly", "invariants"))
    assert rule_of_one(state, same) == "bad_protocol"


def test_a_property_that_was_there_before_is_nobodys_mistake() -> None:
    odd = metadata(isolationLevel="SnapshotIsolation")
    state = table([info(), listed("appendOnly"), odd])
    assert rule_of_one(state, named("SET TBLPROPERTIES", odd)) == "committed"
    plain = table([info(), listed("appendOnly"), metadata()])
    assert rule_of_one(plain, named("SET TBLPROPERTIES", odd)) == "bad_metadata"


def test_who_removes_from_a_table_of_appends_hears_of_that_first() -> None:
    only_appends = [info(), listed("appendOnly"), metadata(appendOnly="true"), add("old")]
    state = table(only_appends, [info("DELETE"), remove("old")])
    assert rule_of_one(state, proposal(remove("old"), read_version=0)) == "append_only"


def test_files_are_counted_where_rows_are_tracked() -> None:
    state = table([info(), listed(*TRACKED), metadata()])
    assert rule_of_one(state, proposal(add("a", stats=None))) == "row_ids_without_statistics"
    guess = add("a", stats=None, baseRowId=5)
    assert rule_of_one(state, proposal(guess)) == "row_ids_without_statistics"
    suspended = table([info(), listed(*TRACKED), metadata(rowTrackingSuspended="true")])
    assert rule_of_one(suspended, proposal(add("a", stats=None))) == "committed"
    moved = landed(state, proposal(add("a")))
    repeat = add("a", stats=None, baseRowId=3, dataChange=False)
    assert rule_of_one(moved, proposal(repeat, read_version=1)) == "committed"


def test_row_ids_stay_numbers_of_64_bits() -> None:
    def counted(path: str, rows: int) -> Row:
        return add(path, stats=json.dumps({"numRecords": rows}))

    begun = [info(), listed(*TRACKED), metadata()]
    assert rule_of_one(table(begun), proposal(counted("a", ROWS_MAX))) == "committed"
    assert rule_of_one(table(begun), proposal(counted("a", ROWS_MAX + 1))) == "too_large"
    assert (
        rule_of_one(table(begun), proposal(counted("a", ROWS_MAX), counted("b", 1))) == "too_large"
    )
    for mark, answer in ((MARK_MAX, "committed"), (MARK_MAX + 1, "too_large")):
        marked = domain("delta.rowTracking", json.dumps({"rowIdHighWaterMark": mark}))
        assert rule_of_one(table([*begun, marked]), proposal(counted("a", ROWS_MAX))) == answer
        assert (
            rule_of_one(table([*begun, marked, add("old")]), builders.delete("old")) == "committed"
        )
    members_max = Policy().group_members_max
    assert MARK_MAX + members_max * ROWS_MAX < 2**63


def test_features_go_only_by_their_own_operation_and_one_at_a_time() -> None:
    state = table([info(), listed("appendOnly", "checkConstraints", "invariants"), metadata()])
    left = listed("appendOnly", "invariants")
    assert rule_of_one(state, named("SET TBLPROPERTIES", left)) == "bad_protocol"
    assert rule_of_one(state, named("DROP FEATURE", left)) == "committed"
    assert rule_of_one(state, named("DROP FEATURE", listed("appendOnly"))) == "feature_in_use"
    stays = named("DROP FEATURE", listed("checkConstraints", "invariants"))
    assert rule_of_one(state, stays) == "feature_in_use"
    [verdict] = planned(state, stays).verdicts
    assert rejection_of(verdict).error_class == "DELTA_FEATURE_DROP_UNSUPPORTED_CLIENT_FEATURE"


def test_what_binds_readers_is_not_listed_for_writers_alone() -> None:
    state = table([info(), listed("appendOnly"), metadata()])
    row = {"minReaderVersion": 1, "minWriterVersion": 7}
    hidden = {"protocol": {**row, "writerFeatures": ["appendOnly", "v2Checkpoint"]}}
    assert rule_of_one(state, named("UPGRADE PROTOCOL", hidden)) == "bad_protocol"
    mapped = {**row, "minReaderVersion": 2, "writerFeatures": ["appendOnly", "columnMapping"]}
    assert rule_of_one(state, named("UPGRADE PROTOCOL", {"protocol": mapped})) == "committed"


@pytest.mark.parametrize(
    ("feature", "trace"),
    [
        ("checkConstraints", {"constraints.c": "x > 0"}),
        ("inCommitTimestamp", {"inCommitTimestampEnablementVersion": "1"}),
        ("inCommitTimestamp", {"enableInCommitTimestamps": "true"}),
        ("checkpointProtection", {"requireCheckpointProtectionBeforeVersion": "1"}),
        ("rowTracking", {"enableRowTracking": "true"}),
    ],
)
def test_a_writer_feature_goes_when_no_property_uses_it(
    feature: str, trace: dict[str, str]
) -> None:
    table_of = (listed("appendOnly", feature), metadata(**trace))
    drops = named("DROP FEATURE", listed("appendOnly"))
    used = rule_of_one(table([info(), *table_of]), drops)
    assert used in REFUSED
    left = table([info(), listed("appendOnly", feature), metadata()])
    assert rule_of_one(left, drops) == "committed"


def test_row_tracking_goes_where_no_file_carries_row_ids() -> None:
    drops = named("DROP FEATURE", listed("appendOnly", "domainMetadata"))
    names = ("appendOnly", "domainMetadata", "rowTracking")
    for own in (metadata(), metadata(rowTrackingSuspended="true")):
        state = table([info(), listed(*names), own])
        assert rule_of_one(state, drops) == "committed"
        carries = replace(state, row_ids={0: RowIds("1 files carry row ids", "")})
        assert rule_of_one(carries, drops) == "feature_in_use"


def test_a_feature_that_another_one_needs_stays() -> None:
    drops = named("DROP FEATURE", listed("appendOnly", "clustering"))
    names = ("appendOnly", "domainMetadata", "clustering")
    assert rule_of_one(table([info(), listed(*names), metadata()]), drops) == "feature_in_use"


@pytest.mark.parametrize(
    ("feature", "trace"),
    [
        ("columnMapping", {"columnMapping.mode": "name"}),
        ("v2Checkpoint", {"checkpointPolicy": "v2"}),
        ("typeWidening", {"enableTypeWidening": "true"}),
        ("deletionVectors", {"enableDeletionVectors": "true"}),
    ],
)
def test_a_feature_of_readers_goes_when_no_property_uses_it(
    feature: str, trace: dict[str, str]
) -> None:
    before = listed("appendOnly", reader=(feature,))
    clean = table([info(), before, metadata()])
    assert rule_of_one(clean, named("DROP FEATURE", listed("appendOnly"))) == "committed"
    used = named("DROP FEATURE", listed("appendOnly"), metadata(**trace))
    assert rule_of_one(clean, used) in REFUSED


def test_vectors_and_domains_at_the_head_keep_their_feature() -> None:
    on = metadata(enableDeletionVectors="true")
    state = table([info(), VECTORS, on], [info(), add("a")])
    deletes = proposal(remove("a"), add("a", deletionVector=VECTOR, stats=WIDE), read_version=1)
    state = landed(state, deletes)
    state = landed(state, named("UNSET TBLPROPERTIES", metadata(), read_version=2))
    drops = named("DROP FEATURE", listed("appendOnly", "checkpointProtection"), read_version=3)
    assert rule_of_one(state, drops) == "feature_in_use"
    gone = proposal(remove("a", deletionVector=VECTOR), read_version=3)
    state = landed(state, gone)
    left = listed("appendOnly", "checkpointProtection")
    assert rule_of_one(state, named("DROP FEATURE", left, read_version=4)) == "committed"
    domains = table([info(), listed("appendOnly", "domainMetadata"), metadata()], [domain("d")])
    ends = named("DROP FEATURE", listed("appendOnly"), read_version=1)
    assert rule_of_one(domains, ends) == "feature_in_use"


def test_a_tolerated_change_of_names_is_checked_at_the_head() -> None:
    mapped = metadata(["p"], **{"columnMapping.mode": "name", "columnMapping.maxColumnId": "3"})
    text = mapped["metaData"]["schemaString"]
    for place, name in enumerate(("x", "s", "p"), 1):
        physical = f'{{"delta.columnMapping.id":{place},"delta.columnMapping.physicalName":"c"}}'
        named_so = physical.replace('"c"', f'"{name}"' if name != "p" else '"other"')
        text = text.replace(
            f'"name": "{name}", "type": "{KINDS[name]}", "nullable": true, "metadata": {{}}',
            f'"name": "{name}", "type": "{KINDS[name]}", "nullable": true, "metadata": {named_so}',
        )
    mapped["metaData"]["schemaString"] = text
    before = [info(), listed(reader=("columnMapping",)), metadata(["p"])]
    state = table(before, [info(), mapped])
    assert rule_of_one(state, proposal(add("p=1/a"))) == "partition_values"


KINDS = {"x": "long", "s": "string", "p": "integer"}


def test_rows_may_move_where_they_only_join() -> None:
    state = table([info(), listed(), metadata(appendOnly="true"), add("a")])
    moved = remove("a", dataChange=False), add("b", dataChange=False)
    assert rule_of_one(state, proposal(*moved)) == "committed"
    assert rule_of_one(state, proposal(remove("a"), moved[1])) == "append_only"


def test_who_repeats_vectors_brings_none_to_a_table_without_them() -> None:
    state = table([info(), listed(), metadata(), add("a")])
    marked = add("a", dataChange=False, deletionVector=VECTOR, stats=WIDE)
    for name in ("COMPUTE STATS", "ROW TRACKING BACKFILL"):
        assert rule_of_one(state, named(name, remove("a", dataChange=False), marked)) == (
            "vectors_not_allowed"
        )


def test_a_domain_that_was_removed_keeps_no_feature() -> None:
    start = [info(), listed("domainMetadata"), metadata()]
    state = table(start, [info(), domain("mine")])
    drops = {"read_version": 1}
    assert rule_of_one(state, named("DROP FEATURE", listed(), **drops)) == "feature_in_use"
    state = table(start, [info(), domain("mine")], [info(), domain("mine", removed=True)])
    assert rule_of_one(state, named("DROP FEATURE", listed(), read_version=2)) == "committed"
