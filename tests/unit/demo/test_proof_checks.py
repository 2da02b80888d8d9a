from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from tidegate_demo import proof_checks
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Proposal

TABLE = UUID(int=1)


def rows(**changed: list[Any]) -> pa.Table:
    columns = {
        "month": pa.array([1, 1, 2], pa.int32()),
        "flight": pa.array([10, 11, 12], pa.int32()),
        "distance": pa.array([1.0, 2.0, 3.0]),
        "dep_delay": pa.array([None, 4.0, 5.0]),
        "air_time": pa.array([6.0, 7.0, None]),
    }
    for name, values in changed.items():
        columns[name] = pa.array(values, columns[name].type)
    return pa.table(columns)


def proposal(number: int) -> Proposal:
    return Proposal(
        proposal_id=UUID(int=number), table=TABLE, table_root="file:///t", read_version=0
    )


def committed(number: int, version: int) -> Outcome:
    return Outcome(
        proposal_id=UUID(int=number),
        proposal_sha256="0" * 64,
        table=TABLE,
        status="committed",
        version=version,
    )


def test_equal_months_hold() -> None:
    assert proof_checks.same_per_month(rows(), rows().take([2, 0, 1])).holds


def test_a_month_with_another_sum_does_not_hold() -> None:
    assert not proof_checks.same_per_month(rows(), rows(distance=[1.0, 2.0, 4.0])).holds


def test_rows_are_compared_in_the_order_of_the_key_with_their_nulls() -> None:
    shuffled = rows().take([1, 2, 0])
    assert proof_checks.same_rows("same", rows(), shuffled, ["flight"]).holds
    zeroed = rows(dep_delay=[0.0, 4.0, 5.0])
    assert not proof_checks.same_rows("null is not zero", rows(), zeroed, ["flight"]).holds
    assert not proof_checks.same_rows("one is missing", rows(), rows().slice(1), ["flight"]).holds


def test_events_fold_into_the_rows_they_leave() -> None:
    events: list[dict[str, Any]] = [
        {"op": "r", "before": None, "after": {"k": 1, "v": "a"}},
        {"op": "c", "before": None, "after": {"k": 2, "v": "b"}},
        {"op": "u", "before": {"k": 1, "v": "a"}, "after": {"k": 1, "v": "c"}},
        {"op": "d", "before": {"k": 2, "v": "b"}, "after": None},
    ]
    assert proof_checks.replayed(events, ["k"]) == {(1,): {"k": 1, "v": "c"}}


@pytest.mark.parametrize(
    "event",
    [
        {"op": "c", "before": None, "after": {"k": 1, "v": "again"}},
        {"op": "d", "before": {"k": 1, "v": "other"}, "after": None},
        {"op": "d", "before": {"k": 9, "v": "x"}, "after": None},
    ],
)
def test_an_event_that_contradicts_the_rows_is_refused(event: dict[str, Any]) -> None:
    first = {"op": "c", "before": None, "after": {"k": 1, "v": "a"}}
    with pytest.raises(ValueError, match=r"of \("):
        proof_checks.replayed([first, event], ["k"])


def test_repeated_outcomes_that_agree_hold() -> None:
    answers = [committed(1, 5), committed(1, 5), committed(2, 6)]
    assert proof_checks.outcomes_agree([proposal(1), proposal(2)], answers).holds


def test_a_silent_proposal_does_not_hold() -> None:
    assert not proof_checks.outcomes_agree([proposal(1), proposal(2)], [committed(1, 5)]).holds


def test_two_answers_to_one_proposal_do_not_hold() -> None:
    assert not proof_checks.outcomes_agree([proposal(1)], [committed(1, 5), committed(1, 6)]).holds
