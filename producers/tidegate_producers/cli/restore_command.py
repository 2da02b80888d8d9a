"""`tidegate table restore`: what a restore to an older version would change; with --apply it is."""

from typing import Annotated

import typer

from tidegate_delta.errors import InvalidRequest
from tidegate_producers.cli.table_place import Timeout, UriOrName, client_of, location_of
from tidegate_producers.options import time_ms
from tidegate_producers.writing.restore import RestorePoint, restore, survey
from tidegate_producers.writing.table_write import WriteRequest
from tidegate_runtime.cli.command import Result, command
from tidegate_runtime.client.client import TIMEOUT_S
from tidegate_runtime.service.settings import ServiceSettings


@command()
def restore_table(
    settings: ServiceSettings,
    uri: UriOrName,
    to: Annotated[
        str,
        typer.Option(help="A version, or a time in UTC: 2024-02-29 12:00:00.", show_default=False),
    ],
    apply: Annotated[
        bool, typer.Option("--apply", help="Restore; without it only show what would change.")
    ] = False,
    timeout: Timeout = TIMEOUT_S,
) -> Result:
    """Make a table what it was at an older version: its files, columns and properties.

    It is a new version, so it can be undone in the same way. The protocol stays as it is.
    """
    moment = moment_from(to, "--to")
    place = location_of(uri, settings)
    version = None
    if apply:
        with client_of(settings) as client:
            plan, outcome = restore(client, place, moment, WriteRequest(timeout))
        version = outcome.version if outcome else None
    else:
        plan = survey(place, moment)
    facts = {"restored_to": plan.version, "applied": apply, "version": version}
    data = {**facts, "changes_metadata": plan.changes_metadata, **plan.metrics}
    if plan.is_nothing:
        return Result(data, [f"the table is as it was at version {plan.version}"])
    effect = f"{len(plan.restored)} files come back, {len(plan.removed)} leave"
    also = "; columns or properties change" if plan.changes_metadata else ""
    last = f"version {version} records it" if apply else "--apply restores it"
    return Result(data, [f"version {plan.version}: {effect}{also}; {last}"])


def moment_from(text: str, option: str) -> RestorePoint:
    """Return the version or time that an option names. Raises: BadParameter."""
    if text.isascii() and text.isdigit():
        return RestorePoint(version=int(text))
    try:
        return RestorePoint(timestamp_ms=time_ms(text, option), text=text)
    except InvalidRequest as error:
        raise typer.BadParameter(f"{option} {text!r} is neither a version nor a time") from error
