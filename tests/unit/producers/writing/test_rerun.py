"""Verbs that another commit overtook run again, a bounded number of times."""

import logging
from collections.abc import Iterator
from uuid import UUID

import pytest

from tests.unit.producers.answering_bus import ManualClock
from tidegate_messages.outcome import Outcome, Rejection
from tidegate_producers.writing.rerun import RERUNS_MAX, rerun
from tidegate_runtime.client.client import Rejected

ID = UUID("0192aaaa-0000-7000-8000-000000000002")
ROOT = "memory://t"


def refused(version: int | None = 4, rule: str = "concurrent_append", **given: str) -> Rejected:
    advice = given.get("advice", "rerun")
    rejection = Rejection.model_validate(
        {"rule": rule, "reason": "it read a file", "advice": advice, "winner_version": version}
    )
    return Rejected(
        Outcome(
            proposal_id=ID,
            proposal_sha256="0" * 64,
            table=ID,
            status="rejected",
            rejection=rejection,
        )
    )


class Verb:
    """Raises some errors in turn, then returns the number of its runs."""

    def __init__(self, *errors: Rejected) -> None:
        self.runs = 0
        self._errors: Iterator[Rejected] = iter(errors)

    def __call__(self) -> int:
        self.runs += 1
        for error in self._errors:
            raise error
        return self.runs


def test_a_verb_that_was_overtaken_runs_again_and_logs_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    verb = Verb(refused(4), refused(5, "concurrent_row_delete"))
    with caplog.at_level(logging.WARNING, "tidegate_producers"):
        assert rerun(verb, ROOT, ManualClock(), 60.0) == 3
    assert "concurrent_append" in caplog.text
    assert "version 5" in caplog.text
    assert caplog.text.count("runs again on the newest version") == 2


def test_a_verb_that_is_overtaken_each_time_ends_and_its_refusal_has_every_reason() -> None:
    verb = Verb(*(refused(version) for version in range(100)))
    with pytest.raises(Rejected) as raised:
        rerun(verb, ROOT, ManualClock(), 1_000.0)
    assert verb.runs == RERUNS_MAX + 1
    [note] = raised.value.__notes__
    assert note.startswith(f"it ran {verb.runs} times")
    assert f"version {RERUNS_MAX} (concurrent_append)" in note
    assert "delta.enableDeletionVectors" in note


def test_no_run_begins_after_the_time_is_up() -> None:
    verb = Verb(*(refused() for _ in range(100)))
    with pytest.raises(Rejected):
        rerun(verb, ROOT, ManualClock(step_s=10.0), 25.0)
    assert verb.runs == 3


@pytest.mark.parametrize(
    "error", [refused(advice="fix"), refused(version=None), refused(advice="skip")]
)
def test_what_another_run_would_not_change_is_raised_at_once(error: Rejected) -> None:
    verb = Verb(error)
    with pytest.raises(Rejected):
        rerun(verb, ROOT, ManualClock(), 60.0)
    assert verb.runs == 1
