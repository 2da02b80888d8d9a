"""Column ids and physical names: assigned once, kept, and never reused for another column."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tests.definitions import of_schema, schema_of
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Metadata
from tidegate_delta.schema.column_mapping import ColumnMappingMode
from tidegate_delta.schema.column_mapping_assignment import (
    check_assigned,
    check_kept,
    map_columns,
    physical_names,
    unmapped,
    without_mapping,
)
from tidegate_delta.schema.types import (
    INTEGER,
    LONG,
    STRING,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    format_schema,
)

ID, NAME = "delta.columnMapping.id", "delta.columnMapping.physicalName"
NESTED = "delta.columnMapping.nested.ids"
MAX = "delta.columnMapping.maxColumnId"
PLAIN = StructType(
    (StructField("a", LONG), StructField("s", StructType((StructField("b", STRING),))))
)


def fresh() -> Iterator[str]:
    return physical_names(f"u{number}" for number in count(1))


def table(schema: StructType, mode: str = "name", **own: str) -> Metadata:
    return of_schema(schema, {"delta.columnMapping.mode": mode, **own})


def mapped(name: str, kind: DataType, number: Any, physical: Any = None) -> StructField:
    return StructField(name, kind, metadata={ID: number, NAME: physical or f"p-{name}"})


def test_a_new_table_gets_ids_parents_first() -> None:
    result = map_columns(None, table(PLAIN), fresh())
    assert schema_of(result) == StructType(
        (
            mapped("a", LONG, 1, "col-u1"),
            mapped("s", StructType((mapped("b", STRING, 3, "col-u3"),)), 2, "col-u2"),
        )
    )
    assert result.configuration[MAX] == "3"


def test_a_new_column_gets_an_id_that_no_column_ever_had() -> None:
    before = map_columns(None, table(StructType((StructField("a", LONG),))), fresh())
    dropped = before.with_(configuration={**before.configuration, MAX: "7"})
    schema = StructType((*schema_of(before).fields, StructField("b", STRING)))
    asked = dropped.with_(schema_string=format_schema(schema), configuration=before.configuration)
    after = map_columns(dropped, asked, iter(["p-b"]))
    assert schema_of(after).fields[1] == mapped("b", STRING, 8)
    assert after.configuration[MAX] == "8"


def test_elements_keys_and_values_get_ids_where_iceberg_needs_them() -> None:
    schema = StructType(
        (
            StructField("l", ArrayType(ArrayType(INTEGER))),
            StructField("m", MapType(INTEGER, StructType((StructField("x", ArrayType(LONG)),)))),
            StructField("v", LONG),
        )
    )
    own = {"delta.enableIcebergCompatV2": "true"}
    result = schema_of(map_columns(None, table(schema, **own), fresh()))
    assert result.fields[0].metadata[NESTED] == {"col-u1.element": 5, "col-u1.element.element": 6}
    assert result.fields[1].metadata[NESTED] == {"col-u2.key": 7, "col-u2.value": 8}
    assert result.fields[2].metadata[NESTED] == {}
    again = table(result, **own, **{MAX: "20"})
    assert schema_of(map_columns(again, again, iter(()))) == result


def test_a_table_whose_mapping_begins_keeps_its_names() -> None:
    before = table(PLAIN, "none")
    after = map_columns(before, table(PLAIN), iter(()))
    assert schema_of(after) == StructType(
        (mapped("a", LONG, 1, "a"), mapped("s", StructType((mapped("b", STRING, 3, "b"),)), 2, "s"))
    )


def test_no_column_is_added_while_the_mapping_begins() -> None:
    more = StructType((*PLAIN.fields, StructField("c", LONG)))
    with pytest.raises(InvalidRequest, match="'c' can't be added") as refused:
        map_columns(table(PLAIN, "none"), table(more), fresh())
    assert refused.value.error_class == "DELTA_UNSUPPORTED_COLUMN_MAPPING_SCHEMA_CHANGE"


@pytest.mark.parametrize(
    ("was", "mode"),
    [("none", "id"), ("name", "id"), ("id", "name"), ("name", "none"), ("id", "none")],
)
def test_every_other_change_of_mode_is_refused(was: str, mode: str) -> None:
    before = map_columns(None, table(PLAIN, was), fresh())
    with pytest.raises(InvalidRequest, match=f"from '{was}' to '{mode}'") as refused:
        map_columns(before, table(schema_of(before), mode), fresh())
    assert refused.value.error_class == "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE"


def test_a_mapping_does_not_begin_where_one_was() -> None:
    stale = StructType((mapped("a", LONG, 1),))
    with pytest.raises(InvalidRequest, match="earlier mapping") as refused:
        map_columns(table(stale, "none"), table(stale), fresh())
    assert refused.value.error_class.startswith("DELTA_ENABLING_COLUMN_MAPPING_DISALLOWED")


def test_what_belongs_to_a_mapping_does_not_come_without_one() -> None:
    stray = StructType((mapped("a", LONG, 1),))
    assert schema_of(map_columns(None, table(stray, "none"), fresh())) == unmapped(stray)
    there = table(stray, "none")
    assert map_columns(there, there, fresh()) == there


def test_a_column_that_is_overwritten_as_it_was_goes_on() -> None:
    before = map_columns(None, table(PLAIN), fresh())
    new = StructType(
        (
            StructField("A", LONG),
            StructField("s", StructType((StructField("b", STRING), StructField("c", LONG)))),
        )
    )
    names = iter(["p-s", "p-c"])
    after = map_columns(before, table(new), names, overwrites=True)
    inner = StructType((mapped("b", STRING, 3, "col-u3"), mapped("c", LONG, 5)))
    assert schema_of(after) == StructType((mapped("A", LONG, 1, "col-u1"), mapped("s", inner, 4)))
    assert after.configuration[MAX] == "5"


def test_a_column_that_may_no_longer_be_null_is_another() -> None:
    before = map_columns(None, table(PLAIN), fresh())
    new = StructType((StructField("a", LONG, False),))
    after = map_columns(before, table(new), iter(["p"]), overwrites=True)
    assert schema_of(after).fields[0].metadata == {ID: 4, NAME: "p"}


def test_a_mapping_ends_when_all_files_are_rewritten() -> None:
    before = map_columns(None, table(PLAIN), fresh())
    plain = without_mapping(before)
    assert schema_of(plain) == PLAIN
    assert plain.configuration == {}
    assert map_columns(before, plain, iter(()), overwrites=True) == plain
    odd = map_columns(None, table(StructType((StructField("a b", LONG),))), fresh())
    with pytest.raises(InvalidRequest, match="`a b`") as refused:
        without_mapping(odd)
    assert refused.value.error_class.startswith("DELTA_INVALID_COLUMN_NAMES_WHEN_REMOVING")


def test_names_run_out_loudly() -> None:
    with pytest.raises(InvalidRequest, match="none was left"):
        map_columns(None, table(PLAIN), iter(["one"]))


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ((mapped("a", LONG, "1"),), "has no id"),
        ((mapped("a", LONG, True),), "has no id"),
        ((mapped("a", LONG, 1, 5),), "has no physical name"),
        ((mapped("a", LONG, 1), mapped("b", LONG, 1)), "shares the id 1"),
        ((mapped("a", LONG, 1, "p"), mapped("b", LONG, 2, "p")), "shares its physical path"),
        ((StructField("a", LONG, True, {ID: 1, NAME: "p", NESTED: {"x": "y"}}),), "are none"),
        ((StructField("a", LONG, True, {ID: 1, NAME: "p", NESTED: {"x": 1}}),), "shares the id"),
    ],
)
def test_columns_that_would_be_found_wrongly_are_refused(
    fields: tuple[StructField, ...], what: str
) -> None:
    with pytest.raises(InvalidRequest, match=what):
        check_assigned(table(StructType(fields), **{MAX: "9"}))


@pytest.mark.parametrize(
    ("own", "error_class"),
    [
        ({}, "DELTA_COLUMN_MAPPING_MAX_COLUMN_ID_NOT_SET"),
        ({MAX: "1"}, "DELTA_COLUMN_MAPPING_MAX_COLUMN_ID_NOT_SET_CORRECTLY"),
        ({MAX: str(2**31)}, "DELTA_COLUMN_MAPPING_MAX_COLUMN_ID_NOT_SET_CORRECTLY"),
        ({MAX: "-1"}, "InvalidTableProperty"),
        ({MAX: "9" * 5_000}, "InvalidTableProperty"),
    ],
)
def test_the_largest_id_is_on_record(own: dict[str, str], error_class: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_assigned(table(StructType((mapped("a", LONG, 2),)), **own))
    assert refused.value.error_class == error_class


def test_a_table_without_a_mapping_has_nothing_to_check() -> None:
    check_assigned(table(StructType((mapped("a", LONG, "x"),)), "none"))


def test_a_column_keeps_its_id_and_an_id_its_column() -> None:
    before = StructType((mapped("a", LONG, 1), mapped("b", LONG, 2)))
    renamed = StructType((mapped("z", LONG, 1, "p-a"),))
    check_kept(before, renamed, ColumnMappingMode.NAME)
    with pytest.raises(InvalidRequest, match="had the id 1 and would get 3"):
        check_kept(before, StructType((mapped("a", LONG, 3),)), ColumnMappingMode.NAME)
    with pytest.raises(InvalidRequest, match="the id of another column, 2"):
        check_kept(before, StructType((mapped("c", LONG, 2),)), ColumnMappingMode.NAME)
    after = table(StructType((mapped("a", LONG, 3), mapped("b", LONG, 2))), **{MAX: "3"})
    with pytest.raises(InvalidRequest, match="had the id 1"):
        map_columns(table(before, **{MAX: "2"}), after, iter(()))
