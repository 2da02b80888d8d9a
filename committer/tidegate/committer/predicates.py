"""Whether a predicate of a read set is of the grammar: checked before anything evaluates it."""

from collections.abc import Mapping
from typing import Any

from tidegate.delta.files import grammar

_FIELDS: Mapping[str, tuple[str, ...]] = {
    "true": (),
    "opaque": (),
    "is_null": ("column",),
    "is_not_null": ("column",),
    "in": ("column", "values", "type"),
    "and": ("args",),
    "or": ("args",),
    "not": ("arg",),
    **{op: ("column", "value", "type") for op in grammar.COMPARISONS},
}


def wrong_with(predicate: Any, nodes_max: int) -> str | None:
    """Return what is wrong with a predicate, or None."""
    waiting = [predicate]
    for seen in range(nodes_max + 1):
        if not waiting:
            return None
        if seen == nodes_max:
            return f"has more than {nodes_max} nodes"
        node = waiting.pop()
        wrong = _wrong_with_node(node)
        if wrong:
            return wrong
        waiting += node.get("args", ()) if node["op"] in ("and", "or") else ()
        waiting += [node["arg"]] if node["op"] == "not" else []
    return None


def _wrong_with_node(node: Any) -> str | None:
    if not isinstance(node, Mapping) or not isinstance(node.get("op"), str):
        return "holds a node that is no object with `op`"
    op = node["op"]
    if op not in _FIELDS:
        return f"holds the operator {op!r}, which the grammar lacks"
    missing = [name for name in _FIELDS[op] if name not in node]
    if missing:
        return f"holds a node {op!r} without {missing[0]!r}"
    if op in ("and", "or"):
        return None if _is_list(node["args"]) and node["args"] else f"{op!r} needs a list of nodes"
    columns = (
        node.get("columns") or []
        if op == "opaque"
        else [node["column"]]
        if "column" in node
        else []
    )
    if not _is_list(columns) or not all(_is_column(column) for column in columns):
        return f"holds a node {op!r} whose column is no path of names"
    if "type" not in _FIELDS[op]:
        return None
    return _wrong_with_values(node)


def _wrong_with_values(node: Mapping[str, Any]) -> str | None:
    values = node["values"] if node["op"] == "in" else [node["value"]]
    if not isinstance(node["type"], str) or not _is_list(values):
        return f"holds a node {node['op']!r} with a mistyped field"
    try:
        kind = grammar.kind_of(node)
        for value in values:
            grammar.literal(value, kind)
    except ValueError as error:
        return str(error)
    return None


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _is_column(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value)
    return _is_list(value) and bool(value) and all(isinstance(part, str) for part in value)
