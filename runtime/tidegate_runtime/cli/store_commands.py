"""`tidegate store probe`: check that a store has put-if-absent, on which every commit depends."""

from typing import Annotated, Final

import typer
from rich.progress import Progress

from tidegate_runtime.cli.command import OUT, Result, command
from tidegate_runtime.cli.console import console
from tidegate_runtime.service.runner import EXIT_OK, EXIT_STOP
from tidegate_runtime.service.settings import ServiceSettings
from tidegate_runtime.storage.open_store import open_store
from tidegate_runtime.storage.put_if_absent_probe import CONTESTS, ProbeReport
from tidegate_runtime.storage.put_if_absent_probe import probe as probe_store

_HOLDS: Final = "put-if-absent holds: tables may lie here"
_DOES_NOT_HOLD: Final = (
    "put-if-absent does not hold, or could not be shown to hold: two writers might both believe "
    "that a version is theirs, so no table may lie here; take another store, or read ADR 10"
)
_LEFT: Final = "scratch files that could not be removed, under _tidegate/probe-…: {}"

store = typer.Typer(no_args_is_help=True, help="Object stores and file systems.")


@store.callback()
def _store() -> None:
    """Object stores and file systems."""


@store.command()
@command()
def probe(
    settings: ServiceSettings,
    uri: Annotated[str, typer.Argument(help="A folder in the store, for scratch files.")],
    contests: Annotated[
        int, typer.Option(help="How many names two writers race for.", min=1)
    ] = CONTESTS,
) -> Result:
    """Test whether put-if-absent has exactly one winner in a store; exit status 3 if it has not.

    Two writers race for each name, connections are cut during a PUT, and the store's answers are
    compared with what it then holds. Scratch files lie under `_tidegate/` and are removed. Give
    the store's options as settings: `--set storage.endpoint_url=…`.
    """
    with Progress(console=console(stderr=True), transient=True) as progress:
        bar = progress.add_task("contests", total=contests)
        report = probe_store(
            open_store(uri, settings.storage),
            contests,
            lambda number: progress.update(bar, completed=number),
        )
    data = {**vars(report), "passed": report.passed}
    return Result(data, lambda: _print(report), EXIT_OK if report.passed else EXIT_STOP)


def _print(report: ProbeReport) -> None:
    results = f"{report.won} won, {report.lost} lost, {report.unknown} unknown"
    attempts = f"{report.contests} contests, {report.cuts} cut connections"
    OUT.print(f"{report.root}: {attempts}: {results}", soft_wrap=True)
    for failure in report.failures:
        OUT.print(failure, style="red", markup=False, soft_wrap=True)
    if report.left:
        OUT.print(_LEFT.format(report.left), soft_wrap=True)
    OUT.print(_HOLDS if report.passed else _DOES_NOT_HOLD, soft_wrap=True)
