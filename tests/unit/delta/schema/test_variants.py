"""Variants put together, read by a reader of their own."""

import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from tests.unit.delta.schema.variant_values import decoded
from tidegate.delta.schema import variants
from tidegate.delta.schema.variants import Dictionary

EMPTY = b"\x01\x00\x00"


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        (variants.NULL, None),
        (variants.boolean(True), True),
        (variants.boolean(False), False),
        (variants.integer(-128, 8), -128),
        (variants.integer(32767, 16), 32767),
        (variants.integer(-1, 32), -1),
        (variants.integer(2**63 - 1, 64), 2**63 - 1),
        (variants.single(0.5), 0.5),
        (variants.double(-1.5e300), -1.5e300),
        (variants.decimal(Decimal("-1.50"), 9, 2), Decimal("-1.50")),
        (variants.decimal(Decimal("1234567890.12"), 18, 2), Decimal("1234567890.12")),
        (variants.decimal(Decimal(10) ** 37, 38, 0), Decimal(10) ** 37),
        (variants.date(-1), date(1969, 12, 31)),
        (variants.moment(-1, "timestamp_us"), datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)),
        (variants.moment(1, "ntz_us"), datetime.fromisoformat("1970-01-01T00:00:00.000001")),
        (variants.moment(5, "timestamp_ns"), 5),
        (variants.moment(60_000_000, "time"), timedelta(minutes=1)),
        (variants.binary(b"\x00\xff"), b"\x00\xff"),
        (variants.uuid(bytes(range(16))), uuid.UUID(bytes=bytes(range(16)))),
        (variants.string(""), ""),
        (variants.string("ü" * 31), "ü" * 31),
        (variants.string("x" * 64), "x" * 64),
        (variants.array([]), []),
        (variants.array([variants.string("a"), variants.NULL]), ["a", None]),
        (variants.array([variants.NULL] * 300), [None] * 300),
    ],
)
def test_a_value_means_what_it_was_made_of(value: bytes, meaning: Any) -> None:
    assert decoded(EMPTY, value) == meaning


def test_decimals_of_more_digits_than_a_variant_holds_are_refused() -> None:
    with pytest.raises(ValueError, match="39 digits"):
        variants.decimal(Decimal(1), 39, 0)


def test_an_object_sorts_its_fields_and_teaches_its_dictionary_new_names() -> None:
    dictionary = Dictionary(EMPTY)
    fields = {"b": variants.integer(1, 8), "a": variants.string("x"), "é": variants.NULL}
    value = variants.object_(fields, dictionary)
    assert decoded(dictionary.encode(), value) == {"a": "x", "b": 1, "é": None}
    assert variants.fields_of(value, dictionary) == fields


def test_a_dictionary_that_knows_all_names_keeps_its_bytes() -> None:
    grown = Dictionary(EMPTY)
    value = variants.object_({"b": variants.NULL, "a": variants.NULL}, grown)
    metadata = grown.encode()
    again = Dictionary(metadata)
    assert variants.object_({"a": variants.NULL, "b": variants.NULL}, again) == value
    assert again.encode() is metadata
    assert again.name(again.number("a")) == "a"


def test_an_object_may_have_hundreds_of_fields() -> None:
    dictionary = Dictionary(EMPTY)
    fields = {f"f{n}": variants.integer(n, 16) for n in range(700)}
    value = variants.object_(fields, dictionary)
    assert variants.fields_of(value, dictionary) == fields
    assert decoded(dictionary.encode(), value) == {f"f{n}": n for n in range(700)}


@pytest.mark.parametrize(
    "value",
    [b"", variants.NULL, variants.array([]), b"\x02", b"\x02\x01", b"\x02\x01\x00\x00\x09",
     b"\x02\x02\x00\x00\x00\x01\x01\x00", b"\x02\x01\x07\x00\x01\x00"],
)  # fmt: skip
def test_what_is_no_object_has_no_fields(value: bytes) -> None:
    dictionary = Dictionary(EMPTY)
    dictionary.number("a")
    with pytest.raises(ValueError, match="variant"):
        variants.fields_of(value, dictionary)


@pytest.mark.parametrize(
    "metadata",
    [b"", b"\x02\x00\x00", b"\x01", b"\x01\x02\x00", b"\x01\x01\x00\x05a", b"\x01\x01\x00\x01\xff",
     b"\x01\x02\x00\x02\x01ab", b"\xc1\xff\xff\xff\xff"],
)  # fmt: skip
def test_what_is_no_dictionary_is_refused(metadata: bytes) -> None:
    with pytest.raises(ValueError, match=r"variant|decode"):
        Dictionary(metadata)
