"""`tidegate table register|halt|reopen|retry|drop|move`: whether and where it takes commits."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated

import typer

from tidegate_delta.errors import InvalidRequest
from tidegate_messages.outcome import Outcome
from tidegate_producers.cli.output import outcome_result
from tidegate_producers.cli.table_place import (
    TableArgument,
    Timeout,
    Uri,
    bus_of,
    client_of,
    root_of,
)
from tidegate_producers.options import TableLocation
from tidegate_producers.writing import table_moves, table_requests
from tidegate_producers.writing.table_moves import Move
from tidegate_runtime.cli.command import Result, command
from tidegate_runtime.client.client import TIMEOUT_S
from tidegate_runtime.service.runner import EXIT_FIX
from tidegate_runtime.service.settings import ServiceSettings


@command()
def register(
    settings: ServiceSettings,
    uri: Uri,
    name: Annotated[
        str | None, typer.Option(help="Its name: one word, or catalog.schema.table.")
    ] = None,
    timeout: Timeout = TIMEOUT_S,
) -> Result:
    """Register an existing Delta table with Tidegate; registering it again is no error."""
    place = TableLocation(root_of(uri), settings.storage)
    with client_of(settings) as client:
        outcome = table_requests.register(client, place, name, timeout)
    text = f"{place.root} is registered as {outcome.table} at version {outcome.version}"
    return _result(outcome, text)


@command()
def halt(
    settings: ServiceSettings,
    table: TableArgument,
    reason: Annotated[
        str, typer.Option(help="Why; every writer that is refused is shown this text.")
    ],
    timeout: Timeout = TIMEOUT_S,
) -> Result:
    """Refuse commits of a table until it is reopened; a commit in flight is finished first.

    Writers get the reason and are told to try again later. A halt outlasts restarts.
    """
    with client_of(settings) as client:
        outcome = table_requests.halt(client, table, reason, timeout)
    return _result(outcome, f"{table} is halted at version {outcome.version}")


@command()
def reopen(
    settings: ServiceSettings,
    table: TableArgument,
    made_anew: Annotated[
        bool,
        typer.Option(
            "--made-anew",
            help="Serve another table that was made in its folder on purpose, under its name.",
        ),
    ] = False,
    timeout: Timeout = TIMEOUT_S,
) -> Result:
    """Take commits of a halted table again, after reading its log and finding it sound."""
    with client_of(settings) as client:
        if made_anew:
            root = client.require(table, timeout).table_root
            place = TableLocation(root, settings.storage)
            outcome = table_requests.serve_anew(client, place, timeout)
        else:
            outcome = table_requests.reopen(client, table, timeout)
    return _result(outcome, f"{table} is open at version {outcome.version}")


class ServiceOption(StrEnum):
    """A service that can set a table aside."""

    COMMITTER = "committer"
    CHECKPOINTER = "checkpointer"
    CDC_PUBLISHER = "cdc-publisher"


@command()
def retry(
    settings: ServiceSettings,
    table: TableArgument,
    service: Annotated[
        list[ServiceOption] | None, typer.Option(help="Only this service. Repeatable.")
    ] = None,
    timeout: Timeout = TIMEOUT_S,
) -> Result:
    """Have a table tried again by the services that set it aside after an error.

    A committer that halted it reads its log at once; the others try it at their next pass.
    """
    services = [option.value for option in service or ServiceOption]
    with client_of(settings) as client:
        record = client.require(table, timeout)
        tried = table_requests.retry_followers(
            bus_of(settings), settings.kafka.topics, record, services
        )
        is_halted = record.status == "halted" and ServiceOption.COMMITTER in services
        if is_halted and record.halted_by_hand is None:
            table_requests.reopen(client, table, timeout)
            tried.append(ServiceOption.COMMITTER.value)
    lines = []
    for name in tried:
        effect = "has read its log again" if name == ServiceOption.COMMITTER else "at its next look"
        lines.append(f"{record.name}: {name} {effect}")
    if is_halted and record.halted_by_hand is not None:
        lines.append(f"{record.name} is halted by hand; `tidegate table reopen` ends that")
    elif not tried:
        lines.append(f"{record.name}: nobody has set it aside")
    return Result({"table": str(record.table), "tried": tried}, lines)


@command()
def drop(
    settings: ServiceSettings,
    table: TableArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    timeout: Timeout = TIMEOUT_S,
) -> Result:
    """Unregister a table permanently. Its files stay; another table made there can follow it."""
    if not yes and not _is_confirmed(f"Drop {table} from the gate, for ever?"):
        typer.echo("nothing was dropped: answer yes, or give --yes in a script", err=True)
        raise typer.Exit(EXIT_FIX)
    with client_of(settings) as client:
        outcome = table_requests.drop(client, table, timeout)
    return _result(outcome, f"{table} is dropped at version {outcome.version}")


@command()
def move(
    settings: ServiceSettings,
    table: Annotated[
        str | None, typer.Argument(help="A registered table: its name, root or id.")
    ] = None,
    to_partition: Annotated[
        int | None, typer.Option(help="The partition of `proposals` that is to serve it.", min=0)
    ] = None,
    balance: Annotated[
        bool,
        typer.Option(
            "--balance", help="Tables that even out the load of the last ten minutes, instead."
        ),
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Move them; without it --balance only shows which.")
    ] = False,
    timeout: Timeout = TIMEOUT_S,
) -> Result:
    """Give a table another topic partition, while its writers go on.

    A commit in flight is finished first; writers send what waits to the new partition by
    themselves.
    """
    if balance != (table is None) or balance != (to_partition is None):
        raise InvalidRequest(
            "give a table and --to-partition, or --balance without both; nothing was moved",
            error_class="DELTA_ILLEGAL_OPTION",
        )
    with client_of(settings) as client:
        if table is not None and to_partition is not None:
            outcome = table_moves.move(client, table, to_partition, timeout)
            return _result(outcome, f"{table} is on topic partition {to_partition}")
        bus, topics = bus_of(settings), settings.kafka.topics
        rates = table_moves.recent_rates(bus, topics, client.clock.now_ms())
        open_tables = [each for each in client.tables().values() if each.status == "open"]
        moves = table_moves.balanced(open_tables, rates, bus.partitions(topics.proposals))
        if apply:
            for each in moves:
                table_moves.move(client, str(each.table.table), each.to, timeout)
    return _moves(moves, applied=apply)


def _moves(moves: Sequence[Move], *, applied: bool) -> Result:
    rows = [
        {
            "table": str(each.table.table),
            "name": each.table.name,
            "from": each.table.topic_partition,
            "to": each.to,
            "versions_per_s": round(each.rate, 2),
        }
        for each in moves
    ]
    return Result({"applied": applied, "moves": rows}, _move_lines(moves, applied=applied))


def _move_lines(moves: Sequence[Move], *, applied: bool) -> Iterator[str]:
    for each in moves:
        verb = "is" if applied else "would be"
        yield (
            f"{each.table.name}, {each.rate:.2f} versions/s, {verb} on topic partition {each.to} "
            f"instead of {each.table.topic_partition}"
        )
    if not moves:
        yield "nothing is worth a move: no table of a busy topic partition evens out the load"
    elif not applied:
        yield f"--apply moves {len(moves)} tables"


def _is_confirmed(question: str) -> bool:
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        return False


def _result(outcome: Outcome, text: str) -> Result:
    return outcome_result(outcome, f"{text} (it was already)" if outcome.repeat else text)
