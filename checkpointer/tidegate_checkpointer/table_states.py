"""Which tables keep their state in memory, within a limit for all of them together."""

import time
from collections.abc import Sequence

from tidegate_checkpointer.table_view import TableView


def settle(views: Sequence[TableView], bytes_max: int) -> None:
    """Drop the states of some tables, so that those of the others fit into a limit.

    Those go first whose memory spares the least time: what it takes to read them again, over how
    long they have not been used.
    """
    now_s = time.monotonic()
    warm_views = [(view, state.size_bytes) for view in views if (state := view.warm) is not None]
    total = sum(size for _, size in warm_views)
    if total <= bytes_max:
        return
    for view, size in sorted(warm_views, key=lambda pair: _spared(pair[0], pair[1], now_s)):
        view.warm = None
        total -= size
        if total <= bytes_max:
            return


def _spared(view: TableView, size_bytes: int, now_s: float) -> float:
    """Return how much time a byte of a table's state spares."""
    return view.load_s / max(now_s - view.used_s, 1.0) / max(size_bytes, 1)
