"""`tidegate table register|halt|reopen|retry|drop`: whether a table takes commits."""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

import typer

from tidegate_messages.outcome import Outcome
from tidegate_producers.cached_clients import CLIENT_ID
from tidegate_producers.cli.output import OUT
from tidegate_producers.cli.row_commands import Uri, root_of
from tidegate_producers.options import TableLocation
from tidegate_producers.writing import table_registration
from tidegate_runtime.cli.service_command import Config, Json, Set, errors_as_exit_status, loaded
from tidegate_runtime.client.client import TIMEOUT_S, Client
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.service.runner import EXIT_FIX
from tidegate_runtime.service.settings import ServiceSettings

TableArgument = Annotated[str, typer.Argument(help="A registered table: its name, root or id.")]
Timeout = Annotated[float, typer.Option(help="Seconds to wait for the answer.", min=1)]


def register(
    uri: Uri,
    name: Annotated[
        str | None, typer.Option(help="Its name: one word, or catalog.schema.table.")
    ] = None,
    timeout: Timeout = TIMEOUT_S,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Register an existing Delta table with Tidegate; registering it again is no error."""
    settings = loaded(ServiceSettings, config, set_)
    with errors_as_exit_status():
        place = TableLocation(root_of(uri), settings.storage)
    outcome = _answer(
        settings, lambda client: table_registration.register(client, place, name, timeout)
    )
    message = f"{place.root} is registered as {outcome.table} at version {outcome.version}"
    _print_outcome(outcome, message, as_json=as_json)


def halt(
    table: TableArgument,
    reason: Annotated[
        str, typer.Option(help="Why; every writer that is refused is shown this text.")
    ],
    timeout: Timeout = TIMEOUT_S,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Refuse commits of a table until it is reopened; a commit in flight is finished first.

    Writers get the reason and are told to try again later. A halt outlasts restarts.
    """
    settings = loaded(ServiceSettings, config, set_)
    outcome = _answer(
        settings, lambda client: table_registration.halt(client, table, reason, timeout)
    )
    _print_outcome(outcome, f"{table} is halted at version {outcome.version}", as_json=as_json)


def reopen(
    table: TableArgument,
    made_anew: Annotated[
        bool,
        typer.Option(
            "--made-anew",
            help="Serve another table that was made in its folder on purpose, under its name.",
        ),
    ] = False,
    timeout: Timeout = TIMEOUT_S,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Take commits of a halted table again, after reading its log and finding it sound."""
    settings = loaded(ServiceSettings, config, set_)

    def ask(client: Client) -> Outcome:
        if not made_anew:
            return table_registration.reopen(client, table, timeout)
        root = client.require(table, timeout).table_root
        place = TableLocation(root, settings.storage)
        return table_registration.serve_anew(client, place, timeout)

    outcome = _answer(settings, ask)
    _print_outcome(outcome, f"{table} is open at version {outcome.version}", as_json=as_json)


class ServiceOption(StrEnum):
    """A service that can set a table aside."""

    COMMITTER = "committer"
    CHECKPOINTER = "checkpointer"
    CDC_PUBLISHER = "cdc-publisher"


def retry(
    table: TableArgument,
    service: Annotated[
        list[ServiceOption] | None, typer.Option(help="Only this service. Repeatable.")
    ] = None,
    timeout: Timeout = TIMEOUT_S,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Have a table tried again by the services that set it aside after an error.

    A committer that halted it reads its log at once; the others try it at their next pass.
    """
    settings = loaded(ServiceSettings, config, set_)
    bus, topics = KafkaBus(settings.kafka, CLIENT_ID), settings.kafka.topics
    services = [option.value for option in service or ServiceOption]
    with errors_as_exit_status(), Client(bus, topics) as client:
        record = client.require(table, timeout)
        tried = table_registration.retry_followers(bus, topics, record, services)
        is_halted = record.status == "halted" and ServiceOption.COMMITTER in services
        if is_halted and record.halted_by_hand is None:
            table_registration.reopen(client, table, timeout)
            tried.append(ServiceOption.COMMITTER.value)
    if as_json:
        OUT.print_json(data={"table": str(record.table), "tried": tried})
        return
    for name in tried:
        effect = "has read its log again" if name == ServiceOption.COMMITTER else "at its next look"
        OUT.print(f"{record.name}: {name} {effect}", soft_wrap=True)
    if is_halted and record.halted_by_hand is not None:
        OUT.print(f"{record.name} is halted by hand; `tidegate table reopen` ends that")
    elif not tried:
        OUT.print(f"{record.name}: nobody has set it aside", soft_wrap=True)


def drop(
    table: TableArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    timeout: Timeout = TIMEOUT_S,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Unregister a table permanently. Its files stay; another table made there can follow it."""
    settings = loaded(ServiceSettings, config, set_)
    if not yes and not _is_confirmed(f"Drop {table} from the gate, for ever?"):
        typer.echo("nothing was dropped: answer yes, or give --yes in a script", err=True)
        raise typer.Exit(EXIT_FIX)
    outcome = _answer(settings, lambda client: table_registration.drop(client, table, timeout))
    _print_outcome(outcome, f"{table} is dropped at version {outcome.version}", as_json=as_json)


def _is_confirmed(question: str) -> bool:
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        return False


def _answer(settings: ServiceSettings, ask: Callable[[Client], Outcome]) -> Outcome:
    with (
        errors_as_exit_status(),
        Client(KafkaBus(settings.kafka, CLIENT_ID), settings.kafka.topics) as client,
    ):
        return ask(client)


def _print_outcome(outcome: Outcome, message: str, *, as_json: bool) -> None:
    if as_json:
        OUT.print_json(outcome.model_dump_json(exclude_none=True))
    else:
        OUT.print(f"{message}{' (it was already)' if outcome.repeat else ''}", soft_wrap=True)
