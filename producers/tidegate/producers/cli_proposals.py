"""`tidegate proposals`: list, show."""

from typing import Annotated, Any, Final
from uuid import UUID

import typer
from rich.console import Console
from rich.table import Table

from tidegate.delta.errors import InvalidRequest, TidegateError
from tidegate.producers.connection import CLIENT_ID
from tidegate.producers.ledger import Told, find_proposal, last_proposals
from tidegate.producers.shown import instant
from tidegate.runtime.cli_service import Config, Json, Set, fail, loaded
from tidegate.runtime.kafka_bus import KafkaBus
from tidegate.runtime.settings import ServiceSettings

_OUT: Final = Console(highlight=False)
_TITLES: Final = {
    "proposal": "proposal",
    "time (UTC)": "at",
    "operation": "operation",
    "status": "status",
    "version": "version",
    "why": "rule",
    "ms": "latency_ms",
    "table": "root",
}
"""Column -> the part of a summary that it shows."""

app = typer.Typer(no_args_is_help=True, help="Proposals and their outcomes.")


@app.callback()
def _proposals() -> None:
    """Proposals and their outcomes."""


@app.command("list")
def list_proposals(
    limit: Annotated[int, typer.Option(help="So many, the newest.", min=1)] = 20,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Show the newest proposals with what was told of them."""
    settings = loaded(ServiceSettings, config, set_).kafka
    try:
        told = last_proposals(KafkaBus(settings, CLIENT_ID), settings.topics, limit)
    except TidegateError as error:
        fail(error)
    if as_json:
        _OUT.print_json(data=[_summary(one) for one in told])
        return
    table = Table(box=None, pad_edge=False)
    for title in _TITLES:
        # An id is there to be copied: it is never broken.
        table.add_column(title, overflow="fold", no_wrap=title == "proposal")
    for one in told:
        shown = _summary(one)
        cells = (shown[name] for name in _TITLES.values())
        table.add_row(*("" if cell is None else str(cell) for cell in cells))
    _OUT.print(table)


@app.command()
def show(
    proposal: Annotated[UUID, typer.Argument(help="The proposal's id.")],
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Show one proposal, and every outcome that was told of it."""
    settings = loaded(ServiceSettings, config, set_).kafka
    try:
        one = find_proposal(KafkaBus(settings, CLIENT_ID), settings.topics, proposal)
        if one is None:
            raise InvalidRequest(
                f"proposal {proposal} is not on {settings.topics.proposals}: it was never sent "
                "there, or it is older than the topic keeps; the table's history may name it",
                error_class="ProposalNotFound",
            )
    except TidegateError as error:
        fail(error)
    outcomes = [outcome.model_dump(mode="json", exclude_none=True) for outcome in one.outcomes]
    if as_json:
        body = one.proposal.model_dump(mode="json", exclude_none=True)
        _OUT.print_json(data={**_summary(one), "body": body, "outcomes": outcomes})
        return
    for name, value in _summary(one).items():
        _OUT.print(f"{name:<12} {'' if value is None else value}", soft_wrap=True)
    for outcome in one.outcomes:
        _OUT.print_json(outcome.model_dump_json(exclude_none=True))


def _summary(one: Told) -> dict[str, Any]:
    last = one.outcomes[-1] if one.outcomes else None
    rejection = last.rejection if last else None
    return {
        "proposal": str(one.proposal.proposal_id),
        "at": instant(one.at_ms),
        "kind": one.proposal.kind,
        "root": one.proposal.table_root,
        "operation": one.proposal.operation.name,
        "partition": one.partition,
        "offset": one.offset,
        "read_version": one.proposal.read_version,
        "status": one.status,
        "version": last.version if last else None,
        "rule": rejection.rule if rejection else None,
        "latency_ms": one.latency_ms,
    }
