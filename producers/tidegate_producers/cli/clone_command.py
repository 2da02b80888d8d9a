"""`tidegate table clone` and `generate`: a shallow clone of a table; its symlink manifests."""

from typing import Annotated

import typer

from tidegate_delta.errors import InvalidRequest
from tidegate_producers.cached_clients import CLIENT_ID
from tidegate_producers.cli.output import OUT
from tidegate_producers.cli.registration_commands import Timeout
from tidegate_producers.cli.restore_command import moment_from
from tidegate_producers.cli.row_commands import UriOrName, location_of, root_of
from tidegate_producers.options import TableLocation, WriteOptions
from tidegate_producers.writing import symlink_manifest
from tidegate_producers.writing.restore import Moment
from tidegate_producers.writing.shallow_clone import CloneRequest, clone
from tidegate_runtime.cli.service_command import Config, Json, Set, errors_as_exit_status, loaded
from tidegate_runtime.client.client import TIMEOUT_S, Client
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.service.settings import ServiceSettings


def clone_table(  # noqa: PLR0913 - each is an option of the command
    uri: UriOrName,
    target: Annotated[str, typer.Argument(help="The clone's root: a path or URI.")],
    at: Annotated[
        str | None, typer.Option(help="A version, or a time in UTC: 2024-02-29 12:00:00.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The name to register the clone by.")] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Make a table at the target the clone.")
    ] = False,
    timeout: Timeout = TIMEOUT_S,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Make a shallow clone: a table of its own that begins with the files of another one.

    The files stay where they are; a vacuum of the source may take them.
    """
    settings = loaded(ServiceSettings, config, set_)
    with errors_as_exit_status():
        source = location_of(uri, settings)
        if "/" not in target:
            raise InvalidRequest(
                f"{target!r} is no path: give the clone's root with a slash, such as ./{target}, "
                "or as a URI",
                error_class="NotADeltaTable",
            )
        place = TableLocation(root_of(target), settings.storage)
        options = WriteOptions(place, settings.kafka, name=name, outcome_timeout_s=timeout)
        request = CloneRequest(source, moment_from(at, "--at") if at else Moment(), replace)
        bus, topics = KafkaBus(settings.kafka, CLIENT_ID), settings.kafka.topics
        with Client(bus, topics) as client:
            outcome = clone(client, options, request)
    if as_json:
        OUT.print_json(outcome.model_dump_json(exclude_none=True))
    else:
        OUT.print(f"{place.root} is a clone in version {outcome.version}", soft_wrap=True)


def generate_manifests(
    uri: UriOrName, config: Config = None, set_: Set = None, as_json: Json = False
) -> None:
    """Write the symlink manifests of a table's newest version; later versions leave them as is."""
    settings = loaded(ServiceSettings, config, set_)
    with errors_as_exit_status():
        place = location_of(uri, settings)
        written = symlink_manifest.generate(place)
    if as_json:
        OUT.print_json(data={"manifests": written})
    else:
        OUT.print(f"{place.root}: {len(written)} manifests are written", soft_wrap=True)
