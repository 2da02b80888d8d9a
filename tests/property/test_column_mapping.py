"""Column mapping: physical names translate to logical names and back."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate_delta.schema.column_mapping import (
    ColumnMappingMode,
    logical_path,
    physical_path,
    to_logical,
    to_physical,
)
from tidegate_delta.schema.types import (
    LONG,
    STRING,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)

names = st.text("ab.`=,é日 ", min_size=1, max_size=4)
modes = st.sampled_from([ColumnMappingMode.NAME, ColumnMappingMode.ID])


def structs(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[StructType]:
    """Draw structs in which one field's physical name may be another's logical name."""
    field = st.tuples(names, names, inner, st.booleans())
    many = st.lists(field, min_size=1, max_size=4, unique_by=(lambda f: f[0], lambda f: f[1]))
    return many.map(
        lambda found: StructType(
            tuple(
                StructField(
                    name,
                    kind,
                    nullable,
                    {
                        "delta.columnMapping.physicalName": physical,
                        "delta.columnMapping.id": number,
                    },
                )
                for number, (name, physical, kind, nullable) in enumerate(found)
            )
        )
    )


kinds: st.SearchStrategy[DataType] = st.recursive(
    st.sampled_from([LONG, STRING]),
    lambda inner: (
        st.builds(ArrayType, inner, st.booleans())
        | st.builds(MapType, inner, inner, st.booleans())
        | structs(inner)
    ),
    max_leaves=6,
)


def paths(schema: StructType) -> list[tuple[str, ...]]:
    """Return the field paths, computed independently."""

    def below(kind: DataType, above: tuple[str, ...]) -> list[tuple[str, ...]]:
        match kind:
            case StructType():
                own = [(*above, field.name) for field in kind.fields]
                inner = [
                    path
                    for field in kind.fields
                    for path in below(field.kind, (*above, field.name))
                ]
                return own + inner
            case ArrayType():
                return below(kind.element, (*above, "element"))
            case MapType():
                return below(kind.key, (*above, "key")) + below(kind.value, (*above, "value"))
            case _:
                return []

    return below(schema, ())


@given(structs(kinds), modes)
def test_a_schema_comes_back_from_its_physical_names(
    schema: StructType, mode: ColumnMappingMode
) -> None:
    physical = to_physical(schema, mode)
    assert to_logical(physical, schema, mode) == schema
    assert len(paths(physical)) == len(paths(schema))


@given(structs(kinds), modes)
def test_a_path_comes_back_from_its_physical_names(
    schema: StructType, mode: ColumnMappingMode
) -> None:
    expected = paths(to_physical(schema, mode))
    for path, physical in zip(paths(schema), expected, strict=True):
        assert physical_path(schema, path, mode) == physical
        assert logical_path(schema, physical, mode) == path
