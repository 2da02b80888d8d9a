"""Merging two schemas."""

import pytest

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.schema.type_widening import Automatic
from tidegate_delta.schema.types import (
    BYTE,
    DOUBLE,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)
from tidegate_delta.schema_evolution.evolve_on_write import Merging, as_data, merged

STRICT = Merging()
ALIKE = Merging(stored_alike=True)
WIDENING = Merging(automatic=Automatic.ALWAYS)


def one(kind: DataType, name: str = "a", *, nullable: bool = True) -> StructType:
    return StructType((StructField(name, kind, nullable),))


def test_new_columns_come_last_and_may_be_null() -> None:
    table = StructType((StructField("a", LONG, False, {"comment": "c"}), StructField("B", STRING)))
    about = {"comment": "n", "delta.columnMapping.id": 5, "CURRENT_DEFAULT": "1"}
    data = StructType(
        (
            StructField("n", ArrayType(one(LONG, nullable=False), False), False, about),
            StructField("b", STRING, False),
            StructField("A", LONG, True, {"comment": "other"}),
        )
    )
    new = StructField("n", ArrayType(one(LONG), True), True, {"comment": "n"})
    assert merged(table, data, STRICT) == StructType((*table.fields, new))


def test_structs_meet_inside_arrays_and_maps() -> None:
    table = one(MapType(one(LONG, "k"), ArrayType(one(LONG, "v"), False), False))
    data = one(MapType(one(LONG, "K"), ArrayType(one(STRING, "w")), True))
    value = StructType((StructField("v", LONG), StructField("w", STRING)))
    expected = one(MapType(one(LONG, "k"), ArrayType(value, False), False))
    assert merged(table, data, STRICT) == expected


@pytest.mark.parametrize(
    ("table", "data", "merging", "found"),
    [
        (VOID, LONG, STRICT, LONG),
        (LONG, VOID, STRICT, LONG),
        (VOID, one(LONG), STRICT, one(LONG)),
        (one(LONG), VOID, STRICT, one(LONG)),
        (INTEGER, BYTE, STRICT, INTEGER),
        (BYTE, SHORT, ALIKE, SHORT),
        (SHORT, INTEGER, ALIKE, INTEGER),
        (INTEGER, LONG, WIDENING, LONG),
        (BYTE, DOUBLE, WIDENING, DOUBLE),
        (INTEGER, DecimalType(12, 2), WIDENING, DecimalType(12, 2)),
        (LONG, STRING, Merging(keeps_types=True), LONG),
        (LONG, INTEGER, Merging(keeps_types=True), LONG),
        (INTEGER, LONG, Merging(automatic=Automatic.ALWAYS, keeps_types=True), LONG),
    ],
)
def test_types_meet(table: DataType, data: DataType, merging: Merging, found: DataType) -> None:
    assert merged(one(table), one(data), merging) == one(found)
    assert merged(one(ArrayType(table)), one(ArrayType(data)), merging) == one(ArrayType(found))


@pytest.mark.parametrize(
    ("table", "data", "merging"),
    [
        (LONG, INTEGER, STRICT),
        (BYTE, SHORT, STRICT),
        (INTEGER, LONG, ALIKE),
        (LONG, DOUBLE, WIDENING),
        (INTEGER, DOUBLE, Merging(automatic=Automatic.SAME_FAMILY)),
        (INTEGER, DOUBLE, Merging(automatic=Automatic.ALWAYS, for_iceberg=True)),
        (LONG, one(LONG), Merging(keeps_types=True)),
        (ArrayType(LONG), MapType(LONG, LONG), WIDENING),
    ],
)
def test_types_that_do_not_meet_are_named(
    table: DataType, data: DataType, merging: Merging
) -> None:
    with pytest.raises(InvalidRequest, match=r"column 's\.b' has type") as refused:
        merged(one(one(table, "b"), "s"), one(one(data, "B"), "S"), merging)
    assert refused.value.error_class == "DELTA_FAILED_TO_MERGE_FIELDS"
    cause = refused.value.__cause__
    assert isinstance(cause, InvalidRequest)
    assert cause.error_class == "DELTA_MERGE_INCOMPATIBLE_DATATYPE"


def test_decimals_without_a_common_type_are_an_error() -> None:
    with pytest.raises(InvalidRequest) as refused:
        merged(one(DecimalType(5, 2)), one(DecimalType(6, 2)), STRICT)
    cause = refused.value.__cause__
    assert isinstance(cause, InvalidRequest)
    assert cause.error_class == "DELTA_MERGE_INCOMPATIBLE_DECIMAL_TYPE"


def test_rows_with_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="one name but for case") as refused:
        merged(one(LONG), StructType((*one(LONG), *one(LONG, "A"))), STRICT)
    assert refused.value.error_class == "DELTA_DUPLICATE_COLUMNS_FOUND"


@pytest.mark.parametrize("kind", [ArrayType(VOID), MapType(STRING, VOID), one(ArrayType(VOID))])
def test_arrays_and_maps_of_nothing_are_not_added(kind: DataType) -> None:
    with pytest.raises(InvalidRequest, match="void") as refused:
        merged(one(LONG), one(kind, "n"), STRICT)
    assert refused.value.error_class == "DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE"


def test_nothing_is_added_as_a_column_of_its_own() -> None:
    assert merged(one(LONG), one(VOID, "n"), STRICT) == StructType((*one(LONG), *one(VOID, "n")))


def test_a_struct_that_grows_keeps_the_limits_of_its_strings() -> None:
    about = {"__CHAR_VARCHAR_TYPE_STRING": "struct<c:char(3)>"}
    table = StructType((StructField("s", one(STRING, "c"), True, about),))
    found = merged(table, one(one(LONG, "d"), "s"), STRICT)
    result = found.fields[0].metadata["__CHAR_VARCHAR_TYPE_STRING"]
    assert result == "struct<c:char(3),d:bigint>"


def test_the_change_of_a_type_may_be_refused() -> None:
    seen = []
    merging = Merging(
        automatic=Automatic.ALWAYS, check=lambda path, was, now: seen.append((path, was, now))
    )
    merged(one(ArrayType(INTEGER)), one(ArrayType(LONG)), merging)
    merged(one(LONG), one(VOID), merging)
    assert seen == [(("a", "element"), INTEGER, LONG)]


def test_rows_bring_nothing_that_belongs_to_a_table() -> None:
    about = {
        "comment": "c", "mine": 1, "delta.typeChanges": [], "delta.identity.start": 1,
        "delta.generationExpression": "x", "parquet.field.id": 3, "EXISTS_DEFAULT": "1",
        "__CHAR_VARCHAR_TYPE_STRING": "char(1)",
    }  # fmt: skip
    result = as_data(StructType((StructField("a", STRING, False, about),))).fields[0]
    assert result.nullable
    assert result.metadata == {
        "comment": "c", "mine": 1, "__CHAR_VARCHAR_TYPE_STRING": "char(1)",
    }  # fmt: skip
