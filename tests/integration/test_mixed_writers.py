"""Every kind of writer on one table at once: by proposals, and directly with foreign engines.

The checkpointer runs too, as it does for any table written so often: without it foreign writers
read more of the log with every version. `--versions` sets how many versions they write together;
`make nightly` asks for more.
"""

import json
import logging
import os
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.integration import delta_rs_writer, delta_spark_writer
from tests.integration.conftest import Line
from tests.integration.proposers import Proposer, append_with, create_table, values
from tests.integration.test_committer_processes import (
    check_all,
    check_offsets_are_safe,
    folder_of,
    rows_of,
)
from tests.integration.waiting import until
from tidegate_delta.log.file_names import commit_name, in_log
from tidegate_local.child_processes import Command, ServiceProcess
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.storage.open_store import open_store
from tidegate_runtime.table_io.data_file_reader import read_table
from tidegate_runtime.table_io.open_table import open_snapshot

pytestmark = [pytest.mark.broker, pytest.mark.spark]

PROPOSERS = 16
DELTA_RS = ("rs0", "rs1", "rs2", "rs3")
DELTA_SPARK = "spark"
ROWS_MAX = 10_000_000
VERSIONS_A_S = 6
"""A generous limit, not a measurement."""
LISTING_S = 1e-5
"""What each version may cost every later one: foreign writers list the whole log."""
STEP_S = 0.1
END_S = 120.0
LAST_CALL_S = 1e-2
"""What each version may cost a stopping foreign writer: its last call lists the log repeatedly."""
BETWEEN_RESTS = 200
"""Versions after which all others pause for delta-spark."""
LEAST = 10
"""Fewest commits of a writer that counts as having taken part."""
_log = logging.getLogger(__name__)


@dataclass
class Foreign:
    """A process that writes with another engine, and its report."""

    name: str
    process: ServiceProcess
    account: Path

    def results(self, verb: str) -> dict[int, str | None]:
        """Return the result of each number: None if it succeeded, otherwise the reason."""
        return {line["number"]: line["why"] for line in self._lines() if line["verb"] == verb}

    def open_ends(self) -> set[int]:
        """Return the numbers whose operation failed but may have been committed."""
        if self.name == DELTA_SPARK:
            return set(self.results("append"))
        return {line["number"] for line in self._lines() if line["open"]}

    def _lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.account.read_text("utf-8").splitlines()]

    def lines(self, number: int) -> list[dict[str, Any]]:
        """Return all report lines about a number."""
        return [line for line in self._lines() if line["number"] == number]

    def done(self, verb: str) -> set[int]:
        """Return the numbers whose operation succeeded."""
        return {number for number, why in self.results(verb).items() if why is None}


Start = Callable[[Command], ServiceProcess]


def started(start: Start, program: str | None, name: str, table: Path, signs: Path) -> Foreign:
    """Start a foreign writer; files in a folder tell it to pause or to stop."""
    assert program is not None
    account = signs / f"{name}.jsonl"
    argv = [sys.executable, program, str(table), name, str(account), str(signs)]
    environ = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(sys.path)}
    return Foreign(name, start(Command(name, argv, environ)), account)


@dataclass
class Conductor:
    """Watches the table grow, and pauses the other writers at times until delta-spark has
    committed.

    Between reading and its PUT delta-spark takes longer than others take for several versions, so
    beside writers that never pause it always loses.
    """

    table: Path
    signs: Path
    may_write: threading.Event
    foreign: list[Foreign]
    head: int = 0

    def let_write(self, wanted: int) -> None:
        """Wait until the table has so many versions."""
        self.may_write.set()
        until_s = time.monotonic() + END_S + wanted / VERSIONS_A_S + wanted**2 * LISTING_S
        rests, result = 0, 0
        while self.newest_version() < wanted:
            self._check_all_live()
            if self.head // BETWEEN_RESTS > rests:
                rests += 1
                _log.info("version %d of %d", self.head, wanted)
                result = self._rest()
            assert time.monotonic() < until_s, f"{self.head} versions only, {result} by delta-spark"
            time.sleep(STEP_S)

    def newest_version(self) -> int:
        """Return the newest version."""
        while (self.table / in_log(commit_name(self.head + 1))).exists():
            self.head += 1
        return self.head

    def stop(self) -> None:
        """Tell all writers to stop."""
        (self.signs / "stop").touch()
        self.may_write.set()

    def _rest(self) -> int:
        spark = self.foreign[0]
        before = len(spark.results("append"))
        self.may_write.clear()
        (self.signs / "rest").touch()
        until(lambda: self._has_appended(spark, before), "delta-spark's turn")
        (self.signs / "rest").unlink()
        self.may_write.set()
        return before + 1

    def _has_appended(self, spark: Foreign, before: int) -> bool:
        self._check_all_live()
        return len(spark.results("append")) > before

    def _check_all_live(self) -> None:
        for item in self.foreign:
            child = item.process.child
            assert child.is_alive(), f"{item.name} ended:\n{child.tail()}"


def check_rows(table: TableRecord, proposers: list[Proposer], foreign: list[Foreign]) -> None:
    """Fail unless the table has exactly the rows that its writers reported, by two readers.

    A proposer's rows were all committed. No row of a foreign writer's failed operation is there,
    unless the failure may have come after the commit: that is open.
    """
    result = Counter(rows_of(table))
    store = open_store(table.table_root)
    read = read_table(store, open_snapshot(store)).to_pylist()
    assert Counter((row["writer"], row["number"]) for row in read) == result, "readers disagree"
    doubled = {row: count for row, count in result.items() if count > 1}
    assert not doubled, f"doubled: {doubled}"

    wanted = {(proposer.name, number) for proposer in proposers for number in range(proposer.count)}
    open_ends: set[tuple[str, int]] = set()
    for item in foreign:
        kept = item.done("append") - item.done("delete")
        is_open = item.open_ends()
        if item.name != DELTA_SPARK:
            kept -= is_open
        wanted |= {(item.name, number) for number in kept}
        open_ends |= {(item.name, number) for number in is_open}
    assert not wanted - result.keys(), f"lost: {sorted(wanted - result.keys())[:20]}"
    extra = result.keys() - wanted - open_ends
    stories = [story(folder_of(table), row, foreign) for row in sorted(extra)[:5]]
    assert not extra, "nobody was told of:\n" + "\n".join(stories)


def story(table: Path, row: tuple[str, int], foreign: list[Foreign]) -> str:
    """Return what the log, its checkpoints and the row's writer say of it, one line each."""
    writer, number = row
    result = [line for item in foreign if item.name == writer for line in item.lines(number)]
    logged = [
        (path.name, next(iter(line.items())))
        for path in sorted(table.glob("_delta_log/*.json"))
        for line in map(json.loads, path.read_text("utf-8").splitlines())
    ]
    files = {
        action["path"]
        for _, (kind, action) in logged
        if kind == "add"
        if json.loads(action.get("stats") or "{}").get("minValues")
        == {"writer": writer, "number": number}
    }
    actions = [one for one in logged if one[1][1].get("path") in files]
    checkpoints = [
        (path.name, kind)
        for path in sorted(table.glob("_delta_log/*.checkpoint.parquet"))
        for kind, paths in pq.read_table(path, columns=["add", "remove"]).to_pydict().items()
        if files & {path["path"] for path in paths if path is not None}
    ]
    return f"{row} of {files}: told {result}; log {actions}; checkpoints {checkpoints}"


@pytest.mark.skipif(shutil.which("java") is None, reason="no Java: delta-spark can't write")
@pytest.mark.timeout(0)
def test_writers_of_all_kinds_share_a_table_and_no_row_is_lost_or_doubled(
    line: Line, process: Start, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    wanted: int = pytestconfig.getoption("versions")
    # Grouping would make few versions of many proposals; this test needs many versions.
    line.started("committer", committer={"group_members_max": "1", "external_probe_s": "0.5"})
    line.started("checkpointer")
    table = create_table(line.kafka, line.tables / "t", {"delta.checkpointInterval": "100"})
    folder = folder_of(table)
    spark = started(process, delta_spark_writer.__file__, DELTA_SPARK, folder, tmp_path)
    until(
        lambda: spark.account.exists() or not spark.process.child.is_alive(), "delta-spark's start"
    )
    if spark.process.child.exit_status() == delta_spark_writer.NO_JAR:
        pytest.skip("delta-spark's jar can't be had: no Maven repository answers")
    rs = [started(process, delta_rs_writer.__file__, item, folder, tmp_path) for item in DELTA_RS]
    foreign = [spark, *rs]
    conductor = Conductor(folder, tmp_path, threading.Event(), foreign)
    proposers = append_with(line.kafka, table, PROPOSERS, ROWS_MAX, may_write=conductor.may_write)
    try:
        conductor.let_write(wanted)
    finally:
        for proposer in proposers:
            proposer.enough.set()
        conductor.stop()
    for proposer in proposers:
        proposer.join(END_S)
    for one in foreign:
        patience_s = END_S + wanted * LAST_CALL_S
        assert one.process.child.wait(patience_s) == 0, one.process.child.tail()

    head = conductor.newest_version()
    assert head >= wanted
    until(lambda: len(values(line.kafka, line.kafka.topics.commits)) > head, "the last records")
    check_rows(table, proposers, foreign)
    check_all(line, table, proposers)
    check_offsets_are_safe(line)
    authors = Counter(value["author"] for value in values(line.kafka, line.kafka.topics.commits))
    shares = {one.name: len(one.done("append")) for one in foreign}
    _log.info("versions by author: %s; by foreign writer: %s", dict(authors), shares)
    least = min(LEAST, wanted // BETWEEN_RESTS // 2)
    absent = {name: count for name, count in shares.items() if count < least}
    assert not absent, f"hardly there: {absent}"
