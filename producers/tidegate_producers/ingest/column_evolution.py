"""The columns that records ask for: new ones for fields that have none, and wider types."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import orjson
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, StructField, StructType

from tidegate_delta.schema.type_widening import widens
from tidegate_delta.schema.types import DECIMAL_PRECISION_MAX, DecimalType, PrimitiveType
from tidegate_delta.schema.types import DataType as DeltaType
from tidegate_producers.datasource.spark_schema import from_spark
from tidegate_producers.ingest.record_decoding import (
    EVOLVING,
    FIELD,
    REASON,
    SAMPLE_RECORDS,
    inferred,
    row_types,
)
from tidegate_producers.ingest.settings import Route

_INTEGERS: Final = (("byte", 8), ("short", 16), ("integer", 32), ("long", 64))
_DOUBLE: Final = PrimitiveType("double")


def new_fields(
    rows: DataFrame, names: Sequence[str], route: Route, types: Mapping[str, DataType]
) -> StructType:
    """Return the fields among some names that have values in rows with EVOLVING, with the types
    that their schemas tell, or that Spark infers.
    """
    sample = rows.where(F.col(EVOLVING).isNotNull() & F.col(REASON).isNull()).select(EVOLVING)
    values = [row[0].encode() for row in sample.limit(SAMPLE_RECORDS).collect()]
    given = {
        name for value in values for name, item in orjson.loads(value).items() if item is not None
    }
    wanted = [name for name in names if name in given]
    if not wanted:
        return StructType([])
    kinds = {field.name: field.dataType for field in inferred(rows.sparkSession, values).fields}
    kinds |= row_types(types, route)
    return StructType([StructField(name, kinds[name]) for name in wanted])


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
