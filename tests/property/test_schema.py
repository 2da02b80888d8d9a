"""Round trips of schemas, partition values and paths through their text form."""

from datetime import UTC
from decimal import Context, Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidegate_delta.log.file_paths import canonical_path, decode_path, encode_path
from tidegate_delta.schema import types
from tidegate_delta.schema.arrow_types import from_arrow, to_arrow
from tidegate_delta.schema.partition_values import column, parse, serialize
from tidegate_delta.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    format_schema,
    parse_schema,
)

EXACT = Context(prec=38)
texts = st.text(st.characters(codec="utf-8"), max_size=12)
decimals = st.integers(1, 38).flatmap(
    lambda precision: st.builds(DecimalType, st.just(precision), st.integers(0, precision))
)
atoms = st.sampled_from(sorted(types.PRIMITIVES)).map(PrimitiveType) | decimals

keys = atoms.filter(lambda kind: kind != types.VOID)


def structs(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[StructType]:
    fields = st.builds(
        StructField,
        texts,
        inner,
        st.booleans(),
        st.dictionaries(texts, st.integers(-9, 9) | texts, max_size=2),
    )
    return st.lists(fields, max_size=3, unique_by=lambda one: one.name).map(
        lambda chosen: StructType(tuple(chosen))
    )


kinds: st.SearchStrategy[DataType] = st.recursive(
    atoms,
    lambda inner: (
        st.builds(ArrayType, inner, st.booleans())
        | st.builds(MapType, keys, inner, st.booleans())
        | structs(inner)
    ),
    max_leaves=6,
)


@given(structs(kinds))
def test_a_schema_survives_its_text(schema: StructType) -> None:
    assert parse_schema(format_schema(schema)) == schema


def in_arrow(kind: DataType) -> DataType:
    """Return what a writer makes of Arrow's type: no metadata, nulls for void, microseconds."""
    match kind:
        case StructType():
            return StructType(
                tuple(
                    StructField(
                        field.name, in_arrow(field.kind), field.nullable or field.kind == types.VOID
                    )
                    for field in kind
                )
            )
        case ArrayType():
            nulls = kind.contains_null or kind.element == types.VOID
            return ArrayType(in_arrow(kind.element), nulls)
        case MapType():
            nulls = kind.value_contains_null or kind.value == types.VOID
            return MapType(in_arrow(kind.key), in_arrow(kind.value), nulls)
        case PrimitiveType() if kind in types.NANOS:
            return types.TIMESTAMP if kind == types.NANOS[0] else types.TIMESTAMP_NTZ
        case types.VARIANT:
            parts = (StructField(name, types.BINARY) for name in ("metadata", "value"))
            return StructType(tuple(parts))
        case PrimitiveType() if kind in types.NANOS:
            return types.TIMESTAMP if kind == types.NANOS[0] else types.TIMESTAMP_NTZ
        case _:
            return kind


@given(structs(kinds))
def test_a_schema_survives_arrow(schema: StructType) -> None:
    assert from_arrow(to_arrow(schema)) == in_arrow(schema)


def values_of(kind: DataType) -> st.SearchStrategy[Any]:
    if isinstance(kind, DecimalType):
        limit = 10**kind.precision - 1
        whole = st.integers(-limit, limit)
        return whole.map(lambda digits: Decimal(digits).scaleb(-kind.scale, EXACT))
    return VALUES[kind]


VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    types.STRING: texts,
    types.LONG: st.integers(-(2**63), 2**63 - 1),
    types.INTEGER: st.integers(-(2**31), 2**31 - 1),
    types.SHORT: st.integers(-(2**15), 2**15 - 1),
    types.BYTE: st.integers(-128, 127),
    types.DOUBLE: st.floats(allow_nan=False),
    types.FLOAT: st.floats(allow_nan=False, width=32),
    types.BOOLEAN: st.booleans(),
    types.DATE: st.dates(),
    types.TIMESTAMP: st.datetimes(timezones=st.just(UTC)),
    types.TIMESTAMP_NTZ: st.datetimes(),
    types.BINARY: texts.map(str.encode),
    **dict.fromkeys(types.NANOS, st.integers(-(2**63), 2**63 - 1)),
}
partition_kinds = st.sampled_from(sorted(VALUES, key=str)) | decimals


@given(partition_kinds.flatmap(lambda kind: st.tuples(st.just(kind), values_of(kind))))
def test_a_partition_value_survives_its_text(one: tuple[DataType, Any]) -> None:
    kind, value = one
    expected = None if value in ("", b"") else value
    text = serialize(value, kind)
    assert parse(text, kind) == expected
    assert column([text, None], kind).to_pylist()[1] is None


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_a_key_survives_its_spelling_in_the_log(key: str) -> None:
    spelled = encode_path(key)
    assert spelled.isascii()
    if not key.startswith("/"):
        assert decode_path(spelled) == key
        assert canonical_path(spelled) == canonical_path(encode_path(key))
