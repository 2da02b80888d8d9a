import pytest

from tidegate_delta.properties.intervals import interval_ms

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
