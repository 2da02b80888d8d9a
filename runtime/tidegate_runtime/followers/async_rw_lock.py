"""A read-write lock for asyncio: many holders share it, or one holds it alone and goes first.

A pass waits for a long turn of one table, but turns of other tables do not wait with it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf


class AsyncRwLock:
    """The lock.

    `patience_s` is how long a waiting exclusive holder keeps new sharers out. After that, new ones
    may enter until the long turns have ended, that is, those that were under way at that time.
    Law: while one holder is alone, there is no other.
    """

    def __init__(self, patience_s: float = inf) -> None:
        self._patience_s = patience_s
        self._changed = asyncio.Condition()
        self._sharing: set[object] = set()
        self._long: set[object] = set()
        self._wanted_alone = 0
        self._alone = False

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Hold the lock together with other sharers."""
        turn = object()
        async with self._changed:
            await self._changed.wait_for(self._may_share)
            self._sharing.add(turn)
        try:
            yield
        finally:
            async with self._changed:
                self._sharing.discard(turn)
                self._long.discard(turn)
                self._changed.notify_all()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Hold the lock alone."""
        async with self._changed:
            self._wanted_alone += 1
            try:
                await self._wait_until_idle()
                self._alone = True
            finally:
                self._wanted_alone -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            async with self._changed:
                self._alone = False
                self._changed.notify_all()

    async def idle(self) -> None:
        """Wait until the lock has no holder."""
        async with self._changed:
            await self._changed.wait_for(self._is_idle)

    async def _wait_until_idle(self) -> None:
        try:
            async with asyncio.timeout(self._patience_s if self._patience_s < inf else None):
                await self._changed.wait_for(self._is_idle)
        except TimeoutError:
            # Only once: later turns that also last long do not delay the exclusive holder any
            # further.
            self._long |= self._sharing
            self._changed.notify_all()
            await self._changed.wait_for(self._is_idle)

    def _may_share(self) -> bool:
        return not self._alone and (not self._wanted_alone or bool(self._long))

    def _is_idle(self) -> bool:
        return not self._alone and not self._sharing
