"""Health: progress, not existence. One thread answers `/healthz`, `/readyz` and `/metrics`."""

import json
import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from tidegate.delta.errors import Misconfigured
from tidegate.runtime.clock import Clock
from tidegate.runtime.logs import log_event
from tidegate.runtime.settings import HttpSettings

PORT_FILE: Final = "TIDEGATE_PORT_FILE"
_log = logging.getLogger(__name__)


@dataclass
class _Watched:
    """One thing that should move. Units: ages by `Clock.boot_s`."""

    moved_s: float
    waiting: int = 0
    within_s: float | None = None


class Health:
    """What a service says of itself; written by its loop, read by the probes."""

    def __init__(self, clock: Clock, stalled_s: float = 60.0) -> None:
        self._clock = clock
        self._stalled_s = stalled_s
        self._lock = threading.Lock()
        self._watched: dict[str, _Watched] = {}
        self._ready, self._why = False, "starting"

    def progress(self, name: str) -> None:
        """Note that `name` moved."""
        with self._lock:
            self._seen(name).moved_s = self._clock.boot_s()

    def work(self, name: str, waiting: int) -> None:
        """Note how much waits for `name`: while some does, it has to make progress."""
        with self._lock:
            seen = self._seen(name)
            if not seen.waiting:
                seen.moved_s = self._clock.boot_s()
            seen.waiting = waiting

    def expect(self, name: str, within_s: float) -> None:
        """Ask for progress of `name` at least every so often, work or not."""
        with self._lock:
            seen = self._seen(name)
            seen.within_s, seen.moved_s = within_s, self._clock.boot_s()

    def forget(self) -> None:
        """Watch nothing and be unready: the service starts over."""
        with self._lock:
            self._watched.clear()
            self._ready, self._why = False, "starting again"

    def ready(self, is_ready: bool, why: str = "") -> None:
        """Say whether the service does its work, and if not, why."""
        with self._lock:
            self._ready, self._why = is_ready, why

    def is_ready(self) -> tuple[bool, str]:
        """Return what was said last."""
        with self._lock:
            return self._ready, self._why

    def stalled(self) -> dict[str, str]:
        """Return what should have moved and has not, with the reason; empty: all is well."""
        now_s = self._clock.boot_s()
        found: dict[str, str] = {}
        with self._lock:
            for name, seen in self._watched.items():
                age_s = now_s - seen.moved_s
                if seen.waiting and age_s > self._stalled_s:
                    found[name] = f"{seen.waiting} waiting, no progress for {age_s:.0f} s"
                elif seen.within_s is not None and age_s > seen.within_s:
                    within = f"expected every {seen.within_s:g} s"
                    found[name] = f"no progress for {age_s:.0f} s, {within}"
        return found

    def _seen(self, name: str) -> _Watched:
        seen = self._watched.get(name)
        if seen is None:
            seen = self._watched[name] = _Watched(self._clock.boot_s())
        return seen


@contextmanager
def serving(health: Health, settings: HttpSettings) -> Iterator[int | None]:
    """Answer the probes while the body runs; yields the port, None where probes are off.

    Raises: Misconfigured, when the port is taken, or the file for it cannot be written.
    """
    if settings.port is None:
        yield None
        return
    try:
        server = _server(settings.host, settings.port)
    except OSError as error:
        raise Misconfigured(
            f"http.port {settings.port} on {settings.host} cannot be had ({error.strerror}); "
            "choose another port, or 0 for any free one"
        ) from error
    server.health = health
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="http", daemon=True)
    thread.start()
    port = server.server_port
    try:
        for file in (settings.port_file, os.environ.get(PORT_FILE)):
            if file is not None:
                _write_port(Path(file), port)
        log_event(_log, "listening", host=settings.host, port=port)
        yield port
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    health: Health


class _Server6(_Server):
    """Some clusters give pods no other addresses; `::` hears IPv4, too, where there is any."""

    address_family = socket.AF_INET6


def _server(host: str, port: int) -> _Server:
    kind = _Server6 if ":" in host else _Server
    return kind((host, port), _Probes)


class _Probes(BaseHTTPRequestHandler):
    """GET only."""

    server: _Server

    def do_GET(self) -> None:
        """Answer a probe."""
        path = self.path.partition("?")[0]
        if path == "/healthz":
            stalled = self.server.health.stalled()
            self._json(503 if stalled else 200, {"healthy": not stalled, "stalled": stalled})
        elif path == "/readyz":
            ready, why = self.server.health.is_ready()
            self._json(200 if ready else 503, {"ready": ready, "why": why})
        elif path == "/metrics":
            self._answer(200, CONTENT_TYPE_LATEST, generate_latest())
        else:
            self._json(404, {"paths": ["/healthz", "/readyz", "/metrics"]})

    def log_message(self, format: str, *args: object) -> None:
        """Keep probes out of the log."""

    def _json(self, status: int, body: dict[str, object]) -> None:
        self._answer(status, "application/json", json.dumps(body).encode())

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


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
