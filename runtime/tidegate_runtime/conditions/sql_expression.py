"""Parses SQL expressions whose columns may be called by words of SQL, as Spark does."""

from collections.abc import Collection, Sequence
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

_LITERALS: Final = frozenset({"NULL", "TRUE", "FALSE"})
_GRAMMAR: Final = _LITERALS | frozenset(
    {"ALL", "AND", "ANY", "AS", "BETWEEN", "BY", "CASE", "CAST", "DISTINCT", "DIV", "ELSE", "END"}
    | {"ESCAPE", "EXISTS", "FROM", "ILIKE", "IN", "INTERVAL", "IS", "LIKE", "NOT", "OR", "OVER"}
    | {"REGEXP", "RLIKE", "SELECT", "SOME", "THEN", "TRY_CAST", "WHEN", "WHERE"}
)
"""Words that hold an expression together, so that they are a column only where they stand alone."""

_PLAIN: Final = frozenset({TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER})
_VALUES: Final = frozenset({TokenType.STRING, TokenType.NUMBER})


def parse_expression(text: str, columns: Collection[str]) -> exp.Expr:
    """Return the tree of a SQL expression; positions in it are those in `with_words_quoted`.

    Raises: SqlglotError, for what is no expression.
    """
    return sqlglot.parse_one(with_words_quoted(text, columns), dialect="spark")


def with_words_quoted(text: str, columns: Collection[str]) -> str:
    """Return a SQL expression with each word of SQL that names one of the columns in backticks.

    The parser would take `comment = 'x'` for a statement; to Spark it compares a column.
    """
    try:
        tokens = sqlglot.tokenize(text, dialect="spark")
    except SqlglotError:
        return text
    names = {column.lower() for column in columns}
    words = [
        token
        for index, token in enumerate(tokens)
        if token.token_type not in _PLAIN
        and text[token.start : token.end + 1].lower() in names
        and _is_column(tokens, index)
    ]
    # From the end, so that the places before stay where they are.
    for token in reversed(words):
        word = text[token.start : token.end + 1]
        text = f"{text[: token.start]}`{word}`{text[token.end + 1 :]}"
    return text


def _is_column(tokens: Sequence[Token], index: int) -> bool:
    """Return whether a word stands where a column can: it is no function, type, unit or field."""
    word = tokens[index].text.upper()
    if len(tokens) == 1:
        return word not in _LITERALS
    before = tokens[index - 1] if index else None
    after = tokens[index + 1] if index + 1 < len(tokens) else None
    if word in _GRAMMAR:
        return False
    if before is not None and (
        before.token_type in _VALUES
        or before.token_type in (TokenType.DOT, TokenType.ALIAS, TokenType.DCOLON)
    ):
        return False
    return after is None or after.token_type not in (
        TokenType.L_PAREN,
        TokenType.STRING,
        TokenType.FROM,
    )
