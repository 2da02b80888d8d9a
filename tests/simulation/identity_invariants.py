"""Invariants of identity values and of change files, whatever faults happened."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tests.simulation.history import History, paths_of
from tests.simulation.identity_writers import mark_of

Span = tuple[int, int, str]
"""The lowest value, the highest, and the id of the proposal that has them."""


@dataclass
class Spans:
    """Values of a table's identity column that were claimed, leased and used, by proposal."""

    taken: list[Span] = field(default_factory=list)
    leased: dict[str, list[Span]] = field(default_factory=dict)
    used: dict[str, list[Span]] = field(default_factory=dict)

    def take(self, one: dict[str, Any], usages: list[dict[str, Any]]) -> None:
        """Add what an accepted proposal leased by the log, and claimed or used by its own body."""
        for block in one.get("identity_blocks", ()):
            span = (block["first"], block["first"] + block["count"] - 1, one["id"])
            self.leased.setdefault(one["id"], []).append(span)
            self.taken.append(span)
        for usage in usages:
            span = (usage["low"], usage["high"], one["id"])
            of = self.used.setdefault(usage["lease"], []) if "lease" in usage else self.taken
            of.append(span)

    @property
    def strays(self) -> list[str]:
        """Ids of proposals that use values outside their lease."""
        return [
            who
            for lease, spans in self.used.items()
            for low, high, who in spans
            if not any(first <= low and high <= last for first, last, _ in self.leased[lease])
        ]


def values_apart(history: History) -> str | None:
    """No identity value is claimed, leased or used twice, or beyond the high-water mark."""
    for root, log in history.logs.items():
        spans = Spans()
        for version in range(len(log.entries)):
            for item in log.provenance(version).get("accepted", ()):
                sent = history.sent.get(f"{item['id']}/{item['sha256']}")
                spans.take(item, sent.body.get("identity_usage", []) if sent else [])
        twice = [two for each in (spans.taken, *spans.used.values()) if (two := _overlap(each))]
        if twice:
            return f"{root} has the same identity values in {twice[0]}"
        if spans.strays:
            return f"{spans.strays[0]} uses values of {root} that its lease does not hold"
        if spans.taken and max(high for _, high, _ in spans.taken) > mark_of(log):
            return f"the mark of {root} is {mark_of(log)}, and greater values were given out"
    return None


def changes_are_declared(history: History) -> str | None:
    """On a table with a change feed, removed and added rows come with change files.

    Commits of other engines are not checked.
    """
    for root, log in history.logs.items():
        for version, rows in enumerate(log.entries):
            result = log.provenance(version).get("accepted", ())
            if not result or "delta.enableChangeDataFeed" not in log.configuration:
                continue
            joins, leaves = (
                {row[kind]["path"] for row in rows if kind in row and row[kind].get("dataChange")}
                for kind in ("add", "remove")
            )
            if joins - leaves and leaves and not paths_of(rows, "cdc"):
                return f"version {version} of {root} rewrites rows and names no change file"
    return None


def _overlap(spans: list[Span]) -> str | None:
    ordered = sorted(spans)
    for one, two in pairwise(ordered):
        if two[0] <= one[1]:
            return f"{one[2]} and {two[2]}"
    return None
