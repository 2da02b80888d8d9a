"""`tidegate table optimize`: which small files would become larger ones; with --apply they do."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import typer

from tidegate_producers.cli.table_place import Timeout, UriOrName, client_of, location_of
from tidegate_producers.writing.optimize import (
    FILE_BYTES,
    Bin,
    Optimized,
    OptimizeRequest,
    compact_here,
    optimize,
    survey,
)
from tidegate_producers.writing.table_write import WriteRequest
from tidegate_runtime.cli.command import Result, command
from tidegate_runtime.client.client import TIMEOUT_S
from tidegate_runtime.service.settings import ServiceSettings

_SHOWN_MAX: Final = 20
"""Partitions shown; --json lists all."""


@command()
def optimize_table(  # noqa: PLR0913 - each is an option of the command
    settings: ServiceSettings,
    uri: UriOrName,
    where: Annotated[
        str | None,
        typer.Option(help="Only partitions for which this condition on their columns is true."),
    ] = None,
    max_file_size: Annotated[
        int, typer.Option(help="Bytes up to which files are packed into one.", min=1)
    ] = FILE_BYTES,
    purge: Annotated[
        bool, typer.Option("--purge", help="Only write files with deleted rows anew.")
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Compact; without it only show what would be.")
    ] = False,
    timeout: Timeout = TIMEOUT_S,
) -> Result:
    """Pack small files of each partition into larger ones, and drop deleted rows from files.

    Rows keep their order, and deletes of rows beside it do not conflict with it. This process reads
    and writes the files; for large tables use Table.optimize, which uses Spark's executors.
    """
    request = OptimizeRequest(where, max_file_size, purges=purge)
    place = location_of(uri, settings)
    if not apply:
        bins = survey(place, request)
        return Result(lambda: _plan_data(place.root, bins), _plan_lines(bins))
    with client_of(settings) as client:
        optimized = optimize(client, place, request, WriteRequest(timeout), compact_here)
    return _optimized(place.root, optimized)


def _plan_data(root: str, bins: Sequence[Bin]) -> dict[str, Any]:
    rows = [
        {
            "partition": dict(sorted(file_bin.adds[0].partition_values.items())),
            "files": len(file_bin.adds),
            "bytes": file_bin.size,
        }
        for file_bin in bins
    ]
    return {"table_root": root, "applied": False, "bins": rows}


def _plan_lines(bins: Sequence[Bin]) -> Iterator[str]:
    for file_bin in bins[:_SHOWN_MAX]:
        values = sorted(file_bin.adds[0].partition_values.items())
        partition = ", ".join(f"{name}={value}" for name, value in values) or "the table"
        yield f"{partition}: {len(file_bin.adds)} files, {file_bin.size} bytes would become one"
    if len(bins) > _SHOWN_MAX:
        yield f"and {len(bins) - _SHOWN_MAX} more"
    files = sum(len(file_bin.adds) for file_bin in bins)
    yield f"--apply makes {len(bins)} files of {files}" if bins else "no files are worth it"


def _optimized(root: str, optimized: Optimized) -> Result:
    summary: dict[str, Any] = {
        "table_root": root,
        "applied": True,
        "versions": optimized.versions,
        "files_removed": len(optimized.removed),
        "files_added": len(optimized.added),
        "bytes_removed": sum(add.size for add in optimized.removed),
        "bytes_added": sum(add.size for add in optimized.added),
    }
    if not optimized.versions:
        return Result(summary, ["no files are worth it"])
    versions = ", ".join(map(str, optimized.versions))
    effect = f"{summary['files_removed']} files became {summary['files_added']}"
    return Result(summary, [f"{effect}, in version {versions}"])
