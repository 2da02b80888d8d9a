"""The columns that records ask for: new ones for fields that have none, and wider types."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from tidegate_delta.schema.field_paths import FieldPath, illegal_name
from tidegate_delta.schema.type_widening import widens
from tidegate_delta.schema.types import DECIMAL_PRECISION_MAX, DecimalType, PrimitiveType
from tidegate_delta.schema.types import DataType as DeltaType
from tidegate_producers.datasource.spark_schema import from_spark
from tidegate_producers.ingest.record_decoding import (
    EVOLVING,
    FIELD,
    REASON,
    SAMPLE_RECORDS,
    STEP,
    inferred,
    row_types,
)
from tidegate_producers.ingest.settings import Route
from tidegate_producers.ingest.target_table import TargetTable
from tidegate_producers.writing.alter_table import new_column

_INTEGERS: Final = (("byte", 8), ("short", 16), ("integer", 32), ("long", 64))
_DOUBLE: Final = PrimitiveType("double")


@dataclass(frozen=True)
class NewField:
    """A field that is to be added: a column, or a field of the struct at `parent`."""

    parent: FieldPath
    field: StructField

    @property
    def path(self) -> FieldPath:
        """The path of the field itself."""
        return (*self.parent, self.field.name)

    @property
    def change(self) -> Mapping[str, Any]:
        """The change of a table's definition that adds the field, as `Table.alter` takes it."""
        [field] = from_spark(StructType([self.field]))
        return new_column(field, self.parent).model_dump()


def new_fields(
    rows: DataFrame,
    paths: Sequence[str],
    target: TargetTable,
    route: Route,
    types: Mapping[str, DataType],
) -> Sequence[NewField]:
    """Return those at some paths of UNKNOWN that have values in rows with EVOLVING, with the types
    that their schemas tell, or that Spark infers. Of paths that differ in upper and lower case
    alone the first counts. An empty object tells no type.
    """
    fields = target.value_fields(route)
    sample = rows.where(F.col(EVOLVING).isNotNull() & F.col(REASON).isNull()).select(EVOLVING)
    texts = [row[0] for row in sample.limit(SAMPLE_RECORDS).collect()]
    values = [json.loads(text) for text in texts]
    found: dict[FieldPath, list[Any]] = {}
    spelt = set[str]()
    for path in paths:
        steps = tuple(path.split(STEP))
        given = [item for value in values for item in _at(value, fields, steps) if item is not None]
        if given and path.lower() not in spelt:
            found[steps] = given
            spelt.add(path.lower())
    if not found:
        return ()
    # A record for each value, in which a path is the name: one inference is for all of them.
    named = [json.dumps({str(n): item}) for n, each in enumerate(found.values()) for item in each]
    inferred_types = inferred(rows.sparkSession, [text.encode() for text in named])
    registered = StructType([StructField(*each) for each in row_types(types, route).items()])
    kinds = {
        path: _type_at(registered, path) or _type_at(inferred_types, (str(number),))
        for number, path in enumerate(found)
    }
    return [
        NewField(path[:-1], StructField(path[-1], _with_names(kind, target.takes_any_name)))
        for path, kind in kinds.items()
        if kind is not None
    ]


def _with_names(kind: DataType, takes_any_name: bool) -> DataType:
    """Return a type without fields inside whose names a table can't have: records with them are
    dead letters once the others are there. A struct of which nothing is left is text.
    """
    match kind:
        case ArrayType():
            return ArrayType(_with_names(kind.elementType, takes_any_name))
        case MapType():
            return MapType(kind.keyType, _with_names(kind.valueType, takes_any_name))
        case StructType():
            named: dict[str, StructField] = {}
            for field in kind.fields:
                if field.name and (takes_any_name or not illegal_name(field.name)):
                    inner = _with_names(field.dataType, takes_any_name)
                    named.setdefault(field.name.lower(), StructField(field.name, inner))
            return StructType(list(named.values())) if named else StringType()
        case _:
            return kind


def _at(value: Any, kind: DataType | None, path: FieldPath) -> Iterator[Any]:
    """Yield what a JSON value, which is read by a type, has at a path: several values, where arrays
    or maps are on the way.
    """
    if not path:
        yield value
        return
    step, *rest = path
    inner = _type_at(kind, (step,))
    items: Iterable[Any] = ()
    if isinstance(kind, ArrayType) and isinstance(value, list):
        items = value
    elif isinstance(kind, MapType) and isinstance(value, dict):
        items = value.values()
    elif isinstance(kind, StructType) and isinstance(value, dict) and step in value:
        items = [value[step]]
    for item in items:
        yield from _at(item, inner, tuple(rest))


def _type_at(kind: DataType | None, path: FieldPath) -> DataType | None:
    """Return the type at a path inside a type, or None where it has none."""
    for step in path:
        match kind:
            case StructType():
                kind = next((f.dataType for f in kind.fields if f.name == step), None)
            case ArrayType():
                kind = kind.elementType
            case MapType():
                kind = kind.valueType
            case _:
                return None
    return kind


def wider_types(rows: DataFrame, columns: StructType) -> dict[str, DeltaType]:
    """Return by column the wider type that takes numbers which do not fit it, of rows with EVOLVING
    that are none because of one field.
    """
    is_misfit = F.col(EVOLVING).isNotNull() & F.col(FIELD).isNotNull()
    sample = rows.where(is_misfit).select(FIELD, EVOLVING).limit(SAMPLE_RECORDS).collect()
    values: dict[str, list[Any]] = {}
    for name, text in sample:
        values.setdefault(name, []).append(_loaded(text).get(name))
    kinds = {field.name: field.kind for field in from_spark(columns).fields}
    found = {name: wider(kinds[name], given) for name, given in values.items() if name in kinds}
    return {name: kind for name, kind in found.items() if kind is not None}


def wider(kind: DeltaType, values: Iterable[Any]) -> DeltaType | None:
    """Return the least type to which a column's widens that takes those numbers among some values
    that can be taken; None if it is the column's own.

    Law: widens(kind, wider(kind, values))
    """
    result = kind
    for value in values:
        for candidate in _types_of(value, result):
            if widens(result, candidate):
                result = candidate
                break
    return None if result == kind else result


def _types_of(value: Any, kind: DeltaType) -> Iterator[DeltaType]:
    """Yield types that take a number, the nearest first. A text is a number for decimals alone."""
    if isinstance(value, bool):
        return
    if isinstance(kind, DecimalType):
        number = _decimal(value)
        if number is not None:
            yield from _decimals(number, kind)
    elif isinstance(value, int):
        for name, bits in _INTEGERS:
            if -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
                yield PrimitiveType(name)
    elif isinstance(value, Decimal):
        yield _DOUBLE


def _decimals(number: Decimal, kind: DecimalType) -> Iterator[DeltaType]:
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        return
    scale = max(kind.scale, -exponent)
    whole = max(kind.precision - kind.scale, len(digits) + exponent)
    if whole + scale <= DECIMAL_PRECISION_MAX:
        yield DecimalType(whole + scale, scale)


def _decimal(value: Any) -> Decimal | None:
    try:
        return Decimal(value) if isinstance(value, int | str | Decimal) else None
    except ArithmeticError:
        return None


def _loaded(text: str) -> dict[str, Any]:
    """Return an object, its fractions with all digits."""
    try:
        value = json.loads(text, parse_float=Decimal)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
