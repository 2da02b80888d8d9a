"""Explore every model: with all rules its invariants hold; without one the expected one breaks."""

import re
from pathlib import Path

import pytest

from tests.model.all_cases import CASES, EACH_CHANGE, SMALLEST
from tests.model.cases import figures, found_figures

FIGURES = figures()
DOCUMENT = Path(__file__).parents[2] / "docs" / "proof.md"


@pytest.mark.parametrize("name", CASES)
def test_a_model_has_the_expected_result(name: str, request: pytest.FixtureRequest) -> None:
    case = CASES[name]
    if name not in EACH_CHANGE and not request.config.getoption("--full"):
        pytest.skip("a larger configuration of its model: `make nightly`, or --full")
    result = case.run()
    story = "\n".join(label for label, _ in result.path)
    assert result.broken == case.broken, f"{case.why}: {result.why}\n{story}"
    assert result.broken or result.is_complete, "the search came to its end"
    assert found_figures(result) == FIGURES[name], "the model is another one"


def test_every_case_has_its_figures_and_every_figure_its_case() -> None:
    assert FIGURES.keys() == CASES.keys()


def test_each_model_and_every_mutant_is_searched_for_each_change() -> None:
    assert SMALLEST.keys() == {type(case.model) for case in CASES.values()}
    for model, name in SMALLEST.items():
        smallest = CASES[name]
        assert smallest.broken is None
        for other, case in CASES.items():
            if case.model.__class__ is model and case.broken is None:
                assert case.checks <= smallest.checks, f"{other} checks more than {name}"
    mutants = {name for name, case in CASES.items() if case.broken}
    assert mutants | set(SMALLEST.values()) == EACH_CHANGE


def test_the_document_lists_the_configurations_searched_for_each_change() -> None:
    holds = DOCUMENT.read_text(encoding="utf-8").split("### What holds")[1].split("###")[0]
    each_change, _, _ = holds.partition("At night:")
    assert set(re.findall(r"^\| `([\w.-]+)` \|", each_change, re.MULTILINE)) == set(
        SMALLEST.values()
    )


@pytest.mark.parametrize("name", CASES)
def test_the_document_names_what_decides_a_case(name: str) -> None:
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    [row] = [line for line in lines if line.startswith(f"| `{name}` |")]
    _, _, why, *result, _ = (cell.strip() for cell in row.split("|"))
    case, figure = CASES[name], FIGURES[name]
    assert why == case.why
    if case.broken:
        assert result == [case.broken, str(figure.depth)]
    else:
        assert result[:2] == [f"{figure.states:,}", str(figure.depth)]


def test_every_rule_of_the_research_has_a_case_without_it() -> None:
    result = " ".join(case.why for case in CASES.values() if case.broken)
    # F16, the fixed topic partition, concerns the topics and not the protocol.
    missing = [number for number in range(1, 16) if f"F{number}:" not in result]
    assert missing == []
