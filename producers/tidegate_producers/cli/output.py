"""Prints tables, facts and explanations for the commands."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import orjson
from rich.table import Table

from tidegate_messages.outcome import Outcome
from tidegate_producers.cli.formatting import instant
from tidegate_producers.history.outcome_explanation import Explanation, Overlap, Winner
from tidegate_runtime.cli.command import OUT, Result, printable

_WHOLE: Final = frozenset({"proposal", "winner"})
"""Columns of ids; they are never broken across lines, so that they can be copied."""


def outcome_result(outcome: Outcome, text: str) -> Result:
    """Return the result of a command that proposed something: the outcome, or a line about it."""
    return Result(outcome.model_dump(mode="json", exclude_none=True), [text])


def show(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows as a table; each row is one line unless the output is a terminal."""
    table = Table(box=None, pad_edge=False, show_header=any(titles))
    for title in titles:
        table.add_column(title, overflow="fold", no_wrap=title in _WHOLE)
    for row in rows:
        table.add_row(*("" if cell is None else visible(cell) for cell in row))
    if OUT.is_terminal:
        OUT.print(table)
        return
    with OUT.capture() as drawn:
        OUT.print(table)
    for line in drawn.get().splitlines():
        OUT.print(line.rstrip(), soft_wrap=True)


def show_facts(facts: Mapping[str, object]) -> None:
    """Print names with their values; names without a value are left out."""
    for name, value in facts.items():
        if value not in (None, "", (), []):
            OUT.print(f"{name:<13} {visible(value)}", soft_wrap=True)


def visible(value: object) -> str:
    """Return a value as text, with control characters and line breaks escaped.

    Paths, names and reasons come from writers, who could send escape sequences.
    """
    return printable(str(value))


def plain(value: object) -> str:
    """Return a value as text: a string unchanged, anything else as JSON."""
    if isinstance(value, str) or value is None:
        return value or ""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={item}" for name, item in value.items())
    return orjson.dumps(value).decode()


def show_explanation(explanation: Explanation) -> None:
    """Print an explanation: what happened, why, what it conflicted with, and what to do."""
    rule = explanation.rule
    if rule and explanation.delta_name:
        rule = f"{rule} ({explanation.delta_name} in delta-spark)"
    show_facts(
        {
            "proposal": explanation.proposal_id,
            "table": explanation.root,
            "status": explanation.status,
            "version": explanation.version,
            "rule": rule,
            "means": explanation.meaning,
            "reason": explanation.reason,
            "field": explanation.field,
            "winner": _winner(explanation.winner),
        }
    )
    _show_overlap(explanation.overlap)
    for outcome in explanation.others:
        show_facts({"besides": f"other bytes came under its id, which were {outcome}"})
    show_facts({"do": explanation.remedy})
    for command in explanation.commands:
        show_facts({"run": command})


def _winner(winner: Winner | None) -> str | None:
    if winner is None:
        return None
    timestamp = f"{instant(winner.timestamp_ms)} UTC" if winner.timestamp_ms is not None else None
    parts = [f"version {winner.version}", winner.operation, timestamp]
    if winner.engine_info:
        parts.append(f"by {winner.engine_info}")
    if winner.proposal_ids:
        parts.append(f"proposals {', '.join(winner.proposal_ids)}")
    elif winner.operation is not None:
        parts.append("by an external writer")
    return ", ".join(part for part in parts if part)


def _show_overlap(overlap: Overlap) -> None:
    for kind, items in vars(overlap).items():
        for item in items:
            show_facts({{"files": "file"}.get(kind, kind.removesuffix("s")): item})
