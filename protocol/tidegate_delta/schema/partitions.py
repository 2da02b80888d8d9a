"""The partition of a file as a value: engines spell a value in several ways."""

from collections.abc import Hashable, Mapping
from functools import lru_cache
from math import isnan

from tidegate_delta.log.actions import Metadata
from tidegate_delta.schema import lenient_partition_values, partition_values
from tidegate_delta.schema.column_mapping import physical_partition_columns
from tidegate_delta.schema.types import DATE, STRING, DataType, parse_schema

Partition = tuple[Hashable, ...]
"""The values of the partition columns, in their order; two spellings of a value are equal."""


def partition_kinds(metadata: Metadata) -> Mapping[str, DataType]:
    """Return the type of each partition column by the key of its value in `partitionValues`.

    Spec: "Partition Value Serialization"
    """
    keys = physical_partition_columns(metadata)
    schema = parse_schema(metadata.schema_string) if keys else ()
    kinds = {field.name: field.kind for field in schema}
    return {key: kinds.get(name, STRING) for name, key in keys.items()}


def partition_of(
    values: Mapping[str, str | None] | None, kinds: Mapping[str, DataType]
) -> Partition:
    """Return the partition of a file with these `partitionValues`.

    A timestamp that does not state its time zone is taken as UTC, as it is read. What no reader can
    parse is a value of its own.
    Law: partition_of({k: serialize(v, kinds[k])}, kinds) is the same for equal v
    Spec: "Partition Value Serialization"
    """
    return tuple(_identity((values or {}).get(key), kind) for key, kind in kinds.items())


@lru_cache(maxsize=4096)
def _identity(text: str | None, kind: DataType) -> Hashable:
    if not text:
        return None
    try:
        value: Hashable = lenient_partition_values.cast(text, kind)
    except ValueError:
        return _beyond_python(text, kind)
    # NaN is no number that equals itself; to Delta it is one value.
    return "NaN" if isinstance(value, float) and isnan(value) else value


def _beyond_python(text: str, kind: DataType) -> Hashable:
    """Return a date or time in a year that Python lacks as a number; another text as it is."""
    try:
        [value] = partition_values.column([text], kind)
    except ValueError:
        return text
    number: int = value.cast("int32" if kind == DATE else "int64").as_py()
    return number
