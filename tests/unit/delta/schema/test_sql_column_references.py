"""Which columns an expression names; in doubt one too many."""

import pytest

from tidegate_delta.schema.sql_column_references import columns_in, names_column
from tidegate_delta.schema.types import LONG, STRING, ArrayType, MapType, StructField, StructType

INNER = StructType((StructField("x", LONG), StructField("y z", LONG)))
SCHEMA = StructType(
    (
        StructField("a", LONG),
        StructField("date", STRING),
        StructField("S", INNER),
        StructField("l", ArrayType(INNER)),
        StructField("m", MapType(STRING, INNER)),
        StructField("odd `name", LONG),
    )
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a > 3", {("a",)}),
        ("A IS NOT NULL AND s . X < 2", {("a",), ("S", "x")}),
        ("s.`y z` = 1", {("S", "y z")}),
        ("`odd ``name` = 1", {("odd `name",)}),
        ("b = 'a' OR c = 'it''s a' -- a\n", set()),
        (r"b <> 'it\'s a' /* a */", set()),
        ("b <> 'x' /* a", set()),
        ("date(b) = DATE '2020-01-01' AND CAST(b AS DATE) = b::date", set()),
        ("date = '2020'", {("date",)}),
        ("l[0].x > 1", {("l", "", "x")}),
        ("l.x = array(1)", {("l", "", "x")}),
        ("m['a'].x > m.k.x", {("m", "", "x"), ("m", "")}),
        ("m[concat('a', date)].x > 1", {("m", "", "x"), ("date",)}),
        ("exists(l, e -> e.x > 1)", {("l",)}),
        ("S.nope.x > 1.5e3", {("S",)}),
        ('b = "a"', {("a",)}),
        ("", set()),
        ("a[0", {("a", "")}),
    ],
)
def test_what_an_expression_names_is_found(text: str, found: set[tuple[str, ...]]) -> None:
    assert columns_in(text, SCHEMA) == frozenset(found)


@pytest.mark.parametrize("text", ["'", "a = 'x", '"b', "`a"])
def test_what_does_not_end_is_beyond_reading(text: str) -> None:
    assert columns_in(text, SCHEMA) is None
    assert names_column(text, ("date",), SCHEMA)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("s.x > 1", ("S",)),
        ("cast(s AS string) > ''", ("S", "x")),
        ("l[1].x > 1", ("l", "element", "x")),
        ("l[1].x > 1", ("l", "element")),
        ("m[1].x > 1", ("m", "value", "x")),
        ("size(l) > 1", ("l", "element", "y z")),
    ],
)
def test_a_column_is_named_by_what_holds_it_and_what_is_inside(
    text: str, path: tuple[str, ...]
) -> None:
    assert names_column(text, path, SCHEMA)


@pytest.mark.parametrize(
    ("text", "path"),
    [("s.x > 1", ("S", "y z")), ("l[1].x > 1", ("l", "element", "y z")), ("a > 1", ("date",))],
)
def test_a_neighbour_is_not_named(text: str, path: tuple[str, ...]) -> None:
    assert not names_column(text, path, SCHEMA)


def test_a_long_text_is_read_in_one_pass() -> None:
    assert columns_in("/*" * 100_000 + "a", SCHEMA) == frozenset()
    assert columns_in("'" * 100_001, SCHEMA) is None
