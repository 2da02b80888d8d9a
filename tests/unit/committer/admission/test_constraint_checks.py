"""Constraints on new rows: writers attest SQL expressions, statistics check the others."""

import json
from typing import Any

import pytest

from tests.builders import Row, add, info, metadata, proposal, protocol, remove
from tests.support.decisions import TERMS, considered, refusal_of, refused, table
from tests.support.feature_rows import VECTOR, WIDE, listed
from tests.support.outcomes import rejection_of
from tidegate_committer.decision.machine import plan
from tidegate_committer.policy import Policy
from tidegate_delta.constraints.row_constraints import hashes, requirements
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_messages.proposal import ReadSet

FEATURES = ("checkConstraints", "generatedColumns", "invariants", "appendOnly")
PROTOCOL = listed(*FEATURES)
VECTORS_ON = {"enableDeletionVectors": "true"}
WHOLE = ReadSet(whole_table=True)
NUMBERS: Row = {"identity.start": 1, "identity.step": 1, "identity.allowExplicitInsert": False}


def with_columns(*fields: Row, partition_columns: tuple[str, ...] = (), **properties: str) -> Row:
    body = metadata(partition_columns, **properties)["metaData"]
    text = json.dumps({"type": "struct", "fields": list(fields)})
    return {"metaData": {**body, "schemaString": text}}


def column(name: str, kind: Any = "long", *, nullable: bool = True, **about: Any) -> Row:
    named = {f"delta.{key}": value for key, value in about.items()}
    return {"name": name, "type": kind, "nullable": nullable, "metadata": named}


def demanded(meta: Row, of: Row = PROTOCOL) -> list[str]:
    """Return the hashes of a table's constraints that need evaluation."""
    known = requirements(
        Metadata.model_validate(meta["metaData"]), Protocol.model_validate(of["protocol"])
    )
    return [one for one, words in hashes(known).items() if not words.startswith("NOT NULL")]


CHECKED = metadata(**{"constraints.positive": "x > 0"})
INVARIANT = with_columns(column("x", invariants='{"expression":{"expression":"x > 3"}}'))
GENERATED = with_columns(column("x"), column("y", generationExpression="x + 1"))


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        (CHECKED, "CHECK positive (x > 0)"),
        (INVARIANT, "invariant of x (x > 3)"),
        (GENERATED, "y AS (x + 1)"),
    ],
)
def test_new_rows_come_with_the_hash_of_what_held_for_them(meta: Row, words: str) -> None:
    state = table([info(), PROTOCOL, meta])
    wrong = refused(state, proposal(add("a")))
    assert (wrong.rule, wrong.field, wrong.advice) == (
        "constraints_not_enforced",
        "constraints_enforced",
        "fix",
    )
    assert words in wrong.reason
    result = demanded(meta)
    assert refusal_of(state, proposal(add("a"), constraints_enforced=result)) is None
    others = ["0" * 64, *demanded(metadata(**{"constraints.c": "x > 1"}))]
    assert refusal_of(state, proposal(add("a"), constraints_enforced=others)) is not None
    assert refusal_of(state, proposal(add("a"), constraints_enforced=[*others, *result])) is None


def test_a_refusal_names_one_of_many() -> None:
    meta = metadata(**{"constraints.a": "x > 0", "constraints.b": "x < 9"})
    wrong = refused(table([info(), PROTOCOL, meta]), proposal(add("a")))
    assert "CHECK a (x > 0) and of 1 more" in wrong.reason


def test_rows_that_move_or_leave_are_held_to_nothing_anew() -> None:
    state = table([info(), PROTOCOL, CHECKED], [info(), add("a")])
    moves = proposal(remove("a", dataChange=False), add("b", dataChange=False), read_version=1)
    assert refusal_of(state, moves) is None
    assert refusal_of(state, proposal(remove("a"), read_version=1)) is None
    changes = proposal(remove("a"), add("b"), read_version=1)
    assert refusal_of(state, changes) is not None


def test_a_file_that_comes_again_with_other_rows_deleted_brings_none() -> None:
    features = listed(*FEATURES, reader=("deletionVectors",))
    state = table(
        [info(), features, metadata(**{"constraints.positive": "x > 0", **VECTORS_ON})],
        [info(), add("a", stats=WIDE)],
    )
    again = add("a", stats=WIDE, deletionVector=VECTOR)
    assert refusal_of(state, proposal(remove("a"), again, read_version=1)) is None


def test_a_new_constraint_is_validated_where_no_append_can_slip_in() -> None:
    state, result = table([info(), PROTOCOL, metadata()]), tuple(demanded(CHECKED))
    asked: dict[str, Any] = {"reads": WHOLE, "constraints_enforced": result}
    assert refusal_of(state, proposal(CHECKED, isolation="WriteSerializable", **asked)) is None
    careless = proposal(CHECKED, isolation="SnapshotIsolation", **asked)
    lax = Policy(weakest_isolation="SnapshotIsolation")
    [verdict] = plan(state, [considered(careless)], lax, TERMS).verdicts
    assert (rejection_of(verdict).rule, rejection_of(verdict).field) == (
        "constraint_not_validated",
        "isolation",
    )


def test_who_patches_a_constraint_in_has_validated_it_as_well() -> None:
    state = table([info(), PROTOCOL, metadata()], [info(), add("a")])
    put = {"op": "set_property", "key": "delta.constraints.positive", "value": "x > 0"}
    asked: dict[str, Any] = {"metadata_patch": {"changes": [put]}, "read_version": 1}
    wrong = refused(state, proposal(reads=WHOLE, **asked))
    assert (wrong.rule, wrong.field) == ("constraint_not_validated", "constraints_enforced")
    asked["constraints_enforced"] = tuple(demanded(CHECKED))
    wrong = refused(state, proposal(reads=ReadSet(), **asked))
    assert (wrong.rule, wrong.field) == ("constraint_not_validated", "reads")
    assert refusal_of(state, proposal(reads=WHOLE, **asked)) is None


def test_a_table_whose_protocol_does_not_list_them_requires_nothing() -> None:
    assert refusal_of(table([info(), listed("appendOnly"), CHECKED]), proposal(add("a"))) is None


def test_a_proposal_is_held_to_the_table_that_it_writes_itself() -> None:
    state = table([info(), PROTOCOL, metadata()])
    both = proposal(CHECKED, add("a"), reads=WHOLE)
    wrong = refused(state, both)
    assert wrong.rule == "constraint_not_validated"
    result = demanded(CHECKED)
    enforced = both.model_copy(update={"constraints_enforced": tuple(result)})
    assert refusal_of(state, enforced) is None


@pytest.mark.parametrize(
    ("told", "field"),
    [
        ({"reads": WHOLE}, "constraints_enforced"),
        ({"constraints_enforced": demanded(CHECKED)}, "reads"),
        (
            {
                "constraints_enforced": demanded(CHECKED),
                "reads": ReadSet(predicates=({"op": "is_null", "column": ["x"]},)),
            },
            "reads",
        ),
    ],
)
def test_a_new_constraint_is_evaluated_on_every_row(told: dict[str, Any], field: str) -> None:
    wrong = refused(table([info(), PROTOCOL, metadata()]), proposal(CHECKED, **told))
    assert (wrong.rule, wrong.field) == ("constraint_not_validated", field)
    assert "CHECK positive (x > 0)" in wrong.reason


@pytest.mark.parametrize(
    "reads", [None, WHOLE, ReadSet(predicates=({"op": "true"},))], ids=["unsaid", "whole", "true"]
)
def test_who_reads_every_row_may_add_a_constraint(reads: ReadSet | None) -> None:
    one = proposal(CHECKED, constraints_enforced=demanded(CHECKED), reads=reads)
    assert refusal_of(table([info(), PROTOCOL, metadata()]), one) is None
    gone = proposal(metadata(), reads=ReadSet())
    assert refusal_of(table([info(), PROTOCOL, CHECKED]), gone) is None


def test_rows_that_joined_meanwhile_rule_a_new_constraint_out() -> None:
    state = table([info(), PROTOCOL, metadata()], [info(isBlindAppend=True), add("a")])
    one = proposal(CHECKED, constraints_enforced=demanded(CHECKED), reads=WHOLE)
    assert refused(state, one).rule == "concurrent_append"


def test_a_new_constraint_is_no_matter_of_snapshots() -> None:
    result: Row = {"constraints_enforced": demanded(CHECKED), "reads": WHOLE}
    asked = proposal(CHECKED, isolation="SnapshotIsolation", **result)
    wrong = refused(table([info(), PROTOCOL, metadata()]), asked)
    assert wrong.rule in ("isolation_not_allowed", "constraint_not_validated")


def test_a_constraint_that_a_winner_added_rules_rows_out_even_with_its_hash() -> None:
    state = table([info(), PROTOCOL, metadata()], [info("ADD CONSTRAINT"), CHECKED])
    for result in ([], demanded(CHECKED)):
        wrong = refused(state, proposal(add("a"), constraints_enforced=result))
        assert (wrong.rule, wrong.winner_version) == ("metadata_changed", 1)
    later = proposal(add("a"), read_version=1, constraints_enforced=demanded(CHECKED))
    assert refusal_of(state, later) is None


REQUIRED = with_columns(
    column("x", nullable=False),
    column("s", {"type": "struct", "fields": [column("n", nullable=False)]}),
    column("p", "integer", nullable=False),
    partition_columns=("p",),
)


def counted(path: str, nulls: Row, values: Row | None = None, **stats: Any) -> Row:
    text = json.dumps({"numRecords": 10, "nullCount": nulls, **stats})
    return add(path, stats=text, partitionValues={"p": "1"} if values is None else values)


@pytest.mark.parametrize(
    ("one", "name"),
    [
        (counted("a", {"x": 1}), "x"),
        (counted("a", {"x": 0, "s": {"n": 10}}), "s.n"),
        (counted("a", {}, {"p": None}), "p"),
        (counted("a", {}, {"p": ""}), "p"),
    ],
)
def test_a_null_that_statistics_show_is_refused_where_none_may_be(one: Row, name: str) -> None:
    wrong = refused(table([info(), protocol(), REQUIRED]), proposal(one))
    assert (wrong.rule, wrong.path) == ("null_in_required_column", "a")
    assert f"'{name}' is null" in wrong.reason
    assert wrong.error_class == "DELTA_NOT_NULL_CONSTRAINT_VIOLATED"


@pytest.mark.parametrize(
    "one",
    [
        counted("a", {"x": 0, "s": {"n": 0}}),
        counted("a", {}),
        counted("a", {"x": 1}, tightBounds=False),
        add("a", stats=None, partitionValues={"p": "1"}),
    ],
)
def test_what_statistics_do_not_show_is_taken_for_good(one: Row) -> None:
    assert refusal_of(table([info(), protocol(), REQUIRED]), proposal(one)) is None


def test_bounds_of_a_variant_are_for_shredded_ones() -> None:
    variants = listed(reader=("variantType", "variantShredding"))
    fields = (column("x"), column("v", "variant"))
    bounded = json.dumps({"numRecords": 1, "minValues": {"v": "0rr91"}})
    plain = table([info(), variants, with_columns(*fields)])
    wrong = refused(plain, proposal(add("a", stats=bounded)))
    assert wrong.rule == "bounds_of_variants"
    nulls = json.dumps({"numRecords": 1, "minValues": {"x": 1}, "nullCount": {"v": 0}})
    assert refusal_of(plain, proposal(add("a", stats=nulls))) is None
    shredded = table([info(), variants, with_columns(*fields, enableVariantShredding="true")])
    assert refusal_of(shredded, proposal(add("a", stats=bounded))) is None


@pytest.mark.parametrize(
    ("feature", "field"),
    [
        ("generatedColumns", column("y", generationExpression="")),
        ("allowColumnDefaults", {**column("y"), "metadata": {"CURRENT_DEFAULT": "x"}}),
        ("allowColumnDefaults", {**column("y"), "metadata": {"CURRENT_DEFAULT": 1}}),
        ("invariants", column("y", invariants="x > 0")),
        ("identityColumns", column("y", "string", **NUMBERS)),
    ],
)
def test_a_column_that_no_writer_could_fill_is_refused(feature: str, field: Row) -> None:
    state = table([info(), listed(feature), metadata()])
    result: Row = {"constraints_enforced": ["0" * 64], "reads": WHOLE}
    wrong = refused(state, proposal(with_columns(column("x"), field), **result))
    assert wrong.rule == "bad_metadata"
    assert "'y'" in wrong.reason


def test_a_default_concerns_writers_of_rows_and_requires_nothing_of_a_commit() -> None:
    fields = (column("x"), {**column("y"), "metadata": {"CURRENT_DEFAULT": "7"}})
    state = table([info(), listed("allowColumnDefaults"), with_columns(*fields)])
    assert refusal_of(state, proposal(add("a"))) is None


def test_a_variant_is_no_partition() -> None:
    variants = listed(reader=("variantType",))
    meta = with_columns(column("x"), column("v", "variant"), partition_columns=("v",))
    wrong = refused(table([info(), variants, metadata()]), proposal(meta, reads=WHOLE))
    assert wrong.rule == "bad_metadata"
