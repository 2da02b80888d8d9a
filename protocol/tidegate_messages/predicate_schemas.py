"""The JSON Schema of the predicates of a read set: the grammar of `predicate_tree`."""

from typing import Any, Final

from tidegate_delta.data_skipping.predicate_tree import COMPARISONS
from tidegate_delta.data_skipping.predicate_validation import LIMITS, NODE_FIELDS
from tidegate_delta.schema.types import PRIMITIVES

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
