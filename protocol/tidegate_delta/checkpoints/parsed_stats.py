"""Typed statistics and partition values in checkpoints, for tables whose properties ask for them.

A value that can't be read as its column's type is null: readers take null as unknown.

Spec: "Checkpoints"
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate_delta.data_skipping import column_bounds
from tidegate_delta.data_skipping.file_pruning import read_texts
from tidegate_delta.data_skipping.file_statistics import chosen
from tidegate_delta.log.actions import Metadata
from tidegate_delta.properties import table_properties
from tidegate_delta.schema import partition_values
from tidegate_delta.schema.arrow_types import arrow_type
from tidegate_delta.schema.column_mapping import mode_of, to_physical
from tidegate_delta.schema.field_paths import FieldPath
from tidegate_delta.schema.types import (
    BINARY,
    BOOLEAN,
    NANOS,
    VARIANT,
    VOID,
    DataType,
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
    is_geospatial,
    parse_schema,
)
from tidegate_delta.snapshots.raw_stats import texts

Build = Callable[[FieldPath, DataType], pa.Array]

_DECIMALS: Final = Context(prec=76)
_WHOLE_BITS: Final = {"byte": 7, "short": 15, "integer": 31, "long": 63}
_DAY: Final = r"(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])-[0-9]{2}-[0-9]{2}"
_TIME: Final = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{3}|\.[0-9]{6})?"
_TEXTS: Final = {
    "date": f"^{_DAY}$",
    "timestamp": f"^{_DAY}T{_TIME}Z$",
    "timestamp_ntz": f"^{_DAY}T{_TIME}$",
}
"""The forms of bounds that Arrow reads as Python does."""

_UNBOUNDED: Final = (BOOLEAN, BINARY, VARIANT, VOID, *NANOS)


@dataclass(frozen=True)
class Parsed:
    """The columns with typed statistics and with typed partition values, by physical names."""

    indexed: StructType
    partitioned: StructType


def parsed_of(metadata: Metadata) -> Parsed | None:
    """Return the columns to write typed, or None where the table's properties do not ask for it.

    A table without JSON statistics gets typed ones, unless its properties turn these off as well.
    """
    is_set = table_properties.checkpoint_stats_as_struct.key in metadata.configuration
    is_requested = is_set or not table_properties.checkpoint_stats_as_json(metadata)
    if not is_requested or not table_properties.checkpoint_stats_as_struct(metadata):
        return None
    schema = parse_schema(metadata.schema_string)
    columns = {name.lower() for name in metadata.partition_columns}
    of_partitions = tuple(field for field in schema.fields if field.name.lower() in columns)
    partitioned = to_physical(StructType(of_partitions), mode_of(metadata))
    return Parsed(indexed_columns(metadata), partitioned)


def indexed_columns(metadata: Metadata) -> StructType:
    """Return the columns that have statistics in files, under their physical names.

    Spec: "Per-file Statistics"
    """
    schema = parse_schema(metadata.schema_string)
    columns = {name.lower() for name in metadata.partition_columns}
    data = StructType(tuple(field for field in schema.fields if field.name.lower() not in columns))
    paths = set(
        chosen(
            data,
            table_properties.num_indexed_columns(metadata),
            table_properties.stats_columns(metadata),
        )
    )
    return to_physical(_kept(data, lambda path, _: path in paths), mode_of(metadata))


def bounded_columns(metadata: Metadata) -> StructType:
    """Return those of `indexed_columns` whose values have bounds.

    Spec: "Per-file Statistics"
    """
    return _kept(indexed_columns(metadata), _has_bounds)


def fields(parsed: Parsed) -> Sequence[pa.Field]:
    """Return the additional fields of `add`.

    Spec: "Checkpoint Schema"
    """
    additional = [pa.field("stats_parsed", _stats_type(parsed.indexed))]
    if parsed.partitioned.fields:
        kinds = [
            pa.field(field.name, arrow_type(field.kind)) for field in parsed.partitioned.fields
        ]
        additional.append(pa.field("partitionValues_parsed", pa.struct(kinds)))
    return additional


def columns(parsed: Parsed, files: pa.Table) -> Sequence[pa.Array]:
    """Return the values of the additional fields for files of ADD_SCHEMA.

    Spec: "Checkpoint Schema"
    """
    stats = texts(files).combine_chunks()
    additional = [typed_by_column(parsed.indexed, stats)]
    if additional[0] is None:
        additional = [typed_one_by_one(parsed.indexed, stats)]
    if parsed.partitioned.fields:
        additional.append(_partition_values(parsed.partitioned, files))
    return additional


def _stats_type(indexed: StructType) -> pa.DataType:
    bounded = _kept(indexed, _has_bounds)
    return pa.struct(
        [
            pa.field("numRecords", pa.int64()),
            pa.field("tightBounds", pa.bool_()),
            *_struct_fields({"minValues": bounded, "maxValues": bounded}, arrow_type),
            *_struct_fields({"nullCount": indexed}, lambda _: pa.int64()),
        ]
    )


def _struct_fields(
    groups: Mapping[str, StructType], leaf: Callable[[DataType], pa.DataType]
) -> list[pa.Field]:
    return [
        pa.field(name, _shape(struct, leaf)) for name, struct in groups.items() if struct.fields
    ]


def _shape(struct: StructType, leaf: Callable[[DataType], pa.DataType]) -> pa.DataType:
    def kind_of(kind: DataType) -> pa.DataType:
        return _shape(kind, leaf) if isinstance(kind, StructType) else leaf(kind)

    return pa.struct([pa.field(field.name, kind_of(field.kind)) for field in struct.fields])


def typed_by_column(indexed: StructType, stats: pa.StringArray) -> pa.Array | None:
    """Return typed statistics, or None where a value needs to be looked at by itself.

    Law: the same as `typed_one_by_one`, or None; only a text beyond the limits of Python's reader,
    of 4,300 digits a number or some hundred levels, may be read here and not there
    Spec: "Per-file Statistics"
    """
    bounded = _kept(indexed, _has_bounds)
    try:
        # A struct that is expected but empty could not be told from one that is missing.
        groups = {"minValues": bounded, "maxValues": bounded}
        shape = [
            pa.field("numRecords", pa.int64()),
            pa.field("tightBounds", pa.bool_()),
            *_struct_fields(groups, _read_as),
            *_struct_fields({"nullCount": indexed}, lambda _: pa.int64()),
        ]
        if not len(stats):
            return None
        schema = pa.schema([pa.field("stats", pa.struct(shape))])
        read = read_texts(stats, schema)["stats"].combine_chunks()

        def bounds_at(name: str) -> Build:
            return lambda path, kind: _as_kind(pc.struct_field(read, [name, *path]), kind)

        def nulls(path: FieldPath, _: DataType) -> pa.Array:
            return _counts(pc.struct_field(read, ["nullCount", *path]))

        return _assembled(
            indexed,
            (_counts(pc.struct_field(read, "numRecords")), pc.struct_field(read, "tightBounds")),
            (bounds_at("minValues"), bounds_at("maxValues"), nulls),
            pc.is_null(stats),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def typed_one_by_one(indexed: StructType, stats: pa.StringArray) -> pa.Array:
    """Return typed statistics, whatever they hold; a value of another type is null.

    Spec: "Per-file Statistics"
    """
    stats_texts = stats.to_pylist()
    statistics = [column_bounds.parsed(text, exact_numbers=True) for text in stats_texts]

    def at(name: str) -> Build:
        return lambda path, kind: pa.array(
            [
                _typed(column_bounds.value_at(file_statistics.get(name), path), kind)
                for file_statistics in statistics
            ],
            arrow_type(kind),
        )

    def nulls(path: FieldPath, _: DataType) -> pa.Array:
        counts = [
            column_bounds.whole(column_bounds.value_at(file_statistics.get("nullCount"), path))
            for file_statistics in statistics
        ]
        return pa.array(counts, pa.int64())

    rows = [column_bounds.whole(statistic.get("numRecords")) for statistic in statistics]
    tight = [statistic.get("tightBounds") for statistic in statistics]
    are_tight = pa.array([t if isinstance(t, bool) else None for t in tight], pa.bool_())
    return _assembled(
        indexed,
        (pa.array(rows, pa.int64()), are_tight),
        (at("minValues"), at("maxValues"), nulls),
        pc.is_null(stats),
    )


def _assembled(
    indexed: StructType,
    of_files: tuple[pa.Array, pa.Array],
    of_columns: tuple[Build, Build, Build],
    is_missing: pa.Array,
) -> pa.Array:
    """Return typed statistics: `numRecords` and `tightBounds`, then least, greatest and nulls."""
    shape, bounded = _stats_type(indexed), _kept(indexed, _has_bounds)
    parts = dict(zip(("numRecords", "tightBounds"), of_files, strict=True))
    groups = {"minValues": bounded, "maxValues": bounded, "nullCount": indexed}
    for (name, struct), build in zip(groups.items(), of_columns, strict=True):
        if struct.fields:
            parts[name] = _tree(struct, (), build)
    return pa.StructArray.from_arrays(
        [parts[field.name] for field in shape], fields=list(shape), mask=is_missing
    )


def _read_as(kind: DataType) -> pa.DataType:
    """Return the type as which bounds of a column are read from JSON.

    Raises: pa.ArrowNotImplementedError, for those that are read one by one.
    """
    name = kind.name if isinstance(kind, PrimitiveType) else ""
    if name in _WHOLE_BITS:
        return pa.int64()
    if name in ("float", "double"):
        return pa.float64()
    if name == "string" or name in _TEXTS:
        return pa.string()
    raise pa.ArrowNotImplementedError(f"bounds of a {kind}")


def _as_kind(values: pa.Array, kind: DataType) -> pa.Array:
    """Return bounds as their column's type. Raises: pa.ArrowInvalid for a text of another form."""
    name, target = str(kind), arrow_type(kind)
    if name in _WHOLE_BITS:
        least, most = -(1 << _WHOLE_BITS[name]), (1 << _WHOLE_BITS[name]) - 1
        fits = pc.and_(pc.greater_equal(values, least), pc.less_equal(values, most))
        return pc.if_else(fits, values, None).cast(target)
    if name in ("float", "double"):
        values = values.cast(target, safe=False)
        return pc.if_else(pc.is_finite(values), values, None)
    if name not in _TEXTS:
        return values.cast(target)
    if not pc.all(pc.match_substring_regex(values, _TEXTS[name]), min_count=0).as_py():
        raise pa.ArrowInvalid(f"a {name} in another form")
    return values.cast(target)


def _counts(values: pa.Array) -> pa.Array:
    return pc.if_else(pc.greater_equal(values, 0), values, None)


def _tree(struct: StructType, above: FieldPath, build: Build) -> pa.Array:
    parts = []
    for field in struct.fields:
        path = (*above, field.name)
        inner = field.kind
        parts.append(
            _tree(inner, path, build) if isinstance(inner, StructType) else build(path, inner)
        )
    return pa.StructArray.from_arrays(parts, names=list(struct.names))


def _partition_values(struct: StructType, files: pa.Table) -> pa.Array:
    values = files.column("partitionValues")
    columns = []
    for field in struct.fields:
        texts = pc.map_lookup(values, pa.scalar(field.name), "last").combine_chunks()
        columns.append(_readable(texts, field))
    return pa.StructArray.from_arrays(columns, names=list(struct.names))


def _readable(texts: pa.Array, field: StructField) -> pa.Array:
    try:
        return partition_values.column(texts, field.kind)
    except ValueError:
        return pa.nulls(len(texts), arrow_type(field.kind))


def _typed(value: Any, kind: DataType) -> Any:
    typed_value = column_bounds.typed(value, kind)
    if isinstance(kind, DecimalType) and typed_value is not None:
        return _fitted(typed_value, kind)
    return typed_value if _fits(typed_value, kind) else None


def _fitted(value: Decimal, kind: DecimalType) -> Decimal | None:
    try:
        exact = value.quantize(Decimal(1).scaleb(-kind.scale), context=_DECIMALS)
    except InvalidOperation:
        return None
    small = not exact or exact.adjusted() < kind.precision - kind.scale
    return exact if exact == value and small else None


def _fits(value: Any, kind: DataType) -> bool:
    if not isinstance(value, int) or isinstance(value, bool):
        return True
    bits = _WHOLE_BITS.get(str(kind), 63)
    return -(1 << bits) <= value < 1 << bits


def _kept(
    struct: StructType, keep: Callable[[FieldPath, DataType], bool], above: FieldPath = ()
) -> StructType:
    kept = []
    for field in struct.fields:
        path = (*above, field.name)
        if isinstance(field.kind, StructType):
            inner = _kept(field.kind, keep, path)
            if inner.fields:
                kept.append(StructField(field.name, inner, metadata=field.metadata))
        elif keep(path, field.kind):
            kept.append(StructField(field.name, field.kind, metadata=field.metadata))
    return StructType(tuple(kept))


def _has_bounds(_: FieldPath, kind: DataType) -> bool:
    if is_geospatial(kind) or kind in _UNBOUNDED:
        return False
    return isinstance(kind, PrimitiveType | DecimalType)
