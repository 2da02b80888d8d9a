"""Texts of partition values that every reader understands, and delta-rs's known limits."""

import pytest

from tests.unit.delta.schema.partition_samples import READ, UNREAD
from tidegate_delta.schema import partition_values
from tidegate_delta.schema.partition_value_checks import check, check_existing, check_readable
from tidegate_delta.schema.types import parse_type


@pytest.mark.parametrize(("kind", "text"), [(kind, item) for kind in READ for item in READ[kind]])
def test_what_writers_write_is_taken(kind: str, text: str) -> None:
    check(text, parse_type(kind))
    check_readable(text, parse_type(kind))


@pytest.mark.parametrize(
    ("kind", "text"), [(kind, item) for kind in UNREAD for item in UNREAD[kind]]
)
def test_what_we_alone_would_read_is_not(kind: str, text: str) -> None:
    with pytest.raises(ValueError, match="partition value"):
        check(text, parse_type(kind))
    check_readable(text, parse_type(kind))
    assert partition_values.column([text], parse_type(kind)).null_count == 0


@pytest.mark.parametrize("kind", READ)
def test_what_is_no_value_is_neither(kind: str) -> None:
    for text in ("no value", "2024-02-30", "1.2.3"):
        if kind in ("string", "binary"):
            check(text, parse_type(kind))
            continue
        for item in (check, check_readable, check_existing):
            with pytest.raises(ValueError, match="partition value"):
                item(text, parse_type(kind))


@pytest.mark.parametrize(("kind", "text"), [("boolean", "yes"), ("date", "2024-02")])
def test_what_a_cast_makes_a_value_of_may_stay_and_may_not_come(kind: str, text: str) -> None:
    check_existing(text, parse_type(kind))
    for item in (check, check_readable):
        with pytest.raises(ValueError, match="partition value"):
            item(text, parse_type(kind))


def test_null_is_a_value_of_each_type() -> None:
    for kind in READ:
        check(None, parse_type(kind))


def test_an_empty_text_is_one_thing_to_some_readers_and_another_to_others() -> None:
    """delta-rs reads null; delta-spark an empty string, or for other types nothing."""
    for kind in READ:
        check_readable("", parse_type(kind))
        with pytest.raises(ValueError, match="write null"):
            check("", parse_type(kind))


@pytest.mark.parametrize("text", ["+10000-01-01", "-0001-12-31", "+10000-01-01 00:00:00"])
def test_years_have_no_end(text: str) -> None:
    check(text, parse_type("timestamp" if ":" in text else "date"))
