"""Names in the clauses of a merge: an insert sees the source's columns, "by source" the table's.

Both are columns of one joined frame, where a name that both have would be ambiguous.
"""

from collections.abc import Sequence
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.schema.field_paths import same_name

SOURCE: Final = "__tidegate_source_{}"
TARGET: Final = "__tidegate_target_{}"


def of_source(text: str, source: Sequence[str], target: Sequence[str], alias: str | None) -> str:
    """Return an insert clause's SQL text with the joined frame's names of the source's columns.

    Raises: InvalidRequest, for a column of the table: no row of it matches.
    """
    for column in _columns(text):
        if alias is not None and len(column.parts) > 1 and same_name(column.parts[0].name, alias):
            raise _hidden(text, column, "when not matched", source)
    bare = [column for column in _columns(text) if len(column.parts) == 1]
    return _renamed(text, bare, (source, SOURCE), target, "when not matched")


def of_target(text: str, source: Sequence[str], target: Sequence[str], alias: str | None) -> str:
    """Return a "not matched by source" clause's SQL text with names of the table's columns.

    `s.v` is a field of the table's column `s`, also where the source's alias is `s`.
    Raises: InvalidRequest, for a column of the source: no row of it matches.
    """
    columns = [
        column
        for column in _columns(text)
        if len(column.parts) == 1 or alias is None or not same_name(column.parts[0].name, alias)
    ]
    return _renamed(text, columns, (target, TARGET), source, "when not matched by source")


def _renamed(
    text: str,
    columns: Sequence[exp.Column],
    visible: tuple[Sequence[str], str],
    hidden: Sequence[str],
    clause: str,
) -> str:
    names, form = visible
    replacements = []
    for column in columns:
        first = column.parts[0]
        place = next(
            (index for index, name in enumerate(names) if same_name(name, first.name)), None
        )
        if place is not None:
            replacements.append((first.meta["start"], first.meta["end"], form.format(place)))
        elif len(column.parts) == 1 and any(same_name(name, first.name) for name in hidden):
            raise _hidden(text, column, clause, names)
    # From the end, so that the places before stay where they are.
    for start, end, name in sorted(replacements, reverse=True):
        text = f"{text[:start]}{name}{text[end + 1 :]}"
    return text


def _columns(text: str) -> list[exp.Column]:
    """Return the columns that a text names; none if only Spark can parse it."""
    try:
        columns = sqlglot.parse_one(text, dialect="spark").find_all(exp.Column)
    except SqlglotError:
        return []
    return [column for column in columns if all("start" in part.meta for part in column.parts)]


def _hidden(text: str, column: exp.Column, clause: str, names: Sequence[str]) -> InvalidRequest:
    return InvalidRequest(
        f"{clause}: {text!r} names {column.sql('spark')}, which this clause does not see; it sees "
        f"the columns {', '.join(names)}; nothing was proposed",
        error_class="DELTA_MERGE_UNRESOLVED_EXPRESSION",
    )
