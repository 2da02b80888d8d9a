"""Read tables of other writers, and compare our decisions with those of other committers."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.packing import is_own
from tests.conformance.scoring import (
    SCORE,
    Result,
    Verdict,
    conflict_cases,
    score_conflicts,
    score_tables,
    table_cases,
)
from tests.corpora import ROOT

CASES_MIN: Final = {
    "own": {"read": 82, "time-travel": 367, "metadata": 173, "reject": 26, "cdf": 28},
    "others": {"read": 182, "time-travel": 280, "metadata": 192, "reject": 47, "cdf": 20},
}
"""Fewest undisputed cases on tables of each source: this project's, and others'."""

CONFLICTS_PASSED_MIN = 511
"""Conflict vectors that pass; raise it whenever the table of features changes."""


@pytest.fixture(scope="module", params=CASES_MIN)
def source(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def folder(source: str, request: pytest.FixtureRequest) -> Path:
    """Return the corpus folder of a source; skip if it is not there."""
    result: Path = request.getfixturevalue("own_corpus" if source == "own" else "corpus")
    return result


@pytest.fixture(scope="module")
def results(folder: Path, source: str, request: pytest.FixtureRequest) -> list[Result]:
    cases = [
        table_case for table_case in table_cases(folder) if is_own(table_case) == (source == "own")
    ]
    scored = list(score_tables(folder, cases))
    request.config.stash.setdefault(SCORE, []).extend(scored)
    return scored


@pytest.fixture(scope="module")
def verdicts(own_corpus: Path, request: pytest.FixtureRequest) -> list[Result]:
    scored = list(score_conflicts(own_corpus, conflict_cases(own_corpus)))
    request.config.stash.setdefault(SCORE, []).extend(scored)
    return scored


def of(results: list[Result], verdict: Verdict) -> list[str]:
    return [f"{r.name}: {r.reason[:300]}" for r in results if r.verdict is verdict]


@pytest.mark.parametrize("verdict", [Verdict.WRONG, Verdict.CRASHED, Verdict.DECLINED])
def test_every_undisputed_case_passes(results: list[Result], verdict: Verdict) -> None:
    assert of(results, verdict) == []


def test_no_case_is_left_out(results: list[Result], source: str) -> None:
    passed = Counter(r.kind for r in results if r.verdict is Verdict.PASSED)
    least = CASES_MIN[source]
    assert passed.keys() == least.keys()
    assert {kind: count for kind, count in passed.items() if count < least[kind]} == {}


def test_only_disputed_cases_are_skipped(folder: Path, results: list[Result]) -> None:
    disputed = {case["name"] for case in table_cases(folder) if case.get("disputed")}
    assert {r.name for r in results if r.verdict is Verdict.SKIPPED} <= disputed


def test_the_corpus_own_runner_agrees(own_corpus: Path, tmp_path: Path) -> None:
    """The runner tests each case on a copy of its table, in a process of its own."""
    result = tmp_path / "told.json"
    faces = ("reader", "read_table"), ("cdf", "read_changes"), ("facts", "read_facts")
    named = [f"--{face}=tests.conformance.runner_entry_points:{name}" for face, name in faces]
    strict = ["--strict-errors", "--strict-facts", "--quiet", f"--json={result}"]
    runner = [sys.executable, str(own_corpus / "run.py"), *named, *strict]
    ended = subprocess.run(runner, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    undisputed = [case for case in table_cases(own_corpus) if not case.get("disputed")]
    states = Counter(load["state"] for load in json.loads(result.read_text(encoding="utf-8")))
    assert states["pass"] == len(undisputed)


def test_no_conflict_vector_is_decided_wrongly(verdicts: list[Result]) -> None:
    assert of(verdicts, Verdict.WRONG) == []


def test_no_conflict_vector_crashes_the_runner(verdicts: list[Result]) -> None:
    assert of(verdicts, Verdict.CRASHED) == []


def test_no_conflict_vector_that_passed_is_declined(verdicts: list[Result]) -> None:
    assert len(of(verdicts, Verdict.PASSED)) >= CONFLICTS_PASSED_MIN
