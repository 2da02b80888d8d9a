"""`tidegate table optimize`: which small files would become larger ones; with --apply they do."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from tidegate_producers.cached_clients import CLIENT_ID
from tidegate_producers.cli.output import OUT, visible
from tidegate_producers.cli.registration_commands import Timeout
from tidegate_producers.cli.row_commands import UriOrName, location_of
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
from tidegate_runtime.cli.service_command import Config, Json, Set, errors_as_exit_status, loaded
from tidegate_runtime.client.client import TIMEOUT_S, Client
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.service.settings import ServiceSettings

_SHOWN_MAX: Final = 20
"""Partitions shown; --json lists all."""


def optimize_table(  # noqa: PLR0913 - each is an option of the command
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
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Pack small files of each partition into larger ones, and drop deleted rows from files.

    Rows keep their order, and deletes of rows beside it do not conflict with it. This process reads
    and writes the files; for large tables use Table.optimize, which uses Spark's executors.
    """
    settings = loaded(ServiceSettings, config, set_)
    request = OptimizeRequest(where, max_file_size, purges=purge)
    with errors_as_exit_status():
        place = location_of(uri, settings)
        if not apply:
            _show_plan(place.root, survey(place, request), as_json=as_json)
            return
        bus, topics = KafkaBus(settings.kafka, CLIENT_ID), settings.kafka.topics
        with Client(bus, topics) as client:
            optimized = optimize(client, place, request, WriteRequest(timeout), compact_here)
        _show_optimized(place.root, optimized, as_json=as_json)


def _show_plan(root: str, bins: Sequence[Bin], *, as_json: bool) -> None:
    if as_json:
        rows = [
            {
                "partition": dict(sorted(file_bin.adds[0].partition_values.items())),
                "files": len(file_bin.adds),
                "bytes": file_bin.size,
            }
            for file_bin in bins
        ]
        OUT.print_json(data={"table_root": root, "applied": False, "bins": rows})
        return
    for file_bin in bins[:_SHOWN_MAX]:
        values = sorted(file_bin.adds[0].partition_values.items())
        partition = ", ".join(f"{name}={value}" for name, value in values) or "the table"
        effect = f"{len(file_bin.adds)} files, {file_bin.size} bytes would become one"
        OUT.print(visible(f"{partition}: {effect}"), soft_wrap=True)
    if len(bins) > _SHOWN_MAX:
        OUT.print(f"and {len(bins) - _SHOWN_MAX} more", soft_wrap=True)
    files = sum(len(file_bin.adds) for file_bin in bins)
    last = f"--apply makes {len(bins)} files of {files}" if bins else "no files are worth it"
    OUT.print(last, soft_wrap=True)


def _show_optimized(root: str, optimized: Optimized, *, as_json: bool) -> None:
    summary: dict[str, Any] = {
        "table_root": root,
        "applied": True,
        "versions": optimized.versions,
        "files_removed": len(optimized.removed),
        "files_added": len(optimized.added),
        "bytes_removed": sum(add.size for add in optimized.removed),
        "bytes_added": sum(add.size for add in optimized.added),
    }
    if as_json:
        OUT.print_json(data=summary)
    elif not optimized.versions:
        OUT.print("no files are worth it")
    else:
        versions = ", ".join(map(str, optimized.versions))
        effect = f"{summary['files_removed']} files became {summary['files_added']}"
        OUT.print(f"{effect}, in version {versions}", soft_wrap=True)
