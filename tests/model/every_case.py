"""Every case there is: the quick ones for each change, the large ones for the night."""

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
