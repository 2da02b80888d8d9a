"""The command of a service: it loads the service's settings and runs it until it is stopped."""

import logging
import os
import threading
from collections.abc import Callable
from typing import Final

import typer

from tidegate_runtime.cli.command import S, command
from tidegate_runtime.service.runner import Running, run
from tidegate_runtime.service.settings import ServiceSettings

KINDS: Final[dict[str, type[ServiceSettings]]] = {}
"""The settings of each service whose command was loaded, by its name."""


def service_app(name: str, kind: type[S], serve: Callable[[S, Running], None]) -> typer.Typer:
    """Return the command that loads a service's settings and runs it, with the help of `serve`."""
    KINDS[name] = kind
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

    def run_service(settings: S) -> None:
        before = frozenset(threading.enumerate())
        status = run(lambda running: serve(settings, running), name, settings)
        leave_behind(before, status)
        raise typer.Exit(status)

    app.command(name, help=serve.__doc__)(command(kind)(run_service))
    return app


def leave_behind(before: frozenset[threading.Thread], status: int) -> None:
    """End the process at once if threads that the service started are still alive.

    They wait for responses of a store, which may take minutes, and the interpreter would wait for
    them at exit. Nothing depends on them: everything that had to be published or durable already
    is.
    """
    if any(thread not in before and not thread.daemon for thread in threading.enumerate()):
        logging.shutdown()
        os._exit(status)
