"""Runs a verb again when another writer's commit overtook it.

A delete, an update, or an overwrite of the rows of a condition depends on the table alone: run on
the newest version, it is what the user asked for. It runs again a bounded number of times, and each
refusal is logged.
"""

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from tidegate_runtime.client.client import Rejected
from tidegate_runtime.clock import Clock
from tidegate_runtime.observability.logs import log_event

RERUNS_MAX: Final = 10
"""How often a verb runs again, at most, before its last refusal is raised."""

_logger = logging.getLogger("tidegate_producers")

Done = TypeVar("Done")


def rerun(run: Callable[[], Done], root: str, clock: Clock, timeout_s: float) -> Done:
    """Run a verb until no other commit overtakes it, and return what it returns.

    `timeout_s` bounds when a run may still begin. Raises: Rejected, the last one, with a note of
    what came before in each run; and what the verb raises.
    """
    deadline_s = clock.boot_s() + timeout_s
    winners: list[str] = []
    while True:
        try:
            return run()
        except Rejected as rejected:
            if not was_overtaken(rejected):
                raise
            winners.append(_winner(rejected))
            if len(winners) > RERUNS_MAX or clock.boot_s() >= deadline_s:
                rejected.add_note(_reason_given_up(winners))
                raise
            log_event(
                _logger,
                "overtaken",
                level=logging.WARNING,
                table=root,
                run=len(winners),
                reason=str(rejected),
                next="runs again on the newest version",
            )


def was_overtaken(rejected: Rejected) -> bool:
    """Return whether a proposal was refused only because another commit came before it."""
    outcome = rejected.outcome
    rejection = outcome.rejection
    return (
        outcome.status == "rejected"
        and rejection is not None
        and rejection.advice == "rerun"
        and rejection.winner_version is not None
    )


def _winner(rejected: Rejected) -> str:
    rejection = rejected.outcome.rejection
    assert rejection is not None, "was_overtaken has looked"
    return f"version {rejection.winner_version} ({rejection.rule})"


def _reason_given_up(winners: list[str]) -> str:
    return (
        f"it ran {len(winners)} times, each time on the newest version, and other commits came "
        f"first: {', '.join(winners)}; run it again when fewer jobs change the same files, give it "
        "a longer outcomeTimeout, or set delta.enableDeletionVectors, with which changes of "
        "different rows all commit"
    )
