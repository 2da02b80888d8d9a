"""Formats the predicates of read sets for people."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tidegate_messages.read_set import Predicate

_DEPTH_MAX: Final = 32
_TEXT_MAX: Final = 400


def text_of(predicate: Predicate) -> str:
    """Return a predicate in SQL style, truncated if it is long; only for display."""
    text = _text(predicate, 0)
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}…"


def _text(node: Mapping[str, Any], depth: int) -> str:
    say = _NODES.get(str(node.get("op")), _comparison)
    return "…" if depth > _DEPTH_MAX else say(node, depth)


def _comparison(node: Mapping[str, Any], depth: int) -> str:
    return f"{_column(node)} {node.get('op')} {_literal(node.get('value'))}"


def _within(node: Mapping[str, Any], depth: int) -> str:
    return f"{_column(node)} IN ({', '.join(_literal(one) for one in node.get('values') or ())})"


def _joined(word: str) -> Callable[[Mapping[str, Any], int], str]:
    def say(node: Mapping[str, Any], depth: int) -> str:
        return f" {word} ".join(f"({_text(one, depth + 1)})" for one in node.get("args") or ())

    return say


def _opaque(node: Mapping[str, Any], depth: int) -> str:
    return f"{node.get('text') or 'something that the grammar cannot say'} (matches everything)"


def _column(node: Mapping[str, Any]) -> str:
    column = node.get("column")
    return ".".join(map(str, column)) if isinstance(column, list | tuple) else str(column)


def _literal(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


_NODES: Final[Mapping[str, Callable[[Mapping[str, Any], int], str]]] = {
    "in": _within,
    "and": _joined("AND"),
    "or": _joined("OR"),
    "not": lambda node, depth: f"NOT ({_text(node.get('arg') or {}, depth + 1)})",
    "is_null": lambda node, _: f"{_column(node)} IS NULL",
    "is_not_null": lambda node, _: f"{_column(node)} IS NOT NULL",
    "true": lambda *_: "every row",
    "opaque": _opaque,
}
