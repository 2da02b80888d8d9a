"""`tidegate proposals`: list, show, explain, cancel."""

from dataclasses import asdict
from typing import Annotated, Any, Final, NoReturn
from uuid import UUID

import typer

from tidegate_delta.errors import InvalidRequest, OutcomeUnknown
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Proposal
from tidegate_producers.cached_clients import CLIENT_ID
from tidegate_producers.cli.formatting import instant, moment
from tidegate_producers.cli.output import OUT, show, show_explanation, show_facts
from tidegate_producers.cli.registration_commands import Timeout
from tidegate_producers.explanation_search import explained, not_found
from tidegate_producers.history.outcome_explanation import (
    Explanation,
)
from tidegate_producers.history.outcome_log import (
    FoundLetter,
    ProposalOutcomes,
    find_letter,
    find_proposal,
    last_proposals,
)
from tidegate_runtime.cli.service_command import Config, Json, Set, errors_as_exit_status, loaded
from tidegate_runtime.client.client import TIMEOUT_S, Client
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.service.runner import EXIT_FIX, EXIT_OK, EXIT_RETRY
from tidegate_runtime.service.settings import ServiceSettings

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

Id = Annotated[UUID, typer.Argument(help="The proposal's id.")]
OfTable = Annotated[
    str | None, typer.Option("--table", help="A registered table: its name, root or id.")
]

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Proposals and their outcomes.")


@app.callback()
def _proposals() -> None:
    """Proposals and their outcomes."""


@app.command("list")
def list_proposals(
    table: OfTable = None,
    limit: Annotated[int, typer.Option(help="How many of the newest to show.", min=1)] = 20,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Show the newest proposals, each with its outcome."""
    settings = loaded(ServiceSettings, config, set_)
    with errors_as_exit_status():
        with _client(settings) as client:
            record = client.require(table) if table is not None else None
        bus, topics = _bus(settings), settings.kafka.topics
        proposals = last_proposals(bus, topics, limit, record)
    if as_json:
        OUT.print_json(data=[_summary(proposal) for proposal in proposals])
        return
    summaries = [{**_summary(proposal), "at": instant(proposal.at_ms)} for proposal in proposals]
    rows = [[summary[name] for name in _TITLES.values()] for summary in summaries]
    show(tuple(_TITLES), rows)


@app.command("show")
def show_proposal(
    proposal: Id, config: Config = None, set_: Set = None, as_json: Json = False
) -> None:
    """Show one proposal, and every outcome that was published under its id.

    Of a record that could not be read, and has no outcome, show its dead letter.
    """
    settings = loaded(ServiceSettings, config, set_)
    with errors_as_exit_status():
        delivery_found = find_proposal(_bus(settings), settings.kafka.topics, proposal)
        letter = (
            None if delivery_found else find_letter(_bus(settings), settings.kafka.topics, proposal)
        )
        if letter is not None:
            _show_letter(letter, as_json=as_json)
            return
        delivery = delivery_found or _require(settings, proposal)
    all_outcomes = (*delivery.outcomes, *delivery.others)
    outcomes = [outcome.model_dump(mode="json", exclude_none=True) for outcome in all_outcomes]
    if as_json:
        body = (
            delivery.proposal.model_dump(mode="json", exclude_none=True)
            if delivery.proposal
            else None
        )
        OUT.print_json(data={**_summary(delivery), "body": body, "outcomes": outcomes})
        return
    show_facts(_summary(delivery))
    for outcome in (*delivery.outcomes, *delivery.others):
        OUT.print_json(outcome.model_dump_json(exclude_none=True))


def _show_letter(letter: FoundLetter, *, as_json: bool) -> None:
    facts = {
        "proposal": str(letter.proposal_id),
        "at": moment(letter.at_ms),
        "status": "dead letter",
        "source": letter.source,
        "rule": letter.rule,
        "reason": letter.reason,
    }
    if as_json:
        OUT.print_json(data=facts)
    else:
        show_facts(facts)


@app.command("explain")
def explain_proposal(
    proposal: Id,
    table: OfTable = None,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Explain a proposal's outcome: the rule, the winner, what conflicted, and what to do.

    It reads the topics, dead letters too, then the table's log. Give --table for a proposal that
    the topics no longer hold. If no broker answers, give the table's root as --table: only the log
    is read then.

    Exit status: 0 it is in the table; 2 you have to do something, which is printed; 3 somebody has
    to look at the table; 4 wait, or try again.
    """
    settings = loaded(ServiceSettings, config, set_)
    with errors_as_exit_status():
        explanation = explained(settings, proposal, table)
    if as_json:
        OUT.print_json(data=_as_data(explanation))
    else:
        show_explanation(explanation)
    raise typer.Exit(explanation.exit_status)


@app.command("cancel")
def cancel_proposal(
    proposal: Id,
    timeout: Timeout = TIMEOUT_S,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Cancel a proposal permanently: it will be refused, however often it is sent.

    Exit status: 0 it will never be in the table; 2 it is in the table already, or could not be
    cancelled; 4 no answer came: try again.
    """
    settings = loaded(ServiceSettings, config, set_)
    with errors_as_exit_status():
        delivery = _require(settings, proposal)
        if delivery.status == "rejected" and delivery.answer and not delivery.others:
            # This outcome is final already: nothing has to be written to the log.
            _say_given_up(proposal, delivery.answer, as_json=as_json)
        if delivery.proposal is None:
            raise InvalidRequest(
                f"of proposal {proposal} only the outcome is left, or its record cannot be read: "
                "only its writer can give it up; see `tidegate proposals explain`",
                error_class="ProposalUnreadable",
            )
        with _client(settings) as client:
            outcome = _cancelled(client, delivery.proposal, timeout)
    _say_given_up(proposal, outcome, as_json=as_json)


def _cancelled(client: Client, proposal: Proposal, timeout_s: float) -> Outcome:
    try:
        return client.cancel(proposal, timeout_s)
    except OutcomeUnknown as error:
        # The original error names the cancel's own id, which means nothing to the user.
        raise OutcomeUnknown(
            f"no answer within {timeout_s:g} s whether proposal {proposal.proposal_id} is given "
            "up: the request waits behind it, and is answered in its turn; ask again, or see "
            f"`tidegate proposals explain {proposal.proposal_id}`, before its rows are written "
            "again",
            error_class=error.error_class,
        ) from error


def _say_given_up(proposal: UUID, outcome: Outcome, *, as_json: bool) -> NoReturn:
    result, exit_status = _given_up(proposal, outcome)
    if as_json:
        OUT.print_json(data={"proposal": str(proposal), "said": result, **_answer(outcome)})
    else:
        OUT.print(result, soft_wrap=True)
    raise typer.Exit(exit_status)


def _given_up(proposal: UUID, outcome: Outcome) -> tuple[str, int]:
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


def _require(settings: ServiceSettings, proposal: UUID) -> ProposalOutcomes:
    delivery = find_proposal(_bus(settings), settings.kafka.topics, proposal)
    if delivery is None:
        raise not_found(settings, proposal)
    return delivery


def _bus(settings: ServiceSettings) -> KafkaBus:
    return KafkaBus(settings.kafka, CLIENT_ID)


def _client(settings: ServiceSettings) -> Client:
    return Client(_bus(settings), settings.kafka.topics)


def _as_data(explanation: Explanation) -> dict[str, Any]:
    return {**asdict(explanation), "proposal_id": str(explanation.proposal_id)}


def _answer(outcome: Outcome) -> dict[str, Any]:
    return {"outcome": outcome.model_dump(mode="json", exclude_none=True)}


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
