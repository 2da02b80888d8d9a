"""Other writers' tables in our reader, and other committers' verdicts beside ours."""

from collections import Counter
from pathlib import Path

import pytest

from tests.conformance.scoring import (
    SCORE,
    Case,
    Result,
    Verdict,
    conflict_cases,
    score_conflicts,
    score_tables,
    table_cases,
)
from tidegate.delta.features.table import FEATURES, Support

PASSED_MIN = {"read": 242, "time-travel": 613, "metadata": 346, "reject": 71, "cdf": 48}
"""Cases that passed when the table of features last changed: raised with it, never lowered."""

CONFLICTS_PASSED_MIN = 511
"""The same, of the conflict vectors."""

SPOKEN_OF = {
    "columnMapping": {"column-mapping-name", "column-mapping-id"},
    "typeWidening": {"type-widening"},
}
"""What the corpus calls features that a protocol implies or once had, without listing them."""


@pytest.fixture(scope="module")
def cases(corpus: Path) -> dict[str, Case]:
    return {case["name"]: case for case in table_cases(corpus)}


@pytest.fixture(scope="module")
def results(corpus: Path, cases: dict[str, Case], request: pytest.FixtureRequest) -> list[Result]:
    scored = list(score_tables(corpus, list(cases.values())))
    request.config.stash.setdefault(SCORE, []).extend(scored)
    return scored


@pytest.fixture(scope="module")
def verdicts(corpus: Path, request: pytest.FixtureRequest) -> list[Result]:
    scored = list(score_conflicts(corpus, conflict_cases(corpus)))
    request.config.stash.setdefault(SCORE, []).extend(scored)
    return scored


def of(results: list[Result], verdict: Verdict) -> list[str]:
    return [f"{r.name}: {r.reason[:300]}" for r in results if r.verdict is verdict]


def test_no_case_gives_wrong_rows_facts_or_errors(results: list[Result]) -> None:
    assert of(results, Verdict.WRONG) == []


def test_no_case_crashes(results: list[Result]) -> None:
    assert of(results, Verdict.CRASHED) == []


@pytest.mark.parametrize("kind", PASSED_MIN)
def test_no_case_that_passed_is_declined(results: list[Result], kind: str) -> None:
    passed = Counter(r.kind for r in results if r.verdict is Verdict.PASSED)
    assert passed[kind] >= PASSED_MIN[kind]


def test_a_table_is_declined_only_for_a_feature_that_it_has_and_we_lack(
    results: list[Result], cases: dict[str, Case]
) -> None:
    for result in results:
        if result.verdict is not Verdict.DECLINED:
            continue
        row, case = FEATURES.get(result.feature), cases[result.name]
        assert row is None or row.reads is not Support.YES, result
        there = {*case.get("reader_features", ()), *case.get("unless_supported", ())}
        spoken_of = SPOKEN_OF.get(result.feature, set())
        assert result.feature in there or spoken_of & set(case["features"]), result


def test_no_conflict_vector_is_judged_wrongly(verdicts: list[Result]) -> None:
    assert of(verdicts, Verdict.WRONG) == []


def test_no_conflict_vector_crashes_the_judge(verdicts: list[Result]) -> None:
    assert of(verdicts, Verdict.CRASHED) == []


def test_no_conflict_vector_that_passed_is_declined(verdicts: list[Result]) -> None:
    assert len(of(verdicts, Verdict.PASSED)) >= CONFLICTS_PASSED_MIN
