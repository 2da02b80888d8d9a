"""Check the ids and physical names of mapped columns, and changes of the mapping mode.

The assignment of ids and names is in `schema.column_mapping_assignment`.

Spec: "Writer Requirements for Column Mapping"
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from tidegate_delta.definitions.definition import Definition, Flaw, configured
from tidegate_delta.properties import table_properties
from tidegate_delta.schema.column_mapping import (
    FIELD_ID,
    NESTED_IDS,
    PHYSICAL_NAME,
    ColumnMappingMode,
    field_id,
    logical_names,
    mode_of,
)
from tidegate_delta.schema.types import StructField, walk

_FIELD: Final = "metaData.schemaString"
_MAX: Final = configured(table_properties.max_column_id.key)
_MODE: Final = configured(table_properties.column_mapping_mode.key)
_ALLOWED: Final = frozenset(
    {
        (ColumnMappingMode.NONE, ColumnMappingMode.NAME),
        (ColumnMappingMode.NAME, ColumnMappingMode.NONE),
        (ColumnMappingMode.ID, ColumnMappingMode.NONE),
    }
)


def mapping_flaws(definition: Definition) -> Iterator[Flaw]:
    """Yield missing and duplicate ids and physical names, and a missing or too low maximum id."""
    mode = mode_of(definition.metadata)
    if mode is ColumnMappingMode.NONE:
        return
    fields = tuple(walk(definition.schema))
    for field in fields:
        yield from _unmapped(field, mode)
    ids = Counter(number for field in fields for number in _ids(field))
    for number, count in sorted(ids.items()):
        if count > 1:
            yield Flaw(
                "column_id_twice",
                _FIELD,
                f"gives the id {number} to {count} columns",
                "give each column an id of its own",
            )
    yield from _shared_names(definition, mode)
    yield from _maximum_problem(definition, max(ids, default=0))


def mapping_change_flaws(before: Definition, after: Definition) -> Iterator[Flaw]:
    """Yield invalid changes of the column mapping.

    Mapping by name may be turned on later, and turned off when all files are rewritten.
    """
    old, new = mode_of(before.metadata), mode_of(after.metadata)
    if old is not new and (old, new) not in _ALLOWED:
        yield Flaw(
            "mapping_mode_change",
            _MODE,
            f"changes from {old.value} to {new.value}",
            f"keep {old.value}: a table that has no mapping may be mapped by name alone",
            "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE",
        )
    elif old is ColumnMappingMode.NONE and new is not ColumnMappingMode.NONE:
        if any(is_mapped(field) for field in walk(before.schema)):
            yield Flaw(
                "mapped_before",
                _FIELD,
                "had ids or physical names of columns before columns were mapped",
                "make a new table with column mapping and copy the rows into it",
                "DELTA_ENABLING_COLUMN_MAPPING_DISALLOWED_WHEN_COLUMN_MAPPING_METADATA_"
                "ALREADY_EXISTS",
            )
    elif new is not ColumnMappingMode.NONE:
        yield from _moved(before, after)


def is_mapped(field: StructField) -> bool:
    """Return whether a field has an id or a physical name.

    Spec: "Column Mapping"
    """
    return any(key in field.metadata for key in (FIELD_ID, PHYSICAL_NAME, NESTED_IDS))


def _unmapped(field: StructField, mode: ColumnMappingMode) -> Iterator[Flaw]:
    if field_id(field) is None:
        yield Flaw(
            "column_without_id",
            _FIELD,
            f"gives no id to the column {field.name!r}, while columns are mapped by {mode.value}",
            f"write {FIELD_ID} into its metadata",
        )
    if not isinstance(field.metadata.get(PHYSICAL_NAME), str):
        yield Flaw(
            "column_without_physical_name",
            _FIELD,
            f"gives no physical name to the column {field.name!r}, while columns are mapped by "
            f"{mode.value}",
            f"write {PHYSICAL_NAME} into its metadata",
        )


def _ids(field: StructField) -> Iterator[int]:
    number = field_id(field)
    if number is not None:
        yield number
    nested = field.metadata.get(NESTED_IDS)
    if isinstance(nested, dict):
        yield from (n for n in nested.values() if isinstance(n, int) and not isinstance(n, bool))


def _shared_names(definition: Definition, mode: ColumnMappingMode) -> Iterator[Flaw]:
    """Two fields with the same physical path would share one entry of the mapping."""
    fields = sum(1 for _ in walk(definition.schema))
    paths = logical_names(definition.schema, mode)
    if len(paths) < fields:
        yield Flaw(
            "physical_name_twice",
            _FIELD,
            f"gives {fields} columns {len(paths)} physical names",
            "give each column a physical name of its own, next to those beside it",
        )


def _maximum_problem(definition: Definition, highest: int) -> Iterator[Flaw]:
    if table_properties.max_column_id.key not in definition.metadata.configuration:
        yield Flaw(
            "max_column_id_missing",
            _MAX,
            "is not set, while columns are mapped",
            f"set it to {highest}, or to the highest id that a column ever had",
            "DELTA_COLUMN_MAPPING_MAX_COLUMN_ID_NOT_SET",
        )
    elif table_properties.max_column_id(definition.metadata) < highest:
        yield Flaw(
            "max_column_id_low",
            _MAX,
            f"is {table_properties.max_column_id(definition.metadata)}, "
            f"while a column has the id {highest}",
            f"set it to {highest} or more",
            "DELTA_COLUMN_MAPPING_MAX_COLUMN_ID_NOT_SET_CORRECTLY",
        )


def _moved(before: Definition, after: Definition) -> Iterator[Flaw]:
    """The maximum id never falls: it covers every id ever assigned."""
    old, new = (
        table_properties.max_column_id(before.metadata),
        table_properties.max_column_id(after.metadata),
    )
    if new < old:
        yield Flaw(
            "max_column_id_falls",
            _MAX,
            f"falls from {old} to {new}",
            f"keep {old} or more: an id is never given twice",
        )
