"""Schemas in a registry, by Confluent's protocol: a record holds the id of its schema.

JSON Schemas are those that Connect's JsonSchemaConverter writes. `misread_columns` finds changes
that a registry takes although readers would misread old records: a registry compares types and
names, and sees neither the scale of a decimal nor what a Protobuf field was before. A reader with
the new schema would take old bytes for other values, in silence.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Self, TypeVar

import orjson
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from tidegate_cdc_publisher.avro_encoding import avro_decoder, avro_encoder, avro_schema
from tidegate_cdc_publisher.protobuf_encoding import (
    FIRST_MESSAGE,
    field_number,
    protobuf_decoder,
    protobuf_encoder,
    protobuf_schema,
    registry_text,
)
from tidegate_cdc_publisher.record_form import Format
from tidegate_delta.errors import InvalidRequest, Misconfigured
from tidegate_runtime.kafka.schema_registry import CONFLICT, NOT_FOUND, asked

_SCALARS: Final = {
    "int8": "integer",
    "int16": "integer",
    "int32": "integer",
    "int64": "integer",
    "float": "number",
    "double": "number",
    "boolean": "boolean",
    "string": "string",
    "bytes": "string",
}


def json_schema(connect: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a Connect schema; an optional value may be null.

    Objects are closed (`additionalProperties` is false): to an open one no property can be added
    at a registry's default compatibility, because old records might have it in another type.
    """
    schema = _kind(connect)
    if connect.get("optional"):
        return {"oneOf": [{"type": "null"}, schema]}
    return schema


def _kind(connect: Mapping[str, Any]) -> dict[str, Any]:
    kind = connect["type"]
    title = {"title": connect["name"]} if "name" in connect else {}
    if kind == "struct":
        properties = {
            column["field"]: {"connect.index": place, **json_schema(column)}
            for place, column in enumerate(connect["fields"])
        }
        required = [column["field"] for column in connect["fields"] if not column.get("optional")]
        content = {"properties": properties, "required": required, "additionalProperties": False}
        return {"type": "object", **title, **content}
    if kind == "array":
        return {"type": "array", **title, "items": json_schema(connect["items"])}
    if kind == "map":
        values = json_schema(connect["values"])
        return {"type": "object", **title, "connect.type": "map", "additionalProperties": values}
    schema: dict[str, Any] = {"type": _SCALARS[kind], **title}
    if kind not in ("string", "boolean"):
        schema["connect.type"] = {"float": "float32", "double": "float64"}.get(kind, kind)
    if "version" in connect:
        schema["connect.version"] = connect["version"]
    if "parameters" in connect:
        schema["connect.parameters"] = connect["parameters"]
    return schema


_Schema = Mapping[str, Any]


def misread_columns(record_format: Format, before: _Schema, after: _Schema) -> Iterator[str]:
    """Yield, as a sentence each, the columns of old records that the schema after them misreads.

    The schemas are Connect's, with field ids where the table has column mapping.
    """
    if before["type"] == after["type"] == "struct":
        if record_format == "protobuf":
            yield from _renumbered(before, after)
        old = {column["field"]: column for column in before["fields"]}
        for column in after["fields"]:
            if column["field"] in old:
                yield from misread_columns(record_format, old[column["field"]], column)
    elif before["type"] == after["type"] and before["type"] in ("array", "map"):
        part = "items" if before["type"] == "array" else "values"
        named = [{**schema[part], "field": after["field"]} for schema in (before, after)]
        yield from misread_columns(record_format, *named)
    else:
        kinds = _meaning(before), _meaning(after)
        if kinds[0] != kinds[1]:
            yield f"column {after['field']!r} was {kinds[0]} and is {kinds[1]}"


def _meaning(schema: _Schema) -> str:
    """Return the name of a type that means more than the type itself, with its parameters."""
    parameters = ", ".join(
        f"{name.removeprefix('connect.decimal.')} {value}"
        for name, value in sorted(schema.get("parameters", {}).items())
    )
    name = schema.get("name", "a plain value")
    return f"{name} ({parameters})" if parameters else name


def _renumbered(before: _Schema, after: _Schema) -> Iterator[str]:
    """Yield the fields of a message whose numbers another column had, or that have others now."""
    old_numbers = {
        column["field"]: (field_number(column, place), "id" in column)
        for place, column in enumerate(before["fields"], start=1)
    }
    old_names = {number: name for name, (number, _) in old_numbers.items()}
    for place, column in enumerate(after["fields"], start=1):
        name, number = column["field"], field_number(column, place)
        former, has_id = old_numbers.get(name, (number, False))
        taken_from = old_names.get(number, name)
        if has_id and "id" in column:
            continue  # By its id a column is itself under any name.
        if former != number:
            yield f"column {name!r} had the field number {former} and has {number}"
        elif taken_from != name and not ("id" in column and old_numbers[taken_from][1]):
            yield f"column {name!r} has the field number {number} that {taken_from!r} had"


INCOMPATIBLE: Final = "SchemaIncompatible"
"""The error class of a stream whose next schema the registry does not take."""

_MAGIC: Final = b"\x00"
_ID_END: Final = 5
"""Where the payload begins: behind the zero byte and the schema's number."""

_SETTING: Final = "the publisher's setting cdc.registry"

_Encoder = Callable[[Sequence[bytes]], list[bytes]]
_DECODERS: Final[Mapping[str, Callable[[str], Callable[[bytes], Any]]]] = {
    "AVRO": avro_decoder,
    "JSON": lambda _: orjson.loads,
    "PROTOBUF": protobuf_decoder,
}
T = TypeVar("T")


class Registry:
    """Encodes payloads with schemas that stand in a registry, which it registers once each."""

    def __init__(self, client: SchemaRegistryClient, url: str) -> None:
        self._client = client
        self._url = url
        self._known: dict[tuple[str, str, str], tuple[bytes, _Encoder | None]] = {}
        self._decoders: dict[int, Callable[[bytes], Any]] = {}

    @classmethod
    def at(cls, url: str, properties: Mapping[str, str]) -> Self:
        """Return the registry at a URL; `mock://` is one in memory.

        `properties` are further settings of confluent-kafka's client.
        """
        return cls(SchemaRegistryClient.new_client({"url": url, **properties}), url)

    def encoded(
        self, subject: str, record_format: Format, connect: str, payloads: Iterable[bytes]
    ) -> list[bytes | None]:
        """Return JSON payloads of a Connect schema in a format, each led by its schema's id.

        Raises: InvalidRequest (`SchemaIncompatible`); Unavailable, Misconfigured, for a registry
        that does not answer or takes nothing from us; UnsupportedFeature.
        """
        key = (subject, record_format, connect)
        if key not in self._known:
            self._known[key] = self._registered(subject, record_format, orjson.loads(connect))
        head, encode = self._known[key]
        if encode is None:
            return [head + payload for payload in payloads]
        return [head + message for message in encode([*payloads])]

    def evolve(self, subject: str, record_format: Format, before: str, after: str) -> None:
        """Register the schema that follows another one, before anything is encoded with it.

        Raises: as `encoded`; InvalidRequest (`SchemaIncompatible`), for one whose readers would
        misread old records, where the registry demands a compatibility.
        """
        misread = [*misread_columns(record_format, orjson.loads(before), orjson.loads(after))]
        if misread and self._compatibility(subject) != "NONE":
            raise _incompatible(
                f"readers of {subject} that have the new schema would misread old records: "
                f"{'; '.join(misread)}"
            )
        schema = _written(record_format, orjson.loads(after))[0]
        if not self._may_return(subject, schema):
            raise _incompatible(
                f"{subject} had this schema before: the schema registry at {self._url} takes it "
                "unseen, and its readers could not read the records since"
            )
        self.encoded(subject, record_format, after, ())

    def decoded(self, content: bytes) -> bytes:
        """Return a payload that is led by the number of its schema, as JSON; bytes as base64.

        Raises: Unavailable, Misconfigured.
        """
        number = int.from_bytes(content[1:_ID_END], "big")
        if number not in self._decoders:
            schema = self._asked(
                f"the schema with the id {number}",
                # Without this format a registry returns Protobuf schemas as source text.
                lambda: self._client.get_schema(number, fmt="serialized"),
            )
            self._decoders[number] = _DECODERS[schema.schema_type or "AVRO"](
                schema.schema_str or ""
            )
        return orjson.dumps(self._decoders[number](content[_ID_END:]), default=_text)

    def _registered(
        self, subject: str, record_format: Format, connect: dict[str, Any]
    ) -> tuple[bytes, _Encoder | None]:
        schema, encode, behind_id = _written(record_format, connect)
        number = self._asked(
            f"the schema of {subject}", lambda: int(self._client.register_schema(subject, schema))
        )
        return _MAGIC + number.to_bytes(4, "big") + behind_id, encode

    def _may_return(self, subject: str, schema: Schema) -> bool:
        """Return whether a schema is compatible with the newest one, if it was there before.

        To register one again is no registration for a registry, which then compares nothing.
        """

        def ask() -> bool:
            try:
                self._client.lookup_schema(subject, schema)
            except SchemaRegistryError as error:
                if error.http_status_code != NOT_FOUND:
                    raise
                return True
            return self._client.test_compatibility(subject, schema)

        return self._asked(f"the compatibility of {subject}", ask)

    def _compatibility(self, subject: str) -> str:
        """Return the subject's compatibility, which is the registry's if it has none of its own."""

        def ask() -> str:
            try:
                return self._client.get_compatibility(subject)
            except SchemaRegistryError as error:
                if error.http_status_code != NOT_FOUND:
                    raise
                return self._client.get_compatibility()

        return self._asked(f"the compatibility of {subject}", ask)

    def _asked(self, about: str, ask: Callable[[], T]) -> T:
        """Return what the registry answers."""
        try:
            return asked(self._url, _SETTING, about, ask)
        except SchemaRegistryError as error:
            problem = f"the schema registry at {self._url} refuses {about}: {error}"
            if error.http_status_code == CONFLICT:
                raise _incompatible(problem) from error
            raise Misconfigured(f"{problem}; look at {_SETTING}") from error


def _written(
    record_format: Format, connect: dict[str, Any]
) -> tuple[Schema, _Encoder | None, bytes]:
    """Return a Connect schema as the registry has it, what encodes by it, and what leads a payload.

    Raises: UnsupportedFeature.
    """
    match record_format:
        case "avro":
            return Schema(json.dumps(avro_schema(connect)), "AVRO"), avro_encoder(connect), b""
        case "protobuf":
            messages = protobuf_schema(connect)
            encode = protobuf_encoder(messages, connect)
            return Schema(registry_text(messages), "PROTOBUF"), encode, FIRST_MESSAGE
        case _:
            return Schema(json.dumps(json_schema(connect)), "JSON"), None, b""


def _incompatible(problem: str) -> InvalidRequest:
    return InvalidRequest(
        f"{problem}; set the subject's compatibility to NONE for this change, or give the table's "
        "stream a topic of another name (cdc.tables.<name>.topic) and begin anew",
        error_class=INCOMPATIBLE,
    )


def _text(value: Any) -> str:
    """Return a value as the text that stands for it in JSON."""
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)
