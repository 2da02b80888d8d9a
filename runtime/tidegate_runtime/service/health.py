"""Health, measured by progress. One thread answers `/healthz`, `/readyz` and `/metrics`."""

import asyncio
import json
import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from tidegate_delta.errors import Misconfigured
from tidegate_runtime.clock import Clock
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.service.settings import HttpSettings

PORT_FILE: Final = "TIDEGATE_PORT_FILE"

CONNECTIONS_MAX: Final = 64
"""Concurrent connections to the probes: an orchestrator and some scrapers need a few."""

CONNECTION_S: Final = 10.0
"""How long a connection may last, from its first byte to the last byte of the response."""

REQUEST_BYTES_MAX: Final = 16 * 1024
"""Maximum bytes of a request's head."""

_log = logging.getLogger(__name__)


@dataclass
class _Watched:
    """One activity that must make progress. Units: ages by `Clock.boot_s`."""

    moved_s: float
    waiting: int = 0
    within_s: float | None = None


class Health:
    """The health of a service: written by its loop, read by the probes."""

    def __init__(self, clock: Clock, stalled_s: float = 60.0) -> None:
        self._clock = clock
        self._stalled_s = stalled_s
        self._lock = threading.Lock()
        self._watched: dict[str, _Watched] = {}
        self._ready, self._reason = False, "starting"

    def progress(self, name: str) -> None:
        """Record progress of `name`."""
        with self._lock:
            self._activity(name).moved_s = self._clock.boot_s()

    def work(self, name: str, waiting: int) -> None:
        """Record how much waits for `name`. While anything waits, `name` must make progress."""
        with self._lock:
            activity = self._activity(name)
            if not activity.waiting:
                activity.moved_s = self._clock.boot_s()
            activity.waiting = waiting

    def expect(self, name: str, within_s: float) -> None:
        """Require progress of `name` at least every `within_s` seconds, with or without work."""
        with self._lock:
            activity = self._activity(name)
            activity.within_s, activity.moved_s = within_s, self._clock.boot_s()

    def forget(self) -> None:
        """Drop all activities and become unready, as the service starts over."""
        with self._lock:
            self._watched.clear()
            self._ready, self._reason = False, "starting again"

    def ready(self, is_ready: bool, reason: str = "") -> None:
        """Set whether the service is ready and, if not, why."""
        with self._lock:
            self._ready, self._reason = is_ready, reason

    def is_ready(self) -> tuple[bool, str]:
        """Return what was set last."""
        with self._lock:
            return self._ready, self._reason

    def stalled(self) -> dict[str, str]:
        """Return the activities without due progress, each with the reason."""
        now_s = self._clock.boot_s()
        reasons: dict[str, str] = {}
        with self._lock:
            for name, activity in self._watched.items():
                age_s = now_s - activity.moved_s
                if activity.waiting and age_s > self._stalled_s:
                    reasons[name] = f"{activity.waiting} waiting, no progress for {age_s:.0f} s"
                elif activity.within_s is not None and age_s > activity.within_s:
                    within = f"expected every {activity.within_s:g} s"
                    reasons[name] = f"no progress for {age_s:.0f} s, {within}"
        return reasons

    def _activity(self, name: str) -> _Watched:
        activity = self._watched.get(name)
        if activity is None:
            activity = self._watched[name] = _Watched(self._clock.boot_s())
        return activity


@contextmanager
def serving(health: Health, settings: HttpSettings) -> Iterator[int | None]:
    """Answer the probes while the body runs; yield the port, or None if probes are off.

    Raises: Misconfigured, when the port is taken, or the file for it cannot be written.
    """
    if settings.port is None:
        yield None
        return
    try:
        listening = _listen(settings.host, settings.port)
    except OSError as error:
        raise Misconfigured(
            f"http.port {settings.port} on {settings.host} cannot be had ({error.strerror}); "
            "choose another port, or 0 for any free one"
        ) from error
    port = listening.getsockname()[1]
    server = _Server(health)
    thread = threading.Thread(target=server.run, args=(listening,), name="http", daemon=True)
    thread.start()
    try:
        for file in (settings.port_file, os.environ.get(PORT_FILE)):
            if file is not None:
                _write_port(Path(file), port)
        log_event(_log, "listening", host=settings.host, port=port)
        yield port
    finally:
        server.stop()
        thread.join()


def _listen(host: str, port: int) -> socket.socket:
    # Some clusters give pods IPv6 addresses only. `::` also accepts IPv4, where there is any.
    is_6 = ":" in host
    family = socket.AF_INET6 if is_6 else socket.AF_INET
    return socket.create_server(
        (host, port), family=family, backlog=CONNECTIONS_MAX, dualstack_ipv6=is_6
    )


class _Server:
    """The probes' HTTP server: GET only, one request for each connection, in one thread.

    Any program that reaches the port may open connections, leave requests unfinished or read
    responses slowly. So connections are limited in number and time. Above the number, the oldest
    one is closed: a probe sends its request at once, and is answered before it is the oldest.
    """

    def __init__(self, health: Health) -> None:
        self._health = health
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._metrics: asyncio.Future[bytes] | None = None
        self._loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()

    def run(self, listening: socket.socket) -> None:
        """Serve until `stop`."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve(listening))

    def stop(self) -> None:
        """End `run`, from another thread."""
        self._loop.call_soon_threadsafe(self._stopping.set)

    async def _serve(self, listening: socket.socket) -> None:
        server = await asyncio.start_server(
            self._connected, sock=listening, limit=REQUEST_BYTES_MAX, backlog=CONNECTIONS_MAX
        )
        async with server:
            await self._stopping.wait()
            for writer in self._connections.values():
                writer.transport.abort()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= CONNECTIONS_MAX:
            oldest = next(iter(self._connections))
            self._connections.pop(oldest).transport.abort()
            oldest.cancel()
        task = self._loop.create_task(self._answer(reader, writer))
        self._connections[task] = writer
        task.add_done_callback(lambda ended: self._connections.pop(ended, None))

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(CONNECTION_S):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._response(request))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # The client disconnected, or its request is too slow or too long: no response is
            # needed.
            return
        finally:
            writer.transport.abort()

    async def _response(self, request: bytes) -> bytes:
        method, _, rest = request.partition(b"\r\n")[0].partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method != b"GET":
            return _json(HTTPStatus.METHOD_NOT_ALLOWED, {"methods": ["GET"]})
        if path == b"/healthz":
            stalled = self._health.stalled()
            return _json(_status(not stalled), {"healthy": not stalled, "stalled": stalled})
        if path == b"/readyz":
            ready, reason = self._health.is_ready()
            return _json(_status(ready), {"ready": ready, "why": reason})
        if path == b"/metrics":
            return _message(HTTPStatus.OK, CONTENT_TYPE_LATEST, await self._all_metrics())
        return _json(HTTPStatus.NOT_FOUND, {"paths": ["/healthz", "/readyz", "/metrics"]})

    async def _all_metrics(self) -> bytes:
        """Return all metrics.

        With many tables this takes long, so it runs in another thread, while this one answers the
        other probes. Concurrent requests share the result.
        """
        if self._metrics is None or self._metrics.done():
            self._metrics = asyncio.ensure_future(asyncio.to_thread(generate_latest))
        return await asyncio.shield(self._metrics)


def _status(is_well: bool) -> HTTPStatus:
    return HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE


def _json(status: HTTPStatus, body: dict[str, object]) -> bytes:
    return _message(status, "application/json", json.dumps(body).encode())


def _message(status: HTTPStatus, content_type: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body


def _write_port(file: Path, port: int) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f"{file.name}.part")
        part.write_text(f"{port}\n", encoding="utf-8")
        part.replace(file)
    except OSError as error:
        raise Misconfigured(
            f"http.port_file {file} cannot be written ({error.strerror}); choose another place, or "
            "leave it out"
        ) from error
