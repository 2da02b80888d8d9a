"""`tidegate table health`: a score, what opening and scanning cost, and what to do next."""

from typing import Annotated, Any, Final

import pyarrow.compute as pc
import typer

from tidegate_checkpointer.cli.followed_table import TableUri, by_path
from tidegate_checkpointer.fsck import listed_files, orphans
from tidegate_checkpointer.settings import CheckpointerSettings
from tidegate_delta.checkpoints import file_totals
from tidegate_delta.checkpoints.missing_statistics import lack_statistics
from tidegate_delta.features.clustering import unsorted_files
from tidegate_delta.log.file_names import LogFileKind
from tidegate_delta.properties.table_properties import checkpoint_interval, tombstone_retention_ms
from tidegate_delta.snapshots.chunked_arrays import total
from tidegate_delta.snapshots.raw_stats import row_counts
from tidegate_delta.snapshots.table_health import (
    EDGES,
    MIB,
    TableFacts,
    TableHealth,
    assess,
    histogram,
)
from tidegate_runtime.cli.command import Result, command
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.storage.log_store import LogStore
from tidegate_runtime.table_io.checkpoint_reader import newest_whole_checkpoint
from tidegate_runtime.table_io.log_reader import list_log
from tidegate_runtime.table_io.open_table import open_snapshot

_NAMES: Final = (
    *(f"< {edge // MIB} MiB" for edge in EDGES),
    f">= {EDGES[-1] // MIB} MiB",
)


@command(CheckpointerSettings)
def health(
    settings: CheckpointerSettings,
    uri: TableUri,
    with_orphans: Annotated[
        bool, typer.Option("--orphans", help="List the root, and count files of no version.")
    ] = False,
) -> Result:
    """Show how healthy a table is: cost to open and scan, sizes, deleted rows, the next task."""
    store = by_path(uri, settings).store
    facts = facts_of(store, SystemClock().now_ms() if with_orphans else None)
    assessed = assess(facts)
    data = {"table_root": store.root, **_as_data(facts, assessed)}
    return Result(data, _lines(facts, assessed))


def facts_of(store: LogStore, now_ms: int | None) -> TableFacts:
    """Return what is known of a table; with a time, also of its orphans.

    Raises: InvalidRequest (`NotADeltaTable`); BrokenLog; UnsupportedFeature; Unavailable.
    """
    snapshot = open_snapshot(store)
    hint = newest_whole_checkpoint(store, -1)
    checkpoint = -1 if hint is None else hint.version
    tail = [
        stat.size
        for file, stat in list_log(store, f"{checkpoint + 1:020d}")
        if file.kind is LogFileKind.COMMIT
    ]
    deletions = file_totals.deletions_of_files(snapshot.files)
    rows = row_counts(snapshot.files)
    orphan_count, orphan_bytes = None, 0
    if now_ms is not None:
        before_ms = now_ms - tombstone_retention_ms(snapshot.metadata)
        orphan_files = orphans(store, snapshot, listed_files(store, snapshot), before_ms)
        orphan_count, orphan_bytes = (
            orphan_files.num_rows,
            pc.sum(orphan_files["size_bytes"], min_count=0).as_py(),
        )
    return TableFacts(
        version=int(snapshot.version),
        checkpoint=checkpoint,
        interval=checkpoint_interval(snapshot.metadata),
        tail=len(tail),
        # The hint, a listing, the checkpoint and its footer, and each commit.
        log_requests=2 + (2 if hint else 0) + len(tail),
        log_bytes=sum(tail) + ((hint.size_in_bytes or 0) if hint else 0),
        files=snapshot.files.num_rows,
        size_bytes=total(snapshot.files["size"]) or 0,
        histogram=histogram(snapshot.files["size"].to_pylist()),
        rows=None if rows.null_count else total(rows),
        deleted_rows=deletions.records if deletions else 0,
        vectors=deletions.vectors if deletions else 0,
        orphans=orphan_count,
        orphan_bytes=orphan_bytes,
        doubt=str(snapshot.checksum) if snapshot.checksum.is_doubtful else "",
        uncounted=pc.sum(lack_statistics(snapshot.files, snapshot.metadata)).as_py() or 0,
        unsorted_bytes=total(unsorted_files(snapshot)["size"]) or 0,
    )


def _as_data(facts: TableFacts, assessed: TableHealth) -> dict[str, Any]:
    return {
        **vars(facts),
        "histogram": dict(zip(_NAMES, facts.histogram, strict=True)),
        "deleted_share": facts.deleted_share,
        "score": assessed.score,
        "tasks": [vars(task) for task in assessed.tasks],
    }


def _lines(facts: TableFacts, assessed: TableHealth) -> list[str]:
    newest_checkpoint = (
        "no checkpoint" if facts.checkpoint < 0 else f"checkpoint {facts.checkpoint}"
    )
    rows = "rows are not stated by all files" if facts.rows is None else f"{facts.rows} rows"
    sizes = ", ".join(
        f"{name}: {count}" for name, count in zip(_NAMES, facts.histogram, strict=True) if count
    )
    lines = [
        f"score {assessed.score} of 100, version {facts.version}",
        f"to open: {facts.log_requests} requests, {facts.log_bytes} bytes: {newest_checkpoint} and "
        f"{facts.tail} commits",
        f"to scan: {facts.files} files, {facts.size_bytes} bytes, {rows}",
        f"sizes of files: {sizes or 'none'}",
        f"deleted: {facts.deleted_rows} rows ({facts.deleted_share:.1%}) by {facts.vectors} "
        "deletion vectors",
    ]
    if facts.orphans is not None:
        lines.append(f"orphans: {facts.orphans} files, {facts.orphan_bytes} bytes")
    if not assessed.tasks:
        return [*lines, "next: nothing"]
    for index, task in enumerate(assessed.tasks):
        order = "next" if index == 0 else "then"
        lines.append(f"{order}: {task.name} (-{task.penalty}): {task.why}; {task.command}")
    return lines
