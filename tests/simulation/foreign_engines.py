"""Other engines on the same tables: they write versions of their own and clean up logs."""

import json
from typing import Any, Final
from urllib.parse import unquote

from tests import builders
from tests.checkpoints import put_classic
from tests.simulation.faulty_dependencies import LIFE_S
from tests.simulation.history import Log, commit_path, info_of, paths_of
from tests.simulation.row_writers import exchange, removal
from tests.simulation.run_state import PUT_DEADLINE_S, VIEW_AGE_S, Stage
from tests.simulation.tables import TABLES, Table
from tidegate_delta.log.file_names import Version
from tidegate_runtime.table_io.checkpoint_writer import move_hint_forward
from tidegate_runtime.table_io.open_table import open_snapshot

RETENTION_S: Final = 2 * (VIEW_AGE_S + PUT_DEADLINE_S + LIFE_S)
"""Age at which a version may be cleaned up; no snapshot in use and no PUT may be half as old."""

HALF_WRITTEN: Final = (
    "{version:020d}.json.{id}.tmp",
    ".{version:020d}.json.{id}.tmp",
    "_commit_{id}.json.tmp",
    "{version:020d}.checkpoint.parquet.{id}.tmp",
    "{version:020d}.checkpoint.parquet",
    "{version:020d}.checkpoint.{id}.parquet",
    "{version:020d}.checkpoint.0000000001.0000000002.parquet",
    "{version:020d}.crc",
    ".{version:020d}.json.crc",
    "_last_checkpoint",
)
"""Files of engines that died or are about to rename; auxiliary files may have a final name."""

VACUUM_S: Final = 7 * 24 * 60 * 60.0
"""Age at which vacuum deletes a file."""


def append(stage: Stage) -> None:
    """Another engine appends a file."""
    table = stage.dice.choice(TABLES)
    path = stage.data_file(table, f"other{stage.next()}")
    _commit(stage, table, [builders.add(path)], isBlindAppend=True)


def delete(stage: Stage) -> None:
    """Another engine removes a file that it has just seen."""
    table = stage.dice.choice(TABLES)
    live = list(stage.log(table).live)
    if live:
        gone = removal(stage.log(table).live, stage.dice.choice(live))
        _commit(stage, table, [gone], operation="DELETE")


def delete_rows(stage: Stage) -> None:
    """Another engine deletes rows of a file by a deletion vector, or restores some."""
    table = stage.dice.choice(TABLES)
    rows = exchange(stage.dice, stage.stores[table.root], stage.log(table).live)
    if rows:
        _commit(stage, table, rows, operation="DELETE")


def set_property(stage: Stage) -> None:
    """Another engine changes a table property."""
    table = stage.dice.choice(TABLES)
    stage.look()
    if stage.log(table).head < 0:
        return
    body = json.loads(json.dumps(stage.log(table).metadata))
    body["configuration"]["note"] = f"other-{stage.next()}"
    _commit(stage, table, [{"metaData": body}], operation="SET TBLPROPERTIES")


def clean_up(stage: Stage) -> None:
    """Another engine writes a checkpoint and deletes published versions before it."""
    stage.look()
    _clean_up(stage, stage.dice.choice(TABLES))


def clean_up_everywhere(stage: Stage) -> None:
    """Clean up every table."""
    stage.look()
    for table in TABLES:
        _clean_up(stage, table)


def vacuum(stage: Stage) -> None:
    """Another engine deletes the old files that no version refers to."""
    stage.look()
    table = stage.dice.choice(TABLES)
    log, before_s = stage.log(table), stage.clock.boot - VACUUM_S
    young = [v for v, at in enumerate(log.appeared_s) if at >= before_s]
    left = (path for version in young for path in paths_of(log.entries[version], "remove"))
    needed = {unquote(path) for path in (*left, *log.live)}
    for root, path in list(stage.born_s):
        if root != table.root or stage.born_s[root, path] >= before_s:
            continue
        if path not in needed:
            stage.stores[root].delete(path)
            del stage.born_s[root, path]


def litter(stage: Stage) -> None:
    """Another engine dies within a write, or is within one: the log holds a partial file."""
    stage.look()
    table = stage.dice.choice(TABLES)
    log, store = stage.log(table), stage.stores[table.root]
    if log.head < 0:
        return
    version = stage.dice.randint(log.floor, log.head + 1)
    whole = store.files[commit_path(min(version, log.head))]
    half = whole[: stage.dice.randrange(len(whole))]
    name = stage.dice.choice(HALF_WRITTEN).format(version=version, id=stage.new_id())
    if version > log.head and not name.endswith(".tmp"):
        return
    path = f"_delta_log/{name}"
    if path not in store.files:
        store.put(path, half)


def _clean_up(stage: Stage, table: Table) -> None:
    log, store = stage.log(table), stage.stores[table.root]
    old = [at for at in log.appeared_s if at < stage.clock.boot - RETENTION_S]
    kept = min(len(old), log.head, stage.history.published_through(table.root) + 1)
    if kept <= log.floor:
        return
    snapshot = open_snapshot(store, Version(kept))
    move_hint_forward(store, put_classic(store, snapshot, stage.clock.now_ms()))
    for version in range(log.floor, kept):
        store.delete(commit_path(version))
    log.floor = kept


def _commit(stage: Stage, table: Table, rows: list[dict[str, Any]], **info: Any) -> None:
    stage.look()
    log = stage.log(table)
    if log.head < 0:
        return
    result = builders.info(**info)
    if "delta.enableInCommitTimestamps" in table.properties:
        after = max(stage.clock.now_ms(), _time_of(log) + 1)
        result["commitInfo"] = {"inCommitTimestamp": after, **result["commitInfo"]}
    stage.foreign_put(table, [result, *rows])


def _time_of(log: Log) -> int:
    return int(info_of(log.entries[-1]).get("inCommitTimestamp", 0))
