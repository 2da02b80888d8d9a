"""All cases: quick ones for each change, large ones for the nightly run."""

from typing import Final

from tests.model import cases_beside, cases_protocol, cases_verbatim
from tests.model.cases import named

CASES: Final = named(
    (
        *cases_protocol.seed(),
        *cases_protocol.PROTOCOL,
        *cases_protocol.WITHOUT,
        *cases_verbatim.VERBATIM,
        *cases_verbatim.WITHOUT,
        *cases_beside.WAY,
        *cases_beside.RATIFY,
    )
)
