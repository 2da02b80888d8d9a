"""`tidegate table cleanup`: what of a table's log goes, and why; with --apply it goes.

The other subcommands are in `*_command.py` and `*_commands.py` of this package.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import typer

from tidegate_checkpointer.cli import checkpoint_command, fsck_command, health_command
from tidegate_checkpointer.cli.followed_table import FollowedTable, TableUri, followed_table
from tidegate_checkpointer.log_cleaner import (
    CleanedTable,
    CleanupMemory,
    delete,
    survey,
    verify,
)
from tidegate_checkpointer.log_cleanup_plan import CleanupPlan, FileDecision
from tidegate_checkpointer.settings import CheckpointerSettings
from tidegate_delta.errors import BrokenLog
from tidegate_messages.published_records import Gate
from tidegate_runtime.cli.command import OUT, Json, Result, command, print_result
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.followers.version_gates import GateReader
from tidegate_runtime.table_io.open_table import checksum_contradiction, open_keys, open_snapshot

_SHOWN_MAX: Final = 20
"""Files shown of each reason; --json lists all."""

app = typer.Typer(no_args_is_help=True, add_completion=False)
app.command("fsck")(fsck_command.fsck)
app.command("health")(health_command.health)
app.command("checkpoint")(checkpoint_command.checkpoint)


@app.callback()
def _table() -> None:
    """Registered Delta tables."""


@app.command()
@command(CheckpointerSettings)
def cleanup(
    settings: CheckpointerSettings,
    uri: TableUri,
    apply: Annotated[
        bool, typer.Option("--apply", help="Delete; without it only show what would go.")
    ] = False,
    offline: Annotated[
        bool,
        typer.Option(
            "--offline", help="Ask no broker who needs old versions: for unregistered tables."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show which files of a table's log have expired or were replaced, and why each goes or stays.

    With --apply the checkpoints that the rest depends on are compared with an independent fold of
    the log; if they are right, the files go, in an order that leaves every kept version readable.
    """
    followed = followed_table(uri, settings, offline=offline)
    gates, root = _gates(followed, settings), followed.root
    store, memory, now_ms = followed.store, CleanupMemory(), _now_ms()
    head = open_keys(store)
    table = CleanedTable(store, head.version, head.protocol, head.metadata)
    due = survey(table, memory, gates, now_ms)
    plan = Result(lambda: _as_data(root, due, apply=apply), _lines(due, apply=apply))
    print_result(plan, as_json=as_json)
    if not apply or not due.goes:
        return
    if doubt := checksum_contradiction(store, open_snapshot(store)):
        raise BrokenLog(
            f"nothing of table {root} was deleted: {doubt}", error_class="CorruptChecksum"
        )
    if not verify(store, due, memory, now_ms):
        raise BrokenLog(
            f"nothing of table {root} was deleted: {memory.contradiction}; delete that "
            "checkpoint if the commits before it are there, or restore it from a backup",
            error_class="CorruptCheckpoint",
        )
    cleaned = delete(store, due, lambda: True)
    if not as_json:
        OUT.print(f"deleted {cleaned.files} files, {cleaned.size_bytes} bytes", soft_wrap=True)


def _gates(table: FollowedTable, settings: CheckpointerSettings) -> Sequence[Gate]:
    """Return who needs which versions of a table; nobody of one that is not registered."""
    if table.record is None or table.bus is None:
        return ()
    return GateReader(table.bus, settings.kafka.topics).of(table.record, _now_ms())


def _now_ms() -> int:
    return SystemClock().now_ms()


def _lines(due: CleanupPlan, *, apply: bool) -> Iterator[str]:
    verb = "goes" if apply else "would go"
    for title, verdicts in ((verb, due.goes), ("stays", due.stays)):
        files: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for verdict in verdicts:
            files[verdict.why] += 1
            sizes[verdict.why] += verdict.file.size_bytes
        for reason, count in files.items():
            yield f"{title}: {count} files, {sizes[reason]} bytes: {reason}"
            if title == "stays":
                continue
            paths = [verdict.file.path for verdict in verdicts if verdict.why == reason]
            yield from (f"  {path}" for path in paths[:_SHOWN_MAX])
            if count > _SHOWN_MAX:
                yield f"  and {count - _SHOWN_MAX} more"
    for blocked in due.blocked:
        yield f"kept back: {blocked.why}"
    if not apply and due.goes:
        versions = ", ".join(map(str, due.to_verify))
        yield (
            f"--apply deletes {len(due.goes)} files, {due.bytes_going} bytes, once the checkpoints "
            f"of {versions} are verified"
        )


def _as_data(root: str, due: CleanupPlan, *, apply: bool) -> dict[str, Any]:
    def reported(verdicts: Sequence[FileDecision]) -> list[dict[str, Any]]:
        return [
            {"path": verdict.file.path, "bytes": verdict.file.size_bytes, "why": verdict.why}
            for verdict in verdicts
        ]

    return {
        "table_root": root,
        "applied": apply,
        "floor": due.floor,
        "to_verify": list(due.to_verify),
        "blocked": [vars(blocked) for blocked in due.blocked],
        "goes": reported(due.goes),
        "stays": reported(due.stays),
    }
