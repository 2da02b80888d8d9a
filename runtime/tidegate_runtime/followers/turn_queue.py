"""A queue for turns: a few tables have theirs at once, and a free place goes to the most urgent."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from uuid import UUID


class TurnQueue:
    """Places for turns. `urgency` is asked when a place becomes free, so it may change meanwhile.

    Law: of two tables that wait, the more urgent one is served first; of two alike, the older one
    """

    def __init__(self, places: int, urgency: Callable[[UUID], float]) -> None:
        self._free = places
        self._urgency = urgency
        self._waiting: dict[UUID, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def turn(self, table: UUID) -> AsyncIterator[None]:
        """Hold a place for a table, which must not have one already."""
        if self._free:
            self._free -= 1
        else:
            await self._called(table)
        try:
            yield
        finally:
            self._leave()

    async def _called(self, table: UUID) -> None:
        called = self._waiting[table] = asyncio.get_running_loop().create_future()
        try:
            await called
        except asyncio.CancelledError:
            if self._waiting.pop(table, None) is None:
                # The place was given to this table while it was cancelled.
                self._leave()
            raise

    def _leave(self) -> None:
        if not self._waiting:
            self._free += 1
            return
        table = max(self._waiting, key=self._urgency)
        self._waiting.pop(table).set_result(None)
