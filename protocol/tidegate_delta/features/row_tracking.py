"""Row tracking: the base row id of a file, and the commit version of its rows.

The high-water mark, the greatest id ever assigned, is stored in its own metadata domain.

Spec: "Row IDs"
"""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.actions import DomainMetadata, Metadata, Protocol
from tidegate_delta.log.protocol_versions import writer_features
from tidegate_delta.properties.table_properties import (
    row_tracking_enabled,
    row_tracking_suspended,
)

FEATURE: Final = "rowTracking"
DOMAIN: Final = "delta.rowTracking"
ENABLED: Final = row_tracking_enabled.key
NO_HIGH_WATER_MARK: Final = -1
"""The high-water mark of a table that has assigned no id yet."""

_MARK: Final = "rowIdHighWaterMark"


def supports(protocol: Protocol) -> bool:
    """Return whether new files must have row ids, whatever the properties say.

    Spec: "Row Tracking"
    """
    return FEATURE in writer_features(protocol)


def is_enabled(metadata: Metadata) -> bool:
    """Return whether every row has an id and a commit version that readers may request.

    Spec: "Row Tracking"
    """
    return row_tracking_enabled.is_on(metadata)


def is_suspended(metadata: Metadata) -> bool:
    """Return whether the assignment of ids is suspended, because the feature is being dropped.

    Spec: "Writer Requirements for Row Tracking"
    """
    return row_tracking_suspended.is_on(metadata)


def high_water_mark(domains: Mapping[str, DomainMetadata]) -> int:
    """Return the greatest row id that a table has assigned, or NO_HIGH_WATER_MARK.

    Raises: BrokenLog (`CorruptCommit`), where the domain exists but its mark can't be read: a
    restart at 0 would assign ids that rows have already.
    """
    domain = domains.get(DOMAIN)
    if domain is None or domain.removed:
        return NO_HIGH_WATER_MARK
    mark = _mark(domain)
    if mark is None:
        raise BrokenLog(
            f"the metadata domain {DOMAIN} spells no whole number {_MARK}: "
            f"{domain.configuration[:128]!r}; write it again with the greatest row id that any row "
            "has: without it ids would be given twice",
            error_class="CorruptCommit",
        )
    return mark


def mark_in(domain: DomainMetadata) -> int:
    """Return the high-water mark in a domain; NO_HIGH_WATER_MARK where it is removed or has
    none.
    """
    mark = None if domain.removed else _mark(domain)
    return NO_HIGH_WATER_MARK if mark is None else mark


def _mark(domain: DomainMetadata) -> int | None:
    try:
        mark: Any = orjson.loads(domain.configuration).get(_MARK)
    except (orjson.JSONDecodeError, AttributeError):
        return None
    return mark if type(mark) is int else None


def mark_domain(mark: int) -> DomainMetadata:
    """Return the domain that holds a high-water mark.

    Law: mark_in(mark_domain(n)) == n
    """
    return DomainMetadata(domain=DOMAIN, configuration=orjson.dumps({_MARK: mark}).decode())


def physical_records(stats: str | None) -> int | None:
    """Return how many rows a file has, deleted ones included, or None where they were not counted.

    Spec: "Per-file Statistics"
    """
    if stats is None:
        return None
    try:
        count: Any = orjson.loads(stats).get("numRecords")
    except (orjson.JSONDecodeError, AttributeError):
        return None
    return count if type(count) is int and count >= 0 else None
