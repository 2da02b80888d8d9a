"""The refused proposals of a table, as `tidegate proposals list --refused` shows them."""

from collections.abc import Sequence
from typing import Any

from tidegate_messages.published_records import TableRecord
from tidegate_producers.cli.formatting import instant, moment
from tidegate_producers.cli.output import show
from tidegate_producers.history.refusal_history import RefusedProposal, by_rule
from tidegate_runtime.cli.command import OUT, Result


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
