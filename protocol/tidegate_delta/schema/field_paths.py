"""Find and change the columns of a schema by field path, and check column names.

Names are matched without regard to case, and returned as the schema writes them.

Spec: "Field Path"
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.schema.types import ArrayType, DataType, MapType, StructField, StructType

FieldPath = tuple[str, ...]
"""A field path: names of fields; `element`, `key` and `value` inside arrays and maps."""

ELEMENT: Final = "element"
KEY: Final = "key"
VALUE: Final = "value"

RESERVED_BY_CHANGES: Final = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})
"""Names of the columns that the change feed adds to those of the table."""

_PLAIN: Final = re.compile(r"\w+", re.ASCII)
ILLEGAL_SIGNS: Final = r"[ ,;{}()\n\t=]"
"""A regular expression of the signs that need column mapping in a name."""

_ILLEGAL: Final = re.compile(ILLEGAL_SIGNS)


def dotted(path: Sequence[str]) -> str:
    """Return a path as written in SQL."""
    return ".".join(
        part if _PLAIN.fullmatch(part) else "`" + part.replace("`", "``") + "`" for part in path
    )


def same_name(first: str, second: str) -> bool:
    """Return whether two names are the same column: names ignore case.

    Spec: "Struct Field"
    """
    return first.lower() == second.lower()


def find_field(struct: StructType, name: str) -> StructField | None:
    """Return the field of a name: an exact match, or else one that differs in case only.

    Spec: "Struct Field"
    """
    return struct.get(name) or next(
        (field for field in struct if same_name(field.name, name)), None
    )


def field_paths(
    schema: StructType, above: FieldPath = ()
) -> Iterator[tuple[FieldPath, StructField]]:
    """Yield every field with its path.

    Fields nested in structs, arrays and maps follow their parent.
    """
    for field in schema.fields:
        path = (*above, field.name)
        yield path, field
        for steps, inner in structs_inside(field.kind):
            yield from field_paths(inner, (*path, *steps))


def structs_inside(kind: DataType) -> Iterator[tuple[FieldPath, StructType]]:
    """Yield the outermost structs in a type, with the array and map steps that lead to each."""
    match kind:
        case StructType():
            yield (), kind
        case ArrayType() | MapType():
            for step, inner in steps_inside(kind):
                yield from (((step, *rest), struct) for rest, struct in structs_inside(inner))
        case _:
            return


def steps_inside(kind: DataType) -> tuple[tuple[str, DataType], ...]:
    """Return the steps into an array or a map, each with its type."""
    match kind:
        case ArrayType():
            return ((ELEMENT, kind.element),)
        case MapType():
            return ((KEY, kind.key), (VALUE, kind.value))
        case _:
            return ()


def resolve(schema: StructType, path: Sequence[str]) -> FieldPath:
    """Return a path as the schema writes it; it may end in an element, a key or a value.

    Raises: InvalidRequest for a path that does not exist.
    """
    kind: DataType = schema
    resolved: FieldPath = ()
    for step in path:
        name, kind = _step(kind, step, resolved)
        resolved = (*resolved, name)
    return resolved


def kind_at(schema: StructType, path: Sequence[str]) -> DataType:
    """Return the type at a path; the empty path is the schema itself.

    Raises: InvalidRequest for a path that does not exist.
    """
    kind: DataType = schema
    for depth, step in enumerate(path):
        _, kind = _step(kind, step, tuple(path[:depth]))
    return kind


def field_at(schema: StructType, path: Sequence[str]) -> StructField:
    """Return the field at a path.

    Raises: InvalidRequest for a path that does not exist, or is not a field of a struct.
    """
    parent = kind_at(schema, path[:-1]) if path else None
    field = find_field(parent, path[-1]) if isinstance(parent, StructType) else None
    if field is None:
        resolve(schema, path)
        raise InvalidRequest(
            f"{dotted(path)!r} is no field of a struct; name one, such as a column",
            error_class="DELTA_COLUMN_PATH_NOT_NESTED",
        )
    return field


Edit = Callable[[FieldPath, StructField], StructField]


def transform(schema: StructType, edit: Edit) -> StructType:
    """Return the schema with `edit` applied to each field, and then to the fields in its new type.

    Law: transform(s, lambda path, field: field) == s
    Spec: "Struct Field"
    """
    return _transformed(schema, (), edit)


def edit_at(
    schema: StructType, path: Sequence[str], edit: Callable[[DataType], DataType]
) -> StructType:
    """Return the schema with the type at a path changed.

    Raises: InvalidRequest for a path that does not exist; what `edit` raises.
    """
    resolved = resolve(schema, path)
    edited = _edited(schema, resolved, edit)
    assert isinstance(edited, StructType), "a schema stays a struct"
    return edited


def set_at(schema: StructType, path: Sequence[str], kind: DataType) -> StructType:
    """Return the schema with another type at a path.

    Law: kind_at(set_at(s, p, k), p) == k
    Raises: InvalidRequest for a path that does not exist.
    """
    return edit_at(schema, path, lambda _: kind)


def check_names(schema: StructType, *, is_mapped: bool) -> None:
    """Refuse an empty name, a name used twice, and characters that need column mapping.

    Raises: InvalidRequest, naming the columns.
    Spec: "Column Mapping"
    """
    paths = [path for path, _ in field_paths(schema)]
    counts = Counter(tuple(part.lower() for part in path) for path in paths)
    twice = [dotted(path) for path in paths if counts[tuple(part.lower() for part in path)] > 1]
    if twice:
        raise InvalidRequest(
            f"the columns {', '.join(twice)} have one name but for case; rename all but one",
            error_class="DELTA_DUPLICATE_COLUMNS_FOUND",
        )
    illegal = [path for path in paths if not path[-1] or (not is_mapped and illegal_name(path[-1]))]
    if illegal:
        raise InvalidRequest(
            f"the columns {', '.join(map(dotted, illegal))} have an empty name, or one with a sign "
            "of ' ,;{}()=', a tab or a line break, for which a table needs column mapping; rename "
            "them, or set delta.columnMapping.mode to name first",
            error_class="DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES",
        )


def illegal_name(name: str) -> bool:
    """Return whether a column name can't be written in Parquet files.

    Spec: "Column Mapping"
    """
    return _ILLEGAL.search(name) is not None


def _step(kind: DataType, step: str, above: FieldPath) -> tuple[str, DataType]:
    """Return the name and the type of the next step of a path."""
    if isinstance(kind, StructType):
        field = find_field(kind, step)
        if field is None:
            names = ", ".join(kind.names)
            raise InvalidRequest(
                f"the schema has no column {dotted((*above, step))!r}; there are {names}",
                error_class="DELTA_COLUMN_NOT_FOUND_IN_SCHEMA",
            )
        return field.name, field.kind
    steps = dict(steps_inside(kind))
    if step in steps:
        return step, steps[step]
    column = dotted(above)
    if not steps:
        raise InvalidRequest(
            f"column {column!r} is a {kind} and has no {step!r} inside; name the column itself",
            error_class="DELTA_COLUMN_PATH_NOT_NESTED",
        )
    is_map = isinstance(kind, MapType)
    raise InvalidRequest(
        f"column {column!r} is {'a map' if is_map else 'an array'}; go on with "
        + " or ".join(dotted((*above, step)) for step in steps),
        error_class="DELTA_FOUND_MAP_TYPE_COLUMN"
        if is_map
        else "DELTA_INCORRECT_ARRAY_ACCESS_BY_NAME",
    )


def _transformed(struct: StructType, above: FieldPath, edit: Edit) -> StructType:
    fields = []
    for field in struct.fields:
        path = (*above, field.name)
        new = edit(path, field)
        fields.append(replace(new, kind=_transformed_inside(new.kind, path, edit)))
    return StructType(tuple(fields))


def _transformed_inside(kind: DataType, path: FieldPath, edit: Edit) -> DataType:
    match kind:
        case StructType():
            return _transformed(kind, path, edit)
        case ArrayType():
            element = _transformed_inside(kind.element, (*path, ELEMENT), edit)
            return ArrayType(element, kind.contains_null)
        case MapType():
            key = _transformed_inside(kind.key, (*path, KEY), edit)
            value = _transformed_inside(kind.value, (*path, VALUE), edit)
            return MapType(key, value, kind.value_contains_null)
        case _:
            return kind


def _edited(kind: DataType, path: FieldPath, edit: Callable[[DataType], DataType]) -> DataType:
    """Return a type with `edit` applied at a path, which is written as the type writes it."""
    if not path:
        return edit(kind)
    head, rest = path[0], path[1:]
    match kind:
        case StructType():
            return StructType(
                tuple(
                    replace(field, kind=_edited(field.kind, rest, edit))
                    if field.name == head
                    else field
                    for field in kind.fields
                )
            )
        case ArrayType():
            return replace(kind, element=_edited(kind.element, rest, edit))
        case MapType():
            if head == KEY:
                return replace(kind, key=_edited(kind.key, rest, edit))
            return replace(kind, value=_edited(kind.value, rest, edit))
        case _:
            raise AssertionError("a resolved path ends where types do")
