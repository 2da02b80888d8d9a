"""How delta-spark 4.4.0 reads each text, recorded by `tests/conformance/oracle_program.py`."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from tidegate_delta.schema.partition_values import lenient_cast, parse
from tidegate_delta.schema.types import BOOLEAN, DATE, DataType, DecimalType, PrimitiveType

DOUBLE, FLOAT = PrimitiveType("double"), PrimitiveType("float")
INTEGER, STRING = PrimitiveType("integer"), PrimitiveType("string")
MOMENT, LOCAL = PrimitiveType("timestamp"), PrimitiveType("timestamp_ntz")
PRICE = DecimalType(10, 2)
NEW_YEAR = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (BOOLEAN, "t", True),
        (BOOLEAN, "Yes", True),
        (BOOLEAN, " 1", True),
        (BOOLEAN, "n", False),
        (BOOLEAN, "0", False),
        (PRICE, "1.505", Decimal("1.51")),
        (PRICE, "1.515", Decimal("1.52")),
        (PRICE, "-0.005", Decimal("-0.01")),
        (PRICE, "99999999.994", Decimal("99999999.99")),
        (DOUBLE, "1d", 1.0),
        (DOUBLE, "-1.5E3F", -1500.0),
        (FLOAT, "0.5f", 0.5),
        (DATE, "2024", date(2024, 1, 1)),
        (DATE, "2024-02", date(2024, 2, 1)),
        (DATE, "2024-02-28T", date(2024, 2, 28)),
        (DATE, "2024-02-28T10", date(2024, 2, 28)),
        (DATE, "+2024-02-28", date(2024, 2, 28)),
        (MOMENT, "2024", NEW_YEAR),
        (MOMENT, "2024-01", NEW_YEAR),
        (MOMENT, "2024-01-01 00:00:00.", NEW_YEAR),
        (MOMENT, "2024-01-01 01:00:00+1:00", NEW_YEAR),
        (MOMENT, "2024-01-01 01:00:00 +01:00", NEW_YEAR),
        (LOCAL, "2024", NEW_YEAR.replace(tzinfo=None)),
    ],
)
def test_texts_mean_what_an_engine_casts_them_to(kind: DataType, text: str, value: Any) -> None:
    assert lenient_cast(text, kind) == value
    with pytest.raises(ValueError, match="is no"):
        parse(text, kind)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (BOOLEAN, "on"),
        (BOOLEAN, "10"),
        (PRICE, "99999999.995"),
        (PRICE, "1_0"),
        (PRICE, "1.5d"),
        (PRICE, "x"),
        (DOUBLE, "1_0"),
        (DOUBLE, "x"),
        (DATE, "2024-02-30"),
        (DATE, "2024/02/28"),
        (DATE, "20240228"),
        (MOMENT, "x"),
        (MOMENT, "2024-01-01 24:00:00"),
        (INTEGER, "1.0"),
        (INTEGER, "\uff11"),
        (INTEGER, "2147483648"),
    ],
)
def test_what_no_engine_casts_is_named(kind: DataType, text: str) -> None:
    with pytest.raises(ValueError, match=r"is no") as raised:
        lenient_cast(text, kind)
    assert repr(text) in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "text"), [(STRING, " a"), (INTEGER, "007"), (PRICE, "1.5"), (DATE, "2024-2-9")]
)
def test_what_is_spelled_well_is_read_as_ever(kind: DataType, text: str) -> None:
    assert lenient_cast(text, kind) == parse(text, kind)
