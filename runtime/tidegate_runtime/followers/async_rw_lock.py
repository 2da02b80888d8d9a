"""Turns in an event loop: many share, or one has it alone; who waits to be alone goes first.

A look waits for a long turn, but others do not wait behind the look.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf


class AsyncRwLock:
    """Who may act.

    `patience_s` is how long nobody begins to share because somebody waits to be alone: from then on
    others begin until the turns that had not ended by then have.
    Law: while one acts alone, nobody else acts.
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
        """Act beside others."""
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
        """Act when nobody else does."""
        async with self._changed:
            self._wanted_alone += 1
            try:
                await self._nobody_acts()
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
        """Wait until nobody acts."""
        async with self._changed:
            await self._changed.wait_for(self._is_idle)

    async def _nobody_acts(self) -> None:
        try:
            async with asyncio.timeout(self._patience_s if self._patience_s < inf else None):
                await self._changed.wait_for(self._is_idle)
        except TimeoutError:
            # Once: turns that begin meanwhile and last, too, do not put it off any further.
            self._long |= self._sharing
            self._changed.notify_all()
            await self._changed.wait_for(self._is_idle)

    def _may_share(self) -> bool:
        return not self._alone and (not self._wanted_alone or bool(self._long))

    def _is_idle(self) -> bool:
        return not self._alone and not self._sharing
