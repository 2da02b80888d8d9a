"""Logs the outcome of each write in its process, one line each."""

import logging

from tidegate_messages.outcome import Outcome
from tidegate_runtime.observability.logs import log_event

_logger = logging.getLogger("tidegate_producers")


def log_outcome(root: str, outcome: Outcome | None) -> None:
    """Log a write's outcome; None is a write with nothing to propose."""
    if outcome is None:
        log_event(_logger, "unchanged", table=root)
    else:
        log_event(
            _logger,
            outcome.status,
            table=root,
            version=outcome.version,
            proposal=str(outcome.proposal_id),
            offset=outcome.offset,
        )
