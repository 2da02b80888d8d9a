"""How long a group of proposals stays open for more members."""

from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Final

REMEMBERED: Final = 16
"""How many recent PUTs are kept: their median is the expected duration of the next one."""

QUIET_SHARE: Final = 0.2
"""How long a group stays open after the last arrival, as a share of a PUT, while half of the
expected members are there."""

LINGER_GROWTH_MAX: Final = 2.0
"""The most by which the wait may grow when few members have come and many are expected."""

STREAM_SHARE: Final = 0.03
"""How recent an arrival must be, as a share of a PUT, to count as part of a stream of arrivals."""


@dataclass
class AdaptiveLinger:
    """How long a table's group stays open, from the durations of PUTs and the expected members.

    `crowd` is the number of expected members: those of the last entry plus the proposals that
    waited when it landed. `published_s` is when the outcomes of that entry were published.
    Units: seconds, moments by `Clock.boot_s`.
    """

    took_s: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    crowd: int = 0
    published_s: float = 0.0

    def landed(self, took_s: float, members: int, waiting: int) -> None:
        """Record an entry that landed, its member count, and how many proposals were waiting."""
        self.took_s.append(took_s)
        self.crowd = members + waiting

    @property
    def put_s(self) -> float:
        """The expected duration of a PUT: the median of the recent ones; 0 before the first."""
        return median(self.took_s) if self.took_s else 0.0

    def lingers_until_s(self, waiting: int, newest_s: float, share: float) -> float:
        """Return until when the group stays open, from the number waiting and the last arrival.

        A writer that just got its outcome may propose again at once. If the group closes without
        it, both wait for two PUTs: their own and the other's. So the group waits for `crowd`
        members, until `share` of a PUT after `published_s`, and closes earlier if no proposal came
        for a while. Both times grow, within LINGER_GROWTH_MAX, with the number of missing members
        per waiting one. A lone writer never waits.
        """
        if waiting >= self.crowd:
            return 0.0
        out = max(1.0, (self.crowd - waiting) / max(1, waiting))
        usual_s, last_s = share * self.put_s, max(self.published_s, newest_s)
        patient_s = min(
            self.published_s + min(LINGER_GROWTH_MAX, out) * usual_s,
            last_s + QUIET_SHARE * self.put_s * out,
        )
        # Wait on while proposals stream in: otherwise writers that propose together are split over
        # two groups, and stay split.
        longer_s = min(LINGER_GROWTH_MAX * usual_s, usual_s + QUIET_SHARE * self.put_s)
        return max(patient_s, min(self.published_s + longer_s, last_s + STREAM_SHARE * self.put_s))
