from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from pprint import pformat
from typing import Any, Final
from uuid import UUID

import jsonschema
import orjson
import pytest
from mypy import api

from tests.builders import Gate
from tidegate_committer.settings import CommitterSection
from tidegate_messages.codec import FORMATS, decode, encode
from tidegate_messages.json_schemas import (
    FOLDER,
    examples_of,
    registry_body,
    schema_files,
    schema_of,
    shipped_schema,
)
from tidegate_messages.message import Message
from tidegate_messages.outcome import Outcome, Rejection
from tidegate_messages.proposal import AppTxn, Proposal, ReadSet
from tidegate_messages.published_records import CommitRecord, FollowerRecord, TableRecord
from tidegate_messages.topics import Topics

SHIPPED = files("tidegate_messages").joinpath(FOLDER)
MAKE_ANEW = (
    "the shipped schemas are not those of the models; write them again: python -c "
    '"from pathlib import Path; from tidegate_messages.json_schemas import schema_files; '
    "[Path('protocol/tidegate_messages/schemas', name).write_bytes(content) "
    'for name, content in schema_files().items()]"'
)
ID, TABLE, SHA256 = UUID(int=1), UUID(int=2), "a" * 64
MESSAGES: list[Message] = [
    Proposal(
        proposal_id=ID,
        table=TABLE,
        table_root="file:///t",
        table_id="5d6c",
        read_version=7,
        actions=(
            {
                "add": {
                    "path": "a.parquet",
                    "partitionValues": {},
                    "size": 1,
                    "modificationTime": 1,
                    "dataChange": True,
                }
            },
        ),
        reads=ReadSet(predicates=({"op": "=", "column": "a", "value": 1, "type": "long"},)),
        app_txn=AppTxn(app_id="stream", version=4),
    ),
    Outcome(
        proposal_id=ID,
        proposal_sha256=SHA256,
        table=TABLE,
        status="rejected",
        rejection=Rejection(rule="concurrent_append", reason="added 'a'"),
    ),
    CommitRecord(
        table=TABLE, table_root="file:///t", version=8, sha256=SHA256, size=10, author="tidegate"
    ),
    TableRecord(
        table=TABLE, table_root="file:///t", name="t", proposals_topic="p", topic_partition=0
    ),
    FollowerRecord(
        service="checkpointer",
        table=TABLE,
        name="t",
        reason="OverflowError: too large",
        error_class="OverflowError",
        since_ms=1,
        attempts=1,
        next_try_ms=30_001,
    ),
]


def test_the_shipped_schemas_are_those_of_the_models() -> None:
    shipped = {entry.name: entry.read_bytes() for entry in SHIPPED.iterdir()}
    assert shipped == schema_files(), MAKE_ANEW


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.__name__)
def test_a_schema_is_one(kind: type[Message]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema_of(kind))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_what_we_write_is_valid_and_so_is_what_a_newer_release_adds(message: Message) -> None:
    validator = jsonschema.Draft202012Validator(schema_of(type(message)))
    wire: dict[str, Any] = orjson.loads(encode(message))
    validator.validate(wire)
    newer = {**wire, "a_newer_field": {"of": ["any", "shape"]}}
    # The committer refuses what it does not know of a proposal; readers ignore what we publish.
    assert validator.is_valid(newer) is not isinstance(message, Proposal)


def test_a_malformed_proposal_is_invalid() -> None:
    validator = jsonschema.Draft202012Validator(schema_of(Proposal))
    wire: dict[str, Any] = orjson.loads(encode(MESSAGES[0]))
    for wrong in ({"read_version": -2}, {"kind": "else"}, {"table_root": "t"}, {"actions": 3}):
        assert not validator.is_valid({**wire, **wrong})
    del wire["table"]
    assert not validator.is_valid(wire)


TOLD: Final = (
    *("create", "append", "append-again", "app-versions"),
    *("delete-rows", "delete-files", "late-overwrite", "cancel"),
)
"""The example proposals in the order in which they are sent."""
CLOCKED: Final = ("decided_ms", "in_commit_timestamp")
PROPOSALS: Final = examples_of(Proposal)
OUTCOMES: Final = examples_of(Outcome)
_SIMPLE: Final[Mapping[str, str]] = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
}
_HEAD: Final = "from typing import Any, Literal, NotRequired, Required, TypedDict, Union\n"


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


class Generator:
    """Makes Python source of a schema: a TypedDict for each object with properties."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.found: dict[str, str] = {}
        for name, below in schema.get("$defs", {}).items():
            self._define(name, below)
        self._define(schema["title"], schema)

    @property
    def source(self) -> str:
        """The types, as a module."""
        return _HEAD + "\n".join(f"{name} = {text}" for name, text in self.found.items())

    def _define(self, name: str, schema: Mapping[str, Any]) -> None:
        self.found[name] = (
            self._object(name, schema) if "properties" in schema else self._type(schema)
        )

    def _object(self, name: str, schema: Mapping[str, Any]) -> str:
        required = schema.get("required", ())
        fields = {
            field: f"{'' if field in required else 'Not'}Required[{self._type(below)}]"
            for field, below in schema["properties"].items()
        }
        listed = ", ".join(f"{field!r}: {text!r}" for field, text in fields.items())
        return f"TypedDict({name!r}, {{{listed}}})"

    def _type(self, schema: Mapping[str, Any]) -> str:
        if "$ref" in schema:
            return str(schema["$ref"]).rpartition("/")[2]
        if "const" in schema or "enum" in schema:
            values = schema.get("enum", [schema.get("const")])
            return f"Literal[{', '.join(map(repr, values))}]"
        for union in ("oneOf", "anyOf"):
            if union in schema and schema.get("type") != "string":
                return f"Union[{', '.join(repr(self._type(one)) for one in schema[union])}]"
        if "properties" in schema:
            self._define(schema["title"], schema)
            return str(schema["title"])
        kind = schema.get("type")
        if isinstance(kind, list):
            return f"Union[{', '.join(self._type({'type': one}) for one in kind)}]"
        if kind == "array":
            return f"list[{self._type(schema.get('items', {}))!r}]"
        if kind == "object":
            more = schema.get("additionalProperties")
            return f"dict[str, {self._type(more) if isinstance(more, dict) else 'Any'}]"
        return _SIMPLE.get(str(kind), "Any")


def mypy_errors(folder: Path, source: str) -> str:
    """Return what mypy says of a module."""
    path = folder / "generated.py"
    path.write_text(source, encoding="utf-8")
    options = ["--no-incremental", "--cache-dir", str(folder / "cache"), "--config-file", ""]
    result, faults, _ = api.run([*options, "--python-version", "3.11", str(path)])
    return result + faults


def typed(kind: type[Message], *bodies: Mapping[str, Any]) -> str:
    """Return generated types, and values that are said to be of them."""
    schema = orjson.loads(shipped_schema(kind))
    values = [
        f"example_{place}: {schema['title']} = {pformat(body, sort_dicts=False)}"
        for place, body in enumerate(bodies)
    ]
    return "\n".join([Generator(schema).source, *values, ""])


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.__name__)
def test_examples_have_the_types_that_are_generated(kind: type[Message], tmp_path: Path) -> None:
    result = mypy_errors(tmp_path, typed(kind, *examples_of(kind).values()))
    assert result == "Success: no issues found in 1 source file\n"


def test_a_type_checker_finds_an_invalid_proposal_by_the_generated_types(tmp_path: Path) -> None:
    good = examples_of(Proposal)["append"]
    [add, *_] = good["actions"]
    named = {**add["add"], "size": "2048"}
    wrong = [
        {**good, "read_version": "0"},
        {**good, "app_txnz": good["app_txns"]},
        {**good, "actions": [{"add": named}]},
        {**good, "reads": {"predicates": [{"op": "like", "column": "a"}]}},
    ]
    result = mypy_errors(tmp_path, typed(Proposal, *wrong))
    lines = {line.split(":")[1] for line in result.splitlines() if ": error:" in line}
    source = (tmp_path / "generated.py").read_text(encoding="utf-8").splitlines()
    starts = [place for place, line in enumerate(source, 1) if line.startswith("example_")]
    found = {max(start for start in starts if start <= int(line)) for line in lines}
    assert found == set(starts)
