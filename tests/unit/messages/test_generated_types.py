"""Types can be generated from the schemas alone: what other languages do, done here for Python.

The generator below knows JSON Schema's types, references and unions, as generators do, and nothing
of our messages. mypy judges what it makes.
"""

from collections.abc import Mapping
from pathlib import Path
from pprint import pformat
from typing import Any, Final

import orjson
import pytest
from mypy import api

from tidegate_messages.codec import FORMATS
from tidegate_messages.json_schemas import examples_of, shipped_schema
from tidegate_messages.message import Message
from tidegate_messages.proposal import Proposal

_SIMPLE: Final[Mapping[str, str]] = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
}
_HEAD: Final = "from typing import Any, Literal, NotRequired, Required, TypedDict, Union\n"


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
