"""The command of a service: `--config`, `--set`, `--help`; it turns errors into exit statuses."""

import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from traceback import format_exception
from typing import Annotated, Final, NoReturn, TypeVar

import typer

from tidegate_delta.errors import Misconfigured, TidegateError
from tidegate_runtime.cli.console import console
from tidegate_runtime.containment import class_of, reason_of
from tidegate_runtime.service.runner import EXIT_FAULT, Running, exit_status, run
from tidegate_runtime.service.settings import ServiceSettings, load

S = TypeVar("S", bound=ServiceSettings)
Config = Annotated[
    Path | None, typer.Option("--config", help="Read settings from this YAML file.", metavar="PATH")
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="One setting; overrides file and environment. Repeatable.",
        metavar="SECTION.KEY=VALUE",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
KINDS: Final[dict[str, type[ServiceSettings]]] = {}
"""The settings of each service whose command was loaded, by its name."""
_errors = console(stderr=True)
_log = logging.getLogger(__name__)
_NOT_A_NAME: Final = re.compile(r"[^\w.-]")


def service_app(name: str, kind: type[S], serve: Callable[[S, Running], None]) -> typer.Typer:
    """Return the command that loads a service's settings and runs it, with the help of `serve`."""
    KINDS[name] = kind
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

    def command(config: Config = None, set_: Set = None) -> None:
        settings = loaded(kind, config, set_)
        before = frozenset(threading.enumerate())
        status = run(lambda running: serve(settings, running), name, settings)
        leave_behind(before, status)
        raise typer.Exit(status)

    app.command(name, help=serve.__doc__)(command)
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


def loaded(kind: type[S], config: Path | None, pairs: Iterable[str] | None) -> S:
    """Return the settings, or end the command with a message that lists all mistakes."""
    with errors_as_exit_status():
        settings = requested_settings(kind, config, pairs)
    _log.setLevel(settings.log.level)
    return settings


def requested_settings(kind: type[S], config: Path | None, pairs: Iterable[str] | None) -> S:
    """Return the settings. Raises: Misconfigured, listing all mistakes."""
    given_pairs = list(pairs or ())
    well_formed = overrides(pair for pair in given_pairs if "=" in pair)
    return load(kind, config, well_formed, [_form(pair) for pair in given_pairs if "=" not in pair])


def overrides(pairs: Iterable[str]) -> dict[str, str]:
    """Return `section.key=value` pairs as a mapping. Raises: Misconfigured, for any other form."""
    given_pairs = list(pairs)
    mistakes = [_form(pair) for pair in given_pairs if "=" not in pair]
    if mistakes:
        raise Misconfigured("; ".join(mistakes))
    split = (pair.partition("=") for pair in given_pairs)
    return {name.strip(): value for name, _, value in split}


def _form(pair: str) -> str:
    """Return what is wrong with a pair, without its value, which may be a secret."""
    return f"--set {_NOT_A_NAME.split(pair, maxsplit=1)[0]}: write section.key=value"


@contextmanager
def errors_as_exit_status() -> Iterator[None]:
    """Turn a TidegateError into a one-line message and an exit status, without a traceback."""
    try:
        yield
    except TidegateError as error:
        fail(error)


def fail_unforeseen(error: Exception, arguments: Sequence[str]) -> NoReturn:
    """End the named command with one message; at log level DEBUG also with the traceback."""
    command = " ".join(
        ("tidegate", *takewhile(lambda argument: not argument.startswith("-"), arguments))
    )
    _errors.print(class_of(error), style="red", end=": ")
    sentence = (
        f"`{command}` failed, which is a fault of ours: {reason_of(error)}; report it with the "
    )
    _errors.print(f"{sentence}traceback, which `--set log.level=DEBUG` shows", soft_wrap=True)
    if _log.isEnabledFor(logging.DEBUG):
        _errors.print("".join(format_exception(error)), soft_wrap=True)
    sys.exit(EXIT_FAULT)


def fail(error: TidegateError) -> NoReturn:
    """End the command: print the message to standard error, exit with the status of its advice."""
    _errors.print(error.error_class, style="red", end=": ")
    _errors.print(str(error), soft_wrap=True)
    raise typer.Exit(exit_status(error)) from error
