"""One checkpoint or vacuum by us, in a fresh process: `program WAY FOLDER MORE`.

MORE is a folder of commits that come after the table was opened. The cost is printed as JSON; its
extra is the size of what was written, in MB.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from bench.measured import Counted, add_commits, measure
from tidegate_checkpointer.summary_writers import write_checkpoint
from tidegate_delta.log.file_names import LOG_FOLDER, SIDECAR_FOLDER, commit_name, in_log
from tidegate_producers.vacuum.vacuum import Claims, VacuumRequest, survey
from tidegate_runtime.clock import SystemClock
from tidegate_runtime.service import arrow_setup
from tidegate_runtime.storage.open_store import open_store
from tidegate_runtime.table_io.checkpoint_writer import CODEC, WrittenCheckpoint
from tidegate_runtime.table_io.stored_checkpoint import follow, load_state

Work = Callable[[], Counted]
MB: Final = 1e6


def written(folder: str, commits_folder: str) -> Work:
    """Write the checkpoint of a table that is followed already."""
    store = open_store(folder)
    state = load_state(store)
    return lambda: _counted(write_checkpoint(store, state, SystemClock()))


def opened_and_written(folder: str, commits_folder: str) -> Work:
    """Open a table and write its checkpoint."""
    store = open_store(folder)
    return lambda: _counted(write_checkpoint(store, load_state(store), SystemClock()))


def followed(folder: str, commits_folder: str) -> Work:
    """Read some new commits of a table that is followed, and write the checkpoint after them.

    The one before was written by us, too.
    """
    store = open_store(folder)
    before = write_checkpoint(store, load_state(store), SystemClock()).state
    add_commits(commits_folder, folder)
    count = len(list(Path(commits_folder, LOG_FOLDER).glob("*.json")))

    def write() -> Counted:
        versions = range(before.version + 1, before.version + 1 + count)
        contents = [store.read(in_log(commit_name(version))) or b"" for version in versions]
        state = follow(store, before, contents)
        return _counted(write_checkpoint(store, state, SystemClock()))

    return write


def rewritten(folder: str, commits_folder: str) -> Work:
    """Read and write again, by Arrow alone, as many sidecars as the new commits touch.

    Their number is in the file `touched` in MORE.
    """
    count = int(Path(commits_folder, "touched").read_text(encoding="ascii"))
    sidecars = sorted(Path(folder, LOG_FOLDER, SIDECAR_FOLDER).iterdir())[:count]

    def write() -> int:
        for path in sidecars:
            pq.write_table(pq.read_table(path), Path(commits_folder, path.name), compression=CODEC)
        return count

    return write


def vacuumed(folder: str, commits_folder: str) -> Work:
    """Find the files that no version needs, whatever their age, as the command does."""
    request = VacuumRequest(0.0, checks_retention=False)
    now_ms = SystemClock().now_ms()
    return lambda: survey(open_store(folder), request, Claims(), now_ms).going.num_rows


def _counted(written: WrittenCheckpoint) -> Counted:
    return written.hint.size, written.written_bytes / MB


WAYS = {
    "write": written,
    "open and write": opened_and_written,
    "follow": followed,
    "rewrite": rewritten,
    "vacuum": vacuumed,
}


def main(way: str, folder: str, commits_folder: str = "") -> None:
    """Measure one way."""
    arrow_setup.choose_memory_pool()  # as every service does at its start
    arrow_setup.leave_out_pandas()
    measure(WAYS[way](folder, commits_folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
