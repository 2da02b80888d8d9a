"""Hostile proposals: each is refused or set aside for the right reason, and the service goes on."""

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from tests import builders
from tests.builders import Gate, Row, add, metadata, proposal, protocol, remove, rows_of
from tests.support.outcomes import rejection_of, rule_of, rules_of
from tidegate_committer.settings import CommitterSection
from tidegate_delta.log.commit import sha256
from tidegate_messages.codec import encode
from tidegate_messages.proposal import Operation, Proposal, ReadSet


def changed(kind: str, **fields: Any) -> Row:
    """Return an add, a remove or a change file with some fields replaced; ... leaves one out."""
    bodies: Row = {
        "add": add("a")["add"],
        "remove": remove("old")["remove"],
        "cdc": {"path": "_change_data/c", "partitionValues": {}, "size": 1, "dataChange": False},
        "txn": {"appId": "app", "version": 1},
        "domainMetadata": {"domain": "d", "configuration": "", "removed": False},
    }
    body = {**bodies[kind], **fields}
    return {kind: {name: value for name, value in body.items() if value is not ...}}


def stats(text: Any) -> Row:
    return add("a", stats=text)


def with_metadata(**fields: Any) -> Row:
    return {"metaData": {**metadata()["metaData"], **fields}}


def with_vector(**fields: Any) -> Row:
    """Return an add with a deletion vector in a file of the table, some fields of it replaced."""
    vector = {"storageType": "u", "pathOrInlineDv": "0" * 20, "sizeInBytes": 34, "offset": 1}
    return add("a", deletionVector={**vector, "cardinality": 1, **fields})


MALFORMED_ACTIONS: tuple[tuple[str, Row], ...] = (
    ("bad_path", add("p=a b/x.parquet")),
    ("bad_path", {"cdc": {"path": "a#b", "partitionValues": {}, "size": 1, "dataChange": False}}),
    ("malformed", {}),
    ("malformed", {"add": None}),
    ("malformed", {"add": []}),
    ("malformed", {"add": "a"}),
    ("malformed", {**add("a"), **remove("b")}),
    ("malformed", changed("add", path=...)),
    ("malformed", changed("add", path="")),
    ("malformed", changed("add", path=1)),
    ("malformed", changed("add", size=...)),
    ("malformed", changed("add", size=-1)),
    ("malformed", changed("add", size="100")),
    ("malformed", changed("add", size=1.5)),
    ("malformed", changed("add", size=2**63)),
    ("malformed", changed("add", modificationTime=-1)),
    ("malformed", changed("add", modificationTime=None)),
    ("malformed", changed("add", dataChange="true")),
    ("malformed", changed("add", dataChange=1)),
    ("malformed", changed("add", dataChange=...)),
    ("malformed", {"remove": {"path": "old"}}),
    ("malformed", changed("add", partitionValues=...)),
    ("malformed", changed("add", partitionValues=[])),
    ("malformed", changed("add", partitionValues={"p": 1})),
    ("malformed", changed("add", partitionValues=..., partition_values={})),
    ("malformed", changed("add", tags={"a": 1})),
    ("malformed", changed("add", stats={"numRecords": 1})),
    ("malformed", stats("no json")),
    ("malformed", stats("[]")),
    ("malformed", stats("{}")),
    ("malformed", stats('{"numRecords": "10"}')),
    ("malformed", stats('{"numRecords": -1}')),
    ("malformed", stats('{"numRecords": 1.5}')),
    ("malformed", stats('{"numRecords": true}')),
    ("malformed", stats('{"numRecords": NaN}')),
    ("malformed", stats('{"numRecords": 1, "minValues": []}')),
    ("too_large", stats(json.dumps({"numRecords": 1, "x": "y" * 17_000}))),
    ("malformed", changed("remove", size=-5)),
    ("malformed", changed("remove", deletionTimestamp="now")),
    ("malformed", changed("remove", size=...)),
    ("malformed", changed("remove", partitionValues=...)),
    ("malformed", changed("cdc", dataChange=True)),
    ("bad_path", changed("cdc", path="_delta_log/c")),
    ("bad_path", changed("cdc", path="_change_data/../../c")),
    ("malformed", changed("txn", version="1")),
    ("malformed", changed("txn", version=-1)),
    ("not_supported", changed("txn", appId="tidegate/t/0")),
    ("too_large", changed("txn", appId="a" * 2_000)),
    ("reserved_domain", changed("domainMetadata", domain="delta.rowTracking")),
    ("reserved_domain", changed("domainMetadata", domain="delta.mine")),
    ("domains_not_supported", changed("domainMetadata", domain="mine")),
    ("domains_not_supported", changed("domainMetadata", domain="delta.clustering")),
    ("too_large", changed("domainMetadata", domain="d" * 2_000)),
    ("not_supported", builders.info()),
    ("not_supported", {"checkpointMetadata": {"version": 1}}),
    ("not_supported", {"sidecar": {"path": "x"}}),
    ("not_supported", {"unheardOf": {}}),
    ("not_supported", {"Add": add("a")["add"]}),
    ("malformed", with_vector(storageType="i", pathOrInlineDv="")),
    ("malformed", with_vector(storageType="i", pathOrInlineDv="no z85 at all")),
    ("malformed", with_vector(pathOrInlineDv="too short")),
    ("malformed", with_vector(pathOrInlineDv="../" + "0" * 20)),
    ("malformed", with_vector(cardinality=-1)),
    ("malformed", with_vector(sizeInBytes=-1)),
    ("malformed", with_vector(offset=-1)),
    ("bad_path", with_vector(storageType="p", pathOrInlineDv="file:///elsewhere")),
    ("bad_path", with_vector(storageType="x")),
    ("vectors_not_allowed", with_vector()),
    ("malformed", add("a", baseRowId=-1)),
    ("malformed", add("a", baseRowId="1")),
    ("malformed", add("a", defaultRowCommitVersion=2**63)),
    ("partition_values", add("a", partitionValues={"p": "1"})),
    ("partition_values", add("a", partitionValues={"p": "1" * 2_000})),
    ("bad_metadata", with_metadata(id="another")),
    ("bad_metadata", with_metadata(schemaString="no json")),
    ("bad_metadata", with_metadata(schemaString='{"type":"struct","fields":[]}')),
    ("bad_metadata", with_metadata(schemaString='{"fields":[]}')),
    ("bad_metadata", with_metadata(schemaString=builders.schema(x="no type"))),
    ("bad_metadata", with_metadata(schemaString=builders.schema(x="long", X="long"))),
    (
        "bad_metadata",
        with_metadata(schemaString=builders.schema(**{f"c{n}": "long" for n in range(10_001)})),
    ),
    ("bad_metadata", with_metadata(partitionColumns=["missing"])),
    ("bad_metadata", with_metadata(partitionColumns=["x", "s"])),
    ("bad_metadata", with_metadata(partitionColumns=["x", "x"])),
    ("bad_metadata", with_metadata(format={"provider": "orc", "options": {}})),
    ("bad_metadata", metadata(appendOnly="perhaps")),
    ("bad_metadata", metadata(checkpointInterval="0")),
    ("feature_by_hand", with_metadata(schemaString=builders.schema(x="timestamp_ntz"))),
    ("malformed", with_metadata(partitionColumns="x")),
    ("malformed", with_metadata(configuration={"a": 1})),
    ("bad_protocol", protocol(1, 1)),
    ("unknown_feature", protocol(3, 7, readerFeatures=["unheardOf"], writerFeatures=["unheardOf"])),
    ("unknown_feature", protocol(9, 9)),
    ("not_supported", protocol(1, 7, writerFeatures=["appendOnly", "collations", "invariants"])),
    ("malformed", {"protocol": {"minReaderVersion": "3", "minWriterVersion": 7}}),
    ("removed_file_not_live", remove("nowhere")),
    ("added_file_live", add("old")),
    ("rows_from_nowhere", add("new", dataChange=False)),
)

PAIRS: tuple[tuple[str, tuple[Row, Row]], ...] = (
    ("duplicate_action", (add("a"), add("a"))),
    ("duplicate_action", (add("a+b"), add("a%2Bb"))),
    ("duplicate_action", (remove("old"), remove("old"))),
    ("duplicate_action", (remove("old"), add("old"))),
    ("duplicate_action", (remove("old"), add("%6Fld"))),
    ("duplicate_action", (metadata(), metadata())),
    ("duplicate_action", (protocol(), protocol())),
    ("duplicate_action", (changed("txn"), changed("txn", version=2))),
    ("duplicate_action", (changed("domainMetadata"), changed("domainMetadata"))),
)


def vector(kind: str, place: str = "0" * 20, size: int = 40) -> Row:
    """Return a descriptor of one row."""
    result = {"storageType": kind, "pathOrInlineDv": place, "sizeInBytes": size, "cardinality": 1}
    return result if kind == "i" else {**result, "offset": 1}


FIELDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("other_table", {"table_id": "another"}),
    ("malformed", {"table_id": None}),
    ("other_root", {"table_root": "memory://tables/elsewhere"}),
    ("deadline_passed", {"deadline_ms": builders.NOW_MS - 1}),
    ("files_too_old", {"files_since_ms": builders.NOW_MS - 7 * 86_400_000}),
    ("isolation_not_allowed", {"isolation": "SnapshotIsolation"}),
    ("bad_path", {"dv_intents": [builders.rows_of("../old", [1])]}),
    ("duplicate_action", {"dv_intents": [builders.rows_of("a", [1])]}),
    ("duplicate_action", {"dv_intents": [builders.rows_of(path, [1]) for path in ("b", "%62")]}),
    ("malformed", {"dv_intents": [builders.rows_of("old", [])]}),
    ("malformed", {"dv_intents": [builders.rows_of("old", [1], num_records=0)]}),
    ("malformed", {"dv_intents": [builders.rows_of("old", [1], rows={})]}),
    ("malformed", {"dv_intents": [builders.rows_of("old", [1], rows=vector("i", "z" * 7))]}),
    ("malformed", {"dv_intents": [builders.rows_of("old", [1], rows=vector("i", "0" * 60))]}),
    ("malformed", {"dv_intents": [builders.rows_of("old", [1], rows=vector("u", "short"))]}),
    ("malformed", {"dv_intents": [builders.rows_of("old", [1], rows=vector("p", "s3://x/y"))]}),
    ("malformed", {"dv_intents": [builders.rows_of("old", [1], rows=vector("u", size=-1))]}),
    ("too_large", {"dv_intents": [builders.rows_of("old", [1], rows=vector("u", size=2**30))]}),
    ("rows_out_of_range", {"dv_intents": [builders.rows_of("old", [10])]}),
    ("vector_unreadable", {"dv_intents": [builders.rows_of("old", [1], rows=vector("u"))]}),
    ("too_large", {"operation": {"name": "W" * 200}}),
    ("too_large", {"user_metadata": "x" * (1024 * 1024)}),
    ("too_large", {"app_txn": {"app_id": "a" * 2_000, "version": 1}}),
    ("duplicate_action", {"app_txn": {"app_id": "tidegate/t/0", "version": 1}}),
    ("bad_predicate", {"reads": {"predicates": [{}]}}),
    ("bad_predicate", {"reads": {"predicates": [{"op": "exec"}]}}),
    ("bad_predicate", {"reads": {"predicates": [{"op": "and", "args": []}]}}),
    ("bad_predicate", {"reads": {"predicates": [{"op": "and", "args": "x"}]}}),
    ("bad_predicate", {"reads": {"predicates": [{"op": "not"}]}}),
    (
        "bad_predicate",
        {"reads": {"predicates": [{"op": "=", "column": [], "value": 1, "type": "long"}]}},
    ),
    (
        "bad_predicate",
        {"reads": {"predicates": [{"op": "=", "column": ["x"], "value": "a", "type": "long"}]}},
    ),
    (
        "bad_predicate",
        {"reads": {"predicates": [{"op": "=", "column": ["x"], "value": 1, "type": "no"}]}},
    ),
    (
        "bad_predicate",
        {"reads": {"predicates": [{"op": "in", "column": ["x"], "values": 1, "type": "long"}]}},
    ),
    ("bad_predicate", {"reads": {"predicates": [{"op": "is_null", "column": [1]}]}}),
)

UNREADABLE: tuple[tuple[str, bytes], ...] = (
    ("malformed", b""),
    ("malformed", b"{"),
    ("malformed", b"null"),
    ("malformed", b"[]"),
    ("malformed", b'"proposal"'),
    ("malformed", b"\xff\xfe"),
    ("malformed", b"{}"),
    ("malformed", b'{"proposal_id": "no uuid"}'),
    ("malformed", b'{"proposal_id": 7, "table": 8}'),
    ("malformed", b'{"a": ' * 70 + b"1" + b"}" * 70),
    ("malformed", b"[" * 100_000),
)


@pytest.fixture
def new_gate() -> Gate:
    """A committer with a high limit on refusals."""
    return Gate(CommitterSection(roots=("memory://tables",), refusals_burst=10_000))


@pytest.fixture
def first_proposals() -> list[Proposal]:
    """A table of one file."""
    return [builders.create(), proposal(add("old"))]


def answer_to(gate: Gate, one: Proposal | bytes) -> tuple[str, str]:
    """Return the outcome's status and rule, after checking that the service goes on."""
    before = len(gate.entries())
    outcome = gate.ask(one)[-1]
    assert rejection_of(outcome).reason, "a reason is given"
    own = [row for rows in gate.entries()[before:] for row in rows]
    assert not any({"add", "remove", "metaData", "protocol"} & row.keys() for row in own)
    assert gate.ask(proposal(add(f"good-{before}")))[-1].status == "committed"
    return outcome.status, rejection_of(outcome).rule


@pytest.mark.parametrize("row", [row for rule, row in MALFORMED_ACTIONS if rule == "bad_metadata"])
def test_the_remedy_of_invalid_metadata_is_not_a_restore(gate: Gate, row: Row) -> None:
    [outcome] = gate.ask(proposal(row))
    reason = rejection_of(outcome).reason
    assert not any(word in reason for word in ("restore", "another reader", "Error(")), reason


@pytest.mark.parametrize(("rule", "row"), MALFORMED_ACTIONS)
def test_an_invalid_action_is_refused(gate: Gate, rule: str, row: Row) -> None:
    assert answer_to(gate, proposal(row, read_version=1)) == ("rejected", rule)


@pytest.mark.parametrize(("rule", "rows"), PAIRS)
def test_actions_that_do_not_go_together_are_refused(
    gate: Gate, rule: str, rows: tuple[Row, Row]
) -> None:
    assert answer_to(gate, proposal(*rows, read_version=1)) == ("rejected", rule)


@pytest.mark.parametrize(("rule", "fields"), FIELDS)
def test_an_invalid_field_is_refused(gate: Gate, rule: str, fields: dict[str, Any]) -> None:
    one = proposal(add("a"), **fields)
    assert answer_to(gate, one) == ("rejected", rule)


@pytest.mark.parametrize(("rule", "value"), UNREADABLE)
def test_what_cannot_be_read_becomes_a_dead_letter_with_its_bytes(
    gate: Gate, rule: str, value: bytes
) -> None:
    assert gate.ask(value) == []
    letter = gate.letters()[-1]
    headers = dict(letter.headers)
    assert letter.value == value
    assert headers["rule"].decode() == rule
    assert headers["reason"]
    assert gate.ask(proposal(add("good")))[-1].status == "committed"


ONE_ROW = dict(builders.rows_of("old", [1]).rows)


def body_of(one: Proposal, **fields: Any) -> bytes:
    """Return the record of a proposal with fields that the model would refuse."""
    body = {**json.loads(encode(one)), **fields}
    return json.dumps({name: value for name, value in body.items() if value is not ...}).encode()


@pytest.mark.parametrize(
    "fields",
    [
        {"actions": {}},
        {"actions": "all"},
        {"actions": ["add"]},
        {"table_root": "no uri"},
        {"operation": 7},
        {"reads": []},
        {"isolation": "None"},
        {"app_txn": {"app_id": ""}},
        {"app_txn": {"app_id": "a", "version": 2**63}},
        {"deadline_ms": "soon"},
        {"dv_intents": [{"path": "old", "rows": ONE_ROW, "num_records": 2**47 + 1}]},
        {"row_mapping": [{"path": "a", "sources": [{"path": "old", "offset": 2**48, "rows": 1}]}]},
        {"claim_check": {"path": "x", "size": -1, "sha256": "0" * 64}},
        {"claim_check": {"path": "x", "size": 1, "sha256": "no hash"}},
    ],
)
def test_a_malformed_record_with_a_readable_identity_is_refused_for_ever(
    gate: Gate, fields: dict[str, Any]
) -> None:
    value = body_of(proposal(add("a")), **fields)
    assert answer_to(gate, value) == ("rejected", "malformed")
    before = len(gate.entries())
    assert gate.ask(value)[-1].status == "rejected", "the same bytes, by the same rule"
    assert len(gate.entries()) == before


@pytest.mark.parametrize(
    "fields",
    [
        {"read_version": "soon"},
        {"read_version": -2},
        {"read_version": ...},
        {"read_version": 2**70},
        {"kind": "cancel"},
        {"kind": "explode"},
        {"kind": 7},
        {"kind": "verbatim"},
    ],
)
def test_without_a_readable_position_it_is_a_dead_letter_and_denied(
    gate: Gate, fields: dict[str, Any]
) -> None:
    one = proposal(add("a"))
    assert answer_to(gate, body_of(one, **fields))[0] == "denied"
    assert gate.letters()


@pytest.mark.parametrize(
    "path",
    [
        "x",
        "_delta_log/00000000000000000001.json",
        f"_delta_log/_staged_commits/{6:020d}.{UUID(int=6)}.json",
        f"_delta_log/_staged_commits/../{5:020d}.{UUID(int=6)}.json",
        f"_delta_log/_staged_commits/{5:020d}.{UUID(int=6)}.json\n",
        f"_tidegate/proposals/{UUID(int=6)}.ndjson",
    ],
)
def test_ready_bytes_lie_where_they_are_staged_and_nowhere_else(gate: Gate, path: str) -> None:
    claim = {"path": path, "size": 1, "sha256": "0" * 64}
    one = proposal(kind="verbatim", exact_version=5, claim_check=claim)
    assert answer_to(gate, one) == ("denied", "claim_check")


def test_too_many_actions_are_refused() -> None:
    settings = CommitterSection(roots=("memory://tables",), actions_max=3)
    gate = Gate(settings)
    gate.ask(builders.create())
    rows = [add(f"a{number}") for number in range(4)]
    assert rule_of(gate.ask(proposal(*rows))[-1]) == "too_large"


def test_another_tables_id_is_denied(gate: Gate) -> None:
    assert answer_to(gate, proposal(add("a"), table=UUID(int=77))) == ("denied", "unknown_table")


def test_the_same_id_with_other_bytes_is_denied(gate: Gate) -> None:
    one = proposal(add("a"))
    assert gate.ask(one)[-1].status == "committed"
    assert answer_to(gate, one.model_copy(update={"user_metadata": "x"})) == ("denied", "id_reused")
    assert gate.ask(one)[-1].repeat


def test_a_version_that_was_never_read_is_denied(gate: Gate) -> None:
    assert answer_to(gate, proposal(add("a"), read_version=99)) == ("denied", "read_version_ahead")


def claiming(content: bytes, **fields: Any) -> Proposal:
    """Return a proposal whose claim check refers to `content`."""
    one = proposal()
    path = f"_tidegate/proposals/{one.proposal_id}.ndjson"
    claim = {"path": path, "size": len(content), "sha256": sha256(content), **fields}
    return Proposal.model_validate({**json.loads(encode(one)), "claim_check": claim})


@pytest.mark.parametrize(
    ("rule", "content", "fields"),
    [
        ("claim_check", b"", {"path": "_delta_log/x"}),
        ("claim_check", b"", {"path": "../x"}),
        ("claim_check", b"{}", {"size": 1}),
        ("claim_check", b"{}", {"sha256": "0" * 64}),
        ("too_large", b"{}", {"size": 10**12}),
        ("malformed", b"no json", {}),
        ("malformed", b"[]", {}),
        ("malformed", b'{"add": {}}', {}),
        ("malformed", b'{"a": ' * 70 + b"1" + b"}" * 70, {}),
        ("bad_path", json.dumps(add("../a")).encode(), {}),
    ],
)
def test_a_claim_check_is_not_taken_at_its_word(
    gate: Gate, rule: str, content: bytes, fields: dict[str, Any]
) -> None:
    one = claiming(content, **fields)
    gate.stores[builders.ROOT].put(f"_tidegate/proposals/{one.proposal_id}.ndjson", content)
    assert answer_to(gate, one) == ("rejected", rule)


def test_a_missing_claim_is_refused(gate: Gate) -> None:
    assert answer_to(gate, claiming(b"{}")) == ("rejected", "claim_check")


@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        ("root_not_allowed", {"table_root": "memory://elsewhere/t"}),
        ("root_not_allowed", {"table_root": "memory://tablesque/t"}),
        ("bad_root", {"table_root": "s3a://tables/t"}),
        ("bad_root", {"table_root": "memory://tables/../t"}),
        ("bad_root", {"table_root": "memory://tables/sp ace"}),
        ("bad_root", {"table_root": "memory://tables/%74"}),
        ("bad_root", {"table_root": "ftp://tables/t"}),
        ("bad_root", {"table_root": "memory://tables/" + "t" * 256}),
        ("bad_root", {"table_root": "memory://tables/" + "%C3%A9" * 128}),
        ("bad_root", {"table_root": "memory://tables" + "/t" * 400}),
        ("name_taken", {"table_root": "memory://tables/other", "name": "t"}),
        ("bad_name", {"table_root": "memory://tables/other", "name": "n" * 300}),
        ("table_exists", {"table_root": builders.ROOT}),
    ],
)
def test_a_table_is_not_created_just_anywhere(
    gate: Gate, rule: str, fields: dict[str, Any]
) -> None:
    one = builders.create(table=UUID(int=99), **fields)
    assert answer_to(gate, one)[1] == rule
    assert UUID(int=99) not in gate.tables()


def test_a_flood_of_invalid_proposals_costs_no_version(gate: Gate) -> None:
    before = len(gate.entries())
    outcomes = gate.ask(*(proposal(add("../x")) for _ in range(100)))
    assert {outcome.status for outcome in outcomes} == {"rejected"}
    assert len(gate.entries()) == before


def test_a_bad_member_does_not_sink_its_group(gate: Gate) -> None:
    outcomes = gate.ask(proposal(add("a")), proposal(add("../x")), proposal(add("b")))
    assert [outcome.status for outcome in outcomes] == ["committed", "rejected", "committed"]
    assert {outcome.version for outcome in outcomes if outcome.version} == {2}


def test_who_would_create_a_table_that_is_there_may_have_read_it_or_delete_rows(gate: Gate) -> None:
    reads = ReadSet(predicates=({"op": "true"},))
    again = [
        proposal(protocol(), metadata(), read_version=-1, reads=reads),
        proposal(read_version=-1, dv_intents=(rows_of("a", [1]),), reads=reads),
    ]
    for item in again:
        assert rules_of(gate.ask(item)) == ["table_exists"]


TAKES = Operation(name="ROW TRACKING UNBACKFILL")
TRACKS = ["appendOnly", "deletionVectors", "domainMetadata", "invariants", "rowTracking"]
VECTORS = {"enableDeletionVectors": "true"}


def tracking() -> Gate:
    """Return a committer with a table that has row tracking and a file."""
    gate = Gate()
    listed = protocol(3, 7, readerFeatures=["deletionVectors"], writerFeatures=TRACKS)
    begun = gate.ask(
        proposal(listed, metadata(**VECTORS), read_version=-1), proposal(add("a"), read_version=0)
    )
    assert [outcome.status for outcome in begun] == ["committed", "committed"]
    return gate


def test_row_ids_are_taken_off_no_file_that_must_have_some_and_has_no_count() -> None:
    gate = tracking()
    uncounted = add("b", stats=None, baseRowId=0, defaultRowCommitVersion=1)
    assert rules_of(gate.ask(proposal(uncounted, read_version=1))) == ["committed"]
    [refused] = gate.ask(proposal(read_version=1, operation=TAKES))
    assert rejection_of(refused).rule == "row_ids_without_statistics"


def test_row_ids_are_taken_off_no_file_that_loses_rows_by_the_same_proposal() -> None:
    """Otherwise the entry would hold the file twice: without row ids, and with its new vector."""
    gate = tracking()
    both = {"dv_intents": (rows_of("a", [1]),), "reads": ReadSet(files=("a",))}
    [refused] = gate.ask(proposal(read_version=0, operation=TAKES, **both))
    assert rejection_of(refused).rule == "duplicate_actions"


def test_row_ids_are_taken_off_what_came_before_the_table_tracked_rows(gate: Gate) -> None:
    assert rules_of(gate.ask(proposal(add("b")))) == ["committed"]
    on = {
        "enableRowTracking": "true",
        "rowTracking.materializedRowIdColumnName": "_ids",
        "rowTracking.materializedRowCommitVersionColumnName": "_versions",
    }
    [refused] = gate.ask(proposal(metadata(**on), read_version=0, operation=TAKES))
    assert rejection_of(refused).rule == "rows_without_ids"


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(lambda good: good.replace(b"WRITE", b"\\ud800"), id="a lone surrogate"),
        pytest.param(lambda good: good.replace(b"WRITE", b"\xff"), id="not UTF-8"),
        pytest.param(lambda good: good[:-1], id="cut off"),
        pytest.param(lambda good: good + b"}", id="too long"),
        pytest.param(lambda good: b"[" + good + b"]", id="no object"),
        pytest.param(lambda good: b"[" * 5_000 + good, id="too deep"),
        pytest.param(lambda good: good.replace(b'"reads"', b'"reads":NaN,"x"'), id="not a number"),
    ],
)
def test_a_record_that_is_no_json_is_answered_by_the_ids_in_its_bytes(
    gate: Gate, broken: Callable[[bytes], bytes]
) -> None:
    asked = proposal(add("a"))
    value = broken(encode(asked))
    [outcome] = gate.ask(value)
    assert (outcome.proposal_id, outcome.status) == (asked.proposal_id, "denied")
    named = dict(gate.letters()[-1].headers)
    assert named["proposal_id"] == str(asked.proposal_id).encode()
    assert named["source"].startswith(f"{gate.topics.proposals}/0@".encode())


def test_a_record_that_names_several_ids_is_answered_by_none(gate: Gate) -> None:
    value = b"[" + encode(proposal(add("a"))) + encode(proposal(add("b")))
    assert gate.ask(value) == []
    assert "proposal_id" not in dict(gate.letters()[-1].headers)
