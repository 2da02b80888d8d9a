"""Laws of schema changes: ids stay, renames can be undone, merging and history lose nothing."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.definitions import of_schema, schema_of
from tidegate_delta.constraints import row_constraints
from tidegate_delta.errors import InvalidRequest, TidegateError
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.properties import property
from tidegate_delta.schema.char_varchar import LengthLimit, limited, limits
from tidegate_delta.schema.column_mapping import ColumnMappingMode, dropped, renamed, to_physical
from tidegate_delta.schema.column_mapping_assignment import (
    largest_id,
    map_columns,
    max_column_id,
    unmapped,
)
from tidegate_delta.schema.field_paths import dotted, field_paths, kind_at, transform
from tidegate_delta.schema.sql_column_references import columns_in, names_column
from tidegate_delta.schema.type_widening import Automatic, changes, widens, widens_for_iceberg
from tidegate_delta.schema.types import (
    STRING,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    parse_type,
)
from tidegate_delta.schema_evolution import alter_columns
from tidegate_delta.schema_evolution.evolve_on_write import Merging, as_data, merged
from tidegate_delta.schema_evolution.type_changes import changed, record

ATOMS = ["byte", "short", "integer", "long", "float", "double", "date", "string", "void"]
WRITER = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("columnMapping", "typeWidening"),
    writer_features=("columnMapping", "typeWidening", "invariants", "checkConstraints"),
)
FREE = Merging(automatic=Automatic.ALWAYS, stored_alike=True)

names = st.text("aBé.` ,", min_size=1, max_size=3)
atoms = st.sampled_from(ATOMS).map(parse_type) | st.builds(
    DecimalType, st.integers(10, 20), st.integers(0, 4)
)


def structs(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[StructType]:
    about = st.sampled_from([{}, {"comment": "c"}])
    field = st.builds(StructField, names, inner, st.booleans(), about)
    many = st.lists(field, min_size=1, max_size=4, unique_by=lambda one: one.name.lower())
    return many.map(lambda found: StructType(tuple(found)))


def kinds_of(leaf: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    return st.recursive(
        leaf,
        lambda inner: (
            st.builds(ArrayType, inner, st.booleans())
            | st.builds(MapType, inner, inner, st.booleans())
            | structs(inner)
        ),
        max_leaves=5,
    )


schemas = structs(kinds_of(atoms))


def fresh() -> Iterator[str]:
    return (f"col-{number}" for number in count())


def table(schema: StructType, mode: str = "name", **own: str) -> Metadata:
    return of_schema(schema, {"delta.columnMapping.mode": mode, **own})


@given(schemas, st.sampled_from(["name", "id"]), st.sampled_from(["true", "false"]))
def test_ids_are_given_once(schema: StructType, mode: str, iceberg: str) -> None:
    asked = table(schema, mode, **{"delta.enableIcebergCompatV2": iceberg})
    mapped = map_columns(None, asked, fresh())
    assert map_columns(None, mapped, iter(())) == mapped
    assert map_columns(mapped, mapped, iter(())) == mapped
    assert unmapped(schema_of(mapped)) == schema
    fields = sum(1 for _ in field_paths(schema))
    assert largest_id(schema_of(mapped)) == max_column_id(mapped) >= fields


@given(schemas, schemas)
def test_the_largest_id_is_never_lowered(schema: StructType, other: StructType) -> None:
    before = map_columns(None, table(schema), fresh())
    names_left = (f"new-{number}" for number in count())
    after = map_columns(before, table(as_data(other)), names_left, overwrites=True)
    assert max_column_id(after) >= max_column_id(before)
    old = {one.metadata["delta.columnMapping.id"] for _, one in field_paths(schema_of(before))}
    for _, one in field_paths(schema_of(after)):
        number = one.metadata["delta.columnMapping.id"]
        assert number in old or number > max_column_id(before)


@given(schemas)
def test_a_table_whose_mapping_begins_keeps_its_files(schema: StructType) -> None:
    plain = transform(schema, lambda _, one: replace(one, name=one.name.translate(PLAIN)))
    try:
        before = map_columns(None, table(plain, "none"), iter(()))
    except InvalidRequest:
        return  # two names became one
    after = map_columns(before, table(plain, "name"), iter(()))
    assert unmapped(to_physical(schema_of(after), ColumnMappingMode.NAME)) == plain


PLAIN = str.maketrans(" ,", "xy")


@given(st.data())
def test_a_rename_comes_back_and_touches_no_file(data: st.DataObject) -> None:
    schema = data.draw(schemas)
    mapped = map_columns(None, table(schema), fresh())
    path, one = data.draw(st.sampled_from(list(field_paths(schema_of(mapped)))))
    other = alter_columns.rename_column(mapped, path, "other name")
    there = (*path[:-1], "other name")
    assert alter_columns.rename_column(other, there, one.name) == mapped
    old, new = schema_of(mapped), schema_of(other)
    assert to_physical(new, ColumnMappingMode.NAME) == to_physical(old, ColumnMappingMode.NAME)
    assert [(r.before, r.after) for r in renamed(old, new, ColumnMappingMode.NAME)] == [
        (path, there)
    ]
    assert dropped(old, new, ColumnMappingMode.NAME) == ()
    assert renamed(old, old, ColumnMappingMode.NAME) == ()
    asked = row_constraints.requirements(mapped, WRITER)
    assert row_constraints.digest(asked) == row_constraints.digest(
        row_constraints.requirements(other, WRITER)
    )
    assert row_constraints.unenforced(asked, row_constraints.hashes(asked)) == ()


@given(st.data())
def test_what_is_dropped_is_listed_with_its_nested_fields(data: st.DataObject) -> None:
    schema = data.draw(schemas)
    mapped = map_columns(None, table(schema), fresh())
    path, _ = data.draw(st.sampled_from(list(field_paths(schema_of(mapped)))))
    parent = kind_at(schema, path[:-1])
    if isinstance(parent, StructType) and len(parent) == 1:
        with pytest.raises(InvalidRequest, match="the only one of its struct"):
            alter_columns.drop_column(mapped, path)
        return
    after = alter_columns.drop_column(mapped, path)
    gone = dropped(schema_of(mapped), schema_of(after), ColumnMappingMode.NAME)
    expected = [one for one, _ in field_paths(schema_of(mapped)) if one[: len(path)] == path]
    assert list(gone) == expected
    assert max_column_id(map_columns(mapped, after, iter(()))) == max_column_id(mapped)


@given(schemas)
def test_a_schema_merged_with_itself_is_itself(schema: StructType) -> None:
    assert merged(schema, schema, FREE) == schema
    assert merged(schema, as_data(schema), Merging()) == schema
    assert as_data(as_data(schema)) == as_data(schema)


@given(schemas, schemas, st.sampled_from(Automatic), st.booleans(), st.booleans())
def test_merging_only_adds_and_widens(
    one: StructType, two: StructType, automatic: Automatic, alike: bool, keeps: bool
) -> None:
    merging = Merging(automatic=automatic, stored_alike=alike, keeps_types=keeps)
    both = try_merged(one, two, merging)
    if both is None:
        return
    assert merged(both, two, merging) == both
    assert holds_all(one, both)
    assert both.names[: len(one)] == one.names
    lower = {name.lower() for name in both.names}
    assert lower == {name.lower() for name in (*one.names, *two.names)}


def try_merged(one: StructType, two: StructType, merging: Merging) -> StructType | None:
    """Return two schemas merged, or None if they differ for an accepted reason."""
    try:
        return merged(one, two, merging)
    except InvalidRequest as refused:
        if refused.error_class in REASONS:
            return None
        raise


REASONS = ("DELTA_FAILED_TO_MERGE_FIELDS", "DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE")


def holds_all(before: DataType, after: DataType) -> bool:
    """Return whether every value of one type is a value of the other, computed independently."""
    match before, after:
        case StructType(), StructType():
            pairs = zip(before.fields, after.fields, strict=False)
            return len(before) <= len(after) and all(
                (was.name, was.nullable, was.metadata) == (now.name, now.nullable, now.metadata)
                and holds_all(was.kind, now.kind)
                for was, now in pairs
            )
        case ArrayType(), ArrayType():
            return before.contains_null == after.contains_null and holds_all(
                before.element, after.element
            )
        case MapType(), MapType():
            same = before.value_contains_null == after.value_contains_null
            return (
                same and holds_all(before.key, after.key) and holds_all(before.value, after.value)
            )
        case _:
            return str(before) == "void" or widens(before, after)


@given(atoms, atoms, atoms)
def test_what_widens_of_itself_widens(one: DataType, two: DataType, three: DataType) -> None:
    for automatic in Automatic:
        if automatic.allows(one, two):
            assert widens(one, two)
            if automatic.allows(two, three):
                assert automatic.allows(one, three)
            if one != two:
                assert not automatic.allows(two, one)
    if widens_for_iceberg(one, two):
        assert widens(one, two)
        assert not widens_for_iceberg(two, one) or one == two
        if widens_for_iceberg(two, three):
            assert widens_for_iceberg(one, three)


@given(schemas, schemas, schemas)
def test_history_is_kept_and_listed_once(
    one: StructType, two: StructType, three: StructType
) -> None:
    assert record(one, one) == one
    second = record(try_merged(one, two, FREE) or one, one)
    third = record(try_merged(second, three, FREE) or second, second)
    assert record(second, one) == second
    assert record(third, second) == third
    known = dict(field_paths(third))
    for path, was in field_paths(second):
        result = changes(known[path])
        assert result[: len(changes(was))] == changes(was)
        added = [step for step in changed(was.kind, known[path].kind) if str(step.before) != "void"]
        assert list(result[len(changes(was)) :]) == added


@given(st.text(max_size=60), schemas)
def test_any_text_is_read_or_beyond_reading(text: str, schema: StructType) -> None:
    result = columns_in(text, schema)
    named = {path[:1] for path, _ in field_paths(schema) if names_column(text, path, schema)}
    if result is None:
        assert named == {(name,) for name in schema.names}
    else:
        assert named == {path[:1] for path in result}


@given(st.data())
def test_an_expression_that_names_a_column_is_found(data: st.DataObject) -> None:
    schema = data.draw(schemas)
    path, _ = data.draw(st.sampled_from(list(field_paths(schema))))
    steps = [part for part in path if part not in ("element", "key", "value")]
    text = data.draw(st.sampled_from(["{} > 1", "f({}, 'x')", "1 = 1 AND -- {}\n NOT {}"]))
    spelled = dotted([part.upper() for part in steps]) if dotted(steps).isascii() else dotted(steps)
    assert names_column(text.replace("{}", spelled), path, schema)


def strings_in(kind: DataType, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    match kind:
        case StructType():
            for field in kind.fields:
                yield from strings_in(field.kind, (*above, field.name))
        case ArrayType():
            yield from strings_in(kind.element, (*above, "element"))
        case MapType():
            yield from strings_in(kind.key, (*above, "key"))
            yield from strings_in(kind.value, (*above, "value"))
        case _:
            if kind == STRING:
                yield above


@given(st.data())
def test_limits_are_written_as_they_are_read(data: st.DataObject) -> None:
    kind = data.draw(kinds_of(st.just(STRING) | atoms))
    paths = list(strings_in(kind))
    chosen = data.draw(st.lists(st.sampled_from(paths), unique=True) if paths else st.just([]))
    each = st.builds(LengthLimit, st.integers(1, 99), st.booleans())
    wanted = {path: data.draw(each) for path in chosen}
    field = limited(StructField("a", kind), wanted)
    assert limits(field) == wanted
    assert limited(field, limits(field)) == field


junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text("{}[]\"exprsion:1<>(),'", max_size=30),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
KEYS = [
    "delta.invariants", "delta.generationExpression", "CURRENT_DEFAULT", "EXISTS_DEFAULT",
    "delta.identity.start", "delta.identity.step", "delta.identity.highWaterMark",
    "delta.identity.allowExplicitInsert", "__CHAR_VARCHAR_TYPE_STRING", "delta.typeChanges",
    "delta.columnMapping.id", "delta.columnMapping.physicalName", "delta.columnMapping.nested.ids",
]  # fmt: skip


@given(st.dictionaries(st.sampled_from(KEYS), junk), st.sampled_from(["none", "name", "id"]), junk)
def test_whatever_stands_in_a_schema_is_a_value_or_one_of_our_errors(
    about: dict[str, Any], mode: str, last: object
) -> None:
    schema = StructType((StructField("a", STRING, metadata=about), StructField("b", STRING)))
    own = {"delta.columnMapping.maxColumnId": str(last), "delta.constraints.c": str(last)}
    metadata = table(schema, mode, **own)
    everything = Protocol(min_reader_version=2, min_writer_version=6)
    for act in (
        lambda: row_constraints.digest(row_constraints.requirements(metadata, everything)),
        lambda: map_columns(metadata, metadata, fresh()),
        lambda: map_columns(None, metadata, fresh(), overwrites=True),
        lambda: alter_columns.rename_column(metadata, ("a",), "c"),
        lambda: alter_columns.drop_column(metadata, ("a",)),
        lambda: alter_columns.add_column(metadata, StructField("d", STRING)),
        lambda: record(schema, StructType((StructField("a", STRING),))),
        lambda: limits(schema.fields[0]),
    ):
        with suppress(TidegateError):
            act()


@given(st.text("ab c'`.", min_size=1, max_size=6), st.text("a>1 ", min_size=1, max_size=6))
def test_a_constraint_that_is_added_can_be_dropped(name: str, text: str) -> None:
    plain = table(StructType((StructField("a", STRING),)), "none", owner="me")
    if not text.strip():
        with pytest.raises(InvalidRequest, match="expression"):
            row_constraints.add_check(plain, name, text)
        return
    more = row_constraints.add_check(plain, name.upper(), text)
    assert row_constraints.checks(more) == (row_constraints.CheckConstraint(name.lower(), text),)
    assert row_constraints.drop_check(more, name) == plain
    with pytest.raises(InvalidRequest, match="drop it first"):
        row_constraints.add_check(more, name, text)


@given(st.lists(st.lists(names, min_size=1, max_size=2), min_size=1, max_size=3))
def test_columns_with_statistics_are_spelled_as_they_are_read(paths: list[list[str]]) -> None:
    text = ",".join(dotted(path) for path in paths)
    assert property.column_list(text) == tuple(map(tuple, paths))
