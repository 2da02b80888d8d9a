"""The table that a route fills: made if it is absent, opened for each batch, and what fits it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

from tidegate_delta.constraints.row_constraints import WriteRequirements, requirements
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.properties.table_properties import type_widening_enabled
from tidegate_delta.schema.column_mapping import ColumnMappingMode, mode_of
from tidegate_delta.schema.field_paths import ELEMENT, VALUE, FieldPath, dotted, same_name
from tidegate_delta.schema.type_widening import Automatic
from tidegate_delta.schema_evolution.evolve_on_write import Merging, merged
from tidegate_producers.cached_clients import store_for
from tidegate_producers.datasource.spark_schema import from_spark, to_spark
from tidegate_producers.ingest.record_decoding import (
    DELETED,
    FIELD,
    IS_IN,
    REASON,
    JsonValues,
    Selection,
    columns_of,
    type_of,
)
from tidegate_producers.ingest.record_texts import RecordTexts
from tidegate_producers.ingest.settings import OWN_PREFIX, RECORD_PARTS, Route
from tidegate_producers.options import TableLocation
from tidegate_producers.table.table import Table
from tidegate_producers.table.target_frame import quoted
from tidegate_producers.writing.table_write import check_open_to
from tidegate_runtime.table_io.open_table import head_version, open_keys

_FAULT: Final = f"{OWN_PREFIX}fault"
_NESTED: Final = (StructType, ArrayType, MapType)
_VECTORS: Final = {"delta.enableDeletionVectors": "true"}
_WIDENING: Final = {"delta.enableTypeWidening": "true"}


@dataclass(frozen=True)
class TargetTable:
    """A table as a batch finds it: its columns, what it requires of rows, whether types of its
    columns may become wider, and whether new ones may have any name.
    """

    place: TableLocation
    columns: StructType
    required: WriteRequirements
    may_widen: bool = False
    takes_any_name: bool = False

    @property
    def given(self) -> StructType:
        """The columns that rows bring: all but those that the table computes or numbers."""
        own = {column.column for column in self.required.generated}
        own |= {column.column for column in self.required.identities}
        return StructType([field for field in self.columns.fields if field.name not in own])

    def is_as(self, other: "TargetTable") -> bool:
        """Return whether rows for the other table are rows for this one.

        How far identity columns have counted does not matter: the write numbers them.
        """
        return (
            self.columns == other.columns
            and self._counting_apart == other._counting_apart
            and self.takes_any_name == other.takes_any_name
        )

    @property
    def _counting_apart(self) -> WriteRequirements:
        identities = (replace(column, mark=None) for column in self.required.identities)
        return replace(self.required, identities=tuple(identities))

    def value_fields(self, route: Route) -> StructType:
        """Return the fields of a record's value: those that the route names, and without a
        `select` the table's columns that come from no other part of the record; and the one that
        says what is deleted.
        """
        text = route.schema_text()
        named = columns_of(text) if text is not None else StructType([])
        parts = {name.lower() for name in route.record_columns.values()}
        parts |= {field.name.lower() for field in named.fields}
        fields = list(named.fields)
        if route.select is None:
            if route.schema_evolution in ("add", "widen"):
                fields = self._evolved(named, route)
            fields += [field for field in self.given.fields if field.name.lower() not in parts]
        if route.delete_name is not None and route.delete_name not in [
            field.name for field in fields
        ]:
            fields.append(StructField(route.delete_name, StringType()))
        return StructType(fields)

    def _evolved(self, named: StructType, route: Route) -> list[StructField]:
        """Return the fields of a value as their columns have become: with the fields that these
        have got inside, and where the route widens, with their wider types.
        """
        columns = [
            column
            for column in self.columns.fields
            if any(same_name(column.name, field.name) for field in named.fields)
        ]
        does_widen = route.schema_evolution == "widen"
        automatic = Automatic.ALWAYS if does_widen else Automatic.NEVER
        merging = Merging(automatic=automatic, keeps_types=True)
        evolved = merged(from_spark(named), from_spark(StructType(columns)), merging)
        return list(to_spark(evolved).fields)


def opened(place: TableLocation) -> TargetTable | None:
    """Return the newest version of a table, or None where there is none.

    Raises: UnsupportedFeature, BrokenLog, Unavailable.
    """
    store = store_for(place)
    if head_version(store) is None:
        return None
    keys = open_keys(store)
    schema = check_open_to(keys, place.root)
    required = requirements(keys.metadata, keys.protocol)
    may_widen = type_widening_enabled(keys.metadata)
    takes_any_name = mode_of(keys.metadata) is not ColumnMappingMode.NONE
    return TargetTable(place, to_spark(schema), required, may_widen, takes_any_name)


def check_may_widen(target: TargetTable, route: Route) -> None:
    """Check that types may become wider, if a route says so. Raises: InvalidRequest."""
    if route.schema_evolution == "widen" and not target.may_widen:
        raise InvalidRequest(
            f"schema_evolution is widen, and {target.place.root} may not widen types: set "
            "delta.enableTypeWidening=true on it, or schema_evolution add; nothing was committed",
            error_class="DELTA_ILLEGAL_OPTION",
        )


def created(
    spark: SparkSession,
    place: TableLocation,
    route: Route,
    values: StructType,
    options: Mapping[str, str],
) -> None:
    """Make the table of a route, with the columns of values and of the record's other parts.

    Raises: InvalidRequest, naming the column, property or option; Rejected; OutcomeUnknown.
    """
    columns = columns_made(spark, values, route)
    check_names(columns.names)
    known = {name.lower() for name in columns.names}
    for setting in ("key", "partition_by", "cluster_by"):
        for name in getattr(route, setting):
            if name.lower() not in known:
                raise InvalidRequest(
                    f"{setting} names the column {name!r}, which {place.root} would not have: its "
                    f"columns are {', '.join(columns.names)}; nothing was committed",
                    error_class="DELTA_COLUMN_NOT_FOUND",
                )
    named = {"name": route.name} if route.name is not None else {}
    builder = Table.createIfNotExists(spark, {**options, **named}).location(place.root)
    builder.addColumns(columns)
    if route.partition_by:
        builder.partitionedBy(*route.partition_by)
    if route.cluster_by:
        builder.clusterBy(*route.cluster_by)
    defaults = _VECTORS if route.mode == "upsert" else {}
    if route.schema_evolution == "widen":
        defaults = {**defaults, **_WIDENING}
    for key, value in {**defaults, **route.properties}.items():
        builder.property(key, value)
    builder.execute()


def columns_made(spark: SparkSession, values: StructType, route: Route) -> StructType:
    """Return the columns that a route makes of values and of the other parts of records.

    Raises: Spark's errors, for an expression of `select` that it refuses.
    """
    if route.select is not None:
        record = {**RECORD_PARTS, "value": "BINARY"}
        none = spark.createDataFrame(
            [], ", ".join(f"{name} {kind}" for name, kind in record.items())
        )
        decoded = JsonValues(values, route).decoded(RecordTexts().read(none))
        rows = Selection.of(route).rows(decoded, [])
        made = [field for field in rows.schema.fields if not field.name.startswith(OWN_PREFIX)]
        return StructType(made)
    parts = [
        StructField(name, type_of(RECORD_PARTS[part]))
        for part, name in route.record_columns.items()
    ]
    return StructType([*values.fields, *parts])


def check_names(names: Sequence[str]) -> None:
    """Check that no field has a name of this job's own, or differs from another by case alone.

    Raises: InvalidRequest.
    """
    for name in names:
        if name.startswith(OWN_PREFIX):
            raise InvalidRequest(
                f"field {name!r} begins with {OWN_PREFIX}, as columns of this job's own do: rename "
                f"it by select, such as `{name} AS other`; nothing was committed",
                error_class="DELTA_INVALID_CHARACTERS_IN_COLUMN_NAME",
            )
    if len({name.lower() for name in names}) < len(names):
        raise InvalidRequest(
            f"two of the fields {', '.join(names)} differ in upper and lower case alone, and a "
            "table's columns may not: choose and rename them by select; nothing was committed",
            error_class="DELTA_DUPLICATE_COLUMNS_FOUND",
        )


def fitted(rows: DataFrame, target: TargetTable, route: Route) -> DataFrame:
    """Return rows with the table's columns and types; REASON says of the others what does not fit.

    The key may not be null; of a record that deletes, it alone must fit.
    Columns that the table lacks are left out; where it has a default, null becomes the default.
    """
    own = [name for name in rows.columns if name.startswith(OWN_PREFIX)]
    defaults = {default.column: default.expression for default in target.required.defaults}
    values: list[Column] = []
    faults: list[Column] = []
    for field in target.given.fields:
        name = next((name for name in rows.columns if same_name(name, field.name)), None)
        value = F.lit(None) if name is None else F.col(quoted(name))
        kind = field.dataType if name is None else rows.schema[name].dataType
        is_nested = isinstance(kind, _NESTED) or isinstance(field.dataType, _NESTED)
        if name is None:
            value = value.cast(field.dataType)
        elif kind.simpleString() != field.dataType.simpleString() and not is_nested:
            cast = value.try_cast(field.dataType)
            misfit = f"is no {field.dataType.simpleString()}, which its column is"
            faults.append(_fault(value.isNotNull() & cast.isNull(), field.name, misfit))
            value = cast
        if field.name in defaults:
            value = F.coalesce(value, F.expr(defaults[field.name]).cast(field.dataType))
        values.append(value.alias(field.name))
    typed = rows.select(*values, *own, _first_fault(faults).alias(_FAULT))
    computed_columns = {
        column.column: F.expr(column.expression).cast(target.columns[column.column].dataType)
        for column in target.required.generated
    }
    violated = _first_fault([F.col(_FAULT), *_violations(target)])
    is_missing = "is null, and is needed to find the row"
    missing = [_fault(F.col(quoted(name)).isNull(), name, is_missing) for name in route.key]
    if route.order_by is not None:
        is_null = F.col(quoted(route.order_by)).isNull() & ~F.col(DELETED)
        missing.append(_fault(is_null, route.order_by, "is null, and gives the order"))
    checked = F.coalesce(_first_fault(missing), F.when(~F.col(DELETED), violated))
    checked = F.when(F.col(IS_IN), checked)
    # Spark Connect takes no empty mapping.
    computed = typed.withColumns(computed_columns) if computed_columns else typed
    return (
        computed.withColumn(_FAULT, checked)
        .withColumns(
            {
                FIELD: F.when(F.col(REASON).isNull(), F.col(_FAULT)["field"]).otherwise(
                    F.col(FIELD)
                ),
                REASON: F.coalesce(F.col(REASON), F.col(_FAULT)["reason"]),
            }
        )
        .drop(_FAULT, *computed_columns)
    )


def _fault(is_wrong: Column, field: str | None, reason: str) -> Column:
    named = F.lit(field).cast("string")
    text = reason if field is None else f"field {field!r} {reason}"
    return F.when(is_wrong, F.struct(named.alias("field"), F.lit(text).alias("reason")))


def _first_fault(faults: Sequence[Column]) -> Column:
    return F.coalesce(*faults, F.lit(None).cast("struct<field: string, reason: string>"))


def _violations(target: TargetTable) -> Iterator[Column]:
    """Yield for each constraint of the table the fault of a row that violates it, else null.

    Those inside arrays and maps are left to the write, which refuses the batch.
    """
    required = target.required
    numbered = {column.column for column in required.identities}
    for null in required.not_null:
        if not {ELEMENT, VALUE} & set(null.path) and null.path[0] not in numbered:
            yield _fault(_at(null.path).isNull(), dotted(null.path), "is null, and may not be")
    for length in required.lengths:
        if not {ELEMENT, VALUE} & set(length.path):
            is_long = F.length(_at(length.path)) > length.limit.length
            yield _fault(is_long, dotted(length.path), f"is longer than {length.limit}")
    for check in required.checks:
        is_wrong = ~F.coalesce(F.expr(check.expression), F.lit(False))
        yield _fault(is_wrong, None, f"it violates CHECK {check.name} ({check.expression})")
    for invariant in required.invariants:
        is_wrong = ~F.coalesce(F.expr(invariant.expression), F.lit(False))
        yield _fault(is_wrong, dotted(invariant.path), f"violates {invariant.expression}")


def _at(path: FieldPath) -> Column:
    return F.col(".".join(map(quoted, path)))
