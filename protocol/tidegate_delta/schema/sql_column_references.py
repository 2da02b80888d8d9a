"""Find the columns that a SQL expression refers to.

The engine that evaluates an expression checks and interprets it. Here it is parsed to answer one
question: would a change of a column break it? In doubt the answer is yes.

Spec: "CHECK Constraints"
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tidegate_delta.schema.field_paths import FieldPath, find_field, same_name, steps_inside
from tidegate_delta.schema.types import DataType, StructType

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*(?:.*?\*/|.*))
      | (?P<text>'(?:[^'\\]|\\.|'')*')
      | (?P<quoted>`(?:[^`]|``)+`|"(?:[^"\\]|\\.|"")*")
      | (?P<word>\w+)
      | (?P<cast>::)
      | (?P<sign>[^\s\w'`"])""",
    re.VERBOSE | re.DOTALL,
)
_ANY: Final = ""
"""The path step of an index: any element or value."""

Token = tuple[str, str]
"""A token's kind and its text; a word or quoted name without its quotes."""


def columns_in(text: str, schema: StructType) -> frozenset[FieldPath] | None:
    """Return the paths of columns that an expression may name; None where it can't be parsed.

    An index into an array or a map becomes an empty step, which matches any element or value.
    """
    tokens = _tokens(text)
    if tokens is None:
        return None
    return frozenset(
        path for chain in _chains(tokens) for path in [_resolved(chain, schema)] if path
    )


def names_column(text: str, path: Sequence[str], schema: StructType) -> bool:
    """Return whether an expression may name a column, a field inside it, or a parent of it.

    Spec: "Generated Columns"
    """
    columns = columns_in(text, schema)
    return columns is None or any(_lies_on(column, path) for column in columns)


def listed(expressions: Mapping[str, str]) -> str:
    """Return expressions with their names as text for a message."""
    return ", ".join(f"{name} ({text})" for name, text in expressions.items())


def _lies_on(named_path: FieldPath, path: Sequence[str]) -> bool:
    """Return whether one of two paths is a prefix of the other."""
    together = zip(named_path, path, strict=False)
    return all(name == _ANY or same_name(name, other) for name, other in together)


def _tokens(text: str) -> list[Token] | None:
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            return None
        position = match.end()
        kind, text_part = match.lastgroup, match[0]
        if kind == "quoted":
            quote = text_part[0]
            text_part = text_part[1:-1].replace(quote * 2, quote)
        if kind != "space":
            tokens.append((kind, text_part))
    return tokens


def _chains(tokens: list[Token]) -> Iterator[FieldPath]:
    """Yield each name with the names and indexes that follow it: `a.b[0].c`."""
    for index, (kind, name) in enumerate(tokens):
        before = tokens[index - 1] if index else ("", "")
        after = tokens[index + 1] if index + 1 < len(tokens) else ("", "")
        if kind not in ("word", "quoted") or before == ("sign", "."):
            continue
        if kind == "word" and not _may_be_column(before, after):
            continue
        yield (name, *_steps(tokens, index + 1))


def _may_be_column(before: Token, after: Token) -> bool:
    """Return whether a bare word may be a column: no function, literal prefix or type of a cast."""
    is_type = before[0] == "cast" or (before[0] == "word" and before[1].lower() == "as")
    return not (is_type or after == ("sign", "(") or after[0] == "text")


def _steps(tokens: list[Token], index: int) -> Iterator[str]:
    while index + 1 < len(tokens):
        if tokens[index] == ("sign", ".") and tokens[index + 1][0] in ("word", "quoted"):
            yield tokens[index + 1][1]
            index += 2
        elif tokens[index] == ("sign", "["):
            yield _ANY
            index = _closing(tokens, index) + 1
        else:
            return


def _closing(tokens: list[Token], start: int) -> int:
    depth = 0
    for end in range(start, len(tokens)):
        depth += (tokens[end] == ("sign", "[")) - (tokens[end] == ("sign", "]"))
        if depth == 0:
            return end
    return len(tokens)


def _resolved(chain: FieldPath, schema: StructType) -> FieldPath:
    """Return the longest prefix of a chain of names that is a column path; () without any."""
    resolved: FieldPath = ()
    kind: DataType = schema
    for name in chain:
        steps = steps_inside(kind)
        if steps and name != _ANY:
            resolved, kind = (*resolved, _ANY), steps[-1][1]
        if name == _ANY:
            resolved, kind = (*resolved, _ANY), steps[-1][1] if steps else kind
            continue
        inner = find_field(kind, name) if isinstance(kind, StructType) else None
        if inner is None:
            break
        resolved, kind = (*resolved, inner.name), inner.kind
    return resolved
