"""A proxy between a store and its server with the faults of networks and cloud services.

It delays, closes the connection before, within and after a body, delivers a request twice or after
its caller saw it fail, throttles, and answers 500 to a request that succeeded.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Literal, Self

import aiohttp
import yarl
from aiohttp import web

from tests.integration.loop_server import LoopServer

Fault = Literal[
    "none",
    "delay",
    "cut before",
    "cut within",
    "cut after",
    "twice",
    "throttle",
    "fail before",
    "fail after",
    "late",
]
WRITES: Final[Mapping[Fault, int]] = {
    "none": 30,
    "delay": 10,
    "cut before": 8,
    "cut within": 8,
    "cut after": 12,
    "twice": 12,
    "throttle": 8,
    "fail before": 4,
    "fail after": 12,
    "late": 8,
}
"""Weights of the faults of a write, out of a hundred and some."""

READS: Final[Mapping[Fault, int]] = {
    "none": 80,
    "delay": 8,
    "throttle": 4,
    "fail before": 4,
    "cut before": 2,
    "cut after": 2,
}
_DELAY_S: Final = 0.02
_HOPS: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


@dataclass
class RoughRoad:
    """Forwards to `upstream` with random faults. `met` counts the faults of writes."""

    upstream: int
    seed: int = 0
    throttled: tuple[int, Mapping[str, str], bytes] = (503, {}, b"")
    writes: Mapping[Fault, int] = field(default_factory=lambda: WRITES)
    met: Counter[Fault] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)
        self._server = LoopServer(self._answer)
        self._late: set[asyncio.Task[object]] = set()

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.__exit__(kind, error, trace)

    @property
    def front(self) -> int:
        """The port of the proxy."""
        return self._server.port

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.content.read()
        is_write = request.method in ("PUT", "POST")
        chances = self.writes if is_write else READS
        [fault] = self._dice.choices(list(chances), list(chances.values()))
        if is_write:
            self.met[fault] += 1
        return await self._suffer(fault, request, body)

    async def _suffer(self, fault: Fault, request: web.BaseRequest, body: bytes) -> web.Response:
        match fault:
            case "delay":
                await asyncio.sleep(self._dice.random() * _DELAY_S)
            case "cut before":
                return _cut(request)
            case "cut within":
                await self._send_half(request, body)
                return _cut(request)
            case "cut after":
                await self._forward(request, body)
                return _cut(request)
            case "twice":
                await self._forward(request, body)
            case "throttle":
                status, headers, content = self.throttled
                return web.Response(status=status, headers=headers, body=content)
            case "fail before":
                return web.Response(status=500)
            case "fail after":
                await self._forward(request, body)
                return web.Response(status=500)
            case "late":
                task = asyncio.ensure_future(self._later(request, body))
                self._late.add(task)
                task.add_done_callback(self._late.discard)
                return web.Response(status=503)
        return await self._forward(request, body)

    async def _later(self, request: web.BaseRequest, body: bytes) -> None:
        await asyncio.sleep(self._dice.random() * 4 * _DELAY_S)
        await self._forward(request, body)

    async def _forward(self, request: web.BaseRequest, body: bytes) -> web.Response:
        headers = {
            name: value for name, value in request.headers.items() if name.lower() not in _HOPS
        }
        headers.pop("Expect", None)
        url = yarl.URL(f"http://127.0.0.1:{self.upstream}{request.raw_path}", encoded=True)
        quiet = ("Content-Type", "User-Agent", "Accept", "Accept-Encoding")
        async with (
            aiohttp.ClientSession(auto_decompress=False, skip_auto_headers=quiet) as client,
            client.request(
                request.method, url, data=body or None, headers=headers, allow_redirects=False
            ) as reply,
        ):
            content = await reply.read()
            dropped = _HOPS - {"content-length"} if request.method == "HEAD" else _HOPS
            kept = {n: v for n, v in reply.headers.items() if n.lower() not in dropped}
            return web.Response(status=reply.status, headers=kept, body=content or None)

    async def _send_half(self, request: web.BaseRequest, body: bytes) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", self.upstream)
        head = [f"{request.method} {request.raw_path} HTTP/1.1"]
        head += [f"{n}: {v}" for n, v in request.headers.items() if n.lower() != "expect"]
        writer.write("\r\n".join([*head, "", ""]).encode() + body[: len(body) // 2])
        await writer.drain()
        writer.transport.abort()


def _cut(request: web.BaseRequest) -> web.Response:
    assert request.transport is not None, "the caller waits for an answer"
    request.transport.abort()
    return web.Response()
