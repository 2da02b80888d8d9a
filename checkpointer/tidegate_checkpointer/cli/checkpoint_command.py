"""`tidegate table checkpoint`: a checkpoint, log compactions or checksums, written by hand."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from tidegate_checkpointer.cli.followed_table import FollowedTable, TableUri, by_path
from tidegate_checkpointer.machine import ChecksumDue, CompactionDue, Notice, decide
from tidegate_checkpointer.settings import CheckpointerSettings
from tidegate_checkpointer.summary_writers import (
    check_checkpointable,
    wants_v2,
    write_checkpoint,
    write_checksum,
    write_compaction,
)
from tidegate_checkpointer.table_view import TableView, view_from_log
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.file_names import checksum_name, compacted_name
from tidegate_delta.properties.table_properties import checkpoint_interval
from tidegate_runtime.cli.command import Result, command
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.checkpoint_reader import whole_checkpoint
from tidegate_runtime.table_io.checkpoint_writer import hinted_version, move_hint_forward
from tidegate_runtime.table_io.open_table import contradiction_of
from tidegate_runtime.table_io.stored_checkpoint import load_state


class Summary(StrEnum):
    """What makes the log short to read."""

    CHECKPOINT = "checkpoint"
    COMPACTIONS = "compactions"
    CHECKSUMS = "checksums"


@command(CheckpointerSettings)
def checkpoint(
    settings: CheckpointerSettings,
    uri: TableUri,
    what: Annotated[
        Summary,
        typer.Option(
            help="The checkpoint; or the log compactions that are due since the newest checkpoint; "
            "or the version checksums that are missing of the last hundred versions."
        ),
    ] = Summary.CHECKPOINT,
    version: Annotated[
        int | None,
        typer.Option(min=0, help="The checkpoint's version; the newest if not given."),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Write; without it only show what would be written.")
    ] = False,
) -> Result:
    """Write the checkpoint of a version, log compactions or version checksums, as the service does.

    _last_checkpoint is moved to the checkpoint. A whole checkpoint that is there, of whatever
    writer, is left as it is. A log compaction joins commits of the log, not data files.
    """
    if what is Summary.CHECKPOINT:
        return _checkpoint(by_path(uri, settings).store, version, apply=apply)
    if version is not None:
        raise typer.BadParameter("only a checkpoint is of a version", param_hint="--version")
    return _files_due(uri, settings, what, apply=apply)


def _checkpoint(store: LogStore, version: int | None, *, apply: bool) -> Result:
    state = load_state(store, version)
    fresh = state.fresh
    check_checkpointable(fresh.protocol, fresh.metadata, store.root)
    existing = whole_checkpoint(store, state.version)
    facts: dict[str, Any] = {
        "version": int(state.version),
        "form": "V2" if wants_v2(fresh.metadata) else "classic",
        "files": state.totals.files,
        "hint": hinted_version(store),
        "exists": existing is not None,
        "doubt": contradiction_of(store, state.version, state.checksum),
        "written": False,
    }
    if apply:
        hint = existing or write_checkpoint(store, state, SystemClock()).hint
        move_hint_forward(store, hint)
        facts |= {"written": existing is None, "bytes": hint.size_in_bytes}
        facts["hint"] = hinted_version(store)
    return Result(facts, _checkpoint_lines(facts, apply=apply))


def _files_due(uri: str, settings: CheckpointerSettings, what: Summary, *, apply: bool) -> Result:
    table, view, due = _due(uri, settings)
    files: list[dict[str, Any]] = []
    for task in due:
        if what is Summary.COMPACTIONS and isinstance(task, CompactionDue):
            content = view.compacted(task.start, task.end)
            if apply and content:
                write_compaction(table.store, task.start, task.end, content)
            name, written = compacted_name(task.start, task.end), apply and bool(content)
            files.append({"file": name, "bytes": len(content), "written": written})
        elif what is Summary.CHECKSUMS and isinstance(task, ChecksumDue):
            if apply:
                write_checksum(table.store, view.at(task.version))
            files.append({"file": checksum_name(task.version), "written": apply})
    return Result({"head": view.head, what.value: files}, _file_lines(files, apply=apply))


def _due(uri: str, settings: CheckpointerSettings) -> tuple[FollowedTable, TableView, Any]:
    table = by_path(uri, settings)
    view = view_from_log(table.store, settings.checkpointer.compaction_interval)
    if view.head < 0:
        raise InvalidRequest(
            f"{table.root} is no Delta table: check the path", error_class="NotADeltaTable"
        )
    _, metadata = view.definition()
    interval = checkpoint_interval(metadata)
    return table, view, decide(view.state, Notice(view.head, interval))


def _checkpoint_lines(facts: dict[str, Any], *, apply: bool) -> list[str]:
    return [facts["doubt"]] * bool(facts["doubt"]) + _written_lines(facts, apply=apply)


def _written_lines(facts: dict[str, Any], *, apply: bool) -> list[str]:
    version, pointed = facts["version"], facts["hint"]
    hint = "no _last_checkpoint" if pointed < 0 else f"_last_checkpoint points to {pointed}"
    if facts["exists"]:
        return [f"version {version} has a checkpoint; {hint}"]
    description = f"{facts['form']} checkpoint of version {version}, {facts['files']} live files"
    if apply:
        return [f"wrote the {description}, {facts['bytes']} bytes; {hint}"]
    return [f"would write the {description}; {hint}", "--apply writes it"]


def _file_lines(files: list[dict[str, Any]], *, apply: bool) -> list[str]:
    if not files:
        return ["nothing is due"]
    verb = "wrote" if apply else "would write"
    lines = [
        f"{verb} {file['file']}" + (f", {file['bytes']} bytes" if "bytes" in file else "")
        for file in files
    ]
    return lines if apply else [*lines, f"--apply writes {len(files)} files"]
