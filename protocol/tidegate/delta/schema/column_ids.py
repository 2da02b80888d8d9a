"""The ids of columns under column mapping: which there are, the largest ever, what is legal."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tidegate.delta.actions import Metadata
from tidegate.delta.errors import InvalidRequest
from tidegate.delta.schema.columns import Path, dotted, field_paths
from tidegate.delta.schema.mapping import (
    NESTED_IDS,
    PHYSICAL_NAME,
    Mode,
    field_id,
    mode_of,
    physical_name,
    to_physical,
)
from tidegate.delta.schema.types import StructField, StructType, parse_schema, walk

MAX_COLUMN_ID: Final = "delta.columnMapping.maxColumnId"
ID_MAX: Final = 2**31 - 1

_DIGITS_MAX: Final = 19


def check_assigned(metadata: Metadata) -> None:
    """Refuse metadata whose mapped columns lack an id or a name, share one, or exceed the maximum.

    Raises: InvalidRequest, naming the column.
    Spec: "Writer Requirements for Column Mapping"
    """
    mode = mode_of(metadata)
    if mode is Mode.NONE:
        return
    schema = parse_schema(metadata.schema_string)
    seen: dict[int, Path] = {}
    for path, one in field_paths(schema):
        _check_field(path, one)
        for number in _ids(one):
            if number in seen:
                raise _broken(path, f"shares the id {number} with {dotted(seen[number])!r}")
            seen[number] = path
    physical: set[Path] = set()
    for at, (path, _) in _physical_paths(schema, mode):
        if at in physical:
            raise _broken(path, f"shares its physical path {dotted(at)!r} with another")
        physical.add(at)
    _check_maximum(metadata, max(seen, default=0))


def check_kept(before: StructType, after: StructType, mode: Mode) -> None:
    """Refuse a schema that gives a column of before another id, or its id to another column.

    Raises: InvalidRequest, naming the column.
    Spec: "Writer Requirements for Column Mapping"
    """
    ids: dict[Path, int] = {}
    names: dict[int, str] = {}
    for at, (_, one) in _physical_paths(before, mode):
        number = field_id(one)
        if number is not None:
            ids[at], names[number] = number, physical_name(one, mode)
    for at, (path, one) in _physical_paths(after, mode):
        number = field_id(one)
        if number is None:
            continue
        if ids.get(at, number) != number:
            raise _broken(path, f"had the id {ids[at]} and would get {number}")
        if names.get(number, physical_name(one, mode)) != physical_name(one, mode):
            raise _broken(path, f"would get the id of another column, {number}")


def max_column_id(metadata: Metadata) -> int:
    """Return the largest id that was ever given to a column of a table, as the table records it.

    Raises: InvalidRequest for a record that is no number.
    Spec: "Writer Requirements for Column Mapping"
    """
    text = metadata.configuration.get(MAX_COLUMN_ID, "0").strip()
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise InvalidRequest(
            f"table property {MAX_COLUMN_ID!r} is {text!r}; expected a whole number: restore the "
            "table to a version before it was changed",
            error_class="InvalidTableProperty",
        )
    return int(text)


def largest_id(schema: StructType) -> int:
    """Return the largest id in a schema, those of elements, keys and values too; 0 without any.

    Spec: "Writer Requirements for IcebergCompatV2"
    """
    return max((number for one in walk(schema) for number in _ids(one)), default=0)


def nested_ids(field: StructField) -> Mapping[str, Any]:
    """Return the ids that a field keeps for the elements, keys and values inside it.

    Spec: "Writer Requirements for IcebergCompatV2"
    """
    found = field.metadata.get(NESTED_IDS)
    return found if isinstance(found, dict) else {}


def _physical_paths(
    schema: StructType, mode: Mode
) -> Iterator[tuple[Path, tuple[Path, StructField]]]:
    """Yield the physical path of each field, and its logical one with the field."""
    physical = (path for path, _ in field_paths(to_physical(schema, mode)))
    return zip(physical, field_paths(schema), strict=True)


def _ids(one: StructField) -> Iterator[int]:
    own = field_id(one)
    if own is not None:
        yield own
    for number in nested_ids(one).values():
        if isinstance(number, int) and not isinstance(number, bool):
            yield number


def _check_field(path: Path, one: StructField) -> None:
    if field_id(one) is None:
        raise _broken(path, "has no id")
    if not isinstance(one.metadata.get(PHYSICAL_NAME), str) or not one.metadata[PHYSICAL_NAME]:
        raise _broken(path, "has no physical name")
    nested = one.metadata.get(NESTED_IDS, {})
    numbers = nested.values() if isinstance(nested, dict) else (None,)
    if any(isinstance(number, bool) or not isinstance(number, int) for number in numbers):
        raise _broken(path, f"has ids inside it that are none: {nested!r}")


def _check_maximum(metadata: Metadata, largest: int) -> None:
    if MAX_COLUMN_ID not in metadata.configuration:
        raise InvalidRequest(
            f"the table maps its columns, and its property {MAX_COLUMN_ID!r} is not set; set it to "
            f"{largest} at least",
            error_class="DELTA_COLUMN_MAPPING_MAX_COLUMN_ID_NOT_SET",
        )
    recorded = max_column_id(metadata)
    if not largest <= recorded <= ID_MAX:
        raise InvalidRequest(
            f"table property {MAX_COLUMN_ID!r} is {recorded}; expected a number from {largest}, "
            f"the largest id of a column, to {ID_MAX}",
            error_class="DELTA_COLUMN_MAPPING_MAX_COLUMN_ID_NOT_SET_CORRECTLY",
        )


def _broken(path: Path, what: str) -> InvalidRequest:
    return InvalidRequest(
        f"the table maps its columns, and column {dotted(path)!r} {what}",
        error_class="ColumnMappingException",
        remedy="restore the table to a version before its schema was changed",
    )
