import pytest

from tidegate_delta.properties.property import (
    any_case,
    boolean,
    column_list,
    interval_ms,
    whole,
    word,
)


def test_a_list_of_columns_is_read() -> None:
    assert column_list("") == ()
    assert column_list(" a , b.`c.d`.e,`f``g` ") == (("a",), ("b", "c.d", "e"), ("f`g",))


@pytest.mark.parametrize("text", ["a,", "a..b", "a b", "`a", ",a"])
def test_what_is_no_list_of_columns_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no list of columns"):
        column_list(text)


def test_words_are_exact_or_of_any_case() -> None:
    assert any_case(("Serializable",))("sERIALIZABLE") == "Serializable"
    assert word(("v2",))("v2") == "v2"
    with pytest.raises(ValueError, match="none of"):
        word(("v2",))("V2")


@pytest.mark.parametrize("text", ["", "1", " true", "yes", "t"])
def test_what_is_no_truth_is_refused(text: str) -> None:
    assert boolean("TRUE") is True
    with pytest.raises(ValueError, match="neither"):
        boolean(text)


@pytest.mark.parametrize("text", ["", "1.0", " 1", "1_0", "٣", "--1", "2147483648", "-1"])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    assert whole(0)("2147483647") == 2**31 - 1
    with pytest.raises(ValueError, match=r"no whole number|too large"):
        whole(0)(text)


DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("interval 1 week", 7 * DAY_MS),
        ("INTERVAL 2 DAYS 3 hours", 2 * DAY_MS + 3 * 3_600_000),
        ("90 minutes", 5_400_000),
        ("interval 0 seconds", 0),
        (" \tInterval 1 Day ", DAY_MS),
        ("1 day 1 hour", DAY_MS + 3_600_000),
        ("1 day -1 hour", DAY_MS - 3_600_000),
        ("+ 2 weeks", 14 * DAY_MS),
        ("1.5 seconds", 1500),
        (".25 second", 250),
        ("-.5 seconds 1 second", 500),
        ("1.999999999 seconds", 1999),
        ("3. seconds", 3000),
        ("1500 microseconds", 1),
        ("2 milliseconds", 2),
        ("1 month -1 months 1 day", DAY_MS),
        ("106751991 days", 106_751_991 * DAY_MS),
    ],
)
def test_an_interval_adds_up(text: str, ms: int) -> None:
    assert interval_ms(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "interval",
        "interval interval 1 day",
        "interval\t1 day",
        "1 month",
        "2 years",
        "-1 days",
        "7",
        "days 7",
        "1day",
        "1 dayss",
        "1 day,",
        "1.5 days",
        ". seconds",
        "1.1234567890 seconds",
        "1_0 days",
        "--1 day",
        "1 fortnight",
        "106751992 days",
        "99999999999999999999 seconds",
    ],
)
def test_what_is_no_fixed_length_is_no_interval(text: str) -> None:
    with pytest.raises(ValueError, match="no interval"):
        interval_ms(text)
