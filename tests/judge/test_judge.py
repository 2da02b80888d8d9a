"""Generated tables and verbs: delta-spark and we do the same to them (`make judge`).

A process of its own runs it, because a JVM without delta-spark's jars can't get them later.
"""

import pytest
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from tests.integration.conftest import Line, session_broker, shared_line
from tests.judge import cases
from tests.judge.comparison import Judge
from tests.judge.generator import case
from tests.judge.running import judged
from tests.judge.surroundings import judge_of, open_spark

__all__ = ["session_broker", "shared_line"]

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(28_000)]


@pytest.fixture(scope="module")
def judge(shared_line: Line, request: pytest.FixtureRequest) -> Judge:
    """Return a judge; skip where delta-spark's jars can't be had."""
    if SparkSession.getActiveSession() is not None:
        pytest.skip("another session runs in this process, without delta-spark")
    gate = shared_line.kafka if request.config.getoption("--door") else None
    try:
        spark = open_spark(request.config.getoption("--judged"), gate)
    except (PySparkException, PySparkRuntimeError):
        pytest.skip("delta-spark's jar can't be had: no Maven repository answers")
    shared_line.started("committer")
    return judge_of(spark, shared_line)


def test_the_seeds_show_no_difference(judge: Judge, request: pytest.FixtureRequest) -> None:
    one, count = request.config.getoption("--seed"), request.config.getoption("--judged")
    seeds = range(count) if one is None else [one]
    run = judged(judge, seeds, shrinks=True)
    for reason, times in run.excused.most_common():
        print(f"{times} times: {reason}")  # noqa: T201  (the table of known differences, counted)
    assert not run.found, "\n\n".join(map(str, run.found.values()))


def test_a_seed_gives_the_same_case_each_time() -> None:
    for seed in range(200):
        assert repr(case(seed)) == repr(case(seed))


def test_a_case_can_be_pasted_into_a_test() -> None:
    names = {kind.__name__: kind for kind in _kinds()}
    for seed in range(200):
        again = eval(repr(case(seed)), names)
        assert again == case(seed)


def _kinds() -> list[type]:
    return [item for item in vars(cases).values() if isinstance(item, type)]
