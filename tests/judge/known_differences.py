"""Where we differ from delta-spark on purpose, or where a comparison means nothing.

A difference that matches is counted, and is none. Each is as narrow as its reason.
"""

import re
from dataclasses import dataclass
from typing import Final

from tests.judge.comparison import Difference


@dataclass(frozen=True)
class Known:
    """A difference that is no fault: regular expressions that match all of a difference's parts."""

    reason: str
    part: str
    verb: str = ".*"
    error_class: str = ".*"
    theirs: str = ".*"
    ours: str = ".*"

    def matches(self, difference: Difference) -> bool:
        """Return whether a difference is this one."""
        return all(
            re.fullmatch(pattern, text, re.DOTALL)
            for pattern, text in (
                (self.part, difference.part),
                (self.verb, difference.verb),
                (self.error_class, difference.error_class),
                (self.theirs, difference.theirs),
                (self.ours, difference.ours),
            )
        )


KNOWN: Final = (
    Known(
        "a change of properties is called so where it upgrades the protocol, too",
        "history",
        "Alter .*|AddFeature",
        theirs=r".*UPGRADE PROTOCOL.*",
    ),
    Known(
        "nothing is proposed where nothing changes",
        "history",
        ours=r"\[\]",
    ),
    Known("values of identity columns are leased by versions of their own", "history", ours=".*LEASE IDENTITY.*"),
)


def known(difference: Difference) -> Known | None:
    """Return why a difference is none, or None."""
    return next((item for item in KNOWN if item.matches(difference)), None)
