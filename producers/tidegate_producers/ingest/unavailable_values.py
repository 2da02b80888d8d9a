"""What Debezium sends in place of a value that it does not have, its placeholder, in the form that
the column's type gives it.

PostgreSQL keeps large values outside of their rows, and its log has those alone that a change sets:
an update of another column has none of them, unless the table's replica identity is FULL. Of arrays
of some types Debezium sends null then, which nobody can tell from a null.
"""

from base64 import b64encode
from typing import Final

import orjson
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    NumericType,
    StringType,
    StructType,
)

PLACEHOLDER: Final = "__debezium_unavailable_value"
REASON_OF_PLACEHOLDER: Final = (
    f"is missing: Debezium sent {PLACEHOLDER}, because PostgreSQL's log lacks a large value that a "
    "change does not set. ALTER TABLE … REPLICA IDENTITY FULL there, then update the row again"
)
"""What a reason says of a field behind its name."""

_BYTES: Final = PLACEHOLDER.encode()
_BASE64: Final = b64encode(_BYTES).decode()
_UUID: Final = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
"""The one that Java names after the placeholder."""

_WORDS: Final = (PLACEHOLDER, _BASE64, _BYTES.hex(), _UUID)
_LISTS: Final = (*([word] for word in _WORDS), [*_BYTES], {PLACEHOLDER: PLACEHOLDER})
_TEXTS: Final = (*_WORDS, *(orjson.dumps(value).decode() for value in _LISTS))
"""The placeholder where a column is text: as such, as bytes, as a UUID, a list or a map."""


def is_unavailable(value: Column, kind: DataType) -> Column:
    """Return whether a value is the placeholder, as far as its type can hold one; null is not."""
    match kind:
        case StringType():
            found = value.isin(*_TEXTS)
        case BinaryType():
            found = value == F.lit(_BYTES)
        case ArrayType(elementType=NumericType()):
            found = value.cast("array<double>") == F.array(*(F.lit(float(c)) for c in _BYTES))
        case ArrayType(elementType=element):
            found = (F.size(value) == 1) & is_unavailable(
                F.try_element_at(value, F.lit(1)), element
            )
        case MapType(keyType=StringType()):
            found = F.map_contains_key(value, PLACEHOLDER)
        case StructType():
            found = F.lit(False)
            for field in kind.fields:
                found = found | is_unavailable(value[field.name], field.dataType)
        case _:
            return F.lit(False)
    return F.coalesce(found, F.lit(False))
