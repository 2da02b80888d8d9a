"""A registry of schemas by Confluent's protocol. Needs the extra `registry`."""

from collections.abc import Callable, Mapping
from typing import Final, Self, TypeVar

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from tidegate_delta.errors import InvalidRequest, Misconfigured, Unavailable

NOT_FOUND: Final = 404
CONFLICT: Final = 409
_AVRO: Final = "AVRO"

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
        try:
            schema = asked(
                self._url,
                self._setting,
                f"the schema with the id {schema_id}",
                lambda: self._client.get_schema(schema_id),
            )
        except SchemaRegistryError:
            return None
        kind = schema.schema_type or _AVRO
        if kind != _AVRO:
            raise InvalidRequest(
                f"the schema {schema_id} in the registry is {kind}, and the format is avro: set "
                "the format to json for JSON Schema",
                error_class="DELTA_ILLEGAL_OPTION",
            )
        if schema.references:
            names = ", ".join(str(reference.name) for reference in schema.references)
            raise InvalidRequest(
                f"the schema {schema_id} in the registry refers to others ({names}), which Spark's "
                "from_avro can't read: register it with these written out",
                error_class="DELTA_ILLEGAL_OPTION",
            )
        return schema.schema_str
