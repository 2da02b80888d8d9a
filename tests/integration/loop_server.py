"""An HTTP server for tests: one event loop in a thread of its own, a free port."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Self

from aiohttp import web

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
STARTS_S = 10.0


class LoopServer:
    """Answers requests on `port` within a `with` block. All handlers run in one thread."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(STARTS_S)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(STARTS_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _heard(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.headers.get("Expect", "").lower() == "100-continue":
            assert request.transport is not None, "the caller waits for a word"
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return await self._answer(request)

    async def _start(self) -> None:
        self._runner = web.ServerRunner(
            web.Server(self._heard, access_log=None), shutdown_timeout=1.0
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _stop(self) -> None:
        await self._runner.cleanup()
        rest = asyncio.all_tasks(self._loop) - {asyncio.current_task(self._loop)}
        for one in rest:
            one.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
