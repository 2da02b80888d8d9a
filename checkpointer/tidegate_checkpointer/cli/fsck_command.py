"""`tidegate table fsck`: what of a table is wrong, and what to do; --repair does what it can."""

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from tidegate_checkpointer.cli.followed_table import FollowedTable, followed_table
from tidegate_checkpointer.data_file_check import check_files
from tidegate_checkpointer.finding import FOOTERS, CheckRequest, Finding
from tidegate_checkpointer.log_check import check_log
from tidegate_checkpointer.repair import remove_missing, repair_log
from tidegate_checkpointer.settings import CheckpointerSettings
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_messages.published_records import CommittedFile
from tidegate_runtime.cli.console import console, printable
from tidegate_runtime.cli.service_command import Config, Json, Set, errors_as_exit_status, loaded
from tidegate_runtime.client.client import TIMEOUT_S, Client
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.table_io.open_table import open_snapshot

_OUT: Final = console()
FOUND_STATUS: Final = 1
"""The exit status if something wrong is left."""


def fsck(  # noqa: PLR0913 - each is an option of the command
    uri: Annotated[str, typer.Argument(help="The table's root, or its registered name.")],
    repair: Annotated[
        bool, typer.Option("--repair", help="Repair what can be repaired; else only show it.")
    ] = False,
    footers: Annotated[
        int, typer.Option(min=0, help="How many data files are opened, the newest first.")
    ] = FOOTERS,
    all_checkpoints: Annotated[
        bool, typer.Option("--all-checkpoints", help="Compare all with the log, not the newest.")
    ] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Ask no broker: for unregistered tables.")
    ] = False,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Compare what a table's log says with what is in the store, and say what to do.

    Log: gaps, torn and overwritten commits, checkpoints, the hint, checksums. Files: missing ones,
    wrong sizes and row counts, deletion vectors, orphans. --repair deletes wrong checkpoints and
    checksums whose version can be built without them, and proposes to remove missing files.
    """
    settings = loaded(CheckpointerSettings, config, set_)
    with errors_as_exit_status():
        table = followed_table(uri, settings, offline=offline)
        request = CheckRequest(SystemClock().now_ms(), footers, all_checkpoints, _committed(table))
        findings = list(check_log(table.store, request, _progress))
        if any(finding.kind in ("gap", "unreadable_commit") for finding in findings):
            _show(table.root, findings, (), as_json=as_json)
            raise typer.Exit(FOUND_STATUS)
        snapshot = open_snapshot(table.store)
        findings += check_files(table.store, snapshot, request, _progress)
        repaired = _repaired(table, settings, snapshot, findings) if repair else []
        _show(table.root, findings, repaired, as_json=as_json)
    left = [finding for finding in findings if not (repair and finding.repair)]
    if left:
        raise typer.Exit(FOUND_STATUS)


def _repaired(
    table: FollowedTable,
    settings: CheckpointerSettings,
    snapshot: Snapshot,
    findings: Sequence[Finding],
) -> list[str]:
    repaired = repair_log(table.store, findings)
    if not any(finding.repair == "remove_file" for finding in findings):
        return repaired
    if table.record is None or table.bus is None:
        raise InvalidRequest(
            f"files of table {table.root} are missing, and taking them out of the table needs a "
            "commit: register the table, and leave out --offline",
            error_class="TableNotRegistered",
        )
    with Client(table.bus, settings.kafka.topics) as client:
        outcome = remove_missing(client, table.store, table.record, snapshot, findings, TIMEOUT_S)
    return [*repaired, f"missing files are removed in version {outcome.version}"]


def _committed(table: FollowedTable) -> CommittedFile | None:
    record = table.record
    if record is None:
        return None
    if record.overwritten is not None:
        return record.overwritten
    if record.sha256 is None or record.published_through < 0:
        return None
    return CommittedFile(version=record.published_through, sha256=record.sha256)


def _progress(subject: str) -> None:
    typer.echo(f"checking {subject}", err=True)


def _show(
    root: str, findings: Sequence[Finding], repaired: Sequence[str], *, as_json: bool
) -> None:
    if as_json:
        rows = [vars(finding) for finding in findings]
        _OUT.print_json(data={"table_root": root, "findings": rows, "repaired": list(repaired)})
        return
    for finding in findings:
        _OUT.print(printable(f"{finding.kind}: {finding.about}: {finding.what}"), soft_wrap=True)
        _OUT.print(printable(f"  do: {finding.remedy}"), soft_wrap=True)
    for text in repaired:
        _OUT.print(printable(f"repaired: {text}"), soft_wrap=True)
    if not findings:
        _OUT.print(f"nothing is wrong with {root}", soft_wrap=True)
    elif not repaired and (count := sum(finding.repair is not None for finding in findings)):
        _OUT.print(f"--repair does something about {count} of these", soft_wrap=True)
