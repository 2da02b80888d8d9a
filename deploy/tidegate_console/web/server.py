"""Serves the pages until the service is stopped."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn

from tidegate_console.overview import OverviewReader
from tidegate_console.web.app import Pages, console_app
from tidegate_console.web.overview_keeper import OverviewKeeper
from tidegate_console.web.reading import Installation
from tidegate_console.web.settings import ConsoleSettings
from tidegate_console.web.sign_in import Operators
from tidegate_delta.errors import Misconfigured
from tidegate_runtime.service.runner import Running

_LOOK_S: Final = 0.2
_LEAVE_S: Final = 2
"""How long open requests, such as streams of events, may last after a stop."""


def serve_pages(settings: ConsoleSettings, running: Running) -> None:
    """Serve the pages until the service is stopped.

    Raises: Misconfigured, for an address that cannot be used or a token that is none.
    """
    page, clock = settings.console, running.clock
    operators = Operators(page.operator_token_location, clock)
    keeper = OverviewKeeper(OverviewReader(settings.kafka).read, page.refresh_s)
    installation = Installation(settings, clock)
    config = uvicorn.Config(
        console_app(Pages(keeper, installation, operators, clock), installation),
        page.host,
        page.port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_LEAVE_S,
    )
    keeper.start()
    try:
        asyncio.run(_run_until_stopped(_Server(config), keeper, running))
    except SystemExit as error:
        raise Misconfigured(
            f"cannot listen on {page.host}:{page.port}; choose another address or port in `console`"
        ) from error
    finally:
        keeper.stop()


class _Server(uvicorn.Server):
    """A server that leaves signals to the runner."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


async def _run_until_stopped(
    server: uvicorn.Server, keeper: OverviewKeeper, running: Running
) -> None:
    serving = asyncio.create_task(server.serve())
    while not serving.done():
        reading = keeper.newest
        running.health.ready(reading.overview is not None, reading.problem or "Kafka is being read")
        if running.stopping.is_set():
            server.should_exit = True
        await asyncio.wait([serving], timeout=_LOOK_S)
    await serving
