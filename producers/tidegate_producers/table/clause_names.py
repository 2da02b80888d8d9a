"""Names in the clauses of a merge: an insert sees the source's columns, "by source" the table's.

Both are columns of one joined frame, where a name that both have would be ambiguous.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp
from sqlglot.errors import SqlglotError

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.schema.field_paths import same_name
from tidegate_runtime.conditions.sql_expression import parse_expression, with_words_quoted

SOURCE: Final = "__tidegate_source_{}"
TARGET: Final = "__tidegate_target_{}"


@dataclass(frozen=True)
class JoinedColumns:
    """The columns of a merge's joined frame, by side, and the alias of the table."""

    source: Sequence[str]
    target: Sequence[str]
    alias: str | None

    def of_source(self, text: str) -> str:
        """Return an insert clause's SQL text with the joined frame's names of the source's columns.

        `s.v` is a field of the source's column `s`, unless `v` is a column: then `s` is its alias.
        Raises: InvalidRequest, for a column of the table: no row of it matches.
        """
        text, columns = self._columns(text)
        for column in columns:
            if self._is_qualified(column, self.target):
                raise _hidden(text, column, "when not matched", self.source)
        columns = [
            column
            for column in columns
            if len(column.parts) == 1 or not _names(self.source, column.parts[1].name)
        ]
        return _renamed(text, columns, (self.source, SOURCE), self.target, "when not matched")

    def of_target(self, text: str) -> str:
        """Return a "not matched by source" clause's SQL text with names of the table's columns.

        `s.v` is a field of the table's column `s`, also where the source's alias is `s`.
        Raises: InvalidRequest, for a column of the source: no row of it matches.
        """
        text, columns = self._columns(text)
        columns = [column for column in columns if not self._is_qualified(column, self.target)]
        clause = "when not matched by source"
        return _renamed(text, columns, (self.target, TARGET), self.source, clause)

    def _columns(self, text: str) -> tuple[str, list[exp.Column]]:
        """Return a text, with words of SQL in backticks, and its columns; none if only Spark can
        parse it.
        """
        columns = [*self.source, *self.target]
        text = with_words_quoted(text, columns)
        try:
            found = parse_expression(text, columns).find_all(exp.Column)
        except SqlglotError:
            return text, []
        return text, [each for each in found if all("start" in part.meta for part in each.parts)]

    def _is_qualified(self, column: exp.Column, columns: Sequence[str]) -> bool:
        """Return whether a column carries the table's alias."""
        first, *rest = (part.name for part in column.parts)
        is_alias = self.alias is not None and bool(rest) and same_name(first, self.alias)
        return is_alias and (_names(columns, rest[0]) or not _names(columns, first))


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


def _names(columns: Sequence[str], name: str) -> bool:
    return any(same_name(column, name) for column in columns)


def _hidden(text: str, column: exp.Column, clause: str, names: Sequence[str]) -> InvalidRequest:
    return InvalidRequest(
        f"{clause}: {text!r} names {column.sql('spark')}, which this clause does not see; it sees "
        f"the columns {', '.join(names)}; nothing was proposed",
        error_class="DELTA_MERGE_UNRESOLVED_EXPRESSION",
    )
