"""Variant encoding, checked with an independent reader."""

import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from tests.unit.delta.schema.variant_values import decoded
from tidegate_delta.schema import variant_encoding
from tidegate_delta.schema.variant_encoding import Dictionary

EMPTY = b"\x01\x00\x00"


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        (variant_encoding.NULL, None),
        (variant_encoding.boolean(True), True),
        (variant_encoding.boolean(False), False),
        (variant_encoding.integer(-128, 8), -128),
        (variant_encoding.integer(32767, 16), 32767),
        (variant_encoding.integer(-1, 32), -1),
        (variant_encoding.integer(2**63 - 1, 64), 2**63 - 1),
        (variant_encoding.single(0.5), 0.5),
        (variant_encoding.double(-1.5e300), -1.5e300),
        (variant_encoding.decimal(Decimal("-1.50"), 9, 2), Decimal("-1.50")),
        (variant_encoding.decimal(Decimal("1234567890.12"), 18, 2), Decimal("1234567890.12")),
        (variant_encoding.decimal(Decimal(10) ** 37, 38, 0), Decimal(10) ** 37),
        (variant_encoding.date(-1), date(1969, 12, 31)),
        (
            variant_encoding.moment(-1, "timestamp_us"),
            datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
        ),
        (
            variant_encoding.moment(1, "ntz_us"),
            datetime.fromisoformat("1970-01-01T00:00:00.000001"),
        ),
        (variant_encoding.moment(5, "timestamp_ns"), 5),
        (variant_encoding.moment(60_000_000, "time"), timedelta(minutes=1)),
        (variant_encoding.binary(b"\x00\xff"), b"\x00\xff"),
        (variant_encoding.uuid(bytes(range(16))), uuid.UUID(bytes=bytes(range(16)))),
        (variant_encoding.string(""), ""),
        (variant_encoding.string("ü" * 31), "ü" * 31),
        (variant_encoding.string("x" * 64), "x" * 64),
        (variant_encoding.array([]), []),
        (
            variant_encoding.array([variant_encoding.string("a"), variant_encoding.NULL]),
            ["a", None],
        ),
        (variant_encoding.array([variant_encoding.NULL] * 300), [None] * 300),
    ],
)
def test_a_value_means_what_it_was_made_of(value: bytes, meaning: Any) -> None:
    assert decoded(EMPTY, value) == meaning


def test_decimals_of_more_digits_than_a_variant_holds_are_refused() -> None:
    with pytest.raises(ValueError, match="39 digits"):
        variant_encoding.decimal(Decimal(1), 39, 0)


def test_an_object_sorts_its_fields_and_teaches_its_dictionary_new_names() -> None:
    dictionary = Dictionary(EMPTY)
    fields = {
        "b": variant_encoding.integer(1, 8),
        "a": variant_encoding.string("x"),
        "é": variant_encoding.NULL,
    }
    value = variant_encoding.object_(fields, dictionary)
    assert decoded(dictionary.encode(), value) == {"a": "x", "b": 1, "é": None}
    assert variant_encoding.fields_of(value, dictionary) == fields


def test_a_dictionary_that_knows_all_names_keeps_its_bytes() -> None:
    grown = Dictionary(EMPTY)
    value = variant_encoding.object_(
        {"b": variant_encoding.NULL, "a": variant_encoding.NULL}, grown
    )
    metadata = grown.encode()
    again = Dictionary(metadata)
    assert (
        variant_encoding.object_({"a": variant_encoding.NULL, "b": variant_encoding.NULL}, again)
        == value
    )
    assert again.encode() is metadata
    assert again.name(again.number("a")) == "a"


def test_an_object_may_have_hundreds_of_fields() -> None:
    dictionary = Dictionary(EMPTY)
    fields = {f"f{n}": variant_encoding.integer(n, 16) for n in range(700)}
    value = variant_encoding.object_(fields, dictionary)
    assert variant_encoding.fields_of(value, dictionary) == fields
    assert decoded(dictionary.encode(), value) == {f"f{n}": n for n in range(700)}


@pytest.mark.parametrize(
    "value",
    [b"", variant_encoding.NULL, variant_encoding.array([]), b"\x02", b"\x02\x01",
     b"\x02\x01\x00\x00\x09", b"\x02\x02\x00\x00\x00\x01\x01\x00", b"\x02\x01\x07\x00\x01\x00"],
)  # fmt: skip
def test_what_is_no_object_has_no_fields(value: bytes) -> None:
    dictionary = Dictionary(EMPTY)
    dictionary.number("a")
    with pytest.raises(ValueError, match="variant"):
        variant_encoding.fields_of(value, dictionary)


@pytest.mark.parametrize(
    "metadata",
    [b"", b"\x02\x00\x00", b"\x01", b"\x01\x02\x00", b"\x01\x01\x00\x05a", b"\x01\x01\x00\x01\xff",
     b"\x01\x02\x00\x02\x01ab", b"\xc1\xff\xff\xff\xff"],
)  # fmt: skip
def test_what_is_no_dictionary_is_refused(metadata: bytes) -> None:
    with pytest.raises(ValueError, match=r"variant|decode"):
        Dictionary(metadata)
