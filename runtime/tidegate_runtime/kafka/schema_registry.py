"""A registry of schemas by Confluent's protocol. Needs the extra `registry`."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Self, TypeVar

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from tidegate_delta.errors import InvalidRequest, Misconfigured, Unavailable
from tidegate_runtime.kafka.protobuf_messages import (
    Files,
    built_in_files,
    is_built_in,
    parsed_file,
)

NOT_FOUND: Final = 404
CONFLICT: Final = 409
_AVRO: Final = "AVRO"
_PROTOBUF: Final = "PROTOBUF"
_JSON: Final = "JSON"

T = TypeVar("T")


def asked(url: str, setting: str, about: str, ask: Callable[[], T]) -> T:
    """Return what the registry at a URL answers. `setting` is the one that names it.

    Raises: Unavailable; Misconfigured, for a registry that refuses to answer; SchemaRegistryError,
    for what it does not have, or what contradicts it.
    """
    try:
        return ask()
    except SchemaRegistryError as error:
        if error.http_status_code in (NOT_FOUND, CONFLICT):
            raise
        problem = f"the schema registry at {url} refuses {about}: {error}"
        if error.http_status_code >= 500:
            raise Unavailable(problem) from error
        raise Misconfigured(f"{problem}; look at {setting}") from error
    except Exception as error:
        # The client passes on the errors of its HTTP library, which are no class of its own.
        raise Unavailable(
            f"the schema registry at {url} does not answer ({error}): look at it, and at {setting}"
        ) from error


class RegisteredSchemas:
    """The schemas in a registry, by their ids."""

    def __init__(self, client: SchemaRegistryClient, url: str, setting: str) -> None:
        self._client = client
        self._url = url
        self._setting = setting

    @classmethod
    def at(cls, url: str, properties: Mapping[str, str], setting: str) -> Self:
        """Return the registry at a URL; `mock://` is one in memory.

        `properties` are further settings of confluent-kafka's client, such as
        `basic.auth.user.info` and `ssl.ca.location`; `setting` is the one that names the URL.
        """
        return cls(SchemaRegistryClient.new_client({"url": url, **properties}), url, setting)

    def avro(self, schema_id: int) -> str | None:
        """Return the Avro schema with an id, or None if there is none.

        Raises: InvalidRequest, for a schema of another kind, or one that refers to others;
        Unavailable; Misconfigured, for a registry that refuses to answer.
        """
        schema = self._schema(schema_id, _AVRO)
        if schema is not None and schema.references:
            names = ", ".join(str(reference.name) for reference in schema.references)
            raise InvalidRequest(
                f"the schema {schema_id} in the registry refers to others ({names}), which Spark's "
                "from_avro can't read: register it with these written out",
                error_class="DELTA_ILLEGAL_OPTION",
            )
        return None if schema is None else schema.schema_str

    def protobuf(self, schema_id: int) -> Files | None:
        """Return the files of the Protobuf schema with an id, or None if there is none.

        Raises: InvalidRequest, for a schema of another kind, or one that can't be used;
        Unavailable; Misconfigured.
        """
        schema = self._schema(schema_id, _PROTOBUF, "serialized")
        if schema is None:
            return None
        files: dict[str, bytes] = {}
        self._add_files(files, f"{schema_id}.proto", schema)
        return tuple(files.values())

    def json(self, schema_id: int) -> str | None:
        """Return the JSON Schema with an id, or None if there is none.

        Raises: InvalidRequest, for a schema of another kind; Unavailable; Misconfigured.
        """
        schema = self._schema(schema_id, _JSON)
        return None if schema is None else schema.schema_str

    def _schema(self, schema_id: int, expected: str, form: str | None = None) -> Schema | None:
        try:
            # Without this form a registry returns Protobuf schemas as source text.
            schema = self._asked(
                f"the schema with the id {schema_id}",
                lambda: self._client.get_schema(schema_id, fmt=form),
            )
        except SchemaRegistryError:
            return None
        kind = schema.schema_type or _AVRO
        if kind != expected:
            raise InvalidRequest(
                f"the schema {schema_id} in the registry is {kind}, and the format is "
                f"{expected.lower()}: set the format to {kind.lower()} for such a topic",
                error_class="DELTA_ILLEGAL_OPTION",
            )
        return schema

    def _add_files(self, files: dict[str, bytes], name: str, schema: Schema) -> None:
        """Add a schema's file under the name that others import, behind those that it imports."""
        for reference in schema.references or ():
            imported, subject = str(reference.name), str(reference.subject)
            if imported in files or is_built_in(imported):
                continue
            ask = partial(self._client.get_version, subject, reference.version or "latest")
            try:
                found = self._asked(
                    f"version {reference.version} of {subject}",
                    partial(ask, deleted=True, fmt="serialized"),
                )
            except SchemaRegistryError as error:
                raise InvalidRequest(
                    f"the schema {name} refers to {imported}, version {reference.version} of "
                    f"{subject}, which the registry does not have: register it",
                    error_class="DELTA_ILLEGAL_OPTION",
                ) from error
            self._add_files(files, imported, found.schema)
        file = parsed_file(schema.schema_str or "", name)
        for imported in file.dependency:
            if imported not in files:
                files |= built_in_files(imported)
        files[name] = file.SerializeToString()

    def _asked(self, about: str, ask: Callable[[], T]) -> T:
        return asked(self._url, self._setting, about, ask)
