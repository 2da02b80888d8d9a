"""The score at the end of a test run."""

import pytest

from tests.conformance.scoring import SCORE, Verdict, summary
from tests.corpora import ABSENT, whole_corpus


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Tell how many cases of each kind came to what."""
    if whole_corpus() is None:
        terminalreporter.write_line(ABSENT)
    results = config.stash.get(SCORE, [])
    if not results:
        return
    words = [verdict.value for verdict in Verdict]
    terminalreporter.section("conformance: cases of the corpus")
    terminalreporter.write_line("".join(f"{word:>12}" for word in ("", *words)))
    for kind, counts in summary(results).items():
        row = "".join(f"{counts[word]:>12}" for word in words)
        terminalreporter.write_line(f"{kind:>12}{row}")
