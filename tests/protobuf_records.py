"""Reads Protobuf records with confluent-kafka, by the rules of docs/changes.md."""

from base64 import b64decode, b64encode
from typing import Any

from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass


def of_message(message: Message) -> dict[str, Any]:
    """Return a message as the JSON that it was made of: the rule that `docs/changes.md` gives."""
    value: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        inner = getattr(message, field.name)
        if field.has_presence and not message.HasField(field.name):
            value[field.name] = None
        elif field.message_type is None:
            value[field.name] = b64encode(inner).decode() if isinstance(inner, bytes) else inner
        elif field.message_type.name == f"{field.name}List":
            value[field.name] = [of_message(item)["value"] for item in inner.items]
        elif field.message_type.name == f"{field.name}Map":
            value[field.name] = {k: of_message(item)["value"] for k, item in inner.items.items()}
        else:
            value[field.name] = of_message(inner)
    return value


def message_class(file: FileDescriptorProto) -> type[Message]:
    """Return the class of the first message of a schema."""
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(
        pool.FindMessageTypeByName(f"{file.package}.{file.message_type[0].name}")
    )


def of_record(
    client: Any, topic: str, record: bytes | None, of: MessageField
) -> dict[str, Any] | None:
    """Return what confluent-kafka's deserializer reads, with classes of the schema it names."""
    if record is None:
        return None
    schema = client.get_schema(int.from_bytes(record[1:5], "big"))
    assert schema.schema_type == "PROTOBUF"
    file = FileDescriptorProto.FromString(b64decode(schema.schema_str))
    read = ProtobufDeserializer(message_class(file), {"use.deprecated.format": False}, client)
    return of_message(read(record, SerializationContext(topic, of)))
