"""Validate predicates from other processes before they are evaluated."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tidegate_delta.data_skipping import predicate_tree

NODE_FIELDS: Mapping[str, tuple[str, ...]] = {
    "true": (),
    "opaque": (),
    "is_null": ("column",),
    "is_not_null": ("column",),
    "in": ("column", "values", "type"),
    "and": ("args",),
    "or": ("args",),
    "not": ("arg",),
    **{op: ("column", "value", "type") for op in predicate_tree.COMPARISONS},
}

"""The operators of the grammar, with the fields that a node must have."""

_FORKS = ("and", "or")
LIMITS: Mapping[str, int] = {"byte": 1 << 7, "short": 1 << 15, "integer": 1 << 31, "long": 1 << 63}
"""The exclusive upper limit of each integer type."""


class PredicateFault(NamedTuple):
    """The place of an invalid predicate and what is wrong: its grammar, or only its size.

    Spec: "Per-file Statistics"
    """

    place: int
    what: str
    is_too_large: bool = False


def wrong_with(predicates: Sequence[Any], nodes_max: int) -> PredicateFault | None:
    """Return the first fault of some predicates, or None.

    `nodes_max` bounds the nodes and values of all predicates together.
    Spec: "Per-file Statistics"
    """
    left = nodes_max
    for index, predicate in enumerate(predicates):
        waiting = [predicate]
        while waiting:
            node = waiting.pop()
            if _is_frequent(node):
                left -= 1
            elif _is_fork(node):
                left -= 1
                waiting += node["args"]
            else:
                node_fault = _wrong_with_node(node)
                if node_fault:
                    return PredicateFault(index, node_fault)
                left -= 1 + (len(node["values"]) if node["op"] == "in" else 0)
                waiting += [node["arg"]] if node["op"] == "not" else ()
            if left < 0:
                fault = f"has, with the ones before it, more than {nodes_max} nodes and values"
                return PredicateFault(index, fault, is_too_large=True)
    return None


def _is_frequent(node: Any) -> bool:
    """Return whether a node is of the most frequent kind, and valid: a comparison with an integer.

    Law: True means valid; False decides nothing
    """
    if type(node) is not dict:
        return False
    op, column, value = node.get("op"), node.get("column"), node.get("value")
    if type(value) is not int or type(op) is not str or op not in predicate_tree.COMPARISONS:
        return False
    kind = node.get("type")
    limit = LIMITS.get(kind, 0) if type(kind) is str else 0
    if type(column) is list and len(column) == 1:
        column = column[0]
    return type(column) is str and column != "" and -limit <= value < limit


def _is_fork(node: Any) -> bool:
    """Return whether a node joins others and is valid apart from these."""
    if type(node) is not dict and not isinstance(node, Mapping):
        return False
    return node.get("op") in _FORKS and _is_filled(node.get("args"))


def _wrong_with_node(node: Any) -> str | None:
    if not isinstance(node, Mapping) or not isinstance(node.get("op"), str):
        return "holds a node that is no object with `op`"
    op = node["op"]
    if op not in NODE_FIELDS:
        return f"holds the operator {op!r}, which the grammar lacks"
    missing = [name for name in NODE_FIELDS[op] if name not in node]
    if missing:
        return f"holds a node {op!r} without {missing[0]!r}"
    if op in _FORKS:
        return None if _is_filled(node["args"]) else f"{op!r} needs a list of nodes"
    if op == "opaque" and not isinstance(node.get("text"), str | None):
        return "holds a node 'opaque' whose text is none"
    columns = _columns_of(node)
    if not _is_list(columns) or not all(_is_column(column) for column in columns):
        return f"holds a node {op!r} whose column is no path of names"
    if "type" not in NODE_FIELDS[op]:
        return None
    return _wrong_with_values(node)


def _columns_of(node: Mapping[str, Any]) -> Any:
    if node["op"] == "opaque":
        columns = node.get("columns")
        return [] if columns is None else columns
    return [node["column"]] if "column" in node else []


def _wrong_with_values(node: Mapping[str, Any]) -> str | None:
    values = node["values"] if node["op"] == "in" else [node["value"]]
    if not isinstance(node["type"], str) or not _is_list(values):
        return f"holds a node {node['op']!r} with a mistyped field"
    try:
        kind = predicate_tree.kind_of(node)
        for value in values:
            predicate_tree.literal(value, kind)
    except ValueError as error:
        return str(error)
    return None


def _is_filled(value: Any) -> bool:
    return _is_list(value) and len(value) > 0


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _is_column(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value)
    return _is_list(value) and bool(value) and all(isinstance(part, str) for part in value)
