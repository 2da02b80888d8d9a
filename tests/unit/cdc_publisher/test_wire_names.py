"""Names of topics and columns as readers of Avro and Protobuf take them, and those refused."""

import json
from base64 import b64decode
from io import BytesIO
from typing import Any

import pytest
from avro.io import BinaryDecoder, DatumReader
from avro.schema import parse
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from tests.protobuf_records import message_class
from tidegate_cdc_publisher.avro_encoding import avro_encoder, avro_schema
from tidegate_cdc_publisher.protobuf_encoding import (
    protobuf_decoder,
    protobuf_encoder,
    protobuf_schema,
    registry_text,
)
from tidegate_delta.errors import UnsupportedFeature

TEXT = {"type": "string", "optional": True}
POINT = {"type": "struct", "fields": [{"type": "int32", "field": "x"}]}


def struct(name: str, **columns: Any) -> dict[str, Any]:
    fields = [{**kind, "field": column} for column, kind in columns.items()]
    return {"type": "struct", "name": name, "fields": fields}


def through_avro(connect: dict[str, Any], value: dict[str, Any]) -> Any:
    """Return a value as Apache's library reads what we encode."""
    (content,) = avro_encoder(connect)([json.dumps(value).encode()])
    schema = parse(json.dumps(avro_schema(connect)))
    return DatumReader(schema, schema).read(BinaryDecoder(BytesIO(content)))


@pytest.mark.parametrize(
    ("topic", "namespace"),
    [
        ("cdc.1st", "cdc._1st"),
        ("2024.01.t", "_2024._01.t"),
        ("a..b", "a._.b"),
        ("a-b.ü", "a_b._"),
        ("t.", "t._"),
    ],
)
def test_each_part_of_a_namespace_is_an_identifier(topic: str, namespace: str) -> None:
    connect = struct(f"{topic}.Value", a=TEXT)
    assert avro_schema(connect)["namespace"] == namespace
    assert protobuf_schema(connect).package == namespace
    assert through_avro(connect, {"a": "x"}) == {"a": "x"}


def test_a_struct_column_may_have_the_name_of_a_primitive_type() -> None:
    connect = struct("t.Value", int=POINT, int_=POINT, null={**POINT, "optional": True})
    names = [field["type"] for field in avro_schema(connect)["fields"]]
    assert [kind["name"] for kind in names[:2]] == ["int_", "int__"]
    value = {"int": {"x": 1}, "int_": {"x": 2}, "null": None}
    assert through_avro(connect, value) == value


@pytest.mark.parametrize(
    "columns",
    [
        ["user_id", "userId", "UserId"],
        ["__op", "Op", "OP"],
        ["SerializeToString", "DESCRIPTOR", "HasField", "self"],
        ["class", "message", "None", "map", "reserved"],
        ["tags", "tagsList", "_tags", "__tags"],
    ],
)
def test_columns_of_any_names_that_are_identifiers_have_fields_of_their_own(
    columns: list[str],
) -> None:
    lists = {"type": "array", "items": TEXT, "optional": True}
    connect = struct("t.Value", **dict.fromkeys(columns, TEXT))
    connect["fields"].append({**lists, "field": "list"})
    value = {**{column: f"of {column}" for column in columns}, "list": ["a", None]}
    schema = protobuf_schema(connect)
    (content,) = protobuf_encoder(schema, connect)([json.dumps(value).encode()])
    assert protobuf_decoder(registry_text(schema))(b"\x00" + content) == value
    file = FileDescriptorProto.FromString(b64decode(registry_text(schema)))
    message = message_class(file).FromString(content)
    assert {column: getattr(message, column) for column in columns} == {
        column: value[column] for column in columns
    }
    assert through_avro(connect, value) == value


@pytest.mark.parametrize("number", [2**29, -20, 2**31])
def test_a_field_id_without_a_field_number_is_refused_by_the_columns_name(number: int) -> None:
    with pytest.raises(UnsupportedFeature, match=r"'far'.*value_format"):
        protobuf_schema(struct("t.Value", far={**TEXT, "id": number}))


@pytest.mark.parametrize("encode", [avro_schema, protobuf_schema])
@pytest.mark.parametrize("name", ["1st", "a b", "a.b", "ü", "a-b", ""])
def test_a_column_whose_name_is_no_identifier_is_refused_by_it(encode: Any, name: str) -> None:
    with pytest.raises(UnsupportedFeature, match=rf"{name!r}.*rename"):
        encode(struct("t.Value", **{name: TEXT}))
