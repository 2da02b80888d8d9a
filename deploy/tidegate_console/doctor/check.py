"""The result of one check."""

from dataclasses import dataclass
from typing import Literal

CheckStatus = Literal["ok", "note", "wrong", "away", "skipped"]
"""`note`: it works, and could be better. `away`: something does not answer. `skipped`: not looked
at, because of an earlier result, or because nobody asked.
"""


@dataclass(frozen=True)
class Check:
    """What a check found; `do` is how to mend it."""

    name: str
    verdict: CheckStatus
    found: str
    do: str = ""
