"""Which table a command is about, and the client that reaches the committer."""

from pathlib import Path
from typing import Annotated

import typer

from tidegate_delta.errors import InvalidRequest
from tidegate_producers.cached_clients import CLIENT_ID
from tidegate_producers.options import TableLocation
from tidegate_runtime.client.client import Client
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.service.settings import ServiceSettings
from tidegate_runtime.storage.open_store import canonical_root

Uri = Annotated[
    str,
    typer.Argument(
        help="The table's root: a path, or a URI: file://, s3://, gs:// or abfss://, in which %20 "
        "is a space."
    ),
]
UriOrName = Annotated[
    str,
    typer.Argument(
        metavar="TABLE", help="The table's root (a path or URI), or the name it is registered by."
    ),
]
TableArgument = Annotated[str, typer.Argument(help="A registered table: its name, root or id.")]
Timeout = Annotated[float, typer.Option(help="Seconds to wait for the answer.", min=1)]


def bus_of(settings: ServiceSettings) -> KafkaBus:
    """Return the bus on which a command reads topics."""
    return KafkaBus(settings.kafka, CLIENT_ID)


def client_of(settings: ServiceSettings) -> Client:
    """Return a client, to be closed by the command."""
    return Client(bus_of(settings), settings.kafka.topics)


def location_of(root_or_name: str, settings: ServiceSettings) -> TableLocation:
    """Return where a table lies, given by its root, or by the name that it is registered by.

    The registry is read only for a name.
    Raises: Misconfigured; InvalidRequest (`TableNotRegistered`); Unavailable.
    """
    if "/" in root_or_name or Path(root_or_name).exists():
        return TableLocation(canonical_root(root_or_name), settings.storage)
    with client_of(settings) as client:
        return TableLocation(client.require(root_or_name).table_root, settings.storage)


def root_of(uri: str) -> str:
    """Return the canonical URI of a root, of a table that need not be registered.

    Raises: Misconfigured; InvalidRequest, for a name.
    """
    if "/" not in uri and not Path(uri).exists():
        raise InvalidRequest(
            f"there is no folder {uri!r} here; give its root: a path with a slash, or a URI",
            error_class="NotADeltaTable",
        )
    return canonical_root(uri)
