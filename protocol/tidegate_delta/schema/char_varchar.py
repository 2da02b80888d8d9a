"""CHAR and VARCHAR: strings with a length limit, kept in a column's metadata.

The schema has the type `string`; Spark writes the declared type, including the types around it,
to the metadata. Limits are read from there, and written back when the column changes.

Spec: "Column Metadata"
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from tidegate_delta.errors import BrokenLog, InvalidRequest
from tidegate_delta.schema.field_paths import ELEMENT, KEY, VALUE, FieldPath, dotted, find_field
from tidegate_delta.schema.types import (
    STRING,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    sql_name,
)

TYPE_STRING: Final = "__CHAR_VARCHAR_TYPE_STRING"

_LIMITED: Final = re.compile(r"(char|character|varchar)\s*\(\s*(\d{1,10})\s*\)", re.IGNORECASE)
_NAME: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^:<>,()`]+?))\s*:")
_DEPTH_MAX: Final = 100


@dataclass(frozen=True)
class LengthLimit:
    """The greatest length of a string in characters. With `is_char`, readers pad to that length.

    Writers check both kinds alike and pad neither.
    """

    length: int
    is_char: bool = False

    def __str__(self) -> str:
        return f"{'char' if self.is_char else 'varchar'}({self.length})"


def limits(field: StructField) -> Mapping[FieldPath, LengthLimit]:
    """Return the limits of a column's strings, by the path from the column to the string.

    Raises: BrokenLog (`CorruptCommit`) for a type that can't be read.
    """
    text = field.metadata.get(TYPE_STRING)
    if text is None:
        return {}
    try:
        if not isinstance(text, str):
            raise ValueError(f"{text!r} is no text")
        reader = _Reader(text)
        reader.read_type((), 0)
        reader.expect_end()
    except ValueError as error:
        raise BrokenLog(
            f"column {dotted((field.name,))!r} has limits that can't be read ({error})",
            error_class="CorruptCommit",
            remedy="restore the table to a version before they were set",
        ) from error
    return reader.limits


def limited(field: StructField, new_limits: Mapping[FieldPath, LengthLimit]) -> StructField:
    """Return a column with other limits on its strings; limits without a string are dropped.

    Law: limits(limited(f, limits(f))) == limits(f)
    """
    kept_limits = {
        path: limit for path, limit in new_limits.items() if _type_at(field.kind, path) == STRING
    }
    kept = {key: value for key, value in field.metadata.items() if key != TYPE_STRING}
    if kept_limits:
        kept[TYPE_STRING] = _sql_type(field.kind, (), kept_limits)
    return replace(field, metadata=kept)


def keep_limits(
    before: StructType, after: StructType, renamed: tuple[FieldPath, FieldPath] | None = None
) -> StructType:
    """Return a schema with the old limits on the strings that still exist.

    `renamed` are the paths, before and after, of a renamed field inside a column.
    """
    known = {field.name: field for field in before}

    def edit(field: StructField) -> StructField:
        old_field = known.get(field.name)
        if old_field is None or old_field.kind == field.kind:
            return field
        old_limits = limits(old_field)
        if renamed is not None and renamed[0][0] == field.name:
            old, new = renamed[0][1:], renamed[1][1:]
            old_limits = {
                (*new, *path[len(old) :]) if path[: len(old)] == old else path: limit
                for path, limit in old_limits.items()
            }
        return limited(field, old_limits)

    return StructType(tuple(map(edit, after)))


def parse_limit(text: str) -> LengthLimit | None:
    """Return the limit of a type such as `varchar(10)`; None for a plain `string`.

    Raises: InvalidRequest for another type, and for an invalid limit.
    """
    if text.strip().lower() == "string":
        return None
    match = _LIMITED.fullmatch(text.strip())
    if match is None or int(match[2]) < 1:
        raise InvalidRequest(
            f"{text!r} is no string type; expected string, char(n) or varchar(n), n from 1",
            error_class="DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP",
        )
    return LengthLimit(int(match[2]), match[1].lower() != "varchar")


def loosens(before: LengthLimit | None, after: LengthLimit | None) -> bool:
    """Return whether every stored string within one limit is within the other."""
    if after is None or before == after:
        return True
    return before is not None and not after.is_char and before.length <= after.length


class _Reader:
    """Parses a type in Spark's syntax and collects its length limits."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self.limits: dict[FieldPath, LengthLimit] = {}

    def read_type(self, path: FieldPath, depth: int) -> None:
        if depth > _DEPTH_MAX:
            raise ValueError(f"{self._text[:64]!r} is too deep")
        if self._takes("array<"):
            self.read_type((*path, ELEMENT), depth + 1)
            self._expect(">")
        elif self._takes("map<"):
            self.read_type((*path, KEY), depth + 1)
            self._expect(",")
            self.read_type((*path, VALUE), depth + 1)
            self._expect(">")
        elif self._takes("struct<"):
            self._read_fields(path, depth)
        else:
            self._read_leaf(path)

    def expect_end(self) -> None:
        if self._text[self._position :].strip():
            raise ValueError(f"{self._text!r} goes on after its type")

    def _read_fields(self, path: FieldPath, depth: int) -> None:
        if self._takes(">"):
            return
        while True:
            name = _NAME.match(self._text, self._position)
            if name is None:
                raise ValueError(f"{self._text!r} has a field without a name")
            self._position = name.end()
            field_name = name[1].replace("``", "`") if name[1] else name[2]
            self.read_type((*path, field_name), depth + 1)
            if not self._takes(","):
                self._expect(">")
                return

    def _read_leaf(self, path: FieldPath) -> None:
        start, depth = self._position, 0
        while self._position < len(self._text):
            sign = self._text[self._position]
            if depth == 0 and sign in ",<>":
                break
            depth += (sign == "(") - (sign == ")")
            self._position += 1
        type_text = self._text[start : self._position].strip()
        if not type_text:
            raise ValueError(f"{self._text!r} lacks a type")
        match = _LIMITED.fullmatch(type_text)
        if match:
            self.limits[path] = LengthLimit(int(match[2]), match[1].lower() != "varchar")

    def _takes(self, token: str) -> bool:
        while self._text[self._position : self._position + 1].isspace():
            self._position += 1
        end = self._position + len(token)
        if self._text[self._position : end].lower() != token:
            return False
        self._position = end
        return True

    def _expect(self, token: str) -> None:
        if not self._takes(token):
            raise ValueError(f"{self._text!r} lacks {token!r}")


def _type_at(kind: DataType, path: FieldPath) -> DataType | None:
    if not path:
        return kind
    head, rest = path[0], path[1:]
    match kind:
        case StructType():
            field = find_field(kind, head)
            return _type_at(field.kind, rest) if field else None
        case ArrayType() if head == ELEMENT:
            return _type_at(kind.element, rest)
        case MapType() if head in (KEY, VALUE):
            return _type_at(kind.key if head == KEY else kind.value, rest)
        case _:
            return None


def _sql_type(kind: DataType, path: FieldPath, kept_limits: Mapping[FieldPath, LengthLimit]) -> str:
    """Return a type in Spark's syntax."""
    match kind:
        case StructType():
            fields = (
                f"{dotted((field.name,))}:{_sql_type(field.kind, (*path, field.name), kept_limits)}"
                for field in kind.fields
            )
            return f"struct<{','.join(fields)}>"
        case ArrayType():
            return f"array<{_sql_type(kind.element, (*path, ELEMENT), kept_limits)}>"
        case MapType():
            key = _sql_type(kind.key, (*path, KEY), kept_limits)
            return f"map<{key},{_sql_type(kind.value, (*path, VALUE), kept_limits)}>"
        case _:
            return str(kept_limits.get(path) or sql_name(kind))
