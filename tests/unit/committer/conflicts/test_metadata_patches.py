"""Metadata patches: patches of other columns and properties commit, also after a rebase."""

import json
from typing import Any

import pytest

from tests.builders import Gate, Row, add, metadata, proposal, protocol, remove, row_delete, rows_of
from tests.support.feature_rows import mapped
from tests.support.other_engines import write
from tests.support.outcomes import rejection_of, rules_of
from tests.support.tables import creating
from tidegate_committer.conflicts.metadata_patches import touches
from tidegate_delta.definitions.definition import Definition
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.schema.types import parse_schema
from tidegate_messages.metadata_patch import MetadataPatch, metadata_hash
from tidegate_messages.proposal import Operation, Predicate, Proposal, ReadSet

READING = ["columnMapping", "deletionVectors", "typeWidening"]
MAPPED = [*READING, "clustering", "domainMetadata"]
FEATURES = protocol(3, 7, readerFeatures=READING, writerFeatures=MAPPED)
PARTITIONED = protocol(3, 7, readerFeatures=READING, writerFeatures=READING)
ON = {"columnMapping.mode": "name", "enableTypeWidening": "true", "enableDeletionVectors": "true"}
LONG = {"name": "n", "type": "integer", "nullable": True, "metadata": {}}


def opening(partition_columns: tuple[str, ...] = (), **properties: str) -> list[Proposal]:
    """Return the proposals of a table at version 1: mapped columns x, s and n, and the file a."""
    row = metadata(partition_columns, **{**ON, **properties})
    fields = [*json.loads(row["metaData"]["schemaString"])["fields"], LONG]
    row["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": fields})
    row["metaData"]["configuration"]["delta.columnMapping.maxColumnId"] = str(len(fields))
    row = mapped(row, *(f"col-{field['name']}" for field in fields))
    return [
        # Clustering and partitioning exclude each other.
        creating(PARTITIONED if partition_columns else FEATURES, row),
        proposal(add("a" if not partition_columns else "col-p=1/a")),
    ]


def begun(partition_columns: tuple[str, ...] = (), **properties: str) -> Gate:
    """Return a committer with such a table."""
    gate = Gate()
    result = gate.ask(*opening(partition_columns, **properties))
    assert rules_of(result) == ["committed", "committed"]
    return gate


@pytest.fixture
def first_proposals() -> list[Proposal]:
    return opening()


def patch(
    *changes: Row, read_version: int = 1, base: str | None = None, **more_fields: Any
) -> Proposal:
    return proposal(
        read_version=read_version,
        metadata_patch={"changes": changes, **({"base": base} if base else {})},
        operation=Operation(name="ALTER TABLE"),
        **more_fields,
    )


def new(name: str, kind: Any = "string", **place: Any) -> Row:
    column = {"name": name, "type": kind, "nullable": True, "metadata": {}}
    return {"op": "add_column", "column": column, **place}


def put(key: str, value: str) -> Row:
    return {"op": "set_property", "key": key, "value": value}


def unset(key: str) -> Row:
    return {"op": "unset_property", "key": key}


def comment(*path: str) -> Row:
    return {"op": "comment_on", "path": path, "comment": "so"}


def drop(*path: str) -> Row:
    return {"op": "drop_column", "path": path}


def rename(name: str, *path: str) -> Row:
    return {"op": "rename_column", "path": path, "name": name}


def widen(kind: str, *path: str) -> Row:
    return {"op": "change_type", "path": path, "type": kind}


def written(gate: Gate) -> Metadata:
    """Return the table's metadata from the log."""
    rows = [row["metaData"] for rows in gate.entries() for row in rows if "metaData" in row]
    return Metadata.model_validate_json(json.dumps(rows[-1]))


def listed(gate: Gate) -> set[str]:
    rows = [row["protocol"] for rows in gate.entries() for row in rows if "protocol" in row]
    return set(rows[-1]["writerFeatures"])


def columns(gate: Gate) -> dict[str, Any]:
    return {item.name: item for item in parse_schema(written(gate).schema_string)}


def ids(gate: Gate) -> list[int]:
    return [column.metadata["delta.columnMapping.id"] for column in columns(gate).values()]


def test_patches_of_different_columns_and_properties_all_commit(gate: Gate) -> None:
    result = gate.ask(
        patch(new("t")),
        patch(new("u", "long", first=True)),
        patch(comment("x")),
        patch(put("delta.checkpointInterval", "20")),
        patch(put("mine", "1"), rename("z", "s")),
        patch(widen("long", "n")),
    )
    assert rules_of(result) == ["committed"] * 6
    assert [item.version for item in result] == [2, 3, 4, 5, 6, 7]
    assert list(columns(gate)) == ["u", "x", "z", "n", "t"]
    assert str(columns(gate)["n"].kind) == "long"
    assert written(gate).configuration["mine"] == "1"
    assert written(gate).configuration["delta.checkpointInterval"] == "20"


@pytest.mark.parametrize(
    ("one", "other", "named"),
    [
        (new("t"), new("T", "long"), "the column 't'"),
        (rename("t", "x"), new("t"), "the column 't'"),
        (rename("t", "x"), rename("t", "s"), "the column 't'"),
        (comment("x"), comment("x"), "the column 'x'"),
        (comment("x"), drop("x"), "the column 'x'"),
        (rename("y", "x"), new("t", after="x"), "the column 'x'"),
        (put("mine", "1"), unset("mine"), "the property 'mine'"),
        (put("delta.APPENDONLY", "true"), put("delta.appendOnly", "true"), "delta.appendOnly"),
    ],
)
def test_the_same_thing_twice_conflicts_and_is_named(
    gate: Gate, one: Row, other: Row, named: str
) -> None:
    first, second = gate.ask(patch(one), patch(other))
    assert first.status == "committed"
    assert second.rejection is not None
    assert second.rejection.rule == "metadata_changed"
    assert named in second.rejection.reason
    assert second.rejection.winner_version == 2


def test_a_patch_is_carried_over_what_another_engine_changed_elsewhere(gate: Gate) -> None:
    rows = [row for rows in gate.entries() for row in rows if "metaData" in row]
    theirs = json.loads(json.dumps(rows[-1]))
    theirs["metaData"]["configuration"]["theirs"] = "1"
    write(gate, 2, theirs)
    result = gate.ask(patch(new("t")), patch(put("theirs", "2")))
    assert rules_of(result) == ["committed", "metadata_changed"]
    assert written(gate).configuration["theirs"] == "1"


def test_a_feature_is_listed_by_itself_and_two_patches_may_each_bring_one(gate: Gate) -> None:
    result = gate.ask(
        patch(put("delta.enableInCommitTimestamps", "true")),
        patch(put("delta.checkpointPolicy", "v2")),
        patch(put("delta.feature.vacuumProtocolCheck", "supported")),
    )
    assert rules_of(result) == ["committed"] * 3
    assert {"inCommitTimestamp", "v2Checkpoint", "vacuumProtocolCheck"} <= listed(gate)
    assert "delta.feature.vacuumProtocolCheck" not in written(gate).configuration
    assert written(gate).configuration["delta.inCommitTimestampEnablementVersion"] == "2"


def test_a_patch_stands_in_an_entry_of_its_own(gate: Gate) -> None:
    result = gate.ask(
        proposal(add("b"), read_version=1), patch(new("t")), proposal(add("c"), read_version=1)
    )
    assert [item.version for item in result] == [2, 3, 4]


def test_what_a_table_does_not_allow_is_refused_before_any_conflict(gate: Gate) -> None:
    result = gate.ask(
        patch(drop("nobody")),
        patch({"op": "add_column", "column": {"name": "t", "type": "string", "nullable": False}}),
        patch({"op": "add_column", "column": {"name": "t", "type": "nonsense"}}),
        patch(widen("string", "x")),
        patch(put("delta.appendOnly", "perhaps")),
        patch(put("delta.columnMapping.maxColumnId", "9")),
        patch(put("delta.feature.fromMars", "supported")),
    )
    assert rules_of(result) == ["bad_metadata"] * 7
    assert "`" not in str(result[0].rejection)


def test_two_patches_that_agree_with_the_table_and_not_with_one_another(gate: Gate) -> None:
    result = gate.ask(patch(drop("x")), patch(drop("s"), drop("n")))
    assert rules_of(result) == ["committed", "bad_metadata"]
    assert rejection_of(result[1]).advice == "rerun"


def test_the_list_of_columns_with_statistics_follows_a_column_that_goes(gate: Gate) -> None:
    gate.ask(patch(put("delta.dataSkippingStatsColumns", "x,n")))
    assert rules_of(gate.ask(patch(drop("x")))) == ["committed"]
    assert written(gate).configuration["delta.dataSkippingStatsColumns"] == "n"


def test_what_a_table_is_clustered_by_is_not_dropped(gate: Gate) -> None:
    domain = {"domain": "delta.clustering", "removed": False}
    clustered = {**domain, "configuration": '{"clusteringColumns":[["col-x"]]}'}
    write(gate, 2, {"domainMetadata": clustered})
    result = gate.ask(patch(drop("x")), patch(drop("s")))
    assert rules_of(result) == ["bad_metadata", "committed"]


def test_nobody_clusters_by_a_column_that_a_patch_has_dropped(gate: Gate) -> None:
    def by(column: str) -> Proposal:
        result = {"domain": "delta.clustering", "removed": False}
        columns = {**result, "configuration": f'{{"clusteringColumns":[["col-x"],["{column}"]]}}'}
        return proposal({"domainMetadata": columns}, read_version=1)

    result = gate.ask(patch(drop("n")), by("col-n"), by("col-s"))
    assert rules_of(result) == ["committed", "metadata_changed", "committed"]


def test_a_constraint_touches_the_columns_that_it_names() -> None:
    read = Definition(written(begun()), Protocol(min_reader_version=3, min_writer_version=7))
    named = MetadataPatch.model_validate({"changes": [put("delta.constraints.C", "x > 0")]})
    result = touches(named, read)
    assert {(item.kind, item.path) for item in result} == {
        ("property", ("delta.constraints.c",)),
        ("column", ("col-x",)),
    }


def test_a_patch_of_metadata_that_is_not_the_tables_is_refused(gate: Gate) -> None:
    own = metadata_hash(written(gate))
    result = gate.ask(patch(new("t"), base=own), patch(new("u"), base="0" * 64))
    assert rules_of(result) == ["committed", "other_metadata"]


def test_a_patch_comes_alone(gate: Gate) -> None:
    good = patch(new("t"))
    body = {**json.loads(good.model_dump_json(exclude_none=True)), "actions": [add("b")]}
    assert rules_of(gate.ask(json.dumps(body).encode())) == ["malformed"]


@pytest.mark.parametrize(
    "change",
    [
        new("t"),
        new("t", {"type": "struct", "fields": [LONG]}),
        put("delta.checkpointInterval", "20"),
        put("mine", "1"),
        unset("delta.logRetentionDuration"),
        comment("x"),
        rename("y", "x"),
        widen("long", "n"),
        drop("s"),
    ],
)
def test_who_was_behind_a_harmless_patch_commits(change: Row) -> None:
    gate = begun(logRetentionDuration="interval 9 days")
    intent = rows_of("a", [1])
    result = gate.ask(
        patch(change), proposal(add("b"), read_version=1), row_delete(intent, read_version=1)
    )
    assert rules_of(result) == ["committed"] * 3


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (put("delta.appendOnly", "true"), "delta.appendOnly"),
        (put("delta.isolationLevel", "WriteSerializable"), "delta.isolationLevel"),
        (unset("delta.enableDeletionVectors"), "delta.enableDeletionVectors"),
        (unset("delta.enableTypeWidening"), "delta.enableTypeWidening"),
    ],
)
def test_a_proposal_behind_a_patch_with_requirements_of_rows_conflicts(
    gate: Gate, change: Row, named: str
) -> None:
    first, second = gate.ask(patch(change), proposal(add("b"), read_version=1))
    assert first.status == "committed"
    assert rejection_of(second).rule == "metadata_changed"
    assert named in rejection_of(second).reason


DEFAULTS = put("delta.feature.allowColumnDefaults", "supported")


def by_default(column: str) -> Row:
    return {"op": "set_default", "column": column, "expression": "'so'"}


def test_a_column_gets_a_default_in_the_patch_that_lists_the_feature(gate: Gate) -> None:
    result = gate.ask(patch(new("t"), by_default("t")), patch(DEFAULTS, new("t"), by_default("t")))
    assert rules_of(result) == ["bad_metadata", "committed"]
    assert columns(gate)["t"].metadata["CURRENT_DEFAULT"] == "'so'"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ([by_default("s")], "the column 's', which is filled in another way"),
        ([new("t"), by_default("t")], "the new column 't', which asks something of rows"),
    ],
)
def test_who_was_behind_a_default_has_not_filled_the_column(
    gate: Gate, changes: list[Row], why: str
) -> None:
    gate.ask(patch(DEFAULTS))
    first, second = gate.ask(patch(*changes, read_version=2), proposal(add("b"), read_version=2))
    assert first.status == "committed"
    assert rejection_of(second).rule == "metadata_changed"
    assert why in rejection_of(second).reason


def test_a_patch_touches_what_it_adds_and_what_is_nested_in_it(gate: Gate) -> None:
    struct = {"type": "struct", "fields": [new("f")["column"], new("g")["column"]]}
    array = {"type": "array", "elementType": struct, "containsNull": True}
    first = patch(
        new("t", struct), new("u", array), comment("t", "f"), comment("u", "element", "f")
    )
    assert rules_of(gate.ask(first)) == ["committed"]
    result = gate.ask(
        patch(comment("u", "element", "g"), read_version=2),
        patch(comment("u", "element", "g"), read_version=2),
        patch(comment("t", "g"), read_version=2),
    )
    assert rules_of(result) == ["committed", "metadata_changed", "committed"]


def test_who_was_behind_another_type_of_a_partition_column_conflicts() -> None:
    gate = begun(("p",))
    result = gate.ask(patch(widen("long", "p")), proposal(add("col-p=1/b"), read_version=1))
    assert result[0].status == "committed"
    assert "the partition column 'p'" in rejection_of(result[1]).reason


def test_a_patch_is_carried_over_another_name_and_not_over_another_partitioning(gate: Gate) -> None:
    body = written(gate).to_row()["metaData"]
    assert isinstance(body, dict)
    write(gate, 2, {"metaData": {**body, "name": "other"}})
    assert rules_of(gate.ask(patch(new("t")))) == ["committed"]
    write(gate, 4, {"metaData": {**body, "partitionColumns": ["n"]}})
    [outcome] = gate.ask(patch(new("u"), read_version=3))
    assert rejection_of(outcome).rule == "metadata_changed"
    assert "the table's partition columns" in rejection_of(outcome).reason


def test_an_overwrite_of_rows_conflicts_with_a_column_that_went(gate: Gate) -> None:
    rewriting = proposal(add("b"), remove("a"), read_version=1, reads=ReadSet(files=("a",)))
    asked: Predicate = {"op": "=", "column": ["col-s"], "value": "v", "type": "string"}
    by_column = row_delete(
        rows_of("a", [1]),
        read_version=1,
        reads=ReadSet(files=("a",), predicates=(asked,), delete_insensitive=True),
    )
    result = gate.ask(patch(drop("s")), rewriting, by_column)
    assert rules_of(result) == ["committed", "metadata_changed", "metadata_changed"]


def test_a_change_of_a_partition_column_lets_nobody_pass() -> None:
    gate = begun(("p",))
    result = gate.ask(patch(rename("q", "p")), proposal(add("col-p=1/b"), read_version=1))
    assert rules_of(result) == ["committed", "metadata_changed"]


def test_whole_metadata_is_checked_as_before(gate: Gate) -> None:
    rows = [row for rows in gate.entries() for row in rows if "metaData" in row]
    whole = json.loads(json.dumps(rows[-1]))
    whole["metaData"]["configuration"]["theirs"] = "1"
    result = gate.ask(
        proposal(whole, read_version=1),
        proposal(add("b"), read_version=1),
        patch(new("t"), read_version=2),
        proposal(whole, read_version=2),
    )
    assert rules_of(result) == ["committed", "metadata_changed", "committed", "metadata_changed"]


def test_a_patch_is_decided_the_same_after_a_restart(gate: Gate) -> None:
    gate.ask(patch(new("t")))
    gate.restart()
    result = gate.ask(proposal(add("b"), read_version=1), patch(new("t")), patch(new("u")))
    assert rules_of(result) == ["committed", "metadata_changed", "committed"]


def test_an_unmapped_table_takes_columns_by_their_names() -> None:
    gate = Gate()
    gate.ask(creating(protocol(), metadata()))
    result = gate.ask(
        patch(new("t"), read_version=0),
        patch(new("u"), read_version=0),
        patch(drop("x"), read_version=0),
        patch({"op": "set_property", "key": "delta.columnMapping.mode", "value": "name"}),
    )
    assert rules_of(result) == ["committed", "committed", "bad_metadata", "committed"]
    assert list(columns(gate)) == ["x", "s", "t", "u"]
    assert sorted(ids(gate)) == [1, 2, 3, 4]


@pytest.mark.parametrize(("name", "verdict"), [("z", "committed"), ("col-n", "concurrent_append")])
def test_a_file_is_left_out_where_it_holds_no_row_under_the_table_of_now_either(
    gate: Gate, name: str, verdict: str
) -> None:
    bounds = {"minValues": {"col-n": 6}, "maxValues": {"col-n": 9}, "nullCount": {"col-n": 0}}
    stats = json.dumps({"numRecords": 10, **bounds})
    assert rules_of(gate.ask(patch(new(name, "integer")))) == ["committed"]
    appended = proposal(add("b", stats=stats), read_version=2)
    assert rules_of(gate.ask(appended)) == ["committed"]
    five: Predicate = {"op": "=", "column": ["col-n"], "value": 5, "type": "integer"}
    reads = ReadSet(files=("a",), predicates=(five,))
    assert rules_of(gate.ask(proposal(remove("a"), read_version=1, reads=reads))) == [verdict]


def test_a_table_that_is_clustered_no_more_is_patched_like_one_that_never_was(gate: Gate) -> None:
    text = json.dumps({"clusteringColumns": [["col-n"]]})
    body = {"domain": "delta.clustering", "configuration": text, "removed": False}
    gone = {**body, "configuration": "{}", "removed": True}
    gate.ask(proposal({"domainMetadata": body}, read_version=1))
    gate.ask(proposal({"domainMetadata": gone}, read_version=2))
    result = gate.ask(patch(put("delta.logRetentionDuration", "interval 9 days"), read_version=3))
    assert rules_of(result) == ["committed"]
