"""The published JSON Schemas of our messages, generated from the models, and examples of them.

Any program that can write JSON to a topic can propose. These files are its contract.
"""

from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

import orjson

from tidegate_messages.codec import FORMATS
from tidegate_messages.message import Message
from tidegate_messages.proposal import Proposal
from tidegate_messages.proposal_schemas import proposal_schema

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_PACKAGE: Final = "tidegate_messages"
FOLDER: Final = "schemas"
"""The folder of the schema files, beside this module."""

EXAMPLES: Final = "examples"
"""The folder of the examples, `proposal-1.create.json` and the like. `outcome-1.create.json` is the
committer's answer to it.
"""


def schema_name(kind: type[Message]) -> str:
    """Return the file name of a message's schema: `proposal-1.json` for the format `proposal/1`."""
    return f"{_stem(kind)}.json"


def schema_of(kind: type[Message]) -> dict[str, Any]:
    """Return the schema of a message as it is read, with examples.

    What we publish may have fields of a newer release. A proposal may not: the committer refuses
    them by name.
    """
    schema = proposal_schema() if kind is Proposal else kind.model_json_schema(mode="validation")
    return {
        "$schema": DIALECT,
        "$id": f"urn:tidegate:{FORMATS[kind].replace('/', ':')}",
        **schema,
        "examples": list(examples_of(kind).values()),
    }


def schema_files() -> Mapping[str, bytes]:
    """Return the expected content of every schema file, by name."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    return {schema_name(kind): orjson.dumps(schema_of(kind), option=options) for kind in FORMATS}


def shipped_schema(kind: type[Message]) -> bytes:
    """Return the content of a message's schema file."""
    return files(_PACKAGE).joinpath(FOLDER, schema_name(kind)).read_bytes()


def examples_of(kind: type[Message]) -> Mapping[str, dict[str, Any]]:
    """Return the examples of a message by name (`create`), in alphabetical order."""
    start = f"{_stem(kind)}."
    entries = files(_PACKAGE).joinpath(EXAMPLES).iterdir()
    named = sorted((file for file in entries if file.name.startswith(start)), key=lambda f: f.name)
    return {
        file.name.removeprefix(start).removesuffix(".json"): orjson.loads(file.read_bytes())
        for file in named
    }


def registry_body(kind: type[Message]) -> bytes:
    """Return the body with which a message's schema is registered in a schema registry.

    Shape: that of `POST /subjects/<topic>-value/versions` in Confluent's protocol.
    """
    return orjson.dumps({"schemaType": "JSON", "schema": shipped_schema(kind).decode()})


def _stem(kind: type[Message]) -> str:
    return FORMATS[kind].replace("/", "-")
