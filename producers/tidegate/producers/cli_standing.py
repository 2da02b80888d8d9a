"""`tidegate table register|halt|reopen|drop`: whether the gate takes commits for a table."""

from collections.abc import Callable
from typing import Annotated

import typer

from tidegate.pipeline.outcome import Outcome
from tidegate.producers import registering
from tidegate.producers.cli_rows import Uri, root_of
from tidegate.producers.cli_shown import OUT
from tidegate.producers.client import TIMEOUT_S, Client
from tidegate.producers.connection import CLIENT_ID
from tidegate.producers.options import Place
from tidegate.runtime.cli.service import Config, Json, Set, errors_told, loaded
from tidegate.runtime.kafka.bus import KafkaBus
from tidegate.runtime.service import EXIT_FIX
from tidegate.runtime.settings import ServiceSettings

Table = Annotated[str, typer.Argument(help="A registered table: its name, root or id.")]
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
    """Register an existing Delta table with the gate; doing so again is no error."""
    settings = loaded(ServiceSettings, config, set_)
    with errors_told():
        place = Place(root_of(uri), settings.storage)
    outcome = _answer(settings, lambda client: registering.register(client, place, name, timeout))
    told = f"{place.root} is registered as {outcome.table} at version {outcome.version}"
    _tell(outcome, told, as_json=as_json)


def halt(
    table: Table,
    reason: Annotated[
        str, typer.Option(help="Why; every writer that is refused is shown this text.")
    ],
    timeout: Timeout = TIMEOUT_S,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Take no more commits of a table until it is reopened; a commit under way is finished first.

    Writers get the reason and are told to try again later. A halt outlasts restarts.
    """
    settings = loaded(ServiceSettings, config, set_)
    outcome = _answer(settings, lambda client: registering.halt(client, table, reason, timeout))
    _tell(outcome, f"{table} is halted at version {outcome.version}", as_json=as_json)


def reopen(
    table: Table,
    timeout: Timeout = TIMEOUT_S,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Take commits of a halted table again, once its log has been read and found sound."""
    settings = loaded(ServiceSettings, config, set_)
    outcome = _answer(settings, lambda client: registering.reopen(client, table, timeout))
    _tell(outcome, f"{table} is open at version {outcome.version}", as_json=as_json)


def drop(
    table: Table,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    timeout: Timeout = TIMEOUT_S,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Unregister a table for ever. Its files stay; its id and root can't be registered again."""
    settings = loaded(ServiceSettings, config, set_)
    if not yes and not _is_meant(f"Drop {table} from the gate, for ever?"):
        typer.echo("nothing was dropped: answer yes, or give --yes in a script", err=True)
        raise typer.Exit(EXIT_FIX)
    outcome = _answer(settings, lambda client: registering.drop(client, table, timeout))
    _tell(outcome, f"{table} is dropped at version {outcome.version}", as_json=as_json)


def _is_meant(question: str) -> bool:
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        return False


def _answer(settings: ServiceSettings, ask: Callable[[Client], Outcome]) -> Outcome:
    with (
        errors_told(),
        Client(KafkaBus(settings.kafka, CLIENT_ID), settings.kafka.topics) as client,
    ):
        return ask(client)


def _tell(outcome: Outcome, told: str, *, as_json: bool) -> None:
    if as_json:
        OUT.print_json(outcome.model_dump_json(exclude_none=True))
    else:
        OUT.print(f"{told}{' (it was already)' if outcome.repeat else ''}", soft_wrap=True)
