"""What a desk has on its way: an entry that flies, and the next one as far as it is decided."""

from dataclasses import dataclass

from tidegate.committer.machine import Plan, Planning
from tidegate.committer.puts import Flight
from tidegate.committer.rebase import Encoded


@dataclass
class Draft:
    """What the next entry will hold, as far as is decided. Units: `_s` by `Clock.boot_s`.

    `lingers_since_s` is when company was first waited for; None where it never was.
    """

    planning: Planning
    since_s: float
    lingers_since_s: float | None = None


@dataclass
class InFlight:
    """An entry on its way, and what is decided on top of it."""

    plan: Plan
    encoded: Encoded
    flight: Flight
    ahead: Draft | None = None
