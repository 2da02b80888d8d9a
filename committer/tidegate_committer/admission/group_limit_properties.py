"""Table properties that limit how many proposals may share an entry.

A table whose readers want each commit in its own version says so where all its writers see it. The
operator's limits come first: a property can only lower them.
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
"""Table property -> the limit that it lowers. With one member an entry, nothing is grouped."""


def wrong_limit(configuration: Mapping[str, str]) -> str | None:
    """Return the name of a property that is not a whole number of at least 1, or None."""
    names = (name for name in PROPERTIES if name in configuration)
    return next((name for name in names if _limit(configuration[name]) is None), None)


def within(policy: Policy, configuration: Mapping[str, str]) -> Policy:
    """Return the policy for entries of a table with these properties.

    Law: no limit is higher than the policy's; an invalid value is ignored
    """
    lowered: dict[str, Any] = {}
    for name, limit in PROPERTIES.items():
        value = _limit(configuration[name]) if name in configuration else None
        if value is not None and value < getattr(policy, limit):
            lowered[limit] = value
    return replace(policy, **lowered) if lowered else policy


def _limit(text: str) -> int | None:
    is_number = text.isascii() and text.isdigit() and len(text) <= 18
    return int(text) or None if is_number else None
