"""Schemas in a registry, by Confluent's protocol: a record holds the id of its schema."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Self, TypeVar

import orjson
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from tidegate_cdc_publisher.avro_encoding import avro_decoder, avro_encoder, avro_schema
from tidegate_cdc_publisher.json_schema import json_schema
from tidegate_cdc_publisher.protobuf_encoding import (
    FIRST_MESSAGE,
    protobuf_decoder,
    protobuf_encoder,
    protobuf_schema,
    registry_text,
)
from tidegate_cdc_publisher.record_form import Format
from tidegate_cdc_publisher.schema_evolution import misread_columns
from tidegate_delta.errors import InvalidRequest, Misconfigured, Unavailable

INCOMPATIBLE: Final = "SchemaIncompatible"
"""The error class of a stream whose next schema the registry does not take."""

_MAGIC: Final = b"\x00"
_ID_END: Final = 5
"""Where the payload begins: behind the zero byte and the schema's number."""

_CONFLICT: Final = 409
_NOT_FOUND: Final = 404

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
                if error.http_status_code != _NOT_FOUND:
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
                if error.http_status_code != _NOT_FOUND:
                    raise
                return self._client.get_compatibility()

        return self._asked(f"the compatibility of {subject}", ask)

    def _asked(self, about: str, ask: Callable[[], T]) -> T:
        """Return what the registry answers."""
        try:
            return ask()
        except SchemaRegistryError as error:
            raise self._refusal(about, error) from error
        except Exception as error:
            # The client passes on the errors of its HTTP library, which are no class of its own.
            raise Unavailable(
                f"the schema registry at {self._url} does not answer ({error}): look at it, and at "
                "the publisher's setting cdc.registry"
            ) from error

    def _refusal(self, about: str, error: SchemaRegistryError) -> Exception:
        problem = f"the schema registry at {self._url} refuses {about}: {error}"
        if error.http_status_code == _CONFLICT:
            return _incompatible(problem)
        if error.http_status_code >= 500:
            return Unavailable(problem)
        return Misconfigured(f"{problem}; look at the publisher's setting cdc.registry")


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
