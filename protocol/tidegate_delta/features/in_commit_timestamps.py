"""In-commit timestamps: the next timestamp, and the record of their enablement.

Spec: "Writer Requirements for In-Commit Timestamps"
"""

from collections.abc import Mapping
from typing import Final

from tidegate_delta.log.actions import Metadata
from tidegate_delta.properties.table_properties import (
    ict_enablement_timestamp_ms,
    ict_enablement_version,
    in_commit_timestamps_enabled,
)

ENABLEMENT: Final = (ict_enablement_version.key, ict_enablement_timestamp_ms.key)
"""The properties that record since which version and time commits have in-commit timestamps."""


def next_timestamp(now_ms: int, last_ms: int) -> int:
    """Return the timestamp of the next commit: the current time, but later than the one before.

    Law: next_timestamp(n, m) > m
    Units: ms since the Unix epoch.
    """
    return max(now_ms, last_ms + 1)


def begins(before: Metadata, after: Metadata) -> bool:
    """Return whether a commit turns in-commit timestamps on.

    Spec: "In-Commit Timestamps"
    """
    return in_commit_timestamps_enabled(after) and not in_commit_timestamps_enabled(before)


def with_enablement(
    before: Metadata | None, after: Metadata, version: int, timestamp_ms: int
) -> Metadata:
    """Return metadata as it is to be written at a version, with the record of the enablement.

    A commit after version 0 that turns timestamps on adds the record. A commit whose metadata lacks
    the record of an earlier enablement, as a REPLACE does, keeps that record. Before version 0
    there is no metadata.
    Units: `timestamp_ms` in ms since the Unix epoch: the in-commit timestamp of the version.
    """
    if before is None or not in_commit_timestamps_enabled(after):
        return after
    record: Mapping[str, str]
    if begins(before, after):
        record = dict(zip(ENABLEMENT, (str(version), str(timestamp_ms)), strict=True))
    elif any(key in after.configuration for key in ENABLEMENT):
        return after
    else:
        known = before.configuration
        record = {key: known[key] for key in ENABLEMENT if key in known}
    return after.with_(configuration={**after.configuration, **record}) if record else after
