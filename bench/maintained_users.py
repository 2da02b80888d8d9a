"""How long users wait for their commits beside a maintainer, by how long without one.

Clients append rows to one table all the time. A maintainer's process packs what they write, and is
suspended in every other slice of the run, so that both have the same table, load and machine.
"""

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa

from bench.figures import Figure, percentile
from tidegate_local.child_processes import Command, ServiceProcess, service_argv, service_process
from tidegate_local.local_stack import LocalStack
from tidegate_producers.client import Client

USERS: Final = 4
PAUSE_S: Final = 0.05
SLICE_S: Final = 10.0
SLICES: Final = 6
"""Of each kind in a round, after one of each that is not counted."""

ROWS: Final = 100
RATIO_MAX: Final = 1.05
NAME: Final = "users"
_PROPERTIES: Final = {"delta.checkpointInterval": "100"}

Waits = dict[bool, list[float]]
"""The seconds that users waited for each commit, beside a maintainer and without."""


def figure(stack: LocalStack, folder: Path, rounds: int) -> Figure:
    """Return the p99 of users beside a maintainer, by that without."""
    root, waits = str(folder / "tables" / NAME), Waits({True: [], False: []})
    with Client(stack.kafka.bootstrap_servers) as client:
        client.create(root, _rows(0).schema, properties=_PROPERTIES, name=NAME)
    with _maintainer(stack, folder) as maintainer:
        _measure(stack, root, maintainer, waits, 2 * (SLICES * rounds + 1))
    beside, without = (percentile(waits[kind], 99) for kind in (True, False))
    ratio = beside / without if without else 0.0
    return Figure(
        f"p99 of {USERS} users' appends beside a maintainer",
        f"{1000 * beside:.0f} ms of {len(waits[True])}, {_median_ms(waits[True]):.0f} ms p50",
        f"without {1000 * without:.0f} ms of {len(waits[False])}, "
        f"{_median_ms(waits[False]):.0f} ms p50",
        ratio,
        f"<= {RATIO_MAX}",
        is_met=ratio <= RATIO_MAX,
        recorded=None,
    )


def _measure(
    stack: LocalStack, root: str, maintainer: ServiceProcess, waits: Waits, slices: int
) -> None:
    """Let users append, and suspend the maintainer in every other slice."""
    over, pace, is_counted, is_beside = (threading.Event() for _ in range(4))

    def append(user: int) -> None:
        with Client(stack.kafka.bootstrap_servers) as client:
            turn = 0
            while not over.wait(PAUSE_S):
                began_s, kind = time.perf_counter(), is_beside.is_set()
                client.append(root, _rows(user + USERS * turn))
                if is_counted.is_set() and kind == is_beside.is_set():
                    waits[kind].append(time.perf_counter() - began_s)
                turn += 1

    with ThreadPoolExecutor(USERS) as pool:
        users = [pool.submit(append, user) for user in range(USERS)]
        try:
            for number in range(slices):
                _switch(maintainer, is_beside, on=number % 2 == 0)
                if number == 2:
                    is_counted.set()
                pace.wait(SLICE_S)
        finally:
            over.set()
            _switch(maintainer, is_beside, on=True)
        for user in users:
            user.result()


def _switch(maintainer: ServiceProcess, is_beside: threading.Event, *, on: bool) -> None:
    maintainer.child.signal(signal.SIGCONT if on else signal.SIGSTOP)
    (is_beside.set if on else is_beside.clear)()


@contextmanager
def _maintainer(stack: LocalStack, folder: Path) -> Iterator[ServiceProcess]:
    given = {
        "kafka.bootstrap_servers": stack.kafka.bootstrap_servers,
        "maintain.tables": NAME,
        "maintain.file_age_s": "0",
        "maintain.pause_s": "1",
    }
    argv = service_argv("producers.maintenance", overrides=given)
    service = service_process(Command("maintain-users", argv), folder)
    service.start()
    try:
        service.wait_ready()
        yield service
    finally:
        service.child.stop()


def _rows(number: int) -> pa.Table:
    ids = range(number * ROWS, (number + 1) * ROWS)
    return pa.table({"id": list(ids), "kind": [f"k{id % 7}" for id in ids]})


def _median_ms(values: Sequence[float]) -> float:
    return 1000 * percentile(values, 50)
