"""Print the score: `python -m tests.conformance [text]`, for cases whose name holds the text.

Exit with 1 if a case is wrong or crashes, or if a case on a table is declined.
"""

import sys
from collections import Counter

from rich.console import Console
from rich.table import Table

from tests.conformance.scoring import (
    CONFLICT,
    Result,
    Verdict,
    conflict_cases,
    score_conflicts,
    score_tables,
    summary,
    table_cases,
)
from tests.corpora import ABSENT, own_corpus, whole_corpus

FAILED = (Verdict.WRONG, Verdict.CRASHED)


def main(text: str = "") -> int:
    """Run the cases and print the results."""
    console = Console()
    corpus = own_corpus()
    if whole_corpus() is None:
        console.print(ABSENT)
    tables = [case for case in table_cases(corpus) if text in case["name"]]
    conflicts = [case for case in conflict_cases(corpus) if text in case["name"]]
    results: list[Result] = []
    with console.status(f"judging {len(tables)} tables' cases and {len(conflicts)} conflicts"):
        results.extend(score_tables(corpus, tables))
        results.extend(score_conflicts(corpus, conflicts))
    _print(console, results)
    return 1 if any(is_failure(result) for result in results) else 0


def is_failure(result: Result) -> bool:
    """Return whether a result fails the run: every case on a table must pass."""
    is_declined = result.verdict is Verdict.DECLINED and result.kind != CONFLICT
    return is_declined or result.verdict in FAILED


def _print(console: Console, results: list[Result]) -> None:
    table = Table("kind", *(verdict.value for verdict in Verdict), title="conformance")
    for kind, counts in summary(results).items():
        table.add_row(kind, *(str(counts[verdict.value] or "") for verdict in Verdict))
    totals = Counter(result.verdict for result in results)
    table.add_section()
    table.add_row("all", *(str(totals[verdict] or "") for verdict in Verdict))
    console.print(table)
    declined = Counter(r.feature for r in results if r.verdict is Verdict.DECLINED)
    for feature, count in declined.most_common():
        console.print(f"{count:5} declined for {feature}")
    for result in results:
        if is_failure(result):
            console.print(f"{result.verdict.value} {result.name}: {result.reason}", markup=False)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
