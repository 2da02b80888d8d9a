"""CHAR and VARCHAR, which Spark keeps in the field's metadata."""

import pytest

from tidegate_delta.errors import BrokenLog, InvalidRequest
from tidegate_delta.schema.char_varchar import (
    TYPE_STRING,
    LengthLimit,
    limited,
    limits,
    loosens,
    parse_limit,
)
from tidegate_delta.schema.types import (
    INTEGER,
    LONG,
    STRING,
    ArrayType,
    MapType,
    StructField,
    StructType,
)


def field(text: object) -> StructField:
    return StructField("c", STRING, metadata={TYPE_STRING: text})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("char(5)", {(): LengthLimit(5, True)}),
        ("VARCHAR(6)", {(): LengthLimit(6)}),
        ("string", {}),
        ("array<varchar(2)>", {("element",): LengthLimit(2)}),
        ("map<string,char(2)>", {("value",): LengthLimit(2, True)}),
        (
            "map<varchar(1), array<char(2)>>",
            {("key",): LengthLimit(1), ("value", "element"): LengthLimit(2, True)},
        ),
        ("struct<c:char(3),d:decimal(5,2),e:timestamp_ntz>", {("c",): LengthLimit(3, True)}),
        ("struct<`a:b,``c`:varchar(1),x y:int>", {("a:b,`c",): LengthLimit(1)}),
        ("struct<>", {}),
        ("string collate UTF8_LCASE", {}),
    ],
)
def test_limits_are_read(text: str, found: dict[tuple[str, ...], LengthLimit]) -> None:
    assert limits(field(text)) == found


def test_a_column_without_limits_has_none() -> None:
    assert limits(StructField("c", STRING)) == {}


@pytest.mark.parametrize(
    "text",
    [5, [], "", "array<char(2)", "map<string>", "struct<:int>", "struct<a int>", "char(1) >",
     "array<" * 500 + "int"],
)  # fmt: skip
def test_limits_that_cannot_be_read_are_refused(text: object) -> None:
    with pytest.raises(BrokenLog, match="can't be read") as refused:
        limits(field(text))
    assert refused.value.error_class == "CorruptCommit"


def test_limits_are_spelled_as_spark_spells_them() -> None:
    inner = StructType((StructField("a b", STRING), StructField("n", LONG)))
    kind = MapType(INTEGER, ArrayType(inner))
    wanted = {
        ("value", "element", "a b"): LengthLimit(4),
        ("key",): LengthLimit(1),
        ("nope",): LengthLimit(2),
    }
    result = limited(StructField("c", kind, metadata={"comment": "x"}), wanted)
    assert result.metadata == {
        "comment": "x",
        TYPE_STRING: "map<int,array<struct<`a b`:varchar(4),n:bigint>>>",
    }
    assert limited(result, {}).metadata == {"comment": "x"}


def test_a_limit_is_read_from_a_type() -> None:
    assert parse_limit(" Char( 3 ) ") == LengthLimit(3, True)
    assert parse_limit("String") is None
    for text in ("varchar", "varchar(0)", "varchar(-1)", "text", "decimal(3)"):
        with pytest.raises(InvalidRequest, match="no string type"):
            parse_limit(text)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (LengthLimit(3), None, True),
        (LengthLimit(3, True), LengthLimit(3, True), True),
        (LengthLimit(3, True), LengthLimit(3), True),
        (LengthLimit(3), LengthLimit(9), True),
        (LengthLimit(3), LengthLimit(2), False),
        (LengthLimit(3), LengthLimit(3, True), False),
        (LengthLimit(3, True), LengthLimit(9, True), False),
        (None, LengthLimit(9), False),
        (None, None, True),
    ],
)
def test_a_limit_may_only_be_loosened(
    before: LengthLimit | None, after: LengthLimit | None, expected: bool
) -> None:
    assert loosens(before, after) is expected
