"""Turns in an event loop: many share, or one has it alone; who waits to be alone goes first."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """Who may act.

    Law: while one acts alone, nobody else acts.
    """

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._sharing = 0
        self._wanted_alone = 0
        self._alone = False

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Act beside others."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._alone and not self._wanted_alone)
            self._sharing += 1
        try:
            yield
        finally:
            async with self._changed:
                self._sharing -= 1
                self._changed.notify_all()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Act when nobody else does."""
        async with self._changed:
            self._wanted_alone += 1
            try:
                await self._changed.wait_for(lambda: not self._alone and not self._sharing)
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
            await self._changed.wait_for(lambda: not self._alone and not self._sharing)
