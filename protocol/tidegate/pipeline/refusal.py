"""A rule in words."""

from dataclasses import dataclass
from typing import Final

READ_AGAIN: Final = "read the table as it is and propose again"
"""The way out of what rests on a table that is no more."""


@dataclass(frozen=True)
class Refusal:
    """A rule in words: why it refuses, and the way out."""

    cause: str
    remedy: str
