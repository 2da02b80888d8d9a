"""`tidegate demo`: runs the demo with an embedded Kafka and the local file system."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from tidegate_delta.errors import Misconfigured, TidegateError
from tidegate_demo.flight_writes import DemoPaths
from tidegate_demo.scenario import Scenario
from tidegate_demo.screen import Screen
from tidegate_local.local_stack import LocalStack, StackSettings, read_state, stop_detached
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.storage.open_store import canonical_root

FOLDER: Final = Path("build/demo")
EXIT_UNPROVED: Final = 1
EXIT_ERROR: Final = 2
EXIT_INTERRUPTED: Final = 130

app = typer.Typer(add_completion=False)


@app.command()
def demo(
    folder: Annotated[Path, typer.Option(help="Where all files go; emptied first.")] = FOLDER,
    up: Annotated[
        bool, typer.Option("--up", help="Leave everything running; `tidegate down` ends it.")
    ] = False,
) -> None:
    """Write a year of flights and check that no row is lost.

    The stream and the committer are killed midway.
    """
    console = Console(width=None if sys.stdout.isatty() else 140)
    sys.exit(_run(folder.absolute(), console, detached=up))


def _run(folder: Path, console: Console, *, detached: bool) -> int:
    screen = Screen(console, SystemClock())
    status = EXIT_ERROR
    try:
        _empty_folder(folder, screen)
        stack = LocalStack(
            StackSettings(
                folder, roots=[canonical_root(str(folder / "tables"))], detached=detached
            ),
            screen.say,
        )
        with screen.step("Starting Kafka, committer, checkpointer and cdc-publisher"):
            stack.start()
        status = _run_scenario(stack, folder, screen, detached=detached)
    except TidegateError as error:
        console.print(f"[red]{error.error_class}[/]: {error}", highlight=False)
    except KeyboardInterrupt:
        console.print("interrupted: everything that was started is stopped")
        status = EXIT_INTERRUPTED
    return status


def _run_scenario(stack: LocalStack, folder: Path, screen: Screen, *, detached: bool) -> int:
    services_run_on = False
    try:
        with _quiet(folder / "services" / "spark.log"):
            proved = Scenario(stack, DemoPaths(folder), screen).tell()
        services_run_on = detached
    finally:
        if not services_run_on:
            stack.stop()
    _print_locations(stack, folder, screen, services_run_on=services_run_on)
    return 0 if proved else EXIT_UNPROVED


def _print_locations(
    stack: LocalStack, folder: Path, screen: Screen, *, services_run_on: bool
) -> None:
    print_line = screen.say
    print_line(f"tables:  {folder / 'tables'}")
    print_line(f"topics:  {folder / 'kafka'} (prefix {stack.kafka.topic_prefix!r})")
    print_line(f"logs:    {folder / 'services'}")
    if services_run_on:
        print_line(f"Kafka answers at {stack.kafka.bootstrap_servers}; end it with:")
        print_line(f"         tidegate down --folder {folder}")
    else:
        print_line("everything that was started is stopped")


def _empty_folder(folder: Path, screen: Screen) -> None:
    """Stop what an earlier demo left running in the folder, and empty the folder.

    Raises: Misconfigured, for a folder that holds something else.
    """
    if read_state(folder) is not None:
        with screen.step("Ending the demo that was left running"):
            stop_detached(folder, screen.say)
    own_names = {"kafka", "services", "tables", "input", "state.json"}
    if folder.exists() and (
        foreign_names := {entry.name for entry in folder.iterdir()} - own_names
    ):
        raise Misconfigured(
            f"{folder} holds {sorted(foreign_names)[0]!r}, which no demo wrote; give --folder "
            "another one"
        )
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "services").mkdir(parents=True)


@contextmanager
def _quiet(log: Path) -> Iterator[None]:
    """Send the stderr of Spark's JVM to a file, to keep it off the screen."""
    stderr_copy = os.dup(2)
    with log.open("ab") as out:
        os.dup2(out.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(stderr_copy, 2)
        os.close(stderr_copy)


if __name__ == "__main__":
    app()
