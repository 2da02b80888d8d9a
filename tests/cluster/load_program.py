"""Writers in a pod of the cluster, with nothing but what the committer's image has.

    load_program.py write ROOT WRITERS    appends until the file STOP is there
    load_program.py changes NAME COUNT    waits until a copy of the table has so many rows

A writer appends one row a commit, numbered from 0. A number is written again, under the same
`txnVersion`, until its outcome is known: so it stands in the table once, whatever was killed. Each
number that is in the table gives a line: {"writer", "number", "began_s", "took_s", "tries"}.
"""

import sys
import threading
import time
from pathlib import Path

import orjson
import pyarrow as pa

from tidegate import Client, OutcomeUnknown, Unavailable, changes
from tidegate_runtime.service.settings import ServiceSettings, load

NAME = "load"
STOP = Path("/tmp/stop")
PATIENCE_S = 300.0
_said = threading.Lock()


def emit(**fields: object) -> None:
    """Print a line of JSON at once."""
    with _said:
        sys.stdout.write(orjson.dumps(fields).decode() + "\n")
        sys.stdout.flush()


def storage() -> dict[str, str]:
    """Return the options of the store that the environment names."""
    return {f"storage.{k}": v for k, v in load(ServiceSettings, None, {}).storage.items()}


def client_of(writer: str) -> Client:
    """Return the client of a writer, whose batches are the numbers of its rows."""
    options = {**storage(), "name": NAME, "outcomeTimeout": "60s"}
    return Client(options=options, application=writer)


def append(client: Client, root: str, writer: str, number: int) -> None:
    """Append one row, and return once its commit is known."""
    rows = pa.table({"writer": [writer], "number": [number]})
    began_s = time.time()
    for tries in range(1, 100):
        try:
            client.append(root, rows, batch_id=number)
        except (OutcomeUnknown, Unavailable) as error:
            emit(writer=writer, number=number, again=str(error))
            continue
        took_s = time.time() - began_s
        emit(writer=writer, number=number, began_s=began_s, took_s=took_s, tries=tries)
        return
    sys.exit(f"{writer}: number {number} has no outcome")


def write(root: str, writers: int) -> None:
    """Append with so many threads until STOP is there."""

    def work(writer: str) -> None:
        number = 1
        with client_of(writer) as client:
            while not STOP.exists():
                append(client, root, writer, number)
                number += 1

    with client_of("first") as client:
        append(client, root, "first", 0)
    threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    emit(end=True)
    # The pod stays, so that changes can be counted in it.
    threading.Event().wait()


def count_changes(name: str, count: int) -> None:
    """Wait until a copy made of the table's changes has so many rows, and print how many it has."""
    end_s = time.monotonic() + PATIENCE_S
    result = 0
    while result < count and time.monotonic() < end_s:
        with changes.follow(name, load(ServiceSettings, None, {}).kafka) as stream:
            copy = changes.TableCopy()
            for change in stream.changes(quiet_s=5):
                copy.apply(change)
            result = len(copy.rows)
    emit(rows=result)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2], int(sys.argv[3]))
    else:
        count_changes(sys.argv[2], int(sys.argv[3]))
