"""Prints the score: `python -m tests.conformance [text]`, the cases whose name holds the text.

Ends with 1 where a case is wrong or crashes, with 0 where the corpus is not there.
"""

import sys
from collections import Counter

from rich.console import Console
from rich.table import Table

from tests.conformance.scoring import (
    Result,
    Verdict,
    conflict_cases,
    score_conflicts,
    score_tables,
    summary,
    table_cases,
)
from tests.conftest import CORPUS

FAILED = (Verdict.WRONG, Verdict.CRASHED)


def main(text: str = "") -> int:
    """Judge the cases and print what came of them."""
    console = Console()
    if not (CORPUS / "manifest.json").is_file():
        console.print(f"no conformance corpus beside this clone ({CORPUS}): nothing to judge")
        return 0
    tables = [case for case in table_cases(CORPUS) if text in case["name"]]
    conflicts = [case for case in conflict_cases(CORPUS) if text in case["name"]]
    results: list[Result] = []
    with console.status(f"judging {len(tables)} tables' cases and {len(conflicts)} conflicts"):
        results.extend(score_tables(CORPUS, tables))
        results.extend(score_conflicts(CORPUS, conflicts))
    _print(console, results)
    return 1 if any(result.verdict in FAILED for result in results) else 0


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
        if result.verdict in FAILED:
            console.print(f"{result.verdict.value} {result.name}: {result.reason}", markup=False)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
