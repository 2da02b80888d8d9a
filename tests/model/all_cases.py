"""All cases, and those that run for each change; the others run at night."""

from typing import Final

from tests.model import cases_moving, cases_priority, cases_protocol, cases_verbatim
from tests.model.cases import figures, named, smallest_configurations

CASES: Final = named(
    (
        *cases_protocol.seed(),
        *cases_protocol.PROTOCOL,
        *cases_protocol.WITHOUT,
        *cases_verbatim.VERBATIM,
        *cases_verbatim.WITHOUT,
        *cases_priority.WAY,
        *cases_moving.MOVING,
    )
)

SMALLEST: Final = smallest_configurations(CASES, figures())
"""The name of each model's smallest configuration."""

EACH_CHANGE: Final = frozenset(
    {*SMALLEST.values(), *(name for name, case in CASES.items() if case.broken)}
)
"""The cases that `make test` runs: the smallest configuration of each model, and every mutant."""
