"""Values of a change stream in ISO types, as Python values that Arrow takes."""

from base64 import b64decode
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa


def typed(value: Any, kind: pa.DataType) -> Any:
    """Return a value of JSON as one of an Arrow type.

    Raises: ValueError, for a text that is none of the type, such as a year past 9999.
    """
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: typed(value.get(field.name), field.type) for field in kind.fields}
    if pa.types.is_list(kind):
        return [typed(element, kind.value_type) for element in value]
    if pa.types.is_map(kind):
        return [(typed(k, kind.key_type), typed(v, kind.item_type)) for k, v in value.items()]
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
