"""The demo's output: tables, and a line for every step."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import parse
from tidegate_demo.proof_checks import AnsweredProposal, ProofCheck
from tidegate_messages import commit_provenance
from tidegate_messages.outcome import Outcome
from tidegate_runtime.clock import Clock


class Screen:
    """Prints steps with the time they took, then tables."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self.console = console
        self._clock = clock
        self._began_s = clock.boot_s()

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Show a step while it runs, and its duration when it is done."""
        began_s = self._clock.boot_s()
        with self.console.status(f"{title} ..."):
            if not self.console.is_terminal:
                self.console.print(f"        {title} ...")
            yield
        took_s = self._clock.boot_s() - began_s
        self.console.print(f"[green]{self.elapsed_s():6.1f}s[/] {title} [dim]({took_s:.1f}s)[/]")

    def say(self, text: str) -> None:
        """Print a line under a step."""
        self.console.print(f"        {text}", highlight=False)

    def elapsed_s(self) -> float:
        """Return seconds since the demo began."""
        return self._clock.boot_s() - self._began_s


def proposals_table(answered: Sequence[AnsweredProposal]) -> Table:
    """Return a table of the proposals, by operation and outcome, with latencies in ms."""
    groups: dict[tuple[str, str], list[AnsweredProposal]] = defaultdict(list)
    for proposal in answered:
        groups[proposal.proposal.operation.name, _status(proposal.outcomes)].append(proposal)
    table = _table("Proposals", "operation", "outcome", "count", "repeats", "p50 ms", "p99 ms")
    for (operation, status), members in sorted(groups.items()):
        latencies = sorted(member.latency_ms for member in members if member.latency_ms is not None)
        repeats = sum(outcome.repeat for member in members for outcome in member.outcomes)
        cells = (len(members), repeats, _percentile(latencies, 50), _percentile(latencies, 99))
        table.add_row(operation, status, *(str(cell) for cell in cells))
    return table


def versions_table(name: str, history: Iterable[Commit], rows_max: int = 40) -> Table:
    """Return a table of the versions: operation, writer, and the number of proposals in each."""
    table = _table(
        f"Versions of {name}", "version", "operation", "writer", "proposals", "refused", "+", "-"
    )
    commits = list(history)
    for commit in commits[:rows_max]:
        info, provenance = commit.info, commit_provenance.of(commit)
        accepted = provenance.accepted if provenance else ()
        operations = Counter(proposal.operation for proposal in accepted)
        operation_text = ", ".join(
            f"{name} x{n}" if n > 1 else str(name) for name, n in operations.items()
        )
        table.add_row(
            str(commit.version),
            operation_text or (info.operation if info and info.operation else "-"),
            (info and (info.user_metadata or info.engine_info)) or "-",
            str(len(accepted)),
            str(len(provenance.refused) if provenance else 0),
            str(len(commit.adds)),
            str(len(commit.removes)),
        )
    if len(commits) > rows_max:
        table.caption = f"and {len(commits) - rows_max} more"
    return table


def log_files_table(names: Iterable[str]) -> Table:
    """Return a table of the files that the checkpointer wrote, by kind."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for name in names:
        parsed = parse(name)
        if parsed is not None and parsed.kind != "commit":
            kinds[parsed.kind].append(name)
        elif name == "_last_checkpoint":
            kinds["last checkpoint"].append(name)
    table = _table("What the checkpointer wrote", "kind", "files", "the newest")
    for kind, members in sorted(kinds.items()):
        table.add_row(kind.replace("_", " "), str(len(members)), max(members))
    return table


def changes_table(events: Sequence[Mapping[str, Any]], key: Sequence[str]) -> Table:
    """Return a table with one change event of each kind, and the number of each kind."""
    counts = Counter(event["op"] for event in events)
    table = _table("Change events", "op", "count", "one of them: key", "version", "before -> after")
    for op in counts:
        event = next(event for event in events if event["op"] == op)
        row = event["after"] or event["before"]
        image = f"{_image(event['before'], key)} -> {_image(event['after'], key)}"
        key_text = ", ".join(str(row[name]) for name in key)
        table.add_row(op, f"{counts[op]:,}", key_text, str(event["source"].get("txId")), image)
    return table


def lag_table(lags: Mapping[str, tuple[int, int]]) -> Table:
    """Return a table of the followers: the version each has reached, the head, and the lag."""
    table = _table("Followers", "follower of table", "stands at", "head", "lag in versions")
    for name, (reached, head) in lags.items():
        table.add_row(name, str(reached), str(head), str(head - reached))
    return table


def checks_table(checks: Iterable[ProofCheck]) -> Table:
    """Return a table of the checks."""
    table = _table("Proof", "", "statement", "seen")
    for check in checks:
        table.add_row("[green]holds[/]" if check.holds else "[red]FAILS[/]", *_words(check))
    return table


def _words(check: ProofCheck) -> tuple[str, str]:
    return check.statement, check.seen


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _status(outcomes: Sequence[Outcome]) -> str:
    if not outcomes:
        return "none"
    first = outcomes[0]
    rule = f" ({first.rejection.rule})" if first.rejection else ""
    return f"{first.status}{rule}"


def _percentile(ranked: Sequence[int], percent: int) -> int | str:
    return ranked[min(len(ranked) - 1, percent * len(ranked) // 100)] if ranked else "-"


def _image(row: Mapping[str, Any] | None, key: Sequence[str]) -> str:
    if row is None:
        return "null"
    values = {name: row[name] for name in row if name not in key}
    return orjson.dumps(dict(list(values.items())[:4])).decode()
