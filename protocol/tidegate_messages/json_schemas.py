"""The published JSON Schemas of our messages, generated from the models, and examples of them.

Any program that can write JSON to a topic can propose. These files are its contract.

Of a proposal the model is the source. Added are the schemas of its actions and of the predicates of
its read set (the grammar of `predicate_tree`), which the model takes as plain objects, and the
rules that concern several fields.
"""

from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, Final

import orjson

from tidegate_delta.data_skipping.predicate_tree import COMPARISONS, LIMITS, NODE_FIELDS
from tidegate_delta.schema.types import PRIMITIVES
from tidegate_messages.codec import FORMATS
from tidegate_messages.message import Message
from tidegate_messages.proposal import ROW_INTENT, Proposal
from tidegate_messages.proposed_actions import ROW, RowsToDelete, action_schemas

Schema = dict[str, Any]

PREDICATE: Final = "Predicate"
"""The name of the schema of a predicate."""

_COLUMN: Final = "ColumnPath"
_FLOATING: Final = ("float", "double")
_DECIMAL: Final = r"^decimal\([0-9]+,\s*[0-9]+\)$"
_NODE: Final = {"$ref": f"#/$defs/{PREDICATE}"}
_TITLES: Final = {"in": "InList", "is_null": "IsNull", "is_not_null": "IsNotNull"}


def predicate_schemas() -> dict[str, Schema]:
    """Return the schemas of predicates and what they hold, by name."""
    nodes = [_node([op]) for op in NODE_FIELDS if op not in COMPARISONS]
    return {
        PREDICATE: {
            "title": PREDICATE,
            "description": "A predicate on rows, over physical column paths.",
            "oneOf": [_node(sorted(COMPARISONS)), *nodes],
        },
        _COLUMN: {
            "title": _COLUMN,
            "description": "A column: its name, or the path of names to a field in structs.",
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
            ],
        },
    }


def _node(ops: list[str]) -> Schema:
    """Return the schema of the nodes with these operators, which have the same fields."""
    fields = NODE_FIELDS[ops[0]]
    titles = {**{op: op.capitalize() for op in NODE_FIELDS}, **_TITLES}
    schema: Schema = {
        "title": f"{titles[ops[0]]}Node" if len(ops) == 1 else "ComparisonNode",
        "type": "object",
        "properties": {
            "op": {"type": "string", "enum": ops},
            **{name: _field(name) for name in fields},
        },
        "required": ["op", *fields],
    }
    if ops == ["opaque"]:
        columns = {"type": "array", "items": {"$ref": f"#/$defs/{_COLUMN}"}}
        schema["description"] = "What the grammar can't express; it matches everything."
        schema["properties"]["columns"] = {"anyOf": [columns, {"type": "null"}]}
        schema["properties"]["text"] = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    elif ops == ["true"]:
        schema["description"] = "Matches everything."
    if "type" in fields:
        schema["allOf"] = _values_by_type("value" if "value" in fields else "values")
    return schema


def _field(name: str) -> Schema:
    if name == "column":
        return {"$ref": f"#/$defs/{_COLUMN}"}
    if name == "type":
        return {"type": "string", "anyOf": [{"enum": sorted(PRIMITIVES)}, {"pattern": _DECIMAL}]}
    if name == "args":
        return {"type": "array", "items": _NODE, "minItems": 1}
    if name == "arg":
        return _NODE
    value: Schema = {"type": ["number", "string", "boolean", "null"]}
    return {"type": "array", "items": value} if name == "values" else value


def _values_by_type(name: str) -> list[Schema]:
    """Return what each named type requires of the field `value`, or of each one in `values`."""
    kinds: list[tuple[Schema, Schema]] = [
        ({"const": kind}, {"type": ["integer", "null"], "minimum": -limit, "maximum": limit - 1})
        for kind, limit in LIMITS.items()
    ]
    numbers: Schema = {"type": ["number", "string", "null"]}
    kinds.append(({"anyOf": [{"enum": list(_FLOATING)}, {"pattern": _DECIMAL}]}, numbers))
    kinds.append(({"const": "boolean"}, {"type": ["boolean", "null"]}))
    texts = sorted(PRIMITIVES - LIMITS.keys() - {*_FLOATING, "boolean"})
    kinds.append(({"enum": texts}, {"type": ["string", "null"]}))
    return [
        {
            "if": {"properties": {"type": kind}, "required": ["type"]},
            "then": {"properties": {name: {"items": value} if name == "values" else value}},
        }
        for kind, value in kinds
    ]


CLAIM_CHECK_LINE: Final = "ClaimCheckLine"
"""The name of the schema of a line of a claim check's file."""

_FILLED: Final = {"minItems": 1}
_EMPTY: Final = {"maxItems": 0}
_GIVEN: Final[Schema] = {"not": {"type": "null"}}
_ABSENT: Final[Schema] = {"type": "null"}


def proposal_schema() -> Schema:
    """Return the schema of a proposal, without dialect and id."""
    body = Proposal.model_json_schema()
    definitions_made = body.pop("$defs")
    closed = {
        name: _closed(schema) if "properties" in schema else schema
        for name, schema in definitions_made.items()
    }
    _refer(closed["ReadSet"], "predicates", PREDICATE)
    closed["RowIntent"]["properties"]["rows"] = {"$ref": f"#/$defs/{RowsToDelete.__name__}"}
    _refer(body, "actions", ROW)
    line = {CLAIM_CHECK_LINE: _claim_check_line()}
    definitions = {**closed, **action_schemas(), **predicate_schemas(), **line}
    return {**_closed(body), "allOf": _rules(), "$defs": definitions}


def _closed(schema: Schema) -> Schema:
    """Return the schema of a message whose unknown fields the committer refuses."""
    return {**schema, "additionalProperties": False}


def _refer(schema: Schema, field: str, name: str) -> None:
    """Set what the items of a list are."""
    schema["properties"][field]["items"] = {"$ref": f"#/$defs/{name}"}


def _claim_check_line() -> Schema:
    intent = {
        "title": "RowIntentLine",
        "type": "object",
        "properties": {ROW_INTENT: {"$ref": "#/$defs/RowIntent"}},
        "required": [ROW_INTENT],
    }
    return {
        "title": CLAIM_CHECK_LINE,
        "description": "A line of the file of a claim check of a proposal to commit.",
        "oneOf": [{"$ref": f"#/$defs/{ROW}"}, intent],
    }


def _has(**fields: Schema) -> Schema:
    """Return the schema of objects that have these fields, each with such a value."""
    return {"properties": fields, "required": list(fields)}


def _if(condition: Schema, then: Schema, description: str) -> Schema:
    return {"description": description, "if": condition, "then": then}


def _kind(*names: str) -> Mapping[str, Schema]:
    return {"kind": {"enum": list(names)}}


def _rules() -> list[Schema]:
    """Return what the committer requires of several fields together."""
    return [*_kind_rules(), *_field_rules()]


def _kind_rules() -> Iterator[Schema]:
    """Yield the fields that each kind of proposal has."""
    # A proposal without `kind` is a commit.
    commit = {"properties": _kind("commit")}
    read = _has(read_version={"minimum": 0})
    unread = _has(read_version={"maximum": -1})
    yield _if(
        {"allOf": [commit, read]},
        _has(table_id=_GIVEN),
        "A commit to a table names the `metaData.id` that was read.",
    )
    yield _if(
        {"allOf": [commit, unread]},
        {"properties": {"table_id": _ABSENT}},
        "A proposal that creates a table has no `table_id`.",
    )
    yield _if(
        _has(**_kind("cancel")), _has(cancels=_GIVEN), "A cancel names the proposal in `cancels`."
    )
    yield _if(_has(**_kind("halt")), _has(reason=_GIVEN), "A halt says why, in `reason`.")
    yield _if(
        _has(**_kind("move")),
        _has(to_partition=_GIVEN),
        "A move names the topic partition in `to_partition`.",
    )
    yield _if(
        _has(**_kind("app_versions")),
        _has(app_ids=_FILLED),
        "A question for `app_versions` names the applications in `app_ids`.",
    )
    yield _if(
        _has(**_kind("verbatim")),
        _has(exact_version=_GIVEN, claim_check=_GIVEN),
        "A verbatim proposal has `exact_version` and `claim_check`.",
    )
    yield _if(
        _has(verify_files={"const": True}),
        commit,
        "`verify_files` is for proposals of the kind `commit`.",
    )


def _field_rules() -> Iterator[Schema]:
    """Yield which fields come without which."""
    no_rows = {
        **dict.fromkeys(("dv_intents", "row_mapping"), _EMPTY),
        "claim_check": _ABSENT,
    }
    only_transactions = {"actions": {"items": _has(txn=_GIVEN)}, "metadata_patch": _ABSENT}
    yield _if(
        {"anyOf": [_has(actions=_FILLED), _has(dv_intents=_FILLED)]},
        {"properties": {"claim_check": _ABSENT}},
        "`actions` and `dv_intents` are in the record, or all in the file of `claim_check`.",
    )
    yield _if(
        _has(metadata_patch=_GIVEN),
        {"properties": {**no_rows, "actions": _EMPTY}},
        "A `metadata_patch` comes without actions, intents or a claim check.",
    )
    yield _if(
        _has(row_mapping=_FILLED),
        {"properties": {"dv_intents": _EMPTY}},
        "Rows that move (`row_mapping`) come without rows that leave.",
    )
    yield _if(
        {
            "properties": {**no_rows, **only_transactions, "identity_leases": _FILLED},
            "required": ["identity_leases"],
        },
        {"properties": {"actions": _EMPTY, "app_txns": _EMPTY, "app_txn": _ABSENT}},
        "Values leased without rows (`identity_leases`) come without application transactions.",
    )


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
