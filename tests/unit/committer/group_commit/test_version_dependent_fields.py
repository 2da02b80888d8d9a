"""What is assigned when an entry is encoded, effect by effect."""

import json
from typing import Any

import pytest

from tests.builders import NOW_MS, Row, add, commit, info, metadata, proposal, protocol, remove
from tests.support.decisions import ORIGIN, TERMS, bodies, considered, planned, table, written
from tests.support.feature_rows import TAGGED, TRACKED, listed, named, numbered
from tidegate_committer.decision.machine import VersionLanded, evolve
from tidegate_committer.group_commit.entry_encoding import Attempt, encode
from tidegate_committer.group_commit.version_dependent_fields import follows_untimed
from tidegate_committer.state.log_entry import entry_of
from tidegate_messages.proposal import Proposal

ROWS: tuple[Row, Row] = (listed(*TRACKED), metadata())


def ids(rows: list[Row]) -> list[tuple[str, int | None, int | None]]:
    return [
        (body["path"], body.get("baseRowId"), body.get("defaultRowCommitVersion"))
        for body in bodies(rows, "add")
    ]


def marks(rows: list[Row]) -> list[int]:
    domains = bodies(rows, "domainMetadata")
    return [json.loads(domain["configuration"])["rowIdHighWaterMark"] for domain in domains]


def test_files_of_a_group_get_ids_one_after_the_other() -> None:
    state = table([info(), *ROWS])
    state, first = written(state, proposal(add("a"), add("b")), proposal(add("c")))
    assert ids(first) == [("a", 0, 1), ("b", 10, 1), ("c", 20, 1)]
    assert marks(first) == [29]
    state, second = written(state, proposal(add("d")))
    assert ids(second) == [("d", 30, 2)]
    assert marks(second) == [39]


@pytest.mark.parametrize("told", ['{"rowIdHighWaterMark":19}', ""])
def test_a_mark_that_is_taken_back_while_ids_are_given_holds_on(told: str) -> None:
    state, _ = written(table([info(), *ROWS]), proposal(add("a"), add("b")))
    gone = {"domain": "delta.rowTracking", "configuration": told, "removed": True}
    taken = commit(2, info("X"), {"domainMetadata": gone})
    state = evolve(state, VersionLanded(entry_of(taken, "0" * 64, 1)))
    _, rows = written(state, proposal(add("c")))
    assert ids(rows) == [("c", 20, 3)]


def test_an_id_that_is_brought_without_a_commit_version_stands_in_the_log_once() -> None:
    state, _ = written(table([info(), *ROWS]), proposal(add("a")))
    moved = add("b", dataChange=False, baseRowId=0)
    one = proposal(remove("a", dataChange=False), moved, read_version=1)
    decided = planned(state, one, terms=TERMS)
    content = encode(state, decided.group, ORIGIN, Attempt(ORIGIN.epoch, NOW_MS)).content
    assert content.count(b'"baseRowId":0') == 1
    assert content.count(b'"defaultRowCommitVersion":2') == 1


def test_no_ids_while_row_tracking_is_suspended() -> None:
    state = table([info(), ROWS[0], metadata(rowTrackingSuspended="true")])
    _, rows = written(state, proposal(add("a", baseRowId=3, defaultRowCommitVersion=0), add("b")))
    assert ids(rows) == [("a", None, None), ("b", None, None)]
    assert marks(rows) == []


def test_who_lists_row_tracking_gets_the_first_ids() -> None:
    state = table([info(), listed("domainMetadata"), metadata()], [add("a")])
    _, rows = written(state, proposal(listed(*TRACKED), add("b"), read_version=1))
    assert ids(rows) == [("b", 0, 2)]


def test_removals_get_the_time_of_their_entry() -> None:
    state, _ = written(table([info(), *ROWS]), proposal(add("a")))
    _, rows = written(state, proposal(remove("a", deletionTimestamp=5), read_version=1))
    assert bodies(rows, "remove")[0]["deletionTimestamp"] == NOW_MS + 8


TIMED = listed("inCommitTimestamp")


def test_timestamps_begin_at_the_recorded_version() -> None:
    state = table([info(), TIMED, metadata()], [info(), add("a")])
    state, rows = written(state, proposal(metadata(enableInCommitTimestamps="true")))
    [result], [about] = bodies(rows, "commitInfo"), bodies(rows, "metaData")
    assert about["configuration"] == {
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": "2",
        "delta.inCommitTimestampEnablementTimestamp": str(result["inCommitTimestamp"]),
    }
    assert next(iter(rows[0])) == "commitInfo"
    _, later = written(state, proposal(add("b"), read_version=2))
    assert bodies(later, "commitInfo")[0]["inCommitTimestamp"] > result["inCommitTimestamp"]


def test_the_first_in_commit_timestamp_follows_the_file_before() -> None:
    state = table([info(), TIMED, metadata()], [info(), add("a")])
    begins = considered(proposal(metadata(enableInCommitTimestamps="true")))
    assert follows_untimed(state, [begins])
    assert not follows_untimed(state, [considered(proposal(add("b")))])
    on = metadata(enableInCommitTimestamps="true")
    timed = table([info(inCommitTimestamp=5), TIMED, on])
    assert not follows_untimed(timed, [considered(proposal(add("b")))])
    broken = table([info(inCommitTimestamp=5), TIMED, on], [add("a")])
    assert follows_untimed(broken, [considered(proposal(add("b")))])


def test_the_time_of_a_file_is_waited_for() -> None:
    state = table([info(), TIMED, metadata()])
    entry = entry_of(commit(1, info(), add("a")), "0" * 64, 1)
    state = evolve(state, VersionLanded(entry, written_ms=NOW_MS + 99))
    _, rows = written(state, proposal(metadata(enableInCommitTimestamps="true")))
    assert bodies(rows, "commitInfo")[0]["inCommitTimestamp"] == NOW_MS + 100


def widened(*changes: dict[str, Any], on: str = "true") -> Row:
    field = {
        "name": "x",
        "type": {"type": "array", "elementType": "long", "containsNull": True},
        "nullable": True,
        "metadata": {"delta.typeChanges": list(changes)},
    }
    outer = {"type": "struct", "fields": [{**field, "metadata": field["metadata"]}]}
    nested = {"name": "n", "type": outer, "nullable": True, "metadata": {}}
    row = metadata(enableTypeWidening=on)
    row["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": [nested]})
    return row


def change(**fields: int) -> dict[str, Any]:
    return {"fromType": "integer", "toType": "long", "fieldPath": "element", **fields}


@pytest.mark.parametrize("feature", ["typeWidening", "typeWidening-preview"])
def test_a_change_of_type_is_dated_with_its_version(feature: str) -> None:
    state = table(
        [info(), listed(reader=(feature,)), metadata(enableTypeWidening="true")],
        [info(), add("a")],
        [info(), add("b")],
    )
    rows = (change(tableVersion=0), change(tableVersion=1), change())
    _, result = written(state, proposal(widened(*rows)))
    [about] = bodies(result, "metaData")
    [field] = json.loads(about["schemaString"])["fields"][0]["type"]["fields"]
    assert field["metadata"]["delta.typeChanges"] == [
        change(tableVersion=0),
        change(tableVersion=3),
        change(),
    ]


def test_changes_are_left_alone_while_widening_is_off() -> None:
    state = table([info(), listed(reader=("typeWidening",)), metadata()], [info(), add("a")])
    row = widened(change(tableVersion=1), on="false")
    _, result = written(state, proposal(row))
    assert bodies(result, "metaData")[0]["schemaString"] == row["metaData"]["schemaString"]


BOUND = "delta.requireCheckpointProtectionBeforeVersion"


def test_dropping_what_history_needs_protects_its_checkpoints() -> None:
    names = ("appendOnly", "checkpointProtection", "invariants")
    state = table(
        [info(), listed(*names, reader=("deletionVectors",)), metadata()], [info(), add("a")]
    )
    drops = named(
        "DROP FEATURE", listed(*names), metadata(requireCheckpointProtectionBeforeVersion="1")
    )
    _, rows = written(state, drops)
    assert bodies(rows, "metaData")[0]["configuration"][BOUND] == "2"


def test_the_bound_of_checkpoints_is_moved_in_no_metadata_that_was_not_read() -> None:
    names = ("appendOnly", "checkpointProtection", "invariants")
    changed = metadata(**{"columnMapping.maxColumnId": "4"})

    def rule(drops: Proposal, before: Row) -> str | None:
        [verdict] = planned(table([info(), before, metadata()], [info(), changed]), drops).verdicts
        return verdict.rejection.rule if verdict.rejection else None

    vectors = listed(*names, reader=("deletionVectors",))
    assert rule(named("DROP FEATURE", listed(*names)), vectors) == "metadata_changed"
    constraints = listed(*names, "checkConstraints")
    assert rule(named("DROP FEATURE", listed(*names)), constraints) is None


def test_dropping_a_writer_feature_needs_no_protected_checkpoints() -> None:
    names = ("appendOnly", "checkpointProtection", "invariants")
    state = table([info(), listed(*names, "checkConstraints"), metadata()], [info(), add("a")])
    drops = named("DROP FEATURE", listed(*names), metadata(logRetentionDuration="1 day"))
    _, rows = written(state, drops)
    assert BOUND not in bodies(rows, "metaData")[0]["configuration"]


def test_numbering_rows_is_recorded_in_a_tag() -> None:
    state = table([info(), listed("identityColumns"), numbered(5)])
    state, rows = written(state, proposal(numbered(9), add("a")))
    tag = TAGGED["commitInfo"]["tags"]
    assert bodies(rows, "commitInfo")[0]["tags"] == tag
    _, rows = written(state, proposal(numbered(9, name="new"), read_version=1))
    assert "tags" not in bodies(rows, "commitInfo")[0]


def test_unpreserved_row_ids_are_recorded_in_a_tag() -> None:
    state = table([info(), *ROWS], [info("SET TBLPROPERTIES"), metadata(enableRowTracking="true")])
    _, rows = written(state, proposal(add("a")), proposal(add("b"), read_version=1))
    assert bodies(rows, "commitInfo")[0]["tags"] == {"delta.rowTracking.preserved": "false"}


def test_the_preserved_tag_is_left_out_where_a_winner_changed_something_else() -> None:
    shared = metadata()
    shared["metaData"]["configuration"] = {"io.unitycatalog.tableId": "u"}
    state = table([info(), *ROWS], [info("SET TBLPROPERTIES"), shared])
    _, rows = written(state, proposal(add("a")))
    assert "tags" not in bodies(rows, "commitInfo")[0]


def test_a_plain_table_gets_nothing_of_all_this() -> None:
    state = table([info(), protocol(), metadata()])
    _, rows = written(state, proposal(add("a"), add("b")))
    assert [next(iter(row)) for row in rows] == ["commitInfo", "add", "add", "txn"]
    assert bodies(rows, "add") == [add("a")["add"], add("b")["add"]]
    assert "tags" not in bodies(rows, "commitInfo")[0]
