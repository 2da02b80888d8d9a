"""Time zones, by the names that Spark accepts for a session's time zone."""

import re
from datetime import timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tidegate_delta.errors import InvalidRequest
from tidegate_delta.schema.partition_values import names_zone, parse, serialize
from tidegate_delta.schema.types import TIMESTAMP

_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")


def zone_of(name: str) -> tzinfo:
    """Return the time zone of a region name or UTC offset. Raises: InvalidRequest."""
    if name.upper() in ("Z", "UTC", "GMT", "UT"):
        name = "+00"
    match = _OFFSET.fullmatch(name)
    try:
        if match is None:
            return ZoneInfo(name)
        hours, minutes, seconds = (int(part or 0) for part in match.groups()[1:])
        away = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return timezone(-away if match[1] == "-" else away)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidRequest(
            f"the session's time zone {name!r} is not known to this machine: name the zone in the "
            "timestamps that you compare with, as in '2013-01-01 10:00:00Z'",
            error_class="INVALID_TIMEZONE",
        ) from error


def in_zone(text: str, zone: str) -> str:
    """Return a timestamp's text unchanged if it names a zone, else converted from `zone` to UTC.

    Text that is no timestamp is returned unchanged; the reader refuses it.
    Raises: InvalidRequest, for an unknown zone.
    """
    try:
        timestamp = None if names_zone(text) else parse(text, TIMESTAMP)
        if timestamp is None:
            return text
        return serialize(timestamp.replace(tzinfo=zone_of(zone)), TIMESTAMP) or text
    except ValueError:
        return text
