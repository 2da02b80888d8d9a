"""`tidegate table fsck`: what of a table is wrong, and what to do; --repair does what it can."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import typer

from tidegate_checkpointer.cli.followed_table import FollowedTable, TableUri, followed_table
from tidegate_checkpointer.fsck import (
    FOOTERS,
    CheckRequest,
    check_files,
    check_log,
    remove_missing,
    repair_log,
)
from tidegate_checkpointer.settings import CheckpointerSettings
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.snapshots.snapshot import Snapshot
from tidegate_messages.published_records import CommittedFile
from tidegate_runtime.cli.command import Result, command
from tidegate_runtime.client.client import TIMEOUT_S, Client
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.service.runner import EXIT_OK
from tidegate_runtime.table_io.data_file_checks import Finding
from tidegate_runtime.table_io.open_table import open_snapshot

FOUND_STATUS: Final = 1
"""The exit status if something wrong is left."""


@command(CheckpointerSettings)
def fsck(
    settings: CheckpointerSettings,
    uri: TableUri,
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
) -> Result:
    """Compare what a table's log says with what is in the store, and say what to do.

    Log: gaps, torn and overwritten commits, checkpoints, the hint, checksums. Files: missing ones,
    wrong sizes and row counts, deletion vectors, orphans. --repair deletes wrong checkpoints and
    checksums whose version can be built without them, and proposes to remove missing files.
    """
    table = followed_table(uri, settings, offline=offline)
    request = CheckRequest(SystemClock().now_ms(), footers, all_checkpoints, _committed(table))
    findings = list(check_log(table.store, request, _progress))
    if any(finding.kind in ("gap", "unreadable_commit") for finding in findings):
        return _result(table.root, findings, (), FOUND_STATUS)
    snapshot = open_snapshot(table.store)
    findings += check_files(table.store, snapshot, request, _progress)
    repaired = _repaired(table, settings, snapshot, findings) if repair else []
    left = [finding for finding in findings if not (repair and finding.repair)]
    return _result(table.root, findings, repaired, FOUND_STATUS if left else EXIT_OK)


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


def _result(
    root: str, findings: Sequence[Finding], repaired: Sequence[str], exit_status: int
) -> Result:
    rows = [vars(finding) for finding in findings]
    data = {"table_root": root, "findings": rows, "repaired": list(repaired)}
    return Result(data, _lines(root, findings, repaired), exit_status)


def _lines(root: str, findings: Sequence[Finding], repaired: Sequence[str]) -> Iterator[str]:
    for finding in findings:
        yield f"{finding.kind}: {finding.about}: {finding.what}"
        yield f"  do: {finding.remedy}"
    for text in repaired:
        yield f"repaired: {text}"
    if not findings:
        yield f"nothing is wrong with {root}"
    elif not repaired and (count := sum(finding.repair is not None for finding in findings)):
        yield f"--repair does something about {count} of these"
