"""What a table says itself of how many proposals may share an entry: properties, no settings.

A table whose readers want each commit apart says so where all its writers see it. The operator's
limits stand above: a property may only ask for less.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tidegate_committer.policy import Policy

PROPERTIES: Final[Mapping[str, str]] = {
    "tidegate.groupMembersMax": "group_members_max",
    "tidegate.groupActionsMax": "group_actions_max",
    "tidegate.groupBytesMax": "group_bytes_max",
}
"""The property of a table -> the limit that it lowers. One member an entry: nothing is grouped."""


def wrong_limit(configuration: Mapping[str, str]) -> str | None:
    """Return the name of a property that is no whole number from 1 on, or None."""
    told = (name for name in PROPERTIES if name in configuration)
    return next((name for name in told if _limit(configuration[name]) is None), None)


def within(policy: Policy, configuration: Mapping[str, str]) -> Policy:
    """Return the policy for entries of a table with these properties.

    Law: no limit is higher than the policy's; what is no limit is as if it were not there
    """
    lowered: dict[str, Any] = {}
    for name, limit in PROPERTIES.items():
        said = _limit(configuration[name]) if name in configuration else None
        if said is not None and said < getattr(policy, limit):
            lowered[limit] = said
    return replace(policy, **lowered) if lowered else policy


def _limit(text: str) -> int | None:
    is_number = text.isascii() and text.isdigit() and len(text) <= 18
    return int(text) or None if is_number else None
