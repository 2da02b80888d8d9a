"""The maintainer's settings: its own section beside those of every service."""

import re
from fnmatch import fnmatchcase
from typing import Final, Self

from pydantic import Field, model_validator

from tidegate_producers.maintenance.machine import TASK_BYTES_MAX
from tidegate_runtime.service.settings import Section, ServiceSettings

_HOURS: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
_GIB: Final = 1024 * 1024 * 1024
_MINUTES: Final = 24 * 60


class MaintainSection(Section):
    """Which tables, when, and at what price."""

    tables: tuple[str, ...] = ("*",)
    """Patterns of registered names, with `*` and `?`."""
    off: tuple[str, ...] = ()
    """Patterns of names that are left out."""
    hour_bytes_max: int = Field(default=20 * _GIB, ge=TASK_BYTES_MAX)
    """Bytes that are written anew in an hour, of all tables together."""
    day_bytes_max: int = Field(default=200 * _GIB, ge=TASK_BYTES_MAX)
    quiet_hours: str | None = None
    """The hours of the day, in UTC, in which nothing is proposed: `08:00-18:00`."""
    file_age_s: float = Field(default=60.0, ge=0)
    """How old a file is before it is written anew."""
    vacuum_interval_s: float | None = Field(default=86_400.0, gt=0)
    """Seconds between two vacuums of a table; none for no vacuum."""
    pause_s: float = Field(default=60.0, gt=0)
    """Seconds between two looks at the tables, if nothing is due."""
    spark: dict[str, str] = Field(default_factory=dict)
    """Spark's settings, such as `spark.remote`: of a session that writes files above 256 MiB anew.
    """

    @model_validator(mode="after")
    def _hours_can_be_read(self) -> Self:
        if self.quiet_hours is not None and not _HOURS.fullmatch(self.quiet_hours):
            raise ValueError(f"quiet_hours {self.quiet_hours!r}: give two times, 08:00-18:00")
        return self

    def includes(self, name: str) -> bool:
        """Return whether a table of this name is maintained."""
        is_off = any(fnmatchcase(name, pattern) for pattern in self.off)
        return not is_off and any(fnmatchcase(name, pattern) for pattern in self.tables)

    def is_quiet(self, now_ms: int) -> bool:
        """Return whether a point in time lies in the quiet hours."""
        found = _HOURS.fullmatch(self.quiet_hours or "")
        if found is None:
            return False
        begin_h, begin_m, end_h, end_m = map(int, found.groups())
        length = (60 * (end_h - begin_h) + end_m - begin_m) % _MINUTES
        return (now_ms // 60_000 - 60 * begin_h - begin_m) % _MINUTES < length


class MaintainSettings(ServiceSettings):
    """All settings of the maintainer."""

    maintain: MaintainSection = MaintainSection()
