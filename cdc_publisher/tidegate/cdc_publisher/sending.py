"""Sending while the next is made: one chunk is on its way at most, and they leave in order."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Sending:
    """Runs what it is handed in a thread.

    Law: nothing begins before what was handed over earlier has ended well.
    """

    def __init__(self) -> None:
        self._on_its_way: Future[None] | None = None

    def hand_over(self, send: Callable[[], None]) -> None:
        """Wait for what is on its way, then begin with this one. Raises: as `settle`."""
        self.settle()
        thread = ThreadPoolExecutor(1, "sending")
        self._on_its_way = thread.submit(send)
        thread.shutdown(wait=False)

    def settle(self) -> None:
        """Wait until nothing is on its way. Raises: what sending raised, now or before."""
        if self._on_its_way is not None:
            self._on_its_way.result()
            self._on_its_way = None
