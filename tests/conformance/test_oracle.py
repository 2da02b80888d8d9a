"""Generated cases: our decision must equal delta-spark's."""

import copy
import random
from collections import Counter
from itertools import islice

import pytest

from tests.conformance.oracle_decided import (
    Case,
    NoJar,
    decided,
    decided_cases,
    difference,
    new_cases,
)
from tests.conformance.oracle_program import ENABLEMENT_MS
from tests.conformance.oracle_vectors import Row
from tests.conformance.scoring import conflict_cases, conflict_judges
from tests.corpora import own_corpus

pytestmark = pytest.mark.timeout(1200)  # thousands of cases, on a machine that may be busy

DECIDED_MIN = 8_000
VECTORS_ASKED = 8


def test_what_delta_spark_decided_we_decide() -> None:
    """Uses the archive of earlier answers of the oracle, and needs no Spark."""
    cases = decided()
    assert len(cases) >= DECIDED_MIN
    assert [word for case in cases if (word := difference(case))] == []


def test_the_decided_cases_are_of_all_kinds() -> None:
    verdicts = Counter(case["expected"]["verdict"] for case in decided())
    classes = {(case["expected"].get("error_class") or "").partition(".")[0] for case in decided()}
    assert min(verdicts.values()) > 20
    assert {
        "DELTA_CONCURRENT_APPEND",
        "DELTA_CONCURRENT_DELETE_READ",
        "DELTA_CONCURRENT_DELETE_DELETE",
        "DELTA_CONCURRENT_TRANSACTION",
        "DELTA_METADATA_CHANGED",
        "DELTA_PROTOCOL_CHANGED",
        "DELTA_DUPLICATE_ACTIONS_FOUND",
        "CAST_INVALID_INPUT",
    } <= classes


@pytest.mark.spark
@pytest.mark.timeout(3600)
def test_delta_spark_decides_as_we_do_and_as_the_vectors_expect(
    pytestconfig: pytest.Config,
) -> None:
    """The seed is the number of cases requested, so the nightly run sees other cases."""
    count = pytestconfig.getoption("--asked")
    vectors = random.Random(count).sample(conflict_cases(own_corpus()), VECTORS_ASKED)
    try:
        result = list(decided_cases([*vectors, *islice(new_cases(count), count)]))
    except NoJar:
        pytest.skip("delta-spark's jar can't be had: no Maven repository answers")
    judges = conflict_judges(own_corpus())
    for vector, answer in zip(vectors, result, strict=False):
        word = judges.check(vector, {**answer["expected"], "committed": _timed(answer)})[1]
        assert word in ("", "also right"), f"{vector['name']}: {word}"
        assert answer["reads"]["files"] == sorted(vector["reads"]["files"])
    assert [word for case in result[VECTORS_ASKED:] if (word := difference(case))] == []


def _timed(case: Case) -> list[Row]:
    """Return the committed actions, with a fixed time where delta-spark used the clock."""
    rows: list[Row] = copy.deepcopy(case["expected"].get("committed", []))
    for row in rows:
        if "inCommitTimestamp" in row.get("commitInfo", {}):
            row["commitInfo"]["inCommitTimestamp"] = row["commitInfo"]["inCommitTimestamp"] or 1
        configuration = row.get("metaData", {}).get("configuration", {})
        if ENABLEMENT_MS in configuration:
            configuration[ENABLEMENT_MS] = configuration[ENABLEMENT_MS] or "1"
    return rows
