"""Type changes: allowed, recorded, and removed again."""

from typing import Any

import pytest

from tests.definitions import of_schema
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.schema.types import (
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    parse_schema,
    parse_type,
)
from tidegate_delta.schema_evolution.type_changes import (
    check_change,
    is_enabled,
    record,
    with_schema,
)

HISTORY = "delta.typeChanges"
ICEBERG = "DELTA_ICEBERG_COMPAT_VIOLATION"
ENABLED = {"delta.enableTypeWidening": "true"}


def protocol(*features: str) -> Protocol:
    both = tuple(name for name in features if name.startswith("typeWidening"))
    return Protocol(
        min_reader_version=3, min_writer_version=7, reader_features=both, writer_features=features
    )


WIDENING = protocol("typeWidening")


def schema(kind: DataType, *history: dict[str, Any], name: str = "a", **about: Any) -> StructType:
    result = {HISTORY: list(history)} if history else {}
    return StructType((StructField(name, kind, metadata={**result, **about}),))


def table(of: StructType, own: dict[str, str] = ENABLED) -> Metadata:
    return of_schema(of, own)


def type_history(of: StructType) -> Any:
    return of.fields[0].metadata.get(HISTORY)


def test_widening_needs_the_feature_and_the_property() -> None:
    assert is_enabled(WIDENING, table(schema(LONG)))
    assert is_enabled(protocol("typeWidening-preview"), table(schema(LONG)))
    assert not is_enabled(protocol(), table(schema(LONG)))
    assert not is_enabled(WIDENING, table(schema(LONG), {}))


def test_a_change_is_recorded_at_the_nearest_field() -> None:
    before = schema(MapType(SHORT, ArrayType(FLOAT)))
    after = schema(MapType(LONG, ArrayType(DOUBLE)))
    assert type_history(record(after, before)) == [
        {"fromType": "short", "toType": "long", "fieldPath": "key"},
        {"fromType": "float", "toType": "double", "fieldPath": "value.element"},
    ]
    inner = record(schema(ArrayType(schema(LONG))), schema(ArrayType(schema(SHORT))))
    assert type_history(inner) is None
    kind = inner.fields[0].kind
    assert isinstance(kind, ArrayType)
    assert isinstance(kind.element, StructType)
    assert type_history(kind.element) == [{"fromType": "short", "toType": "long"}]


def test_recorded_fields_stay_under_every_new_schema() -> None:
    old = {"fromType": "short", "toType": "integer", "tableVersion": 3}
    before = schema(INTEGER, old)
    new = {"fromType": "integer", "toType": "long"}
    assert type_history(record(schema(LONG), before)) == [old, new]
    assert type_history(record(schema(LONG, old), before)) == [old, new]
    assert type_history(record(schema(LONG, old, new), before)) == [old, new]
    assert type_history(record(schema(INTEGER), before)) == [old]
    assert type_history(record(schema(LONG, new, new), before)) == [old, new]


def test_the_preview_of_the_feature_wants_a_version() -> None:
    result = record(schema(LONG), schema(INTEGER), version=7)
    assert type_history(result) == [{"tableVersion": 7, "fromType": "integer", "toType": "long"}]


def test_what_is_no_widening_is_not_recorded() -> None:
    for before, after in ((VOID, LONG), (LONG, STRING), (STRING, ArrayType(LONG))):
        assert type_history(record(schema(after), schema(before))) is None


def test_columns_meet_by_their_physical_names() -> None:
    physical = {"delta.columnMapping.physicalName": "p"}
    result = record(schema(LONG, name="b", **physical), schema(INTEGER, name="a", **physical))
    assert type_history(result) == [{"fromType": "integer", "toType": "long"}]
    other = record(schema(LONG, name="a"), schema(INTEGER, name="a", **physical))
    assert type_history(other) is None


@pytest.mark.parametrize(
    ("before", "after", "features", "error_class"),
    [
        ("long", "double", ("typeWidening",), "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"),
        ("integer", "long", (), "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"),
        ("integer", "double", ("typeWidening", "icebergCompatV2"), ICEBERG),
        ("date", "timestamp_ntz", ("typeWidening", "icebergCompatV1"), ICEBERG),
        ("decimal(5,1)", "decimal(6,2)", ("typeWidening", "icebergCompatV3"), ICEBERG),
    ],
)  # fmt: skip
def test_a_change_that_the_table_does_not_allow_is_refused(
    before: str, after: str, features: tuple[str, ...], error_class: str
) -> None:
    of = table(schema(LONG))
    with pytest.raises(InvalidRequest, match="column 'a' can't be changed") as refused:
        check_change(("a",), parse_type(before), parse_type(after), protocol(*features), of)
    assert refused.value.error_class == error_class


@pytest.mark.parametrize(
    ("before", "after"),
    [("integer", "long"), ("decimal(5,1)", "decimal(7,1)"), ("void", "string"), ("long", "long")],
)
def test_a_change_that_iceberg_knows_too_is_allowed(before: str, after: str) -> None:
    features = protocol("typeWidening", "icebergCompatV2")
    check_change(("a",), parse_type(before), parse_type(after), features, table(schema(LONG)))


def test_a_schema_is_set_with_its_history_where_the_table_keeps_one() -> None:
    before = table(schema(INTEGER))
    kept = with_schema(before, schema(LONG), WIDENING)
    assert type_history(parse_schema(kept.schema_string)) == [
        {"fromType": "integer", "toType": "long"}
    ]
    assert parse_schema(with_schema(before, schema(LONG), protocol()).schema_string) == schema(LONG)
