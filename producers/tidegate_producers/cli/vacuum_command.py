"""`tidegate table vacuum`: which files no version needs, and why; with --apply they go."""

from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer

from tidegate_producers.cached_clients import store_for
from tidegate_producers.cli.table_place import (
    Timeout,
    UriOrName,
    bus_of,
    client_of,
    location_of,
    root_of,
)
from tidegate_producers.options import TableLocation
from tidegate_producers.vacuum.vacuum import (
    Claims,
    Vacuumed,
    VacuumRequest,
    claims_on,
    survey,
    vacuum,
)
from tidegate_producers.vacuum.vacuum_plan import VacuumPlan
from tidegate_producers.writing.table_write import WriteRequest
from tidegate_runtime.cli.command import Result, command
from tidegate_runtime.client.client import TIMEOUT_S
from tidegate_runtime.clock import SystemClock, instant
from tidegate_runtime.service.settings import ServiceSettings

_SHOWN_MAX: Final = 20
"""Files shown of each reason; --json lists all."""


@command()
def vacuum_table(  # noqa: PLR0913 - each is an option of the command
    settings: ServiceSettings,
    uri: UriOrName,
    retention_hours: Annotated[
        float | None,
        typer.Option(
            help="Files of the last hours that stay; delta.deletedFileRetentionDuration if not "
            "given."
        ),
    ] = None,
    lite: Annotated[
        bool,
        typer.Option("--lite", help="Only files that versions in the log removed; a LIST if any."),
    ] = False,
    no_retention_check: Annotated[
        bool,
        typer.Option("--no-retention-check", help="Allow fewer hours than the table's retention."),
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Delete; without it only show what would go.")
    ] = False,
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Ask no broker who needs what: only to show what would go."),
    ] = False,
    timeout: Timeout = TIMEOUT_S,
) -> Result:
    """Show which files of a table no version needs any more, and why each goes or stays.

    Files stay that the retention covers, that proposals may still bring, and that the change
    publisher and lease holders need. With --apply the others go; two commits record it, VACUUM
    START and VACUUM END.
    """
    if apply and offline:
        raise typer.BadParameter(
            "a vacuum is recorded by two commits, which need the broker: leave out --offline"
        )
    request = VacuumRequest(retention_hours, lite, not no_retention_check)
    if offline:
        place = TableLocation(root_of(uri), settings.storage)
        plan = survey(store_for(place), request, Claims(), SystemClock().now_ms())
        return _result(place.root, Vacuumed(plan), applied=False)
    place = location_of(uri, settings)
    bus, topics = bus_of(settings), settings.kafka.topics
    with client_of(settings) as client:
        now_ms = client.clock.now_ms()
        if apply:
            vacuumed = vacuum(
                client,
                place,
                request,
                lambda one: claims_on(bus, topics, one, now_ms),
                WriteRequest(timeout),
            )
        else:
            record = client.table(place.root, timeout)
            claims = claims_on(bus, topics, record, now_ms) if record else Claims()
            vacuumed = Vacuumed(survey(store_for(place), request, claims, now_ms))
    return _result(place.root, vacuumed, applied=apply)


def _result(root: str, vacuumed: Vacuumed, *, applied: bool) -> Result:
    return Result(
        lambda: _as_data(root, vacuumed, applied=applied), _lines(vacuumed, applied=applied)
    )


def _lines(vacuumed: Vacuumed, *, applied: bool) -> Iterator[str]:
    plan = vacuumed.plan
    for goes, reason, count, size_bytes in plan.reasons():
        verb = ("went" if applied else "would go") if goes else "stays"
        yield f"{verb}: {count} files, {size_bytes} bytes: {reason}"
        yield from (f"  {path}" for path in (_paths(plan, reason) if goes else ()))
        if goes and count > _SHOWN_MAX:
            yield f"  and {count - _SHOWN_MAX} more"
    yield from plan.notes
    count = plan.going.num_rows
    if applied and vacuumed.start is not None:
        versions = f"versions {vacuumed.start} and {vacuumed.end} record it"
        yield f"deleted {vacuumed.files} files; {versions}"
    elif not count:
        yield f"nothing is older than {instant(plan.cutoff_ms)} UTC and unneeded"
    else:
        yield f"--apply deletes {count} files, {plan.size_bytes} bytes"


def _paths(plan: VacuumPlan, chosen_reason: str) -> list[str]:
    chosen = [reason == chosen_reason for reason in plan.going["why"].to_pylist()]
    paths = plan.going["path"].filter(chosen).slice(0, _SHOWN_MAX)
    return list(paths.to_pylist())


def _as_data(root: str, vacuumed: Vacuumed, *, applied: bool) -> dict[str, Any]:
    plan = vacuumed.plan
    files = plan.verdicts.select(["path", "size_bytes", "why", "goes"]).to_pylist()
    return {
        "table_root": root,
        "applied": applied,
        "version": plan.version,
        "retention_ms": plan.retention_ms,
        "cutoff_ms": plan.cutoff_ms,
        "notes": list(plan.notes),
        "deleted": vacuumed.files,
        "start": vacuumed.start,
        "end": vacuumed.end,
        "goes": [_file_row(file) for file in files if file["goes"]],
        "stays": [_file_row(file) for file in files if not file["goes"]],
    }


def _file_row(row: dict[str, Any]) -> dict[str, Any]:
    return {"path": row["path"], "bytes": row["size_bytes"], "why": row["why"]}
