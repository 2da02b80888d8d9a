"""Where each bound of admission lies: what just keeps it is admitted, one more is not."""

from typing import Any

import pytest

from tests.builders import NOW_MS, add, info, metadata, proposal, protocol, remove
from tests.unit.committer.test_machine import considered, table
from tidegate.committer.admission import OPERATION_CHARS_MAX, Place, refusal, table_level
from tidegate.committer.policy import Policy
from tidegate.committer.rows import NAME_CHARS_MAX
from tidegate.delta.actions import Metadata

POLICY = Policy(files_age_max_ms=1_000, weakest_isolation="WriteSerializable")
AGED = {"files_since_ms": NOW_MS - POLICY.files_age_max_ms}
LATE = {"files_since_ms": NOW_MS - POLICY.files_age_max_ms - 1}


def rule(*rows: Any, **told: Any) -> str | None:
    state = table([info(), protocol(), metadata()], [info(), add("old")])
    one = proposal(*(rows or (add("a"),)), **told)
    place = Place(state.root, state.basis, NOW_MS)
    found = refusal(considered(one), place, POLICY)
    return found.rule if found else None


def named(length: int) -> dict[str, Any]:
    return {"app_txn": {"app_id": "a" * length, "version": 1}}


@pytest.mark.parametrize(
    ("keeps", "breaks", "expected"),
    [
        (named(NAME_CHARS_MAX), named(NAME_CHARS_MAX + 1), "too_large"),
        (
            {"operation": {"name": "W" * OPERATION_CHARS_MAX}},
            {"operation": {"name": "W" * (OPERATION_CHARS_MAX + 1)}},
            "too_large",
        ),
        ({"deadline_ms": NOW_MS}, {"deadline_ms": NOW_MS - 1}, "deadline_passed"),
        (AGED, LATE, "files_too_old"),
        (
            {"isolation": "WriteSerializable"},
            {"isolation": "SnapshotIsolation"},
            "isolation_not_allowed",
        ),
    ],
)
def test_what_just_keeps_a_bound_is_admitted(
    keeps: dict[str, Any], breaks: dict[str, Any], expected: str
) -> None:
    assert rule(**keeps) is None
    assert rule(**breaks) == expected


def test_files_age_only_where_a_proposal_brings_some() -> None:
    assert rule(remove("old"), **LATE) is None
    assert rule(remove("old"), add("new"), **LATE) == "files_too_old"


@pytest.mark.parametrize(
    ("said", "level"),
    [
        ("Serializable", "Serializable"),
        ("writeserializable", "WriteSerializable"),
        ("SnapshotIsolation", "SnapshotIsolation"),
        ("ReadCommitted", "Serializable"),
        (None, "Serializable"),
    ],
)
def test_a_level_that_nobody_knows_is_taken_as_the_strictest(said: str | None, level: str) -> None:
    body = metadata(**({"isolationLevel": said} if said else {}))["metaData"]
    assert table_level(Metadata.model_validate(body)) == level
