"""`tidegate table checkpoint`, `compact` and `checksum`: writes by hand what is due."""

from typing import Annotated, Any, Final

import typer

from tidegate_checkpointer.cli.followed_table import FollowedTable, by_path
from tidegate_checkpointer.machine import ChecksumDue, CompactionDue, Notice, decide
from tidegate_checkpointer.settings import CheckpointerSettings
from tidegate_checkpointer.summary_writers import (
    write_checkpoint,
    write_checksum,
    write_compaction,
)
from tidegate_checkpointer.supported_tables import check_checkpointable, wants_v2
from tidegate_checkpointer.table_view import TableView, view_from_log
from tidegate_delta.errors import InvalidRequest
from tidegate_delta.log.file_names import checksum_name, compacted_name
from tidegate_delta.properties.table_properties import checkpoint_interval
from tidegate_runtime.cli.console import console
from tidegate_runtime.cli.service_command import Config, Json, Set, errors_as_exit_status, loaded
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.table_io.checkpoint_presence import whole_checkpoint
from tidegate_runtime.table_io.checkpoint_state_reader import load_state
from tidegate_runtime.table_io.checkpoint_writer import hinted_version, move_hint_forward
from tidegate_runtime.table_io.checksum_verification import contradiction_of

_OUT: Final = console()

TableUri = Annotated[str, typer.Argument(help="The table's root, or its registered name.")]
Apply = Annotated[
    bool, typer.Option("--apply", help="Write; without it only show what would be written.")
]


def checkpoint(
    uri: TableUri,
    version: Annotated[
        int | None, typer.Option(min=0, help="The version; the newest if not given.")
    ] = None,
    apply: Apply = False,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Write the checkpoint of a version, and move _last_checkpoint to it, as the service does.

    A whole checkpoint that is there, of whatever writer, is left as it is.
    """
    settings = loaded(CheckpointerSettings, config, set_)
    with errors_as_exit_status():
        store = by_path(uri, settings).store
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
    _show(facts, _checkpoint_lines(facts, apply=apply), as_json=as_json)


def compact(
    uri: TableUri,
    apply: Apply = False,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Write the log compactions that are due since the newest checkpoint.

    It joins commits of the log, not data files.
    """
    settings = loaded(CheckpointerSettings, config, set_)
    with errors_as_exit_status():
        table, view, due = _due(uri, settings)
        compactions = []
        for task in due:
            if not isinstance(task, CompactionDue):
                continue
            content = view.compacted(task.start, task.end)
            name = compacted_name(task.start, task.end)
            if apply and content:
                write_compaction(table.store, task.start, task.end, content)
            compactions.append(
                {"file": name, "bytes": len(content), "written": apply and bool(content)}
            )
    _show(
        {"head": view.head, "compactions": compactions},
        _file_lines(compactions, apply=apply),
        as_json=as_json,
    )


def checksum(
    uri: TableUri,
    apply: Apply = False,
    config: Config = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Write the version checksums that are missing, of the last hundred versions."""
    settings = loaded(CheckpointerSettings, config, set_)
    with errors_as_exit_status():
        table, view, due = _due(uri, settings)
        checksums = []
        for task in due:
            if not isinstance(task, ChecksumDue):
                continue
            if apply:
                write_checksum(table.store, view.at(task.version))
            checksums.append({"file": checksum_name(task.version), "written": apply})
    _show(
        {"head": view.head, "checksums": checksums},
        _file_lines(checksums, apply=apply),
        as_json=as_json,
    )


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


def _show(facts: dict[str, Any], lines: list[str], *, as_json: bool) -> None:
    if as_json:
        _OUT.print_json(data=facts)
        return
    for line in lines:
        _OUT.print(line, soft_wrap=True)


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
