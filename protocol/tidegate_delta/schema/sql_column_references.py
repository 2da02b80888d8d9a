"""Find the columns that a SQL expression refers to.

The engine that evaluates an expression checks and interprets it. Here it is parsed to answer one
question: would a change of a column break it? In doubt the answer is yes.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tidegate_delta.schema.field_paths import FieldPath, named, same_name, steps_inside
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
    Spec: "CHECK Constraints"
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
    found = columns_in(text, schema)
    return found is None or any(_lies_on(one, path) for one in found)


def listed(expressions: Mapping[str, str]) -> str:
    """Return expressions with their names as text for a message.

    Spec: "CHECK Constraints"
    """
    return ", ".join(f"{name} ({text})" for name, text in expressions.items())


def _lies_on(named_path: FieldPath, path: Sequence[str]) -> bool:
    """Return whether one of two paths is a prefix of the other."""
    together = zip(named_path, path, strict=False)
    return all(one == _ANY or same_name(one, other) for one, other in together)


def _tokens(text: str) -> list[Token] | None:
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            return None
        at = match.end()
        kind, spelled = match.lastgroup, match[0]
        if kind == "quoted":
            quote = spelled[0]
            spelled = spelled[1:-1].replace(quote * 2, quote)
        if kind != "space":
            found.append((kind, spelled))
    return found


def _chains(tokens: list[Token]) -> Iterator[FieldPath]:
    """Yield each name with the names and indexes that follow it: `a.b[0].c`."""
    for at, (kind, spelled) in enumerate(tokens):
        before = tokens[at - 1] if at else ("", "")
        after = tokens[at + 1] if at + 1 < len(tokens) else ("", "")
        if kind not in ("word", "quoted") or before == ("sign", "."):
            continue
        if kind == "word" and not _may_be_column(before, after):
            continue
        yield (spelled, *_steps(tokens, at + 1))


def _may_be_column(before: Token, after: Token) -> bool:
    """Return whether a bare word may be a column: no function, literal prefix or type of a cast."""
    is_type = before[0] == "cast" or (before[0] == "word" and before[1].lower() == "as")
    return not (is_type or after == ("sign", "(") or after[0] == "text")


def _steps(tokens: list[Token], at: int) -> Iterator[str]:
    while at + 1 < len(tokens):
        if tokens[at] == ("sign", ".") and tokens[at + 1][0] in ("word", "quoted"):
            yield tokens[at + 1][1]
            at += 2
        elif tokens[at] == ("sign", "["):
            yield _ANY
            at = _closing(tokens, at) + 1
        else:
            return


def _closing(tokens: list[Token], at: int) -> int:
    depth = 0
    for end in range(at, len(tokens)):
        depth += (tokens[end] == ("sign", "[")) - (tokens[end] == ("sign", "]"))
        if depth == 0:
            return end
    return len(tokens)


def _resolved(chain: FieldPath, schema: StructType) -> FieldPath:
    """Return the longest prefix of a chain of names that is a column path; () without any."""
    found: FieldPath = ()
    kind: DataType = schema
    for name in chain:
        steps = steps_inside(kind)
        if steps and name != _ANY:
            found, kind = (*found, _ANY), steps[-1][1]
        if name == _ANY:
            found, kind = (*found, _ANY), steps[-1][1] if steps else kind
            continue
        inner = named(kind, name) if isinstance(kind, StructType) else None
        if inner is None:
            break
        found, kind = (*found, inner.name), inner.kind
    return found
