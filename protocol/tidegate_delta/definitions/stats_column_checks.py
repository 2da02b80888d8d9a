"""Check the columns for which a table's properties request statistics."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from tidegate_delta.definitions.definition import Definition, Flaw, configured
from tidegate_delta.properties import table_properties
from tidegate_delta.schema.types import (
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    StructType,
)

_FIELD: Final = configured(table_properties.stats_columns.key)
_BOUNDED: Final = frozenset(
    {BYTE, SHORT, INTEGER, LONG, FLOAT, DOUBLE, DATE, TIMESTAMP, TIMESTAMP_NTZ, STRING}
)


def stats_column_flaws(definition: Definition) -> Iterator[Flaw]:
    """Yield each named column that is no data column, can't have bounds, or is named twice.

    A struct stands for all fields inside it, whatever their type.
    Spec: "Per-file Statistics"
    """
    stats_columns = table_properties.stats_columns(definition.metadata)
    if stats_columns is None:
        return
    partitions = {name.lower() for name in definition.metadata.partition_columns}
    named: Counter[tuple[str, ...]] = Counter()
    for path in stats_columns:
        dotted_path = ".".join(path)
        if len(path) == 1 and path[0].lower() in partitions:
            yield Flaw(
                "stats_of_partition_column",
                _FIELD,
                f"names the partition column {dotted_path!r}",
                "leave it out: its values are in the log",
                "DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_PARTITIONED_COLUMN",
            )
            continue
        kind = _find(definition.schema, path)
        if kind is None:
            yield Flaw(
                "stats_of_no_column",
                _FIELD,
                f"names {dotted_path!r}, which is no column of the table",
                "leave it out, or correct the name",
                "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA",
            )
        elif len(path) == 1 and not _has_bounds(kind):
            yield Flaw(
                "stats_of_type",
                _FIELD,
                f"names {dotted_path!r}, whose type {kind} has no bounds",
                "leave it out",
                "DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_TYPE",
            )
        else:
            named.update(_leaves(tuple(part.lower() for part in path), kind))
    twice = sorted(".".join(path) for path, count in named.items() if count > 1)
    if twice:
        yield Flaw(
            "stats_column_twice",
            _FIELD,
            f"names a column twice: {', '.join(twice)}",
            "name each once",
            "DELTA_DUPLICATE_DATA_SKIPPING_COLUMNS",
        )


def _find(kind: DataType, path: tuple[str, ...]) -> DataType | None:
    """Return the type at a path of names, which are matched without regard to case."""
    for name in path:
        if not isinstance(kind, StructType):
            return None
        field = next(
            (candidate for candidate in kind if candidate.name.lower() == name.lower()), None
        )
        if field is None:
            return None
        kind = field.kind
    return kind


def _has_bounds(kind: DataType) -> bool:
    return isinstance(kind, StructType | DecimalType) or kind in _BOUNDED


def _leaves(path: tuple[str, ...], kind: DataType) -> Iterator[tuple[str, ...]]:
    if not isinstance(kind, StructType):
        yield path
        return
    for field in kind:
        yield from _leaves((*path, field.name.lower()), field.kind)
