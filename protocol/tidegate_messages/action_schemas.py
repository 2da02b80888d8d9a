"""The JSON Schema of a proposal's actions: lines of Delta's log, as the committer takes them.

The fields, their types and which are required come from the models of `tidegate_delta.log.actions`.
Added here is what the committer requires of a proposal beyond the models.
"""

from collections.abc import Mapping
from typing import Any, Final

from tidegate_delta.log.actions import (
    Action,
    Add,
    Cdc,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from tidegate_delta.value_limits import TIMESTAMP_MAX

Schema = dict[str, Any]

PROPOSED: Final[tuple[type[Action], ...]] = (
    Add,
    Remove,
    Cdc,
    Metadata,
    Protocol,
    Txn,
    DomainMetadata,
)
"""The actions that a proposal may hold."""

ROW: Final = "ActionRow"
"""The name of the schema of one action."""

ROWS_TO_DELETE: Final = "RowsToDelete"
"""The name of the schema of a row intent's deletion vector."""

_NEW_VECTOR: Final = "NewDeletionVector"
_MOMENT: Final = {"minimum": -TIMESTAMP_MAX, "maximum": TIMESTAMP_MAX}
_COUNT: Final = {"minimum": 0}
_STATISTICS: Final = {
    "contentMediaType": "application/json",
    "description": "An object of statistics as JSON in a string; it has `numRecords`.",
}
_REQUIRED: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = {
    "Add": {
        "size": _COUNT,
        "modificationTime": {"minimum": 0, "maximum": TIMESTAMP_MAX},
        "baseRowId": _COUNT,
        "defaultRowCommitVersion": _COUNT,
        "stats": _STATISTICS,
        "deletionVector": {"$ref": f"#/$defs/{_NEW_VECTOR}"},
    },
    "Remove": {"size": _COUNT, "deletionTimestamp": _MOMENT},
    "Cdc": {"size": _COUNT, "dataChange": {"const": False}},
    "Metadata": {"createdTime": _MOMENT},
    "Txn": {
        "version": _COUNT,
        "lastUpdated": _MOMENT,
        "appId": {"not": {"pattern": "^tidegate/"}},
    },
    _NEW_VECTOR: {"storageType": {"enum": ["u", "i"]}, "cardinality": _COUNT},
    ROWS_TO_DELETE: {"storageType": {"enum": ["u", "i"]}, "cardinality": {"minimum": 1}},
}
"""What the committer requires of a field beyond its type, by schema and field."""

_EXTENDED: Final = {
    "if": {
        "properties": {"extendedFileMetadata": {"const": True}},
        "required": ["extendedFileMetadata"],
    },
    "then": {
        "properties": {"size": {"type": "integer"}, "partitionValues": {"type": "object"}},
        "required": ["size", "partitionValues"],
    },
}
"""A remove with extended file metadata has it."""


def action_schemas() -> dict[str, Schema]:
    """Return the schemas of actions and what they hold, by name; `ROW` is that of one action."""
    schemas: dict[str, Schema] = {}
    for kind in PROPOSED:
        schemas |= _definitions(kind)
    vector = _definitions(DeletionVector)[DeletionVector.__name__]
    schemas[_NEW_VECTOR] = {**vector, "title": _NEW_VECTOR}
    schemas[ROWS_TO_DELETE] = {**vector, "title": ROWS_TO_DELETE}
    for name, fields in _REQUIRED.items():
        properties = schemas[name]["properties"]
        limited = {field: _with(properties[field], limits) for field, limits in fields.items()}
        schemas[name] = {**schemas[name], "properties": {**properties, **limited}}
    schemas["Remove"] = {**schemas["Remove"], **_EXTENDED}
    schemas[ROW] = _row()
    return schemas


def _definitions(kind: type[Action]) -> dict[str, Schema]:
    """Return the schema of an action, in which null counts as absent, and those it refers to."""
    schema = kind.model_json_schema(by_alias=True)
    below: dict[str, Schema] = schema.pop("$defs", {})
    required = schema.get("required", ())
    fields = schema["properties"].items()
    schema["properties"] = {
        name: field if name in required or kind is DeletionVector else _or_null(field)
        for name, field in fields
    }
    return {**below, kind.__name__: schema}


def _or_null(field: Schema) -> Schema:
    if "anyOf" in field:
        return field
    named = {name: value for name, value in field.items() if name in ("title", "default")}
    plain = {name: value for name, value in field.items() if name not in named}
    return {"anyOf": [plain, {"type": "null"}], **named}


def _with(field: Schema, limits: Mapping[str, Any]) -> Schema:
    """Return the schema of a field with more required of its value where that is not null."""
    if "anyOf" not in field:
        return {**field, **limits}
    options = [
        option if option == {"type": "null"} else {**option, **limits} for option in field["anyOf"]
    ]
    return {**field, "anyOf": options}


def _row() -> Schema:
    rows = [
        {
            "title": f"{kind.__name__}Row",
            "type": "object",
            "properties": {kind.wire_name: {"$ref": f"#/$defs/{kind.__name__}"}},
            "required": [kind.wire_name],
            "additionalProperties": {"type": "null"},
        }
        for kind in PROPOSED
    ]
    names = ", ".join(kind.wire_name for kind in PROPOSED)
    return {
        "title": ROW,
        "description": f"A line of Delta's log, with exactly one of {names}.",
        "type": "object",
        "oneOf": rows,
    }
