"""Formats times and sizes for output."""

from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_runtime import clock


def instant(at_ms: int | None) -> str:
    """Return a time in UTC, to the millisecond; empty for None."""
    return "" if at_ms is None else clock.instant(at_ms)


def moment(at_ms: int | None) -> str | None:
    """Return a time for JSON: in UTC with the zone `Z`; None for None."""
    return None if at_ms is None or clock.utc(at_ms) is None else f"{instant(at_ms)}Z"


def live_bytes(snapshot: Snapshot) -> int:
    """Return the bytes of all live files."""
    total = snapshot.files.group_by([]).aggregate([("size", "sum")])["size_sum"][0].as_py()
    return int(total or 0)
