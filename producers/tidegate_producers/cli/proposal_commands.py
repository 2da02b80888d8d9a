"""`tidegate proposals`: list, show, cancel.

The refused proposals of a table, as `tidegate proposals list --refused` shows them.
"""

from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Final
from uuid import UUID

import typer

from tidegate_delta.errors import InvalidRequest, OutcomeUnknown, TidegateError
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Proposal
from tidegate_messages.published_records import TableRecord
from tidegate_producers.cached_clients import store_for
from tidegate_producers.cli.formatting import instant, moment
from tidegate_producers.cli.output import show, show_explanation, show_facts
from tidegate_producers.cli.table_place import Timeout, bus_of, client_of
from tidegate_producers.explanation_search import (
    FoundProposal,
    explained,
    find_in_topics,
    not_found,
)
from tidegate_producers.history.log_search import RefusedProposal, by_rule, conflicts, with_winner
from tidegate_producers.history.outcome_explanation import Explanation
from tidegate_producers.history.outcome_log import (
    ProposalOutcomes,
    find_proposal,
    last_proposals,
    last_refusals,
)
from tidegate_producers.options import TableLocation
from tidegate_runtime.cli.command import OUT, Json, Result, command, print_result
from tidegate_runtime.client.client import TIMEOUT_S, Client
from tidegate_runtime.service.runner import EXIT_FIX, EXIT_OK, EXIT_RETRY
from tidegate_runtime.service.settings import ServiceSettings


def refusals_result(
    table: TableRecord, refusals: Sequence[RefusedProposal], listed: Sequence[RefusedProposal]
) -> Result:
    """Return how many refusals there are by rule, and those that are listed, with winners."""
    data = {
        "table": table.name,
        "root": table.table_root,
        "rules": by_rule(refusals),
        "conflicts": [_conflict_data(refusal) for refusal in listed],
    }
    if not refusals:
        return Result(data, [f"nothing was refused lately at {table.name}"])
    return Result(data, lambda: _print(refusals, listed))


def _print(refusals: Sequence[RefusedProposal], listed: Sequence[RefusedProposal]) -> None:
    show(("rule", "times"), list(by_rule(refusals).items()))
    OUT.print()
    titles = ("proposal", "time (UTC)", "status", "rule", "winner", "winner's", "about")
    show(titles, [_conflict_row(refusal) for refusal in listed])
    if older := len(refusals) - len(listed):
        OUT.print(f"... and {older} older ones; --limit shows them")


def _conflict_data(refusal: RefusedProposal) -> dict[str, Any]:
    winner = refusal.winner
    return {
        "proposal": refusal.proposal_id,
        "at": moment(refusal.at_ms),
        "status": refusal.status,
        "refusedIn": refusal.refused_in,
        "rejection": refusal.rejection.model_dump(mode="json", exclude_none=True),
        "winner": None
        if winner is None
        else {
            "version": winner.version,
            "operation": winner.operation,
            "engineInfo": winner.engine_info,
            "proposals": winner.proposals,
        },
    }


def _conflict_row(refusal: RefusedProposal) -> tuple[object, ...]:
    winner, rejection = refusal.winner, refusal.rejection
    winner_text = f"{winner.operation} by {winner.engine_info}" if winner else ""
    about = rejection.path or rejection.app_id or rejection.domain or rejection.field or ""
    version = winner.version if winner else None
    timestamp = instant(refusal.at_ms)
    return (
        refusal.proposal_id,
        timestamp,
        refusal.status,
        rejection.rule,
        version,
        winner_text,
        about,
    )


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
"""Maps a column title to the part of a summary that the column shows."""

_EXPLAINED: Final = frozenset({"root", "status", "version", "rule", "reason", "winner"})
"""Parts of a summary that an explanation shows, too."""

Id = Annotated[UUID, typer.Argument(help="The proposal's id.")]
OfTable = Annotated[
    str | None, typer.Option("--table", help="A registered table: its name, root or id.")
]

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Proposals and their outcomes.")


@app.callback()
def _proposals() -> None:
    """Proposals and their outcomes."""


@app.command("list")
@command()
def list_proposals(
    settings: ServiceSettings,
    table: OfTable = None,
    limit: Annotated[int, typer.Option(help="How many of the newest to show.", min=1)] = 20,
    refused: Annotated[
        bool,
        typer.Option(
            "--refused",
            help="Only those that were refused at --table: counted by rule, and each with the "
            "rule, and the winning version of a conflict.",
        ),
    ] = False,
    versions: Annotated[
        int,
        typer.Option(
            help="How many of the log's newest versions to search, with --refused.", min=1
        ),
    ] = 200,
) -> Result:
    """Show the newest proposals, each with its outcome; or a table's refused ones."""
    if refused and table is None:
        raise typer.BadParameter(
            "add --table: refusals are read from a table's log, too", param_hint="--refused"
        )
    record = None
    if table is not None:
        with client_of(settings) as client:
            record = client.require(table)
    bus, topics = bus_of(settings), settings.kafka.topics
    if refused and record is not None:
        store = store_for(TableLocation(record.table_root, settings.storage))
        refusals = conflicts(store, last_refusals(bus, topics, record), versions)
        listed = [with_winner(store, refusal) for refusal in refusals[:limit]]
        return refusals_result(record, refusals, listed)
    proposals = last_proposals(bus, topics, limit, record)
    summaries = [{**_summary(proposal), "at": instant(proposal.at_ms)} for proposal in proposals]
    rows = [[summary[name] for name in _TITLES.values()] for summary in summaries]
    return Result(
        [_summary(proposal) for proposal in proposals], lambda: show(tuple(_TITLES), rows)
    )


@app.command("show")
@command()
def show_proposal(
    settings: ServiceSettings, proposal: Id, table: OfTable = None, as_json: Json = False
) -> Result:
    """Show a proposal, every outcome under its id, and why: rule, winner, conflict, what to do.

    It reads the topics, dead letters too, then the table's log. Give --table for a proposal that
    the topics no longer hold. If no broker answers, give the table's root as --table: only the log
    is read then.

    Exit status: 0 it is in the table; 2 you have to do something, which is printed; 3 somebody has
    to look at the table; 4 wait, or try again.
    """
    found = find_in_topics(settings, proposal, table)
    try:
        explanation = explained(settings, found, table)
    except TidegateError:
        # The table's log can't be read: what the topics hold is worth showing without it.
        if found.delivery is not None:
            data, print_found = _data(found, None), lambda: _print_found(found, ())
            print_result(Result(data, print_found), as_json=as_json)
        raise

    def print_all() -> None:
        _print_found(found, _EXPLAINED)
        show_explanation(explanation)

    return Result(_data(found, explanation), print_all, explanation.exit_status)


def _data(found: FoundProposal, explanation: Explanation | None) -> dict[str, Any]:
    delivery = found.delivery
    body = None if delivery is None else delivery.proposal
    outcomes = () if delivery is None else (*delivery.outcomes, *delivery.others)
    return {
        **_facts(found),
        "body": None if body is None else body.model_dump(mode="json", exclude_none=True),
        "outcomes": [outcome.model_dump(mode="json", exclude_none=True) for outcome in outcomes],
        "explanation": None
        if explanation is None
        else {**asdict(explanation), "proposal_id": str(explanation.proposal_id)},
    }


def _print_found(found: FoundProposal, without: Collection[str]) -> None:
    facts = {name: value for name, value in _facts(found).items() if name not in without}
    show_facts(facts)
    if found.delivery is not None:
        for outcome in (*found.delivery.outcomes, *found.delivery.others):
            OUT.print_json(outcome.model_dump_json(exclude_none=True))


def _facts(found: FoundProposal) -> dict[str, Any]:
    """Return what the topics say of a proposal; of one without a record or outcome, its letter."""
    letter = found.letter
    if found.delivery is not None:
        return _summary(found.delivery)
    if letter is None:
        return {"proposal": str(found.proposal_id)}
    return {
        "proposal": str(letter.proposal_id),
        "at": moment(letter.at_ms),
        "status": "dead letter",
        "source": letter.source,
        "rule": letter.rule,
        "reason": letter.reason,
    }


@app.command("cancel")
@command()
def cancel_proposal(
    settings: ServiceSettings, proposal: Id, timeout: Timeout = TIMEOUT_S
) -> Result:
    """Cancel a proposal permanently: it will be refused, however often it is sent.

    Exit status: 0 it will never be in the table; 2 it is in the table already, or could not be
    cancelled; 4 no answer came: try again.
    """
    delivery = find_proposal(bus_of(settings), settings.kafka.topics, proposal)
    if delivery is None:
        raise not_found(settings, proposal)
    if delivery.status == "rejected" and delivery.answer and not delivery.others:
        # This outcome is final already: nothing has to be written to the log.
        return _given_up(proposal, delivery.answer)
    if delivery.proposal is None:
        raise InvalidRequest(
            f"of proposal {proposal} only the outcome is left, or its record cannot be read: "
            "only its writer can give it up; see `tidegate proposals show`",
            error_class="ProposalUnreadable",
        )
    with client_of(settings) as client:
        outcome = _cancelled(client, delivery.proposal, timeout)
    return _given_up(proposal, outcome)


def _cancelled(client: Client, proposal: Proposal, timeout_s: float) -> Outcome:
    try:
        return client.cancel(proposal, timeout_s)
    except OutcomeUnknown as error:
        # The original error names the cancel's own id, which means nothing to the user.
        raise OutcomeUnknown(
            f"no answer within {timeout_s:g} s whether proposal {proposal.proposal_id} is given "
            "up: the request waits behind it, and is answered in its turn; ask again, or see "
            f"`tidegate proposals show {proposal.proposal_id}`, before its rows are written "
            "again",
            error_class=error.error_class,
        ) from error


def _given_up(proposal: UUID, outcome: Outcome) -> Result:
    text, exit_status = _said(proposal, outcome)
    body = outcome.model_dump(mode="json", exclude_none=True)
    data = {"proposal": str(proposal), "said": text, "outcome": body}
    return Result(data, [text], exit_status)


def _said(proposal: UUID, outcome: Outcome) -> tuple[str, int]:
    rejection = outcome.rejection
    if outcome.status == "rejected":
        rule = rejection.rule if rejection else "cancelled"
        return f"{proposal} never will be in the table (rule {rule})", EXIT_OK
    if outcome.status == "committed":
        late = "too late: it was committed before it was given up"
        return f"{proposal} is in the table at version {outcome.version}; {late}", EXIT_FIX
    reason = rejection.reason if rejection else "the log no longer reaches back to what it read"
    is_passing = rejection is not None and rejection.advice == "retry"
    return f"{proposal}: nothing is promised: {reason}", EXIT_RETRY if is_passing else EXIT_FIX


def _summary(delivery: ProposalOutcomes) -> dict[str, Any]:
    outcome = delivery.answer
    rejection = outcome.rejection if outcome else None
    body = delivery.proposal
    return {
        "proposal": str(delivery.proposal_id),
        "at": moment(delivery.at_ms),
        "kind": body.kind if body else None,
        "root": body.table_root if body else None,
        "operation": body.operation.name if body else None,
        "partition": delivery.partition,
        "offset": delivery.offset,
        "cancels": str(body.cancels) if body and body.cancels else None,
        "read_version": body.read_version if body else None,
        "status": delivery.status,
        "version": outcome.version if outcome else None,
        "rule": rejection.rule if rejection else None,
        "winner": rejection.winner_version if rejection else None,
        "latency_ms": delivery.latency_ms,
    }
