"""The exact bounds of admission: a value at the limit is admitted, one more is refused."""

import json
from typing import Any

import pytest

from tests.builders import (
    NOW_MS,
    Gate,
    Row,
    add,
    create,
    info,
    metadata,
    proposal,
    protocol,
    remove,
    schema,
)
from tests.support.decisions import considered, table
from tests.support.outcomes import rule_of
from tidegate_committer.admission.admission_rules import (
    OPERATION_CHARS_MAX,
    AdmissionInput,
    refusal,
    table_level,
)
from tidegate_committer.intake.action_reader import NAME_CHARS_MAX
from tidegate_committer.policy import Policy
from tidegate_delta.log.actions import Metadata
from tidegate_messages.proposal import Operation

POLICY = Policy(files_age_max_ms=1_000, weakest_isolation="WriteSerializable")
AGED = {"files_since_ms": NOW_MS - POLICY.files_age_max_ms}
LATE = {"files_since_ms": NOW_MS - POLICY.files_age_max_ms - 1}


def rule(*rows: Any, **fields: Any) -> str | None:
    state = table([info(), protocol(), metadata()], [info(), add("old")])
    one = proposal(*(rows or (add("a"),)), **fields)
    place = AdmissionInput(state.root, state.table_definition, NOW_MS)
    result = refusal(considered(one), place, POLICY)
    return result.rule if result else None


def named(length: int) -> dict[str, Any]:
    return {"app_txn": {"app_id": "a" * length, "version": 1}}


@pytest.mark.parametrize(
    ("keeps", "breaks", "expected"),
    [
        (named(NAME_CHARS_MAX), named(NAME_CHARS_MAX + 1), "too_large"),
        (
            {"operation": {"name": "W" * OPERATION_CHARS_MAX}},
            {"operation": {"name": "W" * (OPERATION_CHARS_MAX + 1)}},
            "too_large",
        ),
        ({"deadline_ms": NOW_MS}, {"deadline_ms": NOW_MS - 1}, "deadline_passed"),
        (AGED, LATE, "files_too_old"),
        (
            {"isolation": "WriteSerializable"},
            {"isolation": "SnapshotIsolation"},
            "isolation_not_allowed",
        ),
    ],
)
def test_what_just_keeps_a_bound_is_admitted(
    keeps: dict[str, Any], breaks: dict[str, Any], expected: str
) -> None:
    assert rule(**keeps) is None
    assert rule(**breaks) == expected


def test_files_age_only_where_a_proposal_brings_some() -> None:
    assert rule(remove("old"), **LATE) is None
    assert rule(remove("old"), add("new"), **LATE) == "files_too_old"


def test_files_are_as_old_as_their_proposal_where_nobody_says_when_they_were_written() -> None:
    created = {"created_ms": LATE["files_since_ms"]}
    assert rule(**created) == "files_too_old"
    assert rule(**created, **AGED) is None
    assert rule(remove("old"), **created) is None


def test_files_are_as_old_as_the_record_where_a_proposal_has_no_time() -> None:
    gate = Gate()
    gate.ask(create())
    gate.send(proposal(add("a")))
    gate.clock.sleep(gate.settings.files_age_max_ms / 1000 + 1)
    gate.settle()
    assert rule_of(gate.outcomes()[-1]) == "files_too_old"
    assert gate.ask(proposal(add("b")))[-1].status == "committed"


@pytest.mark.parametrize(
    ("said", "level"),
    [
        ("Serializable", "Serializable"),
        ("writeserializable", "WriteSerializable"),
        ("SnapshotIsolation", "SnapshotIsolation"),
        ("ReadCommitted", "Serializable"),
        (None, "Serializable"),
    ],
)
def test_a_level_that_nobody_knows_is_taken_as_the_strictest(said: str | None, level: str) -> None:
    body = metadata(**({"isolationLevel": said} if said else {}))["metaData"]
    assert table_level(Metadata.model_validate(body)) == level


def test_partition_values_are_spelt_as_all_readers_understand_them() -> None:
    known = metadata(["p"])
    old = add("p=1/old", partitionValues={"p": " 1 "})
    state = table([info(), protocol(), known], [info(), old])
    place = AdmissionInput(state.root, state.table_definition, NOW_MS)

    def rule_at_place(*rows: Row, name: str = "WRITE") -> str | None:
        one = proposal(*rows, read_version=1, operation=Operation(name=name))
        result = refusal(considered(one), place, POLICY)
        return result.rule if result else None

    assert rule_at_place(add("p=1/a")) is None
    for text in (" 1 ", ""):
        back = add("p=1/a", partitionValues={"p": text})
        assert [rule_at_place(back, name=name) for name in ("WRITE", "RESTORE")] == [
            "partition_values",
            None,
        ]
    assert (
        rule_at_place(add("p=1/a", partitionValues={"p": "x"}), name="RESTORE")
        == "partition_values"
    )
    assert rule_at_place(add("p=1/a", partitionValues={"p": " 1 "})) == "partition_values"
    assert rule_at_place(old, add("p=1/b")) == "partition_values"
    assert rule_at_place({"add": {**old["add"], "dataChange": False}}) is None
    vector = {"storageType": "i", "pathOrInlineDv": "", "sizeInBytes": 0, "cardinality": 0}
    assert rule_at_place(remove("p=1/old", deletionVector=vector), old) is None
    assert rule_at_place(
        remove("p=1/old", dataChange=False), add("p=1/c", partitionValues={"p": "x"})
    ) == ("partition_values")


def test_a_partition_column_that_was_widened_has_values_of_before() -> None:
    fields = json.loads(schema(x="long", p="decimal(12,4)"))
    fields["fields"][1]["metadata"] = {
        "delta.typeChanges": [{"fromType": "decimal(10,2)", "toType": "decimal(12,4)"}]
    }
    for text in (schema(x="long", p="decimal(12,4)"), json.dumps(fields)):
        known = metadata(["p"])
        known["metaData"]["schemaString"] = text
        state = table([info(), protocol(), known])
        one = considered(proposal(add("a", partitionValues={"p": "1.20"})))
        result = refusal(one, AdmissionInput(state.root, state.table_definition, NOW_MS), POLICY)
        assert (result is None) == ("typeChanges" in text)


def test_an_application_is_named_once() -> None:
    txn: Row = {"txn": {"appId": "a", "version": 1}}
    assert rule(add("a"), txn, **named(1)) == "duplicate_action"
    assert rule(add("a"), txn, **named(2)) is None


def test_a_file_that_was_there_has_its_values_as_its_writer_spelt_them() -> None:
    row = metadata(["p"])
    row["metaData"]["schemaString"] = schema(x="long", p="boolean")
    state = table([info(), protocol(), row], [info(), add("p=yes/a")])
    restore = Operation(name="RESTORE")
    result = {
        "comes again": proposal(add("p=yes/b")),
        "is rewritten": proposal(
            remove("p=yes/a", dataChange=False), add("p=yes/b", dataChange=False)
        ),
        "comes back": proposal(add("p=yes/b"), operation=restore),
    }
    place = AdmissionInput(state.root, state.table_definition, NOW_MS)
    found = {name: refusal(considered(one), place, POLICY) for name, one in result.items()}
    assert {name: one.rule for name, one in found.items() if one} == {
        "comes again": "partition_values"
    }
