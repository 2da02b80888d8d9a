"""The least wider type that takes what a column did not."""

from decimal import Decimal
from typing import Any

import pytest

from tidegate_delta.schema.type_widening import widens
from tidegate_delta.schema.types import DataType, DecimalType, PrimitiveType
from tidegate_producers.ingest.column_evolution import wider

BYTE, INT, LONG, DOUBLE = (PrimitiveType(n) for n in ("byte", "integer", "long", "double"))


@pytest.mark.parametrize(
    ("kind", "values", "result"),
    [
        (INT, [2**31], LONG),
        (INT, [2**31, 5], LONG),
        (INT, [-(2**31)], None),
        (BYTE, [128], PrimitiveType("short")),
        (BYTE, [2**40, 300], LONG),
        (INT, [Decimal("1.5")], DOUBLE),
        (LONG, [Decimal("1.5")], None),
        (LONG, [2**63], None),
        (INT, ["7 apples", None, True, [1], {"a": 1}], None),
        (INT, ["7 apples", 2**40], LONG),
        (DecimalType(5, 2), [Decimal("12345.67")], DecimalType(7, 2)),
        (DecimalType(5, 2), ["1.125"], DecimalType(6, 3)),
        (DecimalType(5, 2), [123456], DecimalType(8, 2)),
        (DecimalType(5, 2), ["NaN", "x", Decimal(10) ** 40], None),
        (PrimitiveType("string"), [1], None),
        (PrimitiveType("boolean"), [2], None),
        (PrimitiveType("float"), [Decimal("0.1")], DOUBLE),
    ],
)
def test_a_type_becomes_wider_for_numbers_alone(
    kind: DataType, values: list[Any], result: DataType | None
) -> None:
    found = wider(kind, values)
    assert found == result
    assert found is None or widens(kind, found)
