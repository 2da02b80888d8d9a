"""What the published schema of proposals refuses the committer refuses, naming the same field."""

import copy
import json
import re
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final

import jsonschema
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import builders
from tests.builders import Row, add, an_id, metadata, proposal, protocol, remove, value_of
from tests.property.test_odd_proposals import ODD, altered, part, places, samples, vector
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_reader import CLAIM_FOLDER, DeadLetter, read_record
from tidegate_committer.policy import Policy
from tidegate_delta.data_skipping.predicate_tree import predicate_problem
from tidegate_messages.json_schemas import schema_of
from tidegate_messages.proposal import Proposal

POLICY: Final = Policy(verbatim=True)
SCHEMA: Final = jsonschema.Draft202012Validator(schema_of(Proposal))
MORE: Final[Sequence[Any]] = (
    *("0", "-1", 5.0, -2, 2**53 + 1, "true", "tidegate/x", "opaque", ["a"], [[]], {"op": "true"}),
    *("3" * 32, "commit", "verbatim", "decimal(10, 2)", "double", [{"op": "and", "args": []}]),
)
COLUMN: Final[Row] = {"column": ["a", "b"]}
PREDICATES: Final[Sequence[Row]] = (
    {"op": "=", "column": "x", "type": "long", "value": 5},
    {"op": "<=>", **COLUMN, "type": "decimal(10,2)", "value": "1.50"},
    {"op": "<", **COLUMN, "type": "double", "value": "NaN"},
    {"op": "in", **COLUMN, "type": "date", "values": ["2024-02-29", None]},
    {
        "op": "and",
        "args": [
            {"op": "not", "arg": {"op": "is_null", "column": "s"}},
            {"op": "or", "args": [{"op": "true"}, {"op": "is_not_null", **COLUMN}]},
        ],
    },
    {"op": "=", "column": "s", "type": "boolean", "value": True},
    {"op": "opaque", "columns": ["x"], "text": "x % 2 = 0"},
)
RULES: Final = ("malformed", "not_supported", "unknown_kind", "bad_predicate", "bad_path")
"""The rules by which the committer refuses what the schema refuses."""

Path = tuple[str | int, ...]


def richer() -> Iterator[Proposal]:
    """Yield proposals with what the samples of odd proposals lack."""
    yield proposal(add("a"), reads={"predicates": PREDICATES, "files": ["b"]}, kind="commit")
    yield builders.create()
    yield proposal(
        protocol(),
        metadata(),
        {"txn": {"appId": "a", "version": 1, "lastUpdated": 5}},
        {**remove("a", deletionTimestamp=5, deletionVector=vector(1)), "add": None},
        app_txns=[{"app_id": "orders/0", "version": 4711, "expected": -1}],
        identity_usage=[{"column": "c", "low": 1, "high": 5, "lease": str(an_id())}],
        identity_leases=[{"column": "c", "count": 5}],
        constraints_enforced=["a" * 64],
        deadline_ms=5,
        created_ms=6,
        cdc_mode="explicit",
    )
    kinds: dict[str, Row] = {
        "cancel": {"cancels": str(an_id())},
        "app_versions": {"app_ids": ["orders/0"], "table_id": None},
        "halt": {"reason": "maintenance"},
        "drop": {},
        "reopen": {},
        "register": {"name": "flights", "table_id": None},
    }
    for kind, fields in kinds.items():
        yield proposal(kind=kind, **fields)
    check = {"size": 5, "sha256": "a" * 64}
    own = str(an_id())
    claim = {"path": f"{CLAIM_FOLDER}{own}.ndjson", **check}
    yield proposal(proposal_id=own, claim_check=claim)
    staged = f"_delta_log/_staged_commits/{8:020d}.{an_id()}.json"
    claim = {"path": staged, **check}
    yield proposal(kind="verbatim", exact_version=8, claim_check=claim, txn_id="t")
    patch = [
        {"op": "drop_column", "path": ["a", "b"]},
        {"op": "rename_column", "path": ["a"], "name": "b"},
        {"op": "change_type", "path": ["a"], "type": "long"},
        {"op": "allow_nulls", "path": ["a"]},
        {"op": "comment_on", "path": ["a"], "comment": None},
        {"op": "set_default", "column": "a", "expression": "1"},
        {"op": "unset_property", "key": "k"},
    ]
    yield proposal(metadata_patch={"changes": patch, "base": "a" * 64})


GOOD: Final[Sequence[Row]] = [json.loads(value_of(one)) for one in (*samples(), *richer())]


def gate(body: object) -> tuple[str, str] | None:
    """Return the rule and the field by which the committer refuses a record, or None."""
    read = read_record(orjson.dumps(body), 0, POLICY)
    if isinstance(read, DeadLetter):
        return read.rule, read.reason.partition(":")[0]
    assert isinstance(read, Candidate)
    if read.flaw is not None:
        return read.flaw.rule, read.flaw.field or ""
    wrong = predicate_problem(read.reads.predicates, POLICY.predicate_nodes_max)
    return ("bad_predicate", f"reads.predicates[{wrong[0]}]") if wrong else None


def path_of(field: str) -> Path:
    """Return the path to a field that the committer names; that of the record is empty."""
    if field == "(record)":
        return ()
    steps = re.findall(r"[^.\[\]]+", field)
    return tuple(int(step) if step.isdigit() else step for step in steps)


def schema_paths(body: object) -> set[Path]:
    """Return the paths of all that the schema finds wrong."""
    return {path for error in SCHEMA.iter_errors(body) for path in _leaves(error)}


def _leaves(error: Any) -> Iterator[Path]:
    here = tuple(error.absolute_path)
    if error.context:
        for below in error.context:
            yield from _leaves(below)
    if error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        yield from ((*here, name) for name in missing)
    elif error.validator == "additionalProperties" and error.validator_value is False:
        known = error.schema["properties"]
        yield from ((*here, name) for name in error.instance if name not in known)
    else:
        yield here


def are_close(one: Path, other: Path) -> bool:
    """Return whether two paths name the same field, or one a field inside of the other."""
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def odd(dice: Random, body: Row) -> Row:
    """Return a body with an odd value, a missing field or an unknown one."""
    body = copy.deepcopy(body)
    path = dice.choice(list(places(body)))
    above, key = part(body, path[:-1]), path[-1]
    kind = dice.choice(("drop", "odd", "odd", "odd", "unknown", "null"))
    if kind == "drop":
        del above[key]
    elif kind == "unknown" and isinstance(above, dict):
        above["unknown"] = dice.choice((*ODD, *MORE))
    else:
        above[key] = None if kind == "null" else dice.choice((*ODD, *MORE))
    return body


@pytest.mark.parametrize("body", GOOD, ids=lambda body: body.get("kind", "commit"))
def test_both_take_good_proposals(body: Row) -> None:
    assert (gate(body), schema_paths(body)) == (None, set())


@given(st.sampled_from(GOOD), st.randoms(use_true_random=False))
@settings(max_examples=1_500, deadline=None)
def test_what_the_schema_refuses_the_committer_refuses_at_that_field(
    body: Row, dice: Random
) -> None:
    body = odd(dice, body)
    wrong = schema_paths(body)
    if not wrong:
        return
    refused = gate(body)
    assert refused is not None, f"the committer takes what the schema refuses: {wrong}"
    rule, field = refused
    assert rule in RULES
    assert any(are_close(path_of(field), path) for path in wrong), (refused, wrong)


@given(st.sampled_from(GOOD), st.randoms(use_true_random=False))
@settings(max_examples=500, deadline=None)
def test_what_the_committer_takes_the_schema_takes(body: Row, dice: Random) -> None:
    body = altered(dice, odd(dice, body), GOOD)
    if gate(body) is None:
        assert schema_paths(body) == set()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("read_version", value) for value in ("0", 0.0, True)),
        *(("deadline_ms", value) for value in ("5", True)),
        *(("table", value) for value in ("3" * 32, "{00000000-0000-7000-8000-00000000000a}")),
        ("table_id", None),
        ("operation.nmae", "WRITE"),
        ("reads.whole_table", "true"),
        ("app_txns[0].expects", 5),
        ("reads.predicates[0]", {"op": "=", "column": "x", "type": "double", "value": True}),
        ("reads.predicates[0]", {"op": "=", "column": "x", "type": "decimal(3,1)", "value": True}),
        ("reads.predicates[0]", {"op": "opaque", "columns": False}),
        ("reads.predicates[0]", {"op": "opaque", "text": 5}),
    ],
)
def test_the_committer_converts_nothing_and_ignores_nothing(field: str, value: Any) -> None:
    predicate = {"op": "true"}
    body = json.loads(
        value_of(
            proposal(
                reads={"predicates": [predicate]},
                app_txns=[{"app_id": "orders/0", "version": 1, "expected": -1}],
            )
        )
    )
    path = path_of(field)
    part(body, path[:-1])[path[-1]] = value
    rule, named = gate(body) or ("", "")
    assert rule in RULES
    assert path_of(named) == path
    # A number without a fraction is an integer by JSON Schema, however it is written.
    assert schema_paths(body) or value == 0.0
