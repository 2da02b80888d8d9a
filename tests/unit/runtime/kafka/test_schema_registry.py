"""Schemas are asked for by their ids; what a registry answers is one of our errors."""

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from tests.support.protobuf_orders import LINE, order_file, part_file
from tidegate_cdc_publisher.protobuf_encoding import registry_text
from tidegate_delta.errors import InvalidRequest, Misconfigured, Unavailable
from tidegate_runtime.kafka.protobuf_messages import message_class
from tidegate_runtime.kafka.schema_registry import RegisteredSchemas, asked

RECORD = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}'
URL = "mock://orders"
REFERENCE = SchemaReference("shop/part.proto", "s0", 1)


def registered(*schemas: Schema) -> tuple[RegisteredSchemas, list[int]]:
    client = SchemaRegistryClient.new_client({"url": URL})
    ids = [client.register_schema(f"s{n}", schema) for n, schema in enumerate(schemas)]
    return RegisteredSchemas(client, URL, "--registry"), ids


def test_a_schema_is_found_by_its_id_and_an_unknown_one_is_not() -> None:
    schemas, [known] = registered(Schema(RECORD, "AVRO"))
    assert schemas.avro(known) == RECORD
    assert schemas.avro(known + 1) is None


def test_a_json_schema_is_found_by_its_id() -> None:
    schemas, [known] = registered(Schema('{"type": "object"}', "JSON"))
    assert schemas.json(known) == '{"type": "object"}'
    assert schemas.json(known + 1) is None


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        (Schema('{"type": "object"}', "JSON"), "set the format to json"),
        (
            Schema(RECORD, "AVRO", [SchemaReference("Part", "part", 1)]),
            r"refers to others \(Part\).* written out",
        ),
    ],
)
def test_a_schema_that_cannot_be_used_says_what_to_do(schema: Schema, fault: str) -> None:
    schemas, [known] = registered(schema)
    with pytest.raises(InvalidRequest, match=fault):
        schemas.avro(known)


def test_a_protobuf_schema_comes_with_the_files_that_it_imports() -> None:
    part = Schema(registry_text(part_file()), "PROTOBUF")
    order = Schema(registry_text(order_file()), "PROTOBUF", [REFERENCE])
    schemas, ids = registered(part, order)
    files = schemas.protobuf(ids[1])
    assert files is not None
    assert message_class(files, LINE).DESCRIPTOR.full_name == "shop.Order.Line"
    assert schemas.protobuf(ids[1] + 1) is None


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        (Schema(RECORD, "AVRO"), "set the format to avro"),
        (Schema(registry_text(order_file()), "PROTOBUF"), "imports shop/part.proto"),
        (
            Schema(registry_text(order_file()), "PROTOBUF", [REFERENCE]),
            "refers to shop/part.proto, version 1 of s0, which the registry does not have",
        ),
        (Schema("message Order {}", "PROTOBUF"), "no serialized descriptor"),
    ],
)
def test_a_protobuf_schema_that_cannot_be_used_says_what_to_do(schema: Schema, fault: str) -> None:
    client = SchemaRegistryClient.new_client({"url": URL})
    number = client.register_schema("orders", schema)
    with pytest.raises(InvalidRequest, match=fault):
        RegisteredSchemas(client, URL, "--registry").protobuf(number)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (SchemaRegistryError(401, 401, "no"), Misconfigured),
        (SchemaRegistryError(503, 50003, "busy"), Unavailable),
        (SchemaRegistryError(404, 40403, "none"), SchemaRegistryError),
        (ConnectionError("refused"), Unavailable),
    ],
)
def test_what_a_registry_answers_is_an_error_of_ours(
    error: Exception, expected: type[Exception]
) -> None:
    def ask() -> None:
        raise error

    with pytest.raises(expected) as caught:
        asked("http://registry", "--registry", "the schema 7", ask)
    if expected is not SchemaRegistryError:
        assert "http://registry" in str(caught.value)
