"""Columns added, dropped, renamed, moved and changed, and what prevents each."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.definitions import of_schema, schema_of
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.schema.field_paths import field_at, field_paths
from tidegate_delta.schema.types import (
    DATE,
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
from tidegate_delta.schema_evolution.alter_columns import (
    FIRST,
    FieldPosition,
    add_column,
    allow_nulls,
    change_limit,
    change_type,
    comment_on,
    drop_column,
    move_column,
    rename_column,
    replace_columns,
)

LIMIT = "__CHAR_VARCHAR_TYPE_STRING"
WIDENING = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("typeWidening",),
    writer_features=("typeWidening",),
)


def column(name: str, kind: DataType, **about: Any) -> StructField:
    named = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": f"p-{name}"}
    return StructField(name, kind, metadata={**named, **about})


STRINGS = StructType((column("u", STRING), column("w", STRING)))
SCHEMA = StructType(
    (
        column("a", INTEGER),
        column("s", STRINGS, **{LIMIT: "struct<u:char(3),w:varchar(4)>"}),
        column("l", ArrayType(INTEGER)),
        column("m", MapType(STRING, StructType((column("x", INTEGER),)))),
        column("p", STRING),
        column("g", DATE, **{"delta.generationExpression": "to_date(m['k'].x)"}),
    )
)


def table(mode: str = "name", **own: str) -> Metadata:
    return of_schema(SCHEMA, {"delta.columnMapping.mode": mode, **own}, ("p",))


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(InvalidRequest) as raised:
        act()
    return raised.value.error_class


def test_a_column_is_added_where_it_is_wanted() -> None:
    new = StructField("n", LONG, metadata={"comment": "new", "delta.columnMapping.id": 99})
    bare = StructField("n", LONG, metadata={"comment": "new"})
    assert schema_of(add_column(table(), new)).fields[-1] == bare
    assert schema_of(add_column(table(), new, position=FIRST)).fields[0] == bare
    assert schema_of(add_column(table(), new, position=FieldPosition(after="A"))).fields[1] == bare
    nested = schema_of(add_column(table(), new, ("M", "value"), FIRST))
    assert field_at(nested, ("m", "value", "n")) == bare
    assert [path for path, _ in field_paths(nested)][6:8] == [
        ("m", "value", "n"),
        ("m", "value", "x"),
    ]


def test_a_struct_that_grows_keeps_the_limits_of_its_strings() -> None:
    result = schema_of(
        add_column(table(), StructField("v", LONG), ("s",), FieldPosition(after="u"))
    )
    assert result.fields[1].metadata[LIMIT] == "struct<u:char(3),v:bigint,w:varchar(4)>"


@pytest.mark.parametrize(
    ("new", "parent", "place", "error_class"),
    [
        (StructField("A", LONG), (), FIRST, "DELTA_DUPLICATE_COLUMNS_FOUND"),
        (StructField("n", LONG, False), (), FIRST, "DELTA_OPERATION_NOT_ALLOWED"),
        (
            StructField("n", StructType((StructField("x", LONG, False),))),
            (),
            FIRST,
            "DELTA_OPERATION_NOT_ALLOWED",
        ),
        (
            StructField("n", LONG, metadata={"delta.generationExpression": "a"}),
            (),
            FIRST,
            "DELTA_OPERATION_NOT_ALLOWED",
        ),
        (
            StructField("n", LONG, metadata={"CURRENT_DEFAULT": "1"}),
            (),
            FIRST,
            "WRONG_COLUMN_DEFAULTS_FOR_DELTA_ALTER_TABLE_ADD_COLUMN_NOT_SUPPORTED",
        ),
        (StructField("n", LONG), ("a",), FIRST, "DELTA_ADD_COLUMN_PARENT_NOT_STRUCT"),
        (StructField("n", LONG), (), FieldPosition(after="z"), "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"),
        (StructField("n", LONG), ("z",), FIRST, "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"),
    ],
)
def test_a_column_that_cannot_be_added_is_refused(
    new: StructField, parent: tuple[str, ...], place: FieldPosition, error_class: str
) -> None:
    assert refused(lambda: add_column(table(), new, parent, place)) == error_class


def test_names_of_the_change_feed_are_its_own() -> None:
    feed = table(**{"delta.enableChangeDataFeed": "true"})
    new = StructField("_Change_Type", STRING)
    assert refused(lambda: add_column(feed, new)) == "RESERVED_CDC_COLUMNS_ON_WRITE"
    assert schema_of(add_column(table(), new)).names[-1] == "_Change_Type"


def test_a_name_that_files_cannot_spell_needs_a_mapping() -> None:
    new = StructField("n n", LONG)
    plain = table("none")
    assert refused(lambda: add_column(plain, new)) == "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES"
    assert schema_of(add_column(table(), new)).names[-1] == "n n"


def test_a_column_is_dropped() -> None:
    result = drop_column(table(**{"delta.dataSkippingStatsColumns": "A,s.w,l"}), ("A",))
    assert schema_of(result).names == ("s", "l", "m", "p", "g")
    assert result.configuration["delta.dataSkippingStatsColumns"] == "s.w,l"


def test_a_field_inside_is_dropped_with_its_limit() -> None:
    result = schema_of(drop_column(table(), ("s", "u"))).fields[1]
    assert result.kind == StructType((STRINGS.fields[1],))
    assert result.metadata[LIMIT] == "struct<w:varchar(4)>"


@pytest.mark.parametrize(
    ("path", "error_class"),
    [
        (("z",), "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"),
        (("p",), "DELTA_UNSUPPORTED_DROP_PARTITION_COLUMN"),
        (("m", "value", "x"), "DELTA_DROP_COLUMN_ON_SINGLE_FIELD_SCHEMA"),
        (("m", "value"), "DELTA_UNSUPPORTED_DROP_NESTED_COLUMN_FROM_NON_STRUCT_TYPE"),
        ((), "DELTA_UNSUPPORTED_DROP_NESTED_COLUMN_FROM_NON_STRUCT_TYPE"),
        (("m",), "DELTA_GENERATED_COLUMNS_DEPENDENT_COLUMN_CHANGE"),
        (("a",), "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE"),
        (("s",), "DELTA_UNSUPPORTED_DROP_CLUSTERING_COLUMN"),
        (("s", "w"), "DELTA_UNSUPPORTED_DROP_CLUSTERING_COLUMN"),
    ],
)
def test_a_column_that_others_rest_on_is_not_dropped(
    path: tuple[str, ...], error_class: str
) -> None:
    constrained = table(**{"delta.constraints.positive": "abs(`A`) > 0"})
    assert refused(lambda: drop_column(constrained, path, [("p-s", "p-w")])) == error_class


def test_one_column_must_be_left_for_the_files() -> None:
    two = StructType((column("a", LONG), column("p", LONG)))
    small = table().with_(schema_string=format_schema(two))
    result = refused(lambda: drop_column(small, ("a",)))
    assert result == "DELTA_CANNOT_USE_ALL_COLUMNS_FOR_PARTITION"


def test_a_column_is_renamed_and_files_know_it_still() -> None:
    own = {"delta.dataSkippingStatsColumns": "p,s.u"}
    result = rename_column(table(**own), ("P",), "q r")
    assert schema_of(result).fields[4] == StructField(
        "q r", STRING, True, SCHEMA.fields[4].metadata
    )
    assert result.partition_columns == ("q r",)
    assert result.configuration["delta.dataSkippingStatsColumns"] == "`q r`,s.u"
    assert rename_column(result, ("q r",), "p") == table(**own)


def test_a_field_inside_is_renamed_with_its_limit() -> None:
    result = rename_column(table(**{"delta.dataSkippingStatsColumns": "s.U"}), ("s", "u"), "z.z")
    assert schema_of(result).fields[1].metadata[LIMIT] == "struct<`z.z`:char(3),w:varchar(4)>"
    assert result.configuration["delta.dataSkippingStatsColumns"] == "s.`z.z`"


def test_a_name_changes_its_case() -> None:
    assert schema_of(rename_column(table(), ("a",), "A")).names[0] == "A"
    assert rename_column(table(), ("a",), "a") == table()


@pytest.mark.parametrize(
    ("path", "name", "error_class"),
    [
        (("z",), "n", "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"),
        (("l",), "S", "DELTA_DUPLICATE_COLUMNS_FOUND"),
        (("l",), "", "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES"),
        (("a",), "n", "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE"),
        (("m", "value", "x"), "n", "DELTA_GENERATED_COLUMNS_DEPENDENT_COLUMN_CHANGE"),
        (("l", "element"), "n", "DELTA_UNSUPPORTED_DROP_NESTED_COLUMN_FROM_NON_STRUCT_TYPE"),
    ],
)
def test_a_column_that_others_rest_on_is_not_renamed(
    path: tuple[str, ...], name: str, error_class: str
) -> None:
    constrained = table(**{"delta.constraints.positive": "a > 0"})
    assert refused(lambda: rename_column(constrained, path, name)) == error_class


def test_an_invariant_holds_its_column_too() -> None:
    about = {"delta.invariants": '{"expression": {"expression": "a > 3"}}'}
    schema = StructType((column("a", LONG, **about), column("b", LONG)))
    result = table().with_(schema_string=format_schema(schema))
    assert refused(lambda: rename_column(result, ("a",), "c")).startswith("DELTA_CONSTRAINT_DEP")
    assert schema_of(rename_column(result, ("b",), "c")).names == ("a", "c")


def test_without_a_mapping_nothing_is_renamed_or_dropped() -> None:
    plain = table("none")
    assert refused(lambda: rename_column(plain, ("a",), "b")) == "DELTA_UNSUPPORTED_RENAME_COLUMN"
    assert refused(lambda: drop_column(plain, ("a",))) == "DELTA_UNSUPPORTED_DROP_COLUMN"


def test_a_missing_column_is_named_before_the_missing_mapping() -> None:
    plain = table("none")
    missing = "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"
    assert refused(lambda: rename_column(plain, ("nope",), "b")) == missing
    assert refused(lambda: drop_column(plain, ("nope",))) == missing


def test_a_column_is_moved() -> None:
    assert schema_of(move_column(table(), ("p",), FIRST)).names == ("p", "a", "s", "l", "m", "g")
    result = schema_of(move_column(table(), ("a",), FieldPosition(after="M")))
    assert result.names == ("s", "l", "m", "a", "p", "g")
    assert schema_of(move_column(table(), ("a",), FieldPosition())).names[-1] == "a"
    assert move_column(table(), ("a",), FieldPosition(after="a")) == table()
    inside = schema_of(move_column(table(), ("s", "w"), FIRST))
    assert inside.fields[1].metadata[LIMIT] == "struct<w:varchar(4),u:char(3)>"


def test_a_type_is_widened_and_the_change_recorded() -> None:
    wide = table(**{"delta.enableTypeWidening": "true"})
    result = schema_of(change_type(wide, WIDENING, ("l", "element"), LONG))
    assert result.fields[2].kind == ArrayType(LONG)
    assert result.fields[2].metadata["delta.typeChanges"] == [
        {"fromType": "integer", "toType": "long", "fieldPath": "element"}
    ]
    whole = schema_of(change_type(wide, WIDENING, ("l",), ArrayType(LONG)))
    assert whole == result
    assert change_type(wide, WIDENING, ("a",), INTEGER) == wide


@pytest.mark.parametrize(
    ("path", "kind", "own", "error_class"),
    [
        (("a",), STRING, {}, "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"),
        (("s",), StructType(), {}, "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"),
        (("l",), ArrayType(LONG, False), {}, "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"),
        (
            ("a",),
            LONG,
            {"delta.constraints.c": "a > 0"},
            "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE",
        ),
        (("m", "value", "x"), LONG, {}, "DELTA_GENERATED_COLUMNS_DEPENDENT_COLUMN_CHANGE"),
        (
            ("a",),
            LONG,
            {"delta.enableTypeWidening": "false"},
            "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP",
        ),
    ],
)
def test_a_type_that_files_do_not_allow_is_refused(
    path: tuple[str, ...], kind: DataType, own: dict[str, str], error_class: str
) -> None:
    wide = table(**{"delta.enableTypeWidening": "true", **own})
    assert refused(lambda: change_type(wide, WIDENING, path, kind)) == error_class


def test_a_limit_is_loosened() -> None:
    longer = schema_of(change_limit(table(), ("s", "W"), "VARCHAR( 9 )"))
    assert longer.fields[1].metadata[LIMIT] == "struct<u:char(3),w:varchar(9)>"
    gone = change_limit(change_limit(table(), ("s", "u"), "string"), ("s", "w"), "string")
    assert LIMIT not in schema_of(gone).fields[1].metadata


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("s", "w"), "varchar(3)"),
        (("s", "u"), "char(4)"),
        (("s", "w"), "char(4)"),
        (("p",), "varchar(9)"),
        (("a",), "string"),
        (("s", "w"), "int"),
        (("s", "w"), "varchar(0)"),
    ],
)
def test_a_limit_that_rows_may_break_is_refused(path: tuple[str, ...], text: str) -> None:
    result = refused(lambda: change_limit(table(), path, text))
    assert result == "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"


def test_nulls_are_allowed_and_comments_set() -> None:
    tight = StructType((StructField("a", LONG, False), StructField("s", STRINGS, False)))
    strict = table("none").with_(schema_string=format_schema(tight))
    loose = allow_nulls(allow_nulls(strict, ("A",)), ("s",))
    assert [field.nullable for field in schema_of(loose)] == [True, True]
    said = comment_on(strict, ("s", "u"), "why")
    assert field_at(schema_of(said), ("s", "u")).metadata["comment"] == "why"
    assert comment_on(said, ("s", "u"), None) == strict
    assert refused(lambda: allow_nulls(strict, ("z",))) == "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"


PLAIN = Protocol(min_reader_version=1, min_writer_version=2)
INNER = StructType((StructField("x", INTEGER), StructField("y", STRING)))
REPLACED = StructType(
    (
        StructField("a", INTEGER, False, {"comment": "c", "mine": 1}),
        StructField("s", INNER),
        StructField("l", ArrayType(INTEGER, False)),
        StructField("m", MapType(STRING, INTEGER, False)),
    )
)


def replaced_table(mode: str = "none", **own: str) -> Metadata:
    return of_schema(REPLACED, {"delta.columnMapping.mode": mode, **own})


def with_(name: str, kind: DataType, *, nullable: bool = True, **about: Any) -> StructType:
    new = StructField(name, kind, nullable, about)
    return StructType(tuple(new if item.name == name.lower() else item for item in REPLACED))


def test_the_same_columns_change_nothing() -> None:
    assert replace_columns(replaced_table(), PLAIN, REPLACED) == replaced_table()


def test_order_comments_and_nulls_are_those_of_the_new_columns() -> None:
    inner = StructType(
        (StructField("Y", STRING), StructField("n", LONG), StructField("x", INTEGER))
    )
    new = StructType(
        (
            StructField("S", inner),
            StructField("A", INTEGER, True, {"comment": "d", "mine": 2}),
            *REPLACED.fields[2:],
            StructField("z", LONG, True, {"comment": "n"}),
        )
    )
    result = schema_of(replace_columns(replaced_table(), PLAIN, new))
    assert result.names == ("s", "a", "l", "m", "z")
    assert result.fields[1] == StructField("a", INTEGER, True, {"comment": "d", "mine": 1})
    assert result.fields[0].kind == StructType(
        (StructField("y", STRING), StructField("n", LONG), StructField("x", INTEGER))
    )


def test_types_widen_where_the_table_allows_it() -> None:
    wide = replaced_table(**{"delta.enableTypeWidening": "true"})
    result = schema_of(replace_columns(wide, WIDENING, with_("m", MapType(STRING, LONG, False))))
    assert result.fields[3].metadata["delta.typeChanges"][0]["fieldPath"] == "value"
    with pytest.raises(InvalidRequest, match=r"'m\.value' can't be changed"):
        replace_columns(replaced_table(), PLAIN, with_("m", MapType(STRING, LONG, False)))


def test_columns_go_only_where_they_are_mapped_and_none_come() -> None:
    fewer = StructType(REPLACED.fields[1:])
    with pytest.raises(InvalidRequest, match="without column mapping"):
        replace_columns(replaced_table(), PLAIN, fewer)
    assert schema_of(replace_columns(replaced_table("name"), PLAIN, fewer)) == fewer
    other = StructType((*fewer.fields, StructField("z", LONG)))
    with pytest.raises(InvalidRequest, match="meant as a rename") as refused:
        replace_columns(replaced_table("name"), PLAIN, other)
    assert refused.value.error_class == "DELTA_AMBIGUOUS_DATA_TYPE_CHANGE"
    rested_on = replaced_table("name", **{"delta.constraints.c": "a > 0"})
    with pytest.raises(InvalidRequest, match=r"c \(a > 0\)"):
        replace_columns(rested_on, PLAIN, fewer)
    with pytest.raises(InvalidRequest, match="partitioned by 'a'"):
        replace_columns(replaced_table("name").with_(partition_columns=("a",)), PLAIN, fewer)


@pytest.mark.parametrize(
    "new",
    [
        with_("s", INNER, nullable=False),
        with_("s", StructType((StructField("x", INTEGER, False), StructField("y", STRING)))),
        StructType((*REPLACED.fields, StructField("z", LONG, False))),
    ],
)
def test_rows_that_are_there_may_hold_nulls(new: StructType) -> None:
    with pytest.raises(InvalidRequest, match="may hold nulls") as refused:
        replace_columns(replaced_table(), PLAIN, new)
    assert refused.value.error_class == "DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP"


def test_a_table_that_numbers_its_rows_is_changed_one_column_at_a_time() -> None:
    about = {
        "delta.identity.start": 1, "delta.identity.step": 1,
        "delta.identity.allowExplicitInsert": False,
    }  # fmt: skip
    numbered = StructType((StructField("id", LONG, metadata=about), *REPLACED))
    of = replaced_table().with_(schema_string=format_schema(numbered))
    with pytest.raises(InvalidRequest, match="numbers its column 'id'") as refused:
        replace_columns(of, PLAIN, numbered)
    expected = "DELTA_IDENTITY_COLUMNS_REPLACE_COLUMN_NOT_SUPPORTED"
    assert refused.value.error_class == expected
