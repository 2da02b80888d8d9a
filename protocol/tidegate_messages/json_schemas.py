"""The published JSON Schemas of our messages, generated from the models.

Any program that can write JSON to a topic can propose. These files are its contract.
"""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from tidegate_messages.codec import FORMATS
from tidegate_messages.message import Message
from tidegate_messages.proposal import Proposal
from tidegate_messages.proposal_schemas import proposal_schema

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
FOLDER: Final = "schemas"
"""The folder of the schema files, beside this module."""


def schema_name(kind: type[Message]) -> str:
    """Return the file name of a message's schema: `proposal-1.json` for the format `proposal/1`."""
    return f"{FORMATS[kind].replace('/', '-')}.json"


def schema_of(kind: type[Message]) -> dict[str, Any]:
    """Return the schema of a message as it is read.

    What we publish may have fields of a newer release. A proposal may not: the committer refuses
    them by name.
    """
    made = proposal_schema() if kind is Proposal else kind.model_json_schema(mode="validation")
    return {"$schema": DIALECT, "$id": f"urn:tidegate:{FORMATS[kind].replace('/', ':')}", **made}


def schema_files() -> Mapping[str, bytes]:
    """Return the expected content of every schema file, by name."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    return {schema_name(kind): orjson.dumps(schema_of(kind), option=options) for kind in FORMATS}
