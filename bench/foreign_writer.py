"""A foreign writer beside the committer: delta-rs commits to the same table once a second."""

import multiprocessing as mp
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from bench.delta_rs_writers import add_of

EVERY_S: Final = 1.0
READY_TIMEOUT_S: Final = 60.0


@dataclass
class Written:
    """The result: the paths of its commits, and calls that failed after its own retries."""

    committed: list[str] = field(default_factory=list)
    gave_up: int = 0


class ForeignWriter:
    """The writer as a process, from its first commit on."""

    def __init__(self, root: str, options: Mapping[str, str]) -> None:
        self._place = root, dict(options)
        self.written = Written()

    def __enter__(self) -> Self:
        context = mp.get_context("forkserver")
        self._ready, self._stop, self._found = context.Event(), context.Event(), context.Queue()
        process_args = (self._place, self._ready, self._stop, self._found)
        self._process = context.Process(target=_write, args=process_args)
        self._process.start()
        assert self._ready.wait(READY_TIMEOUT_S), "the foreign writer opens the table"
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self.written = self._found.get(timeout=READY_TIMEOUT_S)
        self._process.join()


def _write(place: tuple[str, dict[str, str]], ready: Any, stop: Any, results: Any) -> None:
    table = DeltaTable(place[0], storage_options=place[1] or None)
    schema = table.schema()
    written = Written()
    ready.set()
    number = 0
    while not stop.is_set():
        began_s = time.perf_counter()
        number += 1
        path = f"month=2/foreign-{number:09d}.parquet"
        try:
            table.update_incremental()
            table.create_write_transaction([add_of(path)], "append", schema, ["month"])
        except DeltaError:
            written.gave_up += 1
        else:
            written.committed.append(path)
        stop.wait(max(0.0, EVERY_S - (time.perf_counter() - began_s)))
    results.put(written)
