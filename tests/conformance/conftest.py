"""Print the conformance score at the end of a test run, over all its processes."""

from typing import Any

import pytest

from tests.conformance.scoring import SCORE, Result, Verdict, summary
from tests.corpora import ABSENT, whole_corpus

_SENT = "score"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send this process's results to the controller, if there are several processes."""
    sent: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if sent is not None:
        results = session.config.stash.get(SCORE, [])
        sent[_SENT] = [(result.name, result.kind, result.verdict.value) for result in results]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add the results of another process of the run."""
    result = getattr(node, "workeroutput", {}).get(_SENT, [])
    results = [Result(name, kind, Verdict(verdict)) for name, kind, verdict in result]
    node.config.stash.setdefault(SCORE, []).extend(results)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the number of cases by kind and result."""
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
