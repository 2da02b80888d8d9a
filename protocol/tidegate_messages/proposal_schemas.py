"""The JSON Schema of proposals: all that a writer sends, with what the committer requires of it.

The model of the proposal is the source. Added are the schemas of actions and predicates, which the
model takes as plain objects, and the rules that concern several fields.
"""

from collections.abc import Mapping
from typing import Any, Final

from tidegate_messages.predicate_schemas import PREDICATE, predicate_schemas
from tidegate_messages.proposal import Proposal
from tidegate_messages.proposed_actions import ROW, RowsToDelete, action_schemas
from tidegate_messages.row_intent import ROW_INTENT

Schema = dict[str, Any]

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
    # A proposal without `kind` is a commit.
    commit = {"properties": _kind("commit")}
    read = _has(read_version={"minimum": 0})
    unread = _has(read_version={"maximum": -1})
    some_rows = {"anyOf": [_has(actions=_FILLED), _has(dv_intents=_FILLED)]}
    empty_lists = dict.fromkeys(("actions", "dv_intents", "row_mapping"), _EMPTY)
    no_files = {"properties": {**empty_lists, "claim_check": _ABSENT}}
    return [
        _if(
            {"allOf": [{"properties": _kind("commit", "verbatim")}, read]},
            _has(table_id=_GIVEN),
            "A commit to a table names the `metaData.id` that was read.",
        ),
        _if(
            {"allOf": [commit, unread]},
            {"properties": {"table_id": _ABSENT}},
            "A proposal that creates a table has no `table_id`.",
        ),
        _if(
            _has(**_kind("cancel")),
            _has(cancels=_GIVEN),
            "A cancel names the proposal in `cancels`.",
        ),
        _if(_has(**_kind("halt")), _has(reason=_GIVEN), "A halt says why, in `reason`."),
        _if(
            _has(**_kind("app_versions")),
            _has(app_ids=_FILLED),
            "A question for `app_versions` names the applications in `app_ids`.",
        ),
        _if(
            _has(**_kind("verbatim")),
            _has(exact_version=_GIVEN, claim_check=_GIVEN),
            "A verbatim proposal has `exact_version` and `claim_check`.",
        ),
        _if(
            _has(verify_files={"const": True}),
            commit,
            "`verify_files` is for proposals of the kind `commit`.",
        ),
        _if(
            some_rows,
            {"properties": {"claim_check": _ABSENT}},
            "`actions` and `dv_intents` are in the record, or all in the file of `claim_check`.",
        ),
        _if(
            _has(metadata_patch=_GIVEN),
            no_files,
            "A `metadata_patch` comes without actions, intents or a claim check.",
        ),
        _if(
            _has(row_mapping=_FILLED),
            {"properties": {"dv_intents": _EMPTY}},
            "Rows that move (`row_mapping`) come without rows that leave.",
        ),
    ]
