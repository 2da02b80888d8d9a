"""The actions that a proposal may hold: lines of Delta's log, within limits.

Fields and types are those of `tidegate_delta.log.actions`, whose models read what any engine wrote.
The limits of what a writer proposes stand in the models here: the committer validates with them,
its refusals quote them, and the published schema is made from them.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, Strict
from pydantic.config import JsonDict

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
from tidegate_delta.value_limits import LONG_MAX, TIMESTAMP_MAX

Schema = dict[str, Any]

ROW: Final = "ActionRow"
"""The name of the schema of one action."""

Count = Annotated[int, Strict(), Field(ge=0, le=LONG_MAX)]
Timestamp = Annotated[int, Strict(), Field(ge=-TIMESTAMP_MAX, le=TIMESTAMP_MAX)]
"""Milliseconds since the Unix epoch."""

VectorKind = Annotated[str, Field(json_schema_extra={"enum": ["u", "i", "p"]})]
Statistics = Annotated[
    str,
    Field(
        description="An object of statistics as JSON in a string; it has `numRecords`.",
        json_schema_extra={"contentMediaType": "application/json"},
    ),
]
AppId = Annotated[str, Field(json_schema_extra={"not": {"pattern": "^tidegate/"}})]

_EXTENDED: Final[JsonDict] = {
    "if": {
        "properties": {"extendedFileMetadata": {"const": True}},
        "required": ["extendedFileMetadata"],
    },
    "then": {
        "properties": {"size": {"type": "integer"}, "partitionValues": {"type": "object"}},
        "required": ["size", "partitionValues"],
    },
}


class ProposedVector(DeletionVector):
    """The deletion vector of a file that is added.

    Units: `size_in_bytes` and `offset` in bytes; `cardinality` in rows.
    Spec: "Deletion Vector Descriptor Schema"
    """

    storage_type: VectorKind
    cardinality: Count


class RowsToDelete(DeletionVector):
    """The rows that a row intent deletes, as a deletion vector.

    Units: `size_in_bytes` and `offset` in bytes; `cardinality` in rows.
    Spec: "Deletion Vector Descriptor Schema"
    """

    storage_type: Literal["u", "i"]
    cardinality: Annotated[int, Strict(), Field(ge=1, le=LONG_MAX)]


class ProposedAdd(Add):
    """A data file is added to the table.

    Units: `size` in bytes; `modification_time` in ms since the Unix epoch.
    Spec: "Add File and Remove File"
    """

    size: Count
    modification_time: Annotated[int, Strict(), Field(ge=0, le=TIMESTAMP_MAX)]
    deletion_vector: ProposedVector | None = None
    base_row_id: Count | None = None
    default_row_commit_version: Count | None = None
    stats: Statistics | None = None


class ProposedRemove(Remove):
    """A data file is removed from the table; the row stays as a tombstone until it expires.

    Units: `size` in bytes; `deletion_timestamp` in ms since the Unix epoch.
    Spec: "Add File and Remove File"
    """

    model_config = ConfigDict(json_schema_extra=_EXTENDED)
    size: Count | None = None
    deletion_timestamp: Timestamp | None = None


class ProposedCdc(Cdc):
    """A file with the row-level changes of its version.

    Spec: "Add CDC File"
    """

    size: Count
    data_change: Literal[False] = False


class ProposedMetadata(Metadata):
    """Schema, partitioning and properties of the table.

    Spec: "Change Metadata"
    """

    created_time: Timestamp | None = None


class ProposedTxn(Txn):
    """The progress of an application: the last of its own versions that was committed to the table.

    Units: `last_updated` in ms since the Unix epoch.
    Spec: "Transaction Identifiers"
    """

    app_id: AppId
    version: Count
    last_updated: Timestamp | None = None


PROPOSED: Final[Mapping[str, type[Action]]] = {
    kind.wire_name: kind
    for kind in (
        ProposedAdd,
        ProposedRemove,
        ProposedCdc,
        ProposedMetadata,
        Protocol,
        ProposedTxn,
        DomainMetadata,
    )
}
"""The models of the actions that a proposal may hold, by their names in the log."""


def action_schemas() -> dict[str, Schema]:
    """Return the schemas of actions and what they hold, by name; `ROW` is that of one action."""
    schemas: dict[str, Schema] = {}
    for kind in PROPOSED.values():
        schemas |= _definitions(kind)
    schemas |= _definitions(RowsToDelete)
    schemas[ROW] = _row()
    return schemas


def _definitions(kind: type[Action]) -> dict[str, Schema]:
    """Return the schema of an action, in which null counts as absent, and those it refers to."""
    schema = kind.model_json_schema(by_alias=True)
    below: dict[str, Schema] = schema.pop("$defs", {})
    required = schema.get("required", ())
    fields = schema["properties"].items()
    schema["properties"] = {
        name: field if name in required or kind is RowsToDelete else _or_null(field)
        for name, field in fields
    }
    return {**below, kind.__name__: schema}


def _or_null(field: Schema) -> Schema:
    if "anyOf" in field:
        return field
    named = {name: value for name, value in field.items() if name in ("title", "default")}
    plain = {name: value for name, value in field.items() if name not in named}
    return {"anyOf": [plain, {"type": "null"}], **named}


def _row() -> Schema:
    rows = [
        {
            "title": f"{name[0].upper()}{name[1:]}Row",
            "type": "object",
            "properties": {name: {"$ref": f"#/$defs/{kind.__name__}"}},
            "required": [name],
            "additionalProperties": {"type": "null"},
        }
        for name, kind in PROPOSED.items()
    ]
    return {
        "title": ROW,
        "description": f"A line of Delta's log, with exactly one of {', '.join(PROPOSED)}.",
        "type": "object",
        "oneOf": rows,
    }
