"""Cases of verbatim priority."""

from typing import Any, Final

from tests.model.cases import Case
from tests.model.verbatim_priority import RightOfWay, WaySetting


def way(**setting: Any) -> RightOfWay:
    """Return the model of verbatim priority."""
    return RightOfWay(WaySetting(**setting))


WAY: Final = (
    Case(
        "row.one",
        "a hold as long as a retry: one refusal, never two",
        way(retry=4, grace=4, refusals_max=1),
        waits=True,
    ),
    Case(
        "row.takeovers",
        "one more for each takeover",
        way(retry=3, grace=3, takeovers=3, refusals_max=4),
        waits=True,
    ),
    Case(
        "row.native",
        "one foreign writer cannot starve native groups",
        way(waits="native", endless=True, retry=4, grace=4, hold_max=4),
        waits=True,
    ),
    Case(
        "row.native.turn",
        "nor can three, if a native group is committed between two holds",
        way(waits="native", endless=True, writers=3, retry=3, grace=3, begins="turn", hold_max=3),
        waits=True,
    ),
    Case(
        "row.native.lost-to-native",
        "nor if only losing to a native group begins a hold; they may wait longer than one",
        way(waits="native", endless=True, writers=3, retry=3, grace=3, begins="native", hold_max=5),
        waits=True,
    ),
    Case(
        "bad.row-none",
        "refused for ever while native groups are committed",
        way(retry=1),
        "Starvation",
        waits=True,
    ),
    Case(
        "bad.row-short",
        "a hold shorter than a retry is no right of way",
        way(retry=4, grace=3),
        "Starvation",
        waits=True,
    ),
    Case(
        "bad.row-takeover-is-free",
        "a takeover loses the hold",
        way(retry=3, grace=3, takeovers=1, refusals_max=1),
        "RightOfWay",
        waits=True,
    ),
    Case(
        "bad.row-native-starves",
        "two foreign writers refuse each other, and every refusal holds native groups",
        way(waits="native", endless=True, writers=2, retry=2, grace=2),
        "Starvation",
        waits=True,
    ),
    Case(
        "bad.row-foreign-among-themselves",
        "not cured: one foreign writer can lose to another for ever, as without a gate",
        way(writers=2, retry=2, grace=2, begins="turn"),
        "Starvation",
        waits=True,
    ),
)
"""Verbatim priority with work that never ends."""
