"""The shipped examples: valid, readable, and what the committer does with them."""

from collections.abc import Iterator
from typing import Any, Final

import jsonschema
import orjson
import pytest

from tests.builders import Gate
from tidegate_committer.settings import CommitterSection
from tidegate_messages.codec import FORMATS, decode, encode
from tidegate_messages.json_schemas import examples_of, registry_body, schema_of
from tidegate_messages.message import Message
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Proposal
from tidegate_messages.topics import Topics

TOLD: Final = (
    *("create", "append", "append-again", "app-versions"),
    *("delete-rows", "delete-files", "late-overwrite", "cancel"),
)
"""The example proposals in the order in which they are sent."""

CLOCKED: Final = ("decided_ms", "in_commit_timestamp")
PROPOSALS: Final = examples_of(Proposal)
OUTCOMES: Final = examples_of(Outcome)


def all_examples() -> Iterator[Any]:
    for kind in FORMATS:
        for name, body in examples_of(kind).items():
            yield pytest.param(kind, body, id=f"{kind.__name__}-{name}")


def gate_of(partitions: int = 1) -> Gate:
    settings = CommitterSection(roots=("s3://lake",), audit_s=1e9)
    return Gate(settings=settings, topics=Topics(partitions=partitions))


def timeless(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in CLOCKED}


def answer(gate: Gate, name: str) -> dict[str, Any]:
    [outcome] = gate.ask(orjson.dumps(PROPOSALS[name]))
    return timeless(orjson.loads(encode(outcome)))


def test_there_are_examples_of_every_message() -> None:
    assert all(examples_of(kind) for kind in FORMATS)
    assert set(TOLD) == PROPOSALS.keys()
    assert {"other-partition", *TOLD} == OUTCOMES.keys()
    statuses = {body["status"] for body in OUTCOMES.values()}
    assert statuses == {"committed", "rejected", "denied", "answered"}


@pytest.mark.parametrize(("kind", "body"), list(all_examples()))
def test_an_example_is_valid_and_read_by_our_models(
    kind: type[Message], body: dict[str, Any]
) -> None:
    jsonschema.Draft202012Validator(schema_of(kind)).validate(body)
    again = orjson.loads(encode(decode(kind, orjson.dumps(body))))
    assert {**body, **again} == again


def test_the_committer_answers_the_examples_with_their_outcomes() -> None:
    gate = gate_of()
    for name in TOLD:
        assert answer(gate, name) == timeless(OUTCOMES[name]), name


def test_a_proposal_on_another_partition_is_answered_as_its_outcome_says() -> None:
    assert answer(gate_of(2), "create") == timeless(OUTCOMES["other-partition"])


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.__name__)
def test_a_schema_registry_takes_a_schema_as_it_is(kind: type[Message]) -> None:
    body = orjson.loads(registry_body(kind))
    assert body.keys() == {"schemaType", "schema"}
    assert body["schemaType"] == "JSON"
    schema = orjson.loads(body["schema"])
    assert schema == schema_of(kind)
    references = set(_references(schema))
    assert all(reference.startswith("#/$defs/") for reference in references)
    assert {reference.removeprefix("#/$defs/") for reference in references} <= schema.get(
        "$defs", {}
    ).keys()


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for below in node.values():
            yield from _references(below)
    elif isinstance(node, list):
        for below in node:
            yield from _references(below)
