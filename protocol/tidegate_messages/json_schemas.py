"""The published JSON Schemas of our messages, generated from the models.

Any program that can write JSON to a topic can propose. These files are its contract.
"""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from tidegate_messages.codec import FORMATS
from tidegate_messages.message import Message

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
FOLDER: Final = "schemas"
"""The folder of the schema files, beside this module."""


def schema_name(kind: type[Message]) -> str:
    """Return the file name of a message's schema: `proposal-1.json` for the format `proposal/1`."""
    return f"{FORMATS[kind].replace('/', '-')}.json"


def schema_of(kind: type[Message]) -> dict[str, Any]:
    """Return the schema of a message as it is read: fields of a newer release are allowed."""
    made = kind.model_json_schema(mode="validation")
    return {"$schema": DIALECT, "$id": f"urn:tidegate:{FORMATS[kind].replace('/', ':')}", **made}


def schema_files() -> Mapping[str, bytes]:
    """Return the expected content of every schema file, by name."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    return {schema_name(kind): orjson.dumps(schema_of(kind), option=options) for kind in FORMATS}
