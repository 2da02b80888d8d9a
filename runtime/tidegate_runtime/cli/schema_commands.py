"""`tidegate schemas`: print the JSON Schemas of the records on Kafka."""

from collections.abc import Mapping
from typing import Annotated, Final

import typer

from tidegate_delta.errors import InvalidRequest
from tidegate_messages.codec import FORMATS
from tidegate_messages.json_schemas import registry_body, shipped_schema
from tidegate_messages.message import Message
from tidegate_runtime.cli.command import command

_KINDS: Final[Mapping[str, type[Message]]] = {format_: kind for kind, format_ in FORMATS.items()}


@command(None)
def schemas(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A message, such as `proposal`, or its format; without one, list them.",
            show_default=False,
        ),
    ] = None,
    registry: Annotated[
        bool,
        typer.Option("--registry", help="Print the body that registers it in a schema registry."),
    ] = False,
) -> None:
    """Print the JSON Schema of a message on Kafka, or the formats of all messages."""
    if name is None:
        typer.echo("\n".join(sorted(_KINDS)))
        return
    kind = _kind_of(name)
    content = registry_body(kind) if registry else shipped_schema(kind)
    typer.echo(content.decode(), nl=registry)


def _kind_of(name: str) -> type[Message]:
    """Return the message of a format. Raises: InvalidRequest."""
    for format_, kind in _KINDS.items():
        if name in (format_, format_.partition("/")[0], format_.replace("/", "-")):
            return kind
    raise InvalidRequest(f"no message {name!r} is known; there are {', '.join(sorted(_KINDS))}")
