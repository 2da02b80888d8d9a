"""Score every case of the corpus with the corpus's own comparisons.

It is as strict as the corpus's runner with `--strict-errors --strict-facts`, and stricter in the
order of columns. A case passes, or it is declined: refused by name for a feature that this release
does not have. Anything else is wrong (rows, facts or an error class other than expected) or a
crash.
"""

import copy
import importlib.util
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pyarrow.parquet as pq
import pytest

from tests.conformance import runner_entry_points
from tidegate_delta.errors import TidegateError, UnsupportedFeature
from tidegate_delta.features.supported_features import FEATURES, Support

Case = Mapping[str, Any]


class Verdict(Enum):
    PASSED = "passed"
    DECLINED = "declined"
    WRONG = "wrong"
    CRASHED = "crashed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Result:
    """A case's result; `feature` is the one for which a case was declined."""

    name: str
    kind: str
    verdict: Verdict
    reason: str = ""
    feature: str = ""


CONFLICT: Final = "conflict"
"""The kind of the cases that are not on a table."""

SCORE: Final = pytest.StashKey[list[Result]]()
"""Where a test run keeps its results until it prints the score."""


def conflict_judges(corpus: Path) -> ModuleType:
    """Return the corpus's own comparisons of decisions."""
    return _module(corpus / "conflicts" / "run_conflicts.py")


def table_cases(corpus: Path) -> list[Case]:
    """Return the cases of the manifest."""
    manifest = json.loads((corpus / "manifest.json").read_text(encoding="utf-8"))
    cases: list[Case] = manifest["cases"]
    return cases


def conflict_cases(corpus: Path) -> list[Case]:
    """Return the cases of the conflict vectors."""
    judges = conflict_judges(corpus)
    return list(judges.load(corpus / "conflicts", None))


def score_tables(corpus: Path, cases: list[Case]) -> Iterator[Result]:
    """Yield the result of each case on a table."""
    judges = _module(corpus / "run.py")
    for case in cases:
        if case.get("disputed"):
            yield Result(case["name"], case["kind"], Verdict.SKIPPED, case["disputed"])
        else:
            yield _score_table(judges, corpus, case)


def score_conflicts(corpus: Path, cases: list[Case]) -> Iterator[Result]:
    """Yield the result of each conflict vector."""
    judges = conflict_judges(corpus)
    for case in cases:
        question = {key: value for key, value in case.items() if key not in judges.HIDDEN}
        answer, refusal = _attempt(runner_entry_points.judge, copy.deepcopy(question))
        if refusal is not None:
            yield _of_exception(case["name"], CONFLICT, refusal)
            continue
        passed, reason = judges.check(case, answer)
        verdict = Verdict.PASSED if passed else Verdict.WRONG
        yield Result(case["name"], CONFLICT, verdict, reason)


def summary(results: list[Result]) -> dict[str, Counter[str]]:
    """Return the number of cases by kind and result."""
    table: dict[str, Counter[str]] = {}
    for result in results:
        table.setdefault(result.kind, Counter())[result.verdict.value] += 1
    return table


def _score_table(judges: ModuleType, corpus: Path, case: Case) -> Result:
    with _prepared(judges, corpus, case) as place:
        functions = {
            "reader": runner_entry_points.read_table,
            "cdf": runner_entry_points.read_changes,
            "facts": runner_entry_points.read_facts,
        }
        got, refusal = _attempt(judges.call, case, place, functions)
    name, kind, expected = case["name"], case["kind"], case["expected"]
    if refusal is not None:
        if kind == "reject" and getattr(refusal, "error_class", None) == expected["error"]:
            return Result(name, kind, Verdict.PASSED, str(refusal))
        return _of_exception(name, kind, refusal)
    if kind == "reject" and _may_read(case):
        return Result(name, kind, Verdict.PASSED, "read, as a reader that has the feature may")
    if kind == "reject":
        return Result(name, kind, Verdict.WRONG, f"read, where {expected['error']} was expected")
    if kind == "metadata":
        facts = json.loads((corpus / expected["facts"]).read_text(encoding="utf-8"))
        reason = judges.fact_difference(facts, got, True)
    else:
        rows = pq.read_table(corpus / expected["rows"])
        # Other readers put partition columns last in change rows; ours keep the schema's order.
        in_order = kind != "cdf"
        reason = judges.difference(rows, got, case.get("ignore_columns", ()), in_order)
    return Result(name, kind, Verdict.WRONG if reason else Verdict.PASSED, reason or "")


def _may_read(case: Case) -> bool:
    """Return whether the corpus allows our reader to read what others must refuse."""
    learnt = {row.name for row in FEATURES.values() if row.reads is Support.YES}
    return bool(learnt & set(case.get("unless_supported", ())))


def _attempt(function: Callable[..., Any], *args: Any) -> tuple[Any, Exception | None]:
    """Return an entry point's result or its exception."""
    try:
        return function(*args), None
    except Exception as error:  # a case that crashes must not stop the others
        return None, error


def _of_exception(name: str, kind: str, error: Exception) -> Result:
    said = f"{type(error).__name__}: {error}"
    if isinstance(error, UnsupportedFeature):
        return Result(name, kind, Verdict.DECLINED, said, error.feature)
    verdict = Verdict.WRONG if isinstance(error, TidegateError) else Verdict.CRASHED
    return Result(name, kind, verdict, said)


@contextmanager
def _prepared(judges: ModuleType, corpus: Path, case: Case) -> Iterator[str]:
    """Yield the case's table, or a copy if the case changes it first."""
    if not case.get("setup"):
        yield str(corpus / case["table"])
        return
    with tempfile.TemporaryDirectory(prefix="tidegate-case-") as folder:
        place = str(Path(folder).resolve() / "table")
        judges.prepare(str(corpus / case["table"]), case["setup"], place)
        yield place


@cache
def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"corpus_{path.stem}", path)
    assert spec is not None, f"{path} is no Python file"
    assert spec.loader is not None, f"{path} can't be loaded"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
