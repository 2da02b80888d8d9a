"""Rebase dates and timestamps of files written in the hybrid calendar: Julian before 1582.

Spark 2 wrote such files, later versions do if configured to, and the footer says so. Such a file's
15 March 1500 is a count of days which in Delta's calendar, Gregorian throughout, means another
date. The rebase keeps the written date and changes the count.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate_delta.schema.types import (
    DATE,
    TIMESTAMP,
    ArrayType,
    DataType,
    MapType,
    StructType,
    holds,
)

_VERSION: Final = b"org.apache.spark.version"
_ZONE: Final = b"org.apache.spark.timeZone"
_OF_DATES: Final = (b"org.apache.spark.legacyDateTime", "3.0.0")
_OF_INT96: Final = (b"org.apache.spark.legacyINT96", "3.1.0")
"""The key that marks a file in the old calendar, and the first Spark version that writes the key.
"""

_UTC: Final = frozenset({"", "UTC", "GMT", "Z", "Etc/UTC", "+00:00"})
_GREGORIAN_FROM: Final = -141_427
"""15 October 1582, in days since the Unix epoch."""
_EVEN_ZONES_FROM: Final = datetime(1900, 1, 1)  # noqa: DTZ001 - of any zone
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - it is added to times without a zone
_DAY_US: Final = 24 * 60 * 60 * 1_000_000
_EVEN_ZONES_FROM_US: Final = (_EVEN_ZONES_FROM - _EPOCH) // timedelta(microseconds=1) + _DAY_US


@dataclass(frozen=True)
class OldCalendar:
    """What of a file is in the old calendar: dates, timestamps; and the writer's time zone."""

    dates: bool
    moments: bool
    zone: str

    def is_about(self, kind: DataType) -> bool:
        """Return whether a column of a type holds any value to rebase."""
        return holds(kind, lambda part: self._is_counted(part))

    def recounted(self, array: Any, kind: DataType) -> Any:
        """Return logical values of a type, rebased to Delta's calendar. Raises: ValueError."""
        if not self.is_about(kind):
            return array
        match kind:
            case StructType():
                parts = [
                    self.recounted(part, field.kind)
                    for part, field in zip(array.flatten(), kind.fields, strict=True)
                ]
                fields = list(array.type)
                return pa.StructArray.from_arrays(parts, fields=fields, mask=pc.is_null(array))
            case ArrayType():
                compact = pa.concat_arrays([array, array.slice(0, 0)])
                values = self.recounted(compact.values, kind.element)
                mask = pc.is_null(compact)
                return pa.ListArray.from_arrays(compact.offsets, values, type=array.type, mask=mask)
            case MapType():
                compact = pa.concat_arrays([array, array.slice(0, 0)])
                keys = self.recounted(compact.keys, kind.key)
                items = self.recounted(compact.items, kind.value)
                mask = pc.is_null(compact)
                return pa.MapArray.from_arrays(
                    compact.offsets, keys, items, type=array.type, mask=mask
                )
        return _days(array) if kind == DATE else self._moments(array)

    def _is_counted(self, kind: DataType) -> bool:
        return (self.dates and kind == DATE) or (self.moments and kind == TIMESTAMP)

    def _moments(self, array: Any) -> Any:
        counts = array.cast(pa.int64())
        oldest = pc.min(counts).as_py()
        if oldest is None or oldest >= _EVEN_ZONES_FROM_US:
            return array
        if self.zone in _UTC:
            moved = [_in_utc(count) for count in counts.to_pylist()]
        else:
            zone = _zone(self.zone)
            moved = [_in_zone(count, zone) for count in counts.to_pylist()]
        return pa.array(moved, pa.int64()).cast(array.type)


def calendar_of(parquet: pq.ParquetFile) -> OldCalendar | None:
    """Return what of a file is in the old calendar, or None if nothing is."""
    metadata: Mapping[bytes, bytes] = parquet.metadata.metadata or {}
    if _VERSION not in metadata:
        return None
    dates, int96 = (_is_marked(metadata, *mark) for mark in (_OF_DATES, _OF_INT96))
    if not (dates or int96):
        return None
    stored = parquet.schema
    has_int96 = any(
        stored.column(index).physical_type == "INT96" for index in range(len(stored.names))
    )
    return OldCalendar(dates, int96 if has_int96 else dates, metadata.get(_ZONE, b"").decode())


def _is_marked(metadata: Mapping[bytes, bytes], key: bytes, since: str) -> bool:
    return key in metadata or metadata[_VERSION].decode() < since


def _days(array: Any) -> Any:
    counts = array.cast(pa.int32())
    oldest = pc.min(counts).as_py()
    if oldest is None or oldest >= _GREGORIAN_FROM:
        return array
    moved = [None if count is None else _day(count) for count in counts.to_pylist()]
    return pa.array(moved, pa.int32()).cast(array.type)


def _day(count: int) -> int:
    """Return the Gregorian day with the same date as a day of the old calendar."""
    if count >= _GREGORIAN_FROM:
        return count
    # First the Julian day number, then its date in the Julian calendar.
    shifted = count + 2_440_588 + 32_082
    year = (4 * shifted + 3) // 1_461
    in_year = shifted - 1_461 * year // 4
    month = (5 * in_year + 2) // 153
    day = in_year - (153 * month + 2) // 5
    # Years begin in March here, so that leap days come last. Day numbers begin 4800 years earlier.
    gregorian = 365 * year + year // 4 - year // 100 + year // 400
    return gregorian + (153 * month + 2) // 5 + day - 32_044 - 2_440_588


def _in_utc(count: int | None) -> int | None:
    if count is None:
        return None
    days, rest = divmod(count, _DAY_US)
    return _day(days) * _DAY_US + rest


def _in_zone(count: int | None, zone: tzinfo) -> int | None:
    """Rebase a timestamp of a writer that uses the zone's offset of 1900 for all earlier times.

    Local mean times are not applied.
    """
    if count is None or count >= _EVEN_ZONES_FROM_US:
        return count
    offset = zone.utcoffset(_EVEN_ZONES_FROM) or timedelta()
    days, rest = divmod(count + offset // timedelta(microseconds=1), _DAY_US)
    local = _EPOCH + timedelta(days=_day(days), microseconds=rest)
    first, second = (zone.utcoffset(local.replace(fold=fold)) or timedelta() for fold in (0, 1))
    # Of a local time that occurs twice, take the one with the writer's offset.
    chosen = second if second < first != offset else first
    return (local - chosen - _EPOCH) // timedelta(microseconds=1)


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ValueError(f"its moments are of the zone {name!r}, which is not known") from error
