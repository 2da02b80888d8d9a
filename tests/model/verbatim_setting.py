"""The rules and faults of verbatim proposals; the defaults are the protocol's rules."""

from dataclasses import dataclass, field
from typing import Literal

from tests.model.committer_state import Setting


@dataclass(frozen=True)
class VerbatimSetting:
    """The rules in force. `writers` has a letter for each foreign writer, as in `Setting.kinds`.

    `attempts`: most proposals that a foreign writer stages. `gaps`: writers that may propose one
    version too far, of the kinds in `gap_kinds`. `at`: the bytes go to the exact version, or to the
    head. `cleaned`: the outcome if the version itself was cleaned up. `hold`: for every refused
    writer, for the last one, or for none. `begins`: a hold may start at once, or only if a native
    group was committed since the last hold started. `only`: the only invariants to check.
    """

    native: Setting = field(default_factory=Setting)
    writers: str = "A"
    attempts: int = 3
    replays: int = 1
    gaps: int = 0
    gap_kinds: str = "A"
    impatient: int = 0
    spoils: int = 0
    claims: Literal["sha256", "path"] = "sha256"
    knows_replays: bool = True
    at: Literal["exact", "head"] = "exact"
    keeps_bytes: bool = True
    refreshes: bool = True
    guards: bool = False
    cleaned: Literal["expired", "taken"] = "expired"
    hold: Literal["all", "last", "none"] = "all"
    begins: Literal["always", "turn"] = "always"
    ends_on: Literal["answer", "replay"] = "answer"
    holds_end: bool = True
    expiries: int = 0
    overtakes: bool = True
    keeps_low_water: bool = True
    refusals_per_takeover: int = 1
    only: str = ""
