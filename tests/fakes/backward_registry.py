"""A schema registry in memory that takes a schema only if it can read what the last one wrote.

The rules are those of Confluent's registry at its default setting, BACKWARD. Avro's are judged by
Apache's library; those for JSON Schema and Protobuf are stated here, as far as the schemas of the
publisher go, from what the registry's own comparison does.
"""

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any, Final

from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.schema import parse
from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry.error import SchemaRegistryError
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

_SCALAR_GROUPS: Final = {
    FieldDescriptorProto.TYPE_INT32: "integer",
    FieldDescriptorProto.TYPE_INT64: "integer",
    FieldDescriptorProto.TYPE_BOOL: "integer",
    FieldDescriptorProto.TYPE_STRING: "text or bytes",
    FieldDescriptorProto.TYPE_BYTES: "text or bytes",
}


class BackwardRegistry:
    """What the publisher and deserializers ask of confluent-kafka's client; levels by subject."""

    def __init__(self) -> None:
        self.versions: dict[str, list[int]] = {}
        self.schemas: list[Schema] = []
        self.levels: dict[str, str] = {}
        self.last: dict[str, int] = {}
        """The id last given out for each subject."""

    def register_schema(self, subject: str, schema: Schema) -> int:
        """Return the schema's id. Raises: SchemaRegistryError (409)."""
        ids = self.versions.setdefault(subject, [])
        number = self._known(subject, schema)
        if number is None:
            problems = self._problems(subject, schema)
            if problems:
                raise SchemaRegistryError(409, 409, f"incompatible: {'; '.join(problems)}")
            self.schemas.append(schema)
            number = len(self.schemas)
            ids.append(number)
        self.last[subject] = number
        return number

    def lookup_schema(self, subject: str, schema: Schema) -> int:
        """Return the id of a schema that stands there. Raises: SchemaRegistryError (404)."""
        number = self._known(subject, schema)
        if number is None:
            raise SchemaRegistryError(404, 40403, "not found")
        return number

    def test_compatibility(self, subject: str, schema: Schema) -> bool:
        """Return whether a schema may follow the newest one."""
        return not self._problems(subject, schema)

    def get_schema(self, number: int, *_: Any, **__: Any) -> Schema:
        """Return the schema with an id."""
        return self.schemas[number - 1]

    def get_compatibility(self, subject: str | None = None) -> str:
        """Return the level of a subject."""
        return self.levels.get(subject or "", "BACKWARD")

    def _known(self, subject: str, schema: Schema) -> int | None:
        for number in self.versions.get(subject, ()):
            old = self.schemas[number - 1]
            if (old.schema_type, old.schema_str) == (schema.schema_type, schema.schema_str):
                return number
        return None

    def _problems(self, subject: str, schema: Schema) -> list[str]:
        ids = self.versions.get(subject)
        if not ids or self.get_compatibility(subject) != "BACKWARD":
            return []
        return [*_problems(self.schemas[ids[-1] - 1], schema)]


def _problems(original: Schema, update: Schema) -> Iterator[str]:
    """Yield why readers with `update` can't read what was written with `original`."""
    if original.schema_type != update.schema_type:
        yield "another type of schema"
        return
    before, after = original.schema_str or "", update.schema_str or ""
    match update.schema_type:
        case "AVRO":
            checker = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]  # has no annotations
            result = checker.get_compatibility(parse(after), parse(before))
            if result.compatibility is not SchemaCompatibilityType.compatible:
                yield from result.messages
        case "JSON":
            yield from json_problems(json.loads(before), json.loads(after), "#")
        case _:
            files = [FileDescriptorProto.FromString(b64decode(text)) for text in (before, after)]
            yield from protobuf_problems(files[0].message_type, files[1].message_type, "")


def json_problems(original: Mapping[str, Any], update: Mapping[str, Any], at: str) -> Iterator[str]:
    """Yield the incompatible differences of two JSON Schemas."""
    if "oneOf" in original or "oneOf" in update:
        yield from _union_problems(original, update, at)
        return
    kinds = original.get("type"), update.get("type")
    if kinds != ("integer", "number") and kinds[0] != kinds[1]:
        yield f"{at}: {'TYPE_NARROWED' if kinds == ('number', 'integer') else 'TYPE_CHANGED'}"
    elif kinds[0] == "array":
        yield from json_problems(original["items"], update["items"], f"{at}/items")
    elif kinds[0] == "object":
        yield from _object_problems(original, update, at)


def _union_problems(
    original: Mapping[str, Any], update: Mapping[str, Any], at: str
) -> Iterator[str]:
    before = original.get("oneOf", [original])
    if "oneOf" not in update:
        yield f"{at}: TYPE_CHANGED"
        return
    free = list(update["oneOf"])
    for choice in before:
        taken = next((item for item in free if not [*json_problems(choice, item, at)]), None)
        if taken is None:
            yield f"{at}: COMBINED_TYPE_SUBSCHEMAS_CHANGED"
        else:
            free.remove(taken)


def _object_problems(
    original: Mapping[str, Any], update: Mapping[str, Any], at: str
) -> Iterator[str]:
    before, after = original.get("properties", {}), update.get("properties", {})
    more_before = original.get("additionalProperties", True)
    more_after = update.get("additionalProperties", True)
    for name in sorted({*before, *after}):
        path = f"{at}/{name}"
        was_required, is_required = (
            name in schema.get("required", ()) for schema in (original, update)
        )
        if name not in after:
            if more_after is not True:
                yield f"{path}: PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"
        elif name not in before:
            if more_before is True:
                yield f"{path}: PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"
            elif is_required:
                yield f"{path}: REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"
        else:
            if is_required and not was_required:
                yield f"{path}: REQUIRED_ATTRIBUTE_ADDED"
            yield from json_problems(before[name], after[name], path)
    if isinstance(more_before, dict) and isinstance(more_after, dict):
        yield from json_problems(more_before, more_after, f"{at}/additionalProperties")
    elif more_before is True and more_after is False:
        yield f"{at}: ADDITIONAL_PROPERTIES_REMOVED"


def protobuf_problems(original: Any, update: Any, at: str) -> Iterator[str]:
    """Yield the incompatible differences of messages that stand beside one another."""
    before: dict[str, DescriptorProto] = {message.name: message for message in original}
    after: dict[str, DescriptorProto] = {message.name: message for message in update}
    for name, message in before.items():
        if name not in after:
            if not message.options.map_entry:
                yield f"{at}/{name}: MESSAGE_REMOVED"
            continue
        fields = {field.number: field for field in after[name].field}
        for field in message.field:
            if field.number in fields:
                yield from _field_problems(field, fields[field.number], f"{at}/{name}")
        yield from protobuf_problems(message.nested_type, after[name].nested_type, f"{at}/{name}")


def _field_problems(
    original: FieldDescriptorProto, update: FieldDescriptorProto, at: str
) -> Iterator[str]:
    path = f"{at}/{original.number}"
    message = FieldDescriptorProto.TYPE_MESSAGE
    if message in (original.type, update.type):
        if original.type != update.type:
            yield f"{path}: FIELD_KIND_CHANGED"
        elif original.type_name != update.type_name:
            yield f"{path}: FIELD_NAMED_TYPE_CHANGED"
        return
    groups = [_SCALAR_GROUPS.get(field.type, field.type) for field in (original, update)]
    if groups[0] != groups[1]:
        yield f"{path}: FIELD_SCALAR_KIND_CHANGED"
