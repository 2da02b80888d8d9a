"""Rows encoded as Avro by column have the bytes that they have one by one."""

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate_cdc_publisher.avro_encoding import (
    MANY_ROWS,
    avro_encoder,
    encode_columns,
    is_columnar,
)

SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
    "string": st.text(),
    "bytes": st.binary().map(lambda blob: b64encode(blob).decode()),
}


def struct(columns: list[tuple[dict[str, Any], bool]]) -> dict[str, Any]:
    fields = [
        {**kind, "optional": optional, "field": f"c{n}"}
        for n, (kind, optional) in enumerate(columns)
    ]
    return {"type": "struct", "fields": fields}


kinds = st.recursive(
    st.sampled_from(sorted(SCALARS)).map(lambda name: {"type": name}),
    lambda inner: st.lists(st.tuples(inner, st.booleans()), min_size=1, max_size=4).map(struct),
    max_leaves=12,
)


def values(kind: dict[str, Any]) -> st.SearchStrategy[Any]:
    if kind["type"] != "struct":
        of = SCALARS[kind["type"]]
    else:
        of = st.fixed_dictionaries({item["field"]: values(item) for item in kind["fields"]})
    return st.none() | of if kind.get("optional") else of


@given(st.data())
def test_by_column_as_one_by_one(data: st.DataObject) -> None:
    columns = data.draw(st.lists(st.tuples(kinds, st.booleans()), min_size=1, max_size=5))
    schema = {**struct(columns), "name": "t.Value"}
    rows = data.draw(st.lists(values(schema), min_size=1, max_size=8))
    payloads = [json.dumps(row, ensure_ascii=len(rows) % 2 == 0).encode() for row in rows]
    assert is_columnar(schema)
    assert encode_columns(schema, payloads) == avro_encoder(schema)(payloads)


def test_many_rows_are_encoded_by_column_and_lists_and_maps_one_by_one() -> None:
    columns: list[tuple[dict[str, Any], bool]] = [
        ({"type": "int64"}, True),
        ({"type": "array", "items": {"type": "int32"}}, False),
    ]
    for taken in (columns[:1], columns):
        schema = {**struct(taken), "name": "t.Value"}
        row = {"c0": 300, "c1": [1, 2]} if len(taken) == 2 else {"c0": 300}
        payload = json.dumps(row).encode()
        encode = avro_encoder(schema)
        assert is_columnar(schema) == (len(taken) == 1)
        assert encode([payload] * MANY_ROWS) == encode([payload]) * MANY_ROWS


def test_a_null_that_the_schema_forbids_is_an_error_and_never_a_zero() -> None:
    inner = struct([({"type": "int64"}, False)])
    schema = {**struct([({"type": "int64"}, False), (inner, True)]), "name": "t.Value"}
    allowed = b'{"c0":1,"c1":null}'
    assert encode_columns(schema, [allowed]) == avro_encoder(schema)([allowed])
    for forbidden in (b'{"c0":null,"c1":null}', b'{"c0":1,"c1":{"c0":null}}'):
        with pytest.raises(ValueError, match="'c0'"):
            encode_columns(schema, [allowed, forbidden])
