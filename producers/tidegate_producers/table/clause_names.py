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
    return _renamed(text, (source, SOURCE), target, "when not matched")


def of_target(text: str, source: Sequence[str], target: Sequence[str]) -> str:
    """Return a "not matched by source" clause's SQL text with names of the table's columns.

    Raises: InvalidRequest, for a column of the source: no row of it matches.
    """
    return _renamed(text, (target, TARGET), source, "when not matched by source")


def _renamed(
    text: str, visible: tuple[Sequence[str], str], hidden: Sequence[str], clause: str
) -> str:
    names, form = visible
    replacements = []
    for column in _columns(text):
        if len(column.parts) > 1:
            continue
        place = next(
            (index for index, name in enumerate(names) if same_name(name, column.name)), None
        )
        if place is not None:
            replacements.append(
                (column.this.meta["start"], column.this.meta["end"], form.format(place))
            )
        elif any(same_name(name, column.name) for name in hidden):
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
