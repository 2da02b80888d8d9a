"""`tidegate table vacuum`: which files no version needs, and why; with --apply they go."""

from typing import Annotated, Any, Final

import typer

from tidegate_producers.cached_clients import CLIENT_ID, store_for
from tidegate_producers.cli.output import OUT, visible
from tidegate_producers.cli.registration_commands import Timeout
from tidegate_producers.cli.row_commands import UriOrName, location_of, root_of
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
from tidegate_runtime.cli.service_command import Config, Json, Set, errors_as_exit_status, loaded
from tidegate_runtime.client.client import TIMEOUT_S, Client
from tidegate_runtime.clock import SystemClock, instant
from tidegate_runtime.kafka.confluent_bus import KafkaBus
from tidegate_runtime.service.settings import ServiceSettings

_SHOWN_MAX: Final = 20
"""Files shown of each reason; --json lists all."""


def vacuum_table(  # noqa: PLR0913 - each is an option of the command
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
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Show which files of a table no version needs any more, and why each goes or stays.

    Files stay that the retention covers, that proposals may still bring, and that the change
    publisher and lease holders need. With --apply the others go; two commits record it, VACUUM
    START and VACUUM END.
    """
    if apply and offline:
        raise typer.BadParameter(
            "a vacuum is recorded by two commits, which need the broker: leave out --offline"
        )
    settings = loaded(ServiceSettings, config, set_)
    request = VacuumRequest(retention_hours, lite, not no_retention_check)
    with errors_as_exit_status():
        if offline:
            place = TableLocation(root_of(uri), settings.storage)
            plan = survey(store_for(place), request, Claims(), SystemClock().now_ms())
            _show(place.root, Vacuumed(plan), applied=False, as_json=as_json)
            return
        place = location_of(uri, settings)
        bus, topics = KafkaBus(settings.kafka, CLIENT_ID), settings.kafka.topics
        with Client(bus, topics) as client:
            now_ms = client.clock.now_ms()
            if apply:
                vacuumed = vacuum(
                    client, place, request, lambda one: claims_on(bus, topics, one, now_ms), timeout
                )
            else:
                record = client.table(place.root, timeout)
                claims = claims_on(bus, topics, record, now_ms) if record else Claims()
                vacuumed = Vacuumed(survey(store_for(place), request, claims, now_ms))
        _show(place.root, vacuumed, applied=apply, as_json=as_json)


def _show(root: str, vacuumed: Vacuumed, *, applied: bool, as_json: bool) -> None:
    plan = vacuumed.plan
    if as_json:
        OUT.print_json(data=_as_data(root, vacuumed, applied=applied))
        return
    for goes, reason, count, size_bytes in plan.reasons():
        verb = ("went" if applied else "would go") if goes else "stays"
        OUT.print(visible(f"{verb}: {count} files, {size_bytes} bytes: {reason}"), soft_wrap=True)
        for path in _paths(plan, reason) if goes else ():
            OUT.print(visible(f"  {path}"), soft_wrap=True)
        if goes and count > _SHOWN_MAX:
            OUT.print(f"  and {count - _SHOWN_MAX} more", soft_wrap=True)
    for note in plan.notes:
        OUT.print(visible(note), soft_wrap=True)
    count = plan.going.num_rows
    if applied and vacuumed.start is not None:
        versions = f"versions {vacuumed.start} and {vacuumed.end} record it"
        OUT.print(f"deleted {vacuumed.files} files; {versions}", soft_wrap=True)
    elif not count:
        OUT.print(f"nothing is older than {instant(plan.cutoff_ms)} UTC and unneeded")
    else:
        OUT.print(f"--apply deletes {count} files, {plan.size_bytes} bytes", soft_wrap=True)


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
