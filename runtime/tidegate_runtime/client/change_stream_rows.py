"""Rows of a change stream: carried from one schema to the next, and as Python values."""

import struct
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Context, Decimal
from typing import Any, Final

import orjson
import pyarrow as pa

from tidegate_delta.schema.types import DATE, DOUBLE, FLOAT, DataType, DecimalType, parse_type
from tidegate_messages.schema_announcement import Column, ValueForm

_ISO: Final = ValueForm()
_EXACT: Final = Context(prec=80)
_DAY_US: Final = 24 * 60 * 60 * 1_000_000
_NON_FINITE: Final = ("NaN", "Infinity", "-Infinity")


def carried_row(
    row: Mapping[str, Any], columns: Sequence[Column], form: ValueForm = _ISO
) -> dict[str, Any]:
    """Return a row of the schema before a change as a row of the schema after it.

    Law: it is the row as the table holds it after the change, in the words of the stream
    """
    return {
        column.name: None
        if column.before is None
        else _carried(row.get(column.before), column, form)
        for column in columns
    }


def _carried(value: Any, column: Column, form: ValueForm) -> Any:
    if value is None:
        return None
    if column.type is not None and column.type_before is not None:
        return _widened(value, parse_type(column.type_before), parse_type(column.type), form)
    inner = (column.fields, column.element, column.key, column.value)
    if all(part is None for part in inner):
        return value
    if form.structs == "json" and isinstance(value, str):
        nested = _nested(orjson.loads(value), column, _ISO)
        return orjson.dumps(nested).decode()
    return _nested(value, column, form)


def _nested(value: Any, column: Column, form: ValueForm) -> Any:
    if column.fields is not None:
        return carried_row(value, column.fields, form)
    if column.element is not None:
        return [_carried(item, column.element, form) for item in value]
    carried = {}
    for key, item in value.items():
        name = key if column.key is None else _map_key(key, column.key)
        carried[name] = item if column.value is None else _carried(item, column.value, form)
    return carried


def _map_key(text: str, column: Column) -> str:
    """Return a map's key, which is the ISO text of its value."""
    if column.is_as_before:
        return text
    value = orjson.loads(text) if text[:1] in "{[" or _is_number(column) else text
    carried = _carried(value, column, _ISO)
    return carried if isinstance(carried, str) else orjson.dumps(carried).decode()


def _is_number(column: Column) -> bool:
    kind = column.type_before
    return kind is not None and kind != DATE.name and not kind.startswith("decimal")


def _widened(value: Any, before: DataType, after: DataType, form: ValueForm) -> Any:
    if isinstance(after, DecimalType):
        number = _number(value, before, form)
        return _decimal(number, after, form)
    if after == DOUBLE:
        if value in _NON_FINITE:
            return value
        # A float's text is the shortest for 32 bits, and names another number in 64.
        exact = struct.unpack("f", struct.pack("f", value))[0] if before == FLOAT else value
        return float(exact)
    if before == DATE:
        return value * _DAY_US if isinstance(value, int) else f"{value}T00:00:00.000000"
    return value


def _number(value: Any, before: DataType, form: ValueForm) -> Decimal:
    is_bytes = form.types == "debezium" and form.decimals == "precise"
    if isinstance(before, DecimalType) and is_bytes:
        unscaled = int.from_bytes(b64decode(value), "big", signed=True)
        return Decimal(unscaled).scaleb(-before.scale, _EXACT)
    return Decimal(value) if isinstance(value, int | str) else Decimal(repr(value))


def _decimal(number: Decimal, kind: DecimalType, form: ValueForm) -> Any:
    scaled = number.quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)
    if form.types == "iso" or form.decimals == "string":
        return format(scaled, "f")
    if form.decimals == "double":
        return float(scaled)
    unscaled = int(scaled.scaleb(kind.scale, _EXACT))
    bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length()
    return b64encode(unscaled.to_bytes(bits // 8 + 1, "big", signed=True)).decode()


def typed_iso_value(value: Any, kind: pa.DataType) -> Any:
    """Return a value of JSON as one of an Arrow type.

    Raises: ValueError, for a text that is none of the type, such as a year past 9999.
    """
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {
            field.name: typed_iso_value(value.get(field.name), field.type) for field in kind.fields
        }
    if pa.types.is_list(kind):
        return [typed_iso_value(element, kind.value_type) for element in value]
    if pa.types.is_map(kind):
        return [
            (typed_iso_value(k, kind.key_type), typed_iso_value(v, kind.item_type))
            for k, v in value.items()
        ]
    return _of_text(value, kind) if isinstance(value, str) else value


def _of_text(text: str, kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind):
        return Decimal(text)
    if pa.types.is_date(kind):
        return date.fromisoformat(text)
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(text)
    if pa.types.is_binary(kind):
        return b64decode(text)
    if pa.types.is_floating(kind):
        return float(text)
    if pa.types.is_integer(kind):
        # Keys of maps are texts, whatever their type.
        return int(text)
    if pa.types.is_boolean(kind):
        return text == "true"
    return text
