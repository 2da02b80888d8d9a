"""A table's metadata after a write of rows with another schema."""

from typing import Any

import pytest

from tests.definitions import of_schema, schema_of
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.schema.type_widening import Automatic
from tidegate_delta.schema.types import (
    BINARY,
    BYTE,
    DOUBLE,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)
from tidegate_delta.schema_evolution.evolve_on_write import (
    Merging,
    as_data,
    evolved,
    merged,
    overwritten,
    partitioned_by,
)

PLAIN = Protocol(min_reader_version=1, min_writer_version=4)
WIDENING = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("typeWidening",),
    writer_features=("typeWidening", "generatedColumns", "checkConstraints", "identityColumns"),
)
ENABLED = {"delta.enableTypeWidening": "true"}
IDENTITY = {
    "delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.allowExplicitInsert": True,
}  # fmt: skip


def columns(*pairs: tuple[str, DataType], **about: dict[str, Any]) -> StructType:
    return StructType(
        tuple(StructField(name, kind, metadata=about.get(name, {})) for name, kind in pairs)
    )


def table(schema: StructType, **own: str) -> Metadata:
    return of_schema(schema, own)


def test_rows_of_the_tables_own_schema_change_nothing() -> None:
    strict = table(StructType((StructField("a", LONG, False),)), owner="me")
    assert evolved(strict, PLAIN, schema_of(strict)) is strict
    assert evolved(strict, PLAIN, StructType()) is strict


def test_new_columns_join() -> None:
    result = evolved(table(columns(("a", LONG)), owner="me"), PLAIN, columns(("b", STRING)))
    assert result == table(columns(("a", LONG), ("b", STRING)), owner="me")


def test_types_widen_where_the_table_allows_it_and_the_change_is_recorded() -> None:
    before = table(columns(("a", INTEGER)), **ENABLED)
    found = evolved(before, WIDENING, columns(("a", LONG)))
    result = [{"fromType": "integer", "toType": "long"}]
    assert schema_of(found) == columns(("a", LONG), a={"delta.typeChanges": result})
    for automatic, own in ((Automatic.NEVER, ENABLED), (Automatic.ALWAYS, {})):
        with pytest.raises(InvalidRequest, match="do not merge"):
            evolved(
                table(columns(("a", INTEGER)), **own), WIDENING, columns(("a", LONG)), automatic
            )


def test_whole_numbers_that_files_hold_alike_widen_in_tables_without_the_feature_alone() -> None:
    result = evolved(table(columns(("a", SHORT))), PLAIN, columns(("a", INTEGER)))
    assert schema_of(result) == columns(("a", INTEGER))
    with pytest.raises(InvalidRequest, match="do not merge"):
        evolved(table(columns(("a", SHORT))), WIDENING, columns(("a", INTEGER)))


def test_rows_that_are_cast_on_their_way_change_no_type() -> None:
    before = table(columns(("a", LONG)))
    result = evolved(before, PLAIN, columns(("a", STRING), ("b", LONG)), keeps_types=True)
    assert schema_of(result) == columns(("a", LONG), ("b", LONG))


@pytest.mark.parametrize(
    ("about", "own", "error_class"),
    [
        ({}, {"delta.constraints.c": "a > 0"}, "DELTA_CONSTRAINT_DATA_TYPE_MISMATCH"),
        (
            {"b": {"delta.generationExpression": "a + 1"}},
            {},
            "DELTA_GENERATED_COLUMNS_DATA_TYPE_MISMATCH",
        ),
        (
            {"a": {"delta.generationExpression": "b + 1"}},
            {},
            "DELTA_GENERATED_COLUMN_UPDATE_TYPE_MISMATCH",
        ),
        ({"a": IDENTITY}, {}, "DELTA_IDENTITY_COLUMNS_ALTER_COLUMN_NOT_SUPPORTED"),
    ],
)
def test_a_type_on_which_others_rest_does_not_change(
    about: dict[str, dict[str, Any]], own: dict[str, str], error_class: str
) -> None:
    before = table(columns(("a", INTEGER), ("b", INTEGER), **about), **ENABLED, **own)
    for kind in (LONG, STRING):
        with pytest.raises(InvalidRequest, match="column 'a'") as refused:
            evolved(before, WIDENING, columns(("a", kind)))
        assert refused.value.error_class == error_class
    assert evolved(before, WIDENING, columns(("a", SHORT), ("b", INTEGER))) == before


def test_names_that_the_table_cannot_hold_do_not_join() -> None:
    feed = table(columns(("a", LONG)), **{"delta.enableChangeDataFeed": "true"})
    with pytest.raises(InvalidRequest, match="change feed"):
        evolved(feed, PLAIN, columns(("_commit_version", LONG)))
    with pytest.raises(InvalidRequest, match="column mapping"):
        evolved(table(columns(("a", LONG))), PLAIN, columns(("b c", LONG)))
    mapped = table(columns(("a", LONG)), **{"delta.columnMapping.mode": "name"})
    assert schema_of(evolved(mapped, PLAIN, columns(("b c", LONG)))).names == ("a", "b c")


def test_a_schema_is_overwritten_with_its_partitioning() -> None:
    strict = StructType((StructField("a", LONG, False, {"comment": "c"}), StructField("b", LONG)))
    before = table(strict, owner="me")
    data = columns(("P", STRING), ("a", STRING))
    result = overwritten(before, data, ["p"])
    assert result == table(data, owner="me").with_(partition_columns=("P",))
    assert schema_of(overwritten(before, strict, [])).fields[0].nullable
    loose = table(columns(("a", LONG)))
    assert overwritten(loose, columns(("a", LONG)), []) is loose


def test_a_constraint_keeps_its_columns_when_the_rest_is_overwritten() -> None:
    before = table(columns(("a", LONG), ("b", LONG)), **{"delta.constraints.c": "A > 0"})
    assert schema_of(overwritten(before, columns(("a", STRING)), [])) == columns(("a", STRING))
    with pytest.raises(InvalidRequest, match=r"'c' \(A > 0\) names a") as refused:
        overwritten(before, columns(("b", LONG)), [])
    assert refused.value.error_class == "DELTA_INVALID_CHECK_CONSTRAINT_REFERENCES"


@pytest.mark.parametrize(
    ("names", "error_class"),
    [
        (["z"], "DELTA_PARTITION_COLUMN_NOT_FOUND"),
        (["a", "A"], "DELTA_PARTITION_COLUMN_NOT_FOUND"),
        (["l"], "DELTA_INVALID_PARTITION_COLUMN_TYPE"),
        (["v"], "DELTA_INVALID_PARTITION_COLUMN_TYPE"),
    ],
)
def test_columns_by_which_no_table_is_partitioned_are_refused(
    names: list[str], error_class: str
) -> None:
    schema = columns(("a", LONG), ("l", ArrayType(LONG)), ("v", VARIANT), ("b", BINARY))
    assert partitioned_by(schema, ["B", "a"]) == ("b", "a")
    with pytest.raises(InvalidRequest) as refused:
        partitioned_by(schema, names)
    assert refused.value.error_class == error_class


def test_one_column_is_left_for_the_files() -> None:
    with pytest.raises(InvalidRequest, match="leave one"):
        partitioned_by(columns(("a", LONG)), ["a"])


STRICT = Merging()
ALIKE = Merging(stored_alike=True)
WIDENED_BY_MERGE = Merging(automatic=Automatic.ALWAYS)


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
        (INTEGER, LONG, WIDENED_BY_MERGE, LONG),
        (BYTE, DOUBLE, WIDENED_BY_MERGE, DOUBLE),
        (INTEGER, DecimalType(12, 2), WIDENED_BY_MERGE, DecimalType(12, 2)),
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
        (LONG, DOUBLE, WIDENED_BY_MERGE),
        (INTEGER, DOUBLE, Merging(automatic=Automatic.SAME_FAMILY)),
        (INTEGER, DOUBLE, Merging(automatic=Automatic.ALWAYS, for_iceberg=True)),
        (LONG, one(LONG), Merging(keeps_types=True)),
        (ArrayType(LONG), MapType(LONG, LONG), WIDENED_BY_MERGE),
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
