"""What all commands share: `--config`, `--set`, `--json`, output, and errors as exit statuses.

Output is as wide as the terminal, and unwrapped in a pipe or file. The commands of installed
services are found by entry point; `service_app` makes the command that runs a service.
"""

import inspect
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from importlib.metadata import EntryPoint, entry_points
from itertools import takewhile
from pathlib import Path
from traceback import format_exception
from typing import Annotated, Any, Final, NoReturn, TypeVar

import typer
from rich.console import Console
from typer.core import TyperGroup

from tidegate_delta.errors import Misconfigured, TidegateError
from tidegate_runtime.containment import class_of, reason_of
from tidegate_runtime.service.runner import EXIT_FAULT, EXIT_OK, Running, exit_status, run
from tidegate_runtime.service.settings import ServiceSettings, load

WIDE: Final = 10_000
"""Width of output that goes to no terminal: programs expect each row of a table on one line."""


def console(*, stderr: bool = False, wide: int = WIDE) -> Console:
    """Return a console that prints text literally, without markup or automatic colours.

    The environment variable COLUMNS, if set, overrides the width.
    """
    out = sys.stderr if stderr else sys.stdout
    has_own_width = out.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(
        stderr=stderr,
        highlight=False,
        markup=False,
        emoji=False,
        width=None if has_own_width else wide,
    )


def printable(text: str) -> str:
    """Return a text with control characters and line breaks escaped.

    Paths, names and reasons come from any writer, who could send escape sequences.
    """
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in text
    )


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

OUT: Final = console()
_errors = console(stderr=True)
_log = logging.getLogger(__name__)
_NOT_A_NAME: Final = re.compile(r"[^\w.-]")


@dataclass(frozen=True)
class Result:
    """What a command prints: `data` with --json; otherwise the lines of `text`, or what it prints.

    The lines are printed with control characters escaped. A function for `data` is called with
    --json alone: a large table's may be large.
    """

    data: Any | Callable[[], Any]
    text: Iterable[str] | Callable[[], None]
    exit_status: int = EXIT_OK


def command(
    kind: type[ServiceSettings] | None = ServiceSettings,
) -> Callable[[Callable[..., Result | None]], Callable[..., None]]:
    """Return a decorator that makes the function of a command a command for Typer.

    The function's first argument are its settings, which `--config` and `--set` give; with None it
    has no settings and no such options. It gets `--json` if it returns a `Result`. A function that
    prints by itself returns None. It can take an option of this module as an argument of its own.
    """

    def framed(work: Callable[..., Result | None]) -> Callable[..., None]:
        signature = inspect.signature(work)
        own = list(signature.parameters.values())[0 if kind is None else 1 :]
        names = {parameter.name for parameter in own}
        added = [] if kind is None else [_option("config", Config), _option("set_", Set)]
        if signature.return_annotation is Result:
            added.append(_option("as_json", Json, default=False))
        options = [*own, *(option for option in added if option.name not in names)]

        @wraps(work)
        def run(**values: Any) -> None:
            arguments = {name: values[name] for name in names}
            with errors_as_exit_status():
                if kind is None:
                    result = work(**arguments)
                else:
                    settings = loaded(kind, values["config"], values["set_"])
                    result = work(settings, **arguments)
                if result is not None:
                    print_result(result, as_json=values["as_json"])
            if result is not None and result.exit_status != EXIT_OK:
                raise typer.Exit(result.exit_status)

        vars(run)["__signature__"] = signature.replace(parameters=options, return_annotation=None)
        run.__annotations__ = {option.name: option.annotation for option in options}
        return run

    return framed


def _option(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def print_result(result: Result, *, as_json: bool) -> None:
    """Print the JSON or the text of a result."""
    if as_json:
        OUT.print_json(data=result.data() if callable(result.data) else result.data)
    elif callable(result.text):
        result.text()
    else:
        for line in result.text:
            OUT.print(printable(line), soft_wrap=True)


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


GROUP: Final = "tidegate.commands"


def command_entry_points() -> dict[str, EntryPoint]:
    """Return the entry point of each command by its name."""
    return {point.name: point for point in sorted(entry_points(group=GROUP))}


def loaded_app(point: EntryPoint) -> typer.Typer | str:
    """Return a command, or a sentence that names the library it lacks.

    An image has the libraries of one service only.
    """
    try:
        command = point.load()
    except ModuleNotFoundError as error:
        return f"not installed: it needs {error.name}"
    assert isinstance(command, typer.Typer), f"{point.value} is a Typer app"
    return command


KINDS: Final[dict[str, type[ServiceSettings]]] = {}
"""The settings of each service whose command was loaded, by its name."""


class DefaultGroup(TyperGroup):
    """A group whose command `run` needs no name: `tidegate ingest TOPIC TABLE`."""

    default_command = "run"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `run` before arguments that name no command."""
        first = next((arg for arg in args if not arg.startswith("-")), None)
        runs = bool(args) or not self.no_args_is_help
        if runs and args[:1] != ["--help"] and first not in self.commands:
            args = [self.default_command, *args]
        return super().parse_args(ctx, args)


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
